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
        let limits = &spec.limits;
        let mut lowered = Vec::new();
        let mut lower = |name: &'static str, asked: String, instead: String| {
            lowered.push(Lowered { name, asked, instead });
        };
        // What the platform has switched off stays off.
        if self.assist == Some(true) && !spec.assist {
            lower("assist", "on".to_owned(), "off".to_owned());
            self.assist = Some(false);
        }
        if self.sparse_copies == Some(true) && !spec.repair.sparse_copies && !limits.sparse_copies {
            lower("sparse-copies", "on".to_owned(), "off".to_owned());
            self.sparse_copies = Some(false);
        }
        // The schema does not admit other texts; the default of a route applies then.
        let size = |own: &String, limit: &Option<String>| {
            parse_size(limit.as_ref().unwrap_or(own)).unwrap_or(u64::MAX)
        };
        let most_total = size(&spec.cache.bytes_total, &limits.cache_bytes_total);
        // A session's cache above the total would raise that.
        let most_per_session =
            size(&spec.cache.bytes_per_session, &limits.cache_bytes_per_session).min(most_total);
        cap(
            "cache-bytes-per-session",
            &mut self.cache_bytes_per_session,
            most_per_session,
            &mut lower,
        );
        cap("cache-bytes-total", &mut self.cache_bytes_total, most_total, &mut lower);
        cap(
            "repair-budget-percent",
            &mut self.repair_budget_percent,
            most(limits.repair_budget_percent, spec.repair.budget_percent),
            &mut lower,
        );
        cap(
            "sessions-per-source",
            &mut self.sessions_per_source,
            most(limits.sessions_per_source, spec.sessions.per_source),
            &mut lower,
        );
        cap(
            "handshakes-per-second-per-source",
            &mut self.handshakes_per_second_per_source,
            most(
                limits.handshakes_per_second_per_source,
                spec.sessions.handshakes_per_second_per_source,
            ),
            &mut lower,
        );
        cap(
            "idle-timeout-seconds",
            &mut self.idle_timeout_seconds,
            most(limits.idle_timeout_seconds, spec.sessions.idle_timeout_seconds),
            &mut lower,
        );
        cap(
            "maximum-sessions",
            &mut self.maximum_sessions,
            most(limits.maximum_sessions, spec.sessions.maximum),
            &mut lower,
        );
        let least =
            limits.residual_loss_per_million.unwrap_or(spec.last_mile.residual_loss_per_million);
        let least = u32::try_from(least).unwrap_or_default();
        if let Some(asked) = self.residual_loss_per_million.filter(|asked| *asked < least) {
            lower("residual-loss-per-million", asked.to_string(), least.to_string());
            self.residual_loss_per_million = Some(least);
        }
        let own = spec.tokens.policy;
        if let Some(asked) = self.tokens
            && strictness(asked) < strictness(own)
            && !limits.weaker_tokens
        {
            lower("tokens", asked.to_string(), own.to_string());
            self.tokens = Some(own);
        }
        (self, lowered)
    }
}

/// The most that Services may ask for: the limit, or the EdgeGateway's own setting.
fn most<T: TryFrom<i32> + Default>(limit: Option<i32>, own: i32) -> T {
    T::try_from(limit.unwrap_or(own)).unwrap_or_default()
}

/// Lowers a setting above `most` to that, and reports it to `lower`.
fn cap<T: Copy + Ord + ToString>(
    name: &'static str,
    setting: &mut Option<T>,
    most: T,
    lower: &mut impl FnMut(&'static str, String, String),
) {
    if let Some(asked) = setting.filter(|asked| *asked > most) {
        lower(name, asked.to_string(), most.to_string());
        *setting = Some(most);
    }
}

/// The order of policies by their demands on clients.
const fn strictness(policy: TokenPolicy) -> u8 {
    match policy {
        TokenPolicy::Off => 0,
        TokenPolicy::Optional => 1,
        TokenPolicy::Required => 2,
    }
}
