//! Limits of an `EdgeGateway` for its Services: ports, endpoints, and settings by annotation.

use packrat_api::token::TokenPolicy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EdgeGatewaySpec, NamespacesFrom, RouteNamespaces};
use crate::names::CONFIG_PREFIX;
use crate::overrides::{Overrides, knob};
use crate::size::parse_size;

/// The most that Services may ask for by annotation, and Gateways of a class by parameters of their
/// own. A limit that is not set is the EdgeGateway's
/// own setting: without any, Services can only lower what the EdgeGateway has.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Most bytes of the cache per session. Default: spec.cache.bytesPerSession.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self.matches('^[1-9][0-9]{0,14}(Ki|Mi|Gi)?$')", "message": "write whole bytes or Ki, Mi or Gi, at least 1, for example 512Ki or 1Mi" },
    ]))]
    #[schemars(length(max = 20))]
    pub cache_bytes_per_session: Option<String>,
    /// Most bytes of all sessions of one route in one gateway Pod. Default: spec.cache.bytesTotal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self.matches('^[1-9][0-9]{0,14}(Ki|Mi|Gi)?$')", "message": "write whole bytes or Ki, Mi or Gi, at least 1, for example 256Mi or 1Gi" },
    ]))]
    #[schemars(length(max = 20))]
    pub cache_bytes_total: Option<String>,
    /// Most repairs in percent of the forwarded bytes. Default: spec.repair.budgetPercent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub repair_budget_percent: Option<i32>,
    /// Least residual loss per million: lower targets cost more copies. Default:
    /// spec.lastMile.residualLossPerMillion.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 500_000))]
    pub residual_loss_per_million: Option<i32>,
    /// Longest time in seconds without a datagram after which a session ends. Default:
    /// spec.sessions.idleTimeoutSeconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86_400))]
    pub idle_timeout_seconds: Option<i32>,
    /// Most sessions of one route in one gateway Pod. Default: spec.sessions.maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub maximum_sessions: Option<i32>,
    /// Most assisted sessions of one client address. Default: spec.sessions.perSource.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub sessions_per_source: Option<i32>,
    /// Most assisted sessions that one client address may begin per second. Default:
    /// spec.sessions.handshakesPerSecondPerSource.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub handshakes_per_second_per_source: Option<i32>,
    /// True if Services may ask for copies of sparse flows although spec.repair.sparseCopies is
    /// false: up to twice the traffic of such flows, which no budget of repairs bounds. Default: false.
    pub sparse_copies: bool,
    /// True if Services may ask for less than spec.tokens.policy: off, or optional instead of
    /// required. Default: false.
    pub weaker_tokens: bool,
    /// Labels and annotations that Gateways of a class may put on Pods and Service in addition to the class's
    /// parameters: names, or their beginnings and an asterisk, for example external-dns.example/*. Default:
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub metadata: Vec<String>,
}

impl Limits {
    /// True if Gateways of the class may have a label or an annotation of this name.
    pub(super) fn allow_metadata(&self, name: &str) -> bool {
        self.metadata.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == allowed,
        })
    }
}

/// A range of UDP ports.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self.first <= self.last", "message": "first must not be above last" },
    ]))]
pub struct PortRange {
    /// First port.
    #[schemars(range(min = 1, max = 65_535))]
    pub first: i32,
    /// Last port.
    #[schemars(range(min = 1, max = 65_535))]
    pub last: i32,
}

impl PortRange {
    /// True if a port is in the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&i32::from(port))
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} to {}", self.first, self.last)
    }
}

/// Ports of the gateway, and the namespaces whose Services may have them.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self.first <= self.last", "message": "first must not be above last" },
    ]))]
pub struct PortGrant {
    /// Names of the namespaces. Default: all that spec.routes.from lets in.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub namespaces: Vec<String>,
    /// First port.
    #[schemars(range(min = 1, max = 65_535))]
    pub first: i32,
    /// Last port.
    #[schemars(range(min = 1, max = 65_535))]
    pub last: i32,
}

/// Endpoints of Services.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EndpointsFrom {
    /// Pods of the Service's namespace, in EndpointSlices of Kubernetes' own controller.
    #[default]
    Pods,
    /// Every EndpointSlice of the Service, also EndpointSlices that users have written.
    Any,
}

impl RouteNamespaces {
    /// True if Services of a namespace may use a gateway of the namespace `home`.
    pub fn admits(&self, namespace: &str, home: &str) -> bool {
        self.from == NamespacesFrom::All || namespace == home
    }

    /// True if Services of a namespace may have a port.
    pub fn grants(&self, namespace: &str, port: u16) -> bool {
        self.ports.is_empty()
            || self.ports.iter().any(|grant| {
                (grant.first..=grant.last).contains(&i32::from(port))
                    && (grant.namespaces.is_empty()
                        || grant.namespaces.iter().any(|name| name == namespace))
            })
    }
}

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
