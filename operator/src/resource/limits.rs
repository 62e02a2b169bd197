//! Limits of an `EdgeGateway` for its Services: ports, endpoints, and settings by annotation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
