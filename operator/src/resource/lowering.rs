//! Settings of Services, lowered to their EdgeGateway's limits.

use packrat_api::token::TokenPolicy;

use super::edge_gateway::EdgeGatewaySpec;
use crate::names::CONFIG_PREFIX;
use crate::overrides::{Overrides, knob};
use crate::size::parse_size;

/// A setting that was lowered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lowered {
    /// Name of the setting behind `packrat.dev/config.`.
    name: &'static str,
    asked: String,
    instead: String,
}

impl Lowered {
    /// A part of a sentence, with the name that the setting has in a spec.
    pub(super) fn told(&self) -> String {
        let path = knob(self.name).map_or(self.name, |knob| knob.edge_gateway);
        format!("{path} {} ({} is used)", self.asked, self.instead)
    }
}

impl Overrides {
    /// The limits, as far as an EdgeGateway lets its Services have them, and a sentence about each
    /// that was lowered. `gateway`: its name, for the sentences.
    pub fn within(self, spec: &EdgeGatewaySpec, gateway: &str) -> (Self, Vec<String>) {
        let (kept, lowered) = self.lowered(spec);
        let sentence = |Lowered { name, asked, instead }: Lowered| {
            format!(
                "{CONFIG_PREFIX}{name}: {asked} is not what EdgeGateway {gateway} allows; {instead} is used"
            )
        };
        (kept, lowered.into_iter().map(sentence).collect())
    }

    /// The limits, as far as an EdgeGateway lets its Services have them, and the lowered ones.
    pub(super) fn lowered(mut self, spec: &EdgeGatewaySpec) -> (Self, Vec<Lowered>) {
        let mut lowered = Lowerings(Vec::new());
        self.lower_switches(spec, &mut lowered);
        self.lower_numbers(spec, &mut lowered);
        let own = spec.tokens.policy;
        if let Some(asked) = self.tokens
            && strictness(asked) < strictness(own)
            && !spec.limits.weaker_tokens
        {
            lowered.add("tokens", asked, own);
            self.tokens = Some(own);
        }
        (self, lowered.0)
    }

    /// What the platform has switched off stays off.
    fn lower_switches(&mut self, spec: &EdgeGatewaySpec, lowered: &mut Lowerings) {
        if self.assist == Some(true) && !spec.assist {
            lowered.add("assist", "on", "off");
            self.assist = Some(false);
        }
        let has_copies = spec.repair.sparse_copies || spec.limits.sparse_copies;
        if self.sparse_copies == Some(true) && !has_copies {
            lowered.add("sparse-copies", "on", "off");
            self.sparse_copies = Some(false);
        }
    }

    fn lower_numbers(&mut self, spec: &EdgeGatewaySpec, lowered: &mut Lowerings) {
        let (limits, sessions) = (&spec.limits, &spec.sessions);
        // The schema does not admit other texts; the default of a route applies then.
        let size = |own: &String, limit: &Option<String>| {
            parse_size(limit.as_ref().unwrap_or(own)).unwrap_or(u64::MAX)
        };
        let total = size(&spec.cache.bytes_total, &limits.cache_bytes_total);
        // A session's cache above the total would raise that.
        let session =
            size(&spec.cache.bytes_per_session, &limits.cache_bytes_per_session).min(total);
        lowered.cap("cache-bytes-per-session", &mut self.cache_bytes_per_session, session);
        lowered.cap("cache-bytes-total", &mut self.cache_bytes_total, total);
        let repairs = most(limits.repair_budget_percent, spec.repair.budget_percent);
        lowered.cap("repair-budget-percent", &mut self.repair_budget_percent, repairs);
        let per_source = most(limits.sessions_per_source, sessions.per_source);
        lowered.cap("sessions-per-source", &mut self.sessions_per_source, per_source);
        let handshakes = most(
            limits.handshakes_per_second_per_source,
            sessions.handshakes_per_second_per_source,
        );
        let asked = &mut self.handshakes_per_second_per_source;
        lowered.cap("handshakes-per-second-per-source", asked, handshakes);
        let idle = most(limits.idle_timeout_seconds, sessions.idle_timeout_seconds);
        lowered.cap("idle-timeout-seconds", &mut self.idle_timeout_seconds, idle);
        let maximum = most(limits.maximum_sessions, sessions.maximum);
        lowered.cap("maximum-sessions", &mut self.maximum_sessions, maximum);
        let least =
            most(limits.residual_loss_per_million, spec.last_mile.residual_loss_per_million);
        if let Some(asked) = self.residual_loss_per_million.filter(|asked| *asked < least) {
            lowered.add("residual-loss-per-million", asked, least);
            self.residual_loss_per_million = Some(least);
        }
    }
}

/// Settings that were lowered.
struct Lowerings(Vec<Lowered>);

impl Lowerings {
    fn add(&mut self, name: &'static str, asked: impl ToString, instead: impl ToString) {
        let (asked, instead) = (asked.to_string(), instead.to_string());
        self.0.push(Lowered { name, asked, instead });
    }

    /// Lowers a setting above `most` to that.
    fn cap<T: Copy + Ord + ToString>(
        &mut self,
        name: &'static str,
        setting: &mut Option<T>,
        most: T,
    ) {
        if let Some(asked) = setting.filter(|asked| *asked > most) {
            self.add(name, asked, most);
            *setting = Some(most);
        }
    }
}

/// The most that Services may ask for: the limit, or the EdgeGateway's own setting.
fn most<T: TryFrom<i32> + Default>(limit: Option<i32>, own: i32) -> T {
    T::try_from(limit.unwrap_or(own)).unwrap_or_default()
}

/// The order of policies by their demands on clients.
const fn strictness(policy: TokenPolicy) -> u8 {
    match policy {
        TokenPolicy::Off => 0,
        TokenPolicy::Optional => 1,
        TokenPolicy::Required => 2,
    }
}
