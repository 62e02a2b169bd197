//! `EdgeGateway`: a set of Envoys at the cluster's edge.

use kube::CustomResource;
use packrat_api::affinity::Affinity;
use packrat_api::route::default;
use packrat_api::sender::SenderKind;
use packrat_api::token::TokenPolicy;
use packrat_api::token_endpoint;
use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use super::edge_gateway_status::EdgeGatewayStatus;
use super::exposure::Exposure;
use super::limits::{EndpointsFrom, Limits, PortGrant, PortRange};
use super::pod_settings::Workload;
use super::schema::join_lines;
use super::tcp::TcpPolicy;
use super::terminate::TerminatePolicy;

/// The class of operators that an EdgeGateway is for unless it names another.
pub const DEFAULT_CLASS: &str = "packrat";

/// A set of Envoy gateways at the cluster's edge that forward UDP to Services and repair what the
/// last mile loses.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "packrat.dev",
    version = "v1alpha1",
    kind = "EdgeGateway",
    plural = "edgegateways",
    shortname = "egw",
    category = "packrat",
    namespaced,
    status = "EdgeGatewayStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A set of Envoy gateways at the cluster's edge that forward UDP to Services and repair what the last mile loses.",
    validation = Rule::new("size(self.metadata.name) <= 40").message("metadata.name is longer than 40 characters, and other names are made from it; choose a shorter one"),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("metadata.name must be made of a-z, 0-9 and -, as names of Services are"),
    printcolumn(json_path = ".spec.exposure.type", name = "Exposure", type_ = "string"),
    printcolumn(json_path = ".status.addresses[0]", name = "Address", type_ = "string"),
    printcolumn(json_path = ".status.attachedRoutes", name = "Routes", type_ = "integer"),
    printcolumn(json_path = ".status.conditions[?(@.type==\"Accepted\")].status", name = "Accepted", type_ = "string"),
    printcolumn(json_path = ".status.conditions[?(@.type==\"Programmed\")].status", name = "Programmed", type_ = "string"),
    printcolumn(json_path = ".status.conditions[?(@.type==\"Ready\")].status", name = "Ready", type_ = "string"),
    printcolumn(json_path = ".status.sessions", name = "Sessions", type_ = "integer", priority = 1),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(transform = RecursiveTransform(join_lines))]
#[schemars(extend("x-kubernetes-validations" = spec_rules()))]
pub struct EdgeGatewaySpec {
    /// The class of operators that this EdgeGateway is for, as in the value class of a release of
    /// the chart. Operators of other classes leave it alone. Default: packrat.
    #[schemars(length(max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub class: String,
    /// False: all clients are forwarded without assistance, and current assistance ends. Routes can
    /// switch it off for themselves with packrat.dev/config.assist. Default: true.
    pub assist: bool,
    /// Exposure of the gateways to clients.
    pub exposure: Exposure,
    /// Kind, number, placement and resources of the gateways' Pods.
    pub workload: Workload,
    /// The Envoy that runs.
    pub envoy: Envoy,
    /// Memory for datagrams that may have to be sent again. Routes can override it with
    /// packrat.dev/config.cache-bytes-per-session and packrat.dev/config.cache-bytes-total.
    pub cache: Cache,
    /// Limits of the cost of repairs.
    pub repair: Repair,
    /// Limits of sessions. A session is one client address and port.
    pub sessions: Sessions,
    /// Congestion control of the servers. BBR (BBRv2, BBRv3): up to 3 % of losses on the last mile
    /// are left to the server, which tolerates them. BBR1 (BBRv1): all are. LossBased (CUBIC,
    /// NewReno): losses are repaired, and hidden meanwhile. Any: as LossBased, unless sessions of
    /// three networks have found that the servers tolerate losses. Routes can set their own with
    /// packrat.dev/config.sender. Default: Any.
    #[serde(with = "SenderKindName")]
    pub sender: SenderKind,
    /// Tokens, which permit clients to be assisted.
    pub tokens: Tokens,
    /// TCP connections to the ports of routes, for clients that find UDP blocked, and browsers,
    /// which come by TCP first. Off: they are not passed through. Allowed: routes that ask with
    /// packrat.dev/tcp have them passed through, to the TCP port of their Service that has the
    /// number of the UDP port. Passthrough: the same for all routes with such a port, unless
    /// packrat.dev/tcp is off. Default: Off.
    pub tcp: TcpPolicy,
    /// Connections of clients that end at the gateways, which ask the servers over HTTP/1.1 or HTTP/2. Off:
    /// connections do not end there. Allowed: Services may ask for it with packrat.dev/mode: terminate, and
    /// name the Secret of a certificate with packrat.dev/certificate. Default: Off.
    pub terminate: TerminatePolicy,
    /// Live streams with many receivers.
    pub multicast: MulticastStreams,
    /// Shutdown of a gateway.
    pub drain: Drain,
    /// Export of measurements, beside the page that Prometheus reads.
    pub telemetry: Telemetry,
    /// Namespaces whose Services may use this gateway, with their ports and endpoints.
    pub routes: RouteNamespaces,
    /// The most that Services may ask for by annotation.
    pub limits: Limits,
}

/// Rules of the API server for the specs of an EdgeGateway and of GatewayParameters.
pub(super) fn spec_rules() -> serde_json::Value {
    serde_json::json!([
        { "rule": "self.exposure.type != 'HostNetwork' || !has(self.workload.autoscaling)", "message": "spec.workload.autoscaling has no use with exposure HostNetwork: one gateway fits on a node; remove it" },
        { "rule": "self.tokens.policy == 'Off' || has(self.tokens.tls)", "message": "spec.tokens.policy Optional and Required need spec.tokens.tls.secretName: tokens are given out over TLS; name a Secret of type kubernetes.io/tls" },
    ])
}

impl Default for EdgeGatewaySpec {
    fn default() -> Self {
        Self {
            class: DEFAULT_CLASS.to_owned(),
            assist: true,
            exposure: Exposure::default(),
            workload: Workload::default(),
            envoy: Envoy::default(),
            cache: Cache::default(),
            repair: Repair::default(),
            sessions: Sessions::default(),
            sender: SenderKind::Any,
            tokens: Tokens::default(),
            tcp: TcpPolicy::default(),
            terminate: TerminatePolicy::default(),
            multicast: MulticastStreams::default(),
            drain: Drain::default(),
            telemetry: Telemetry::default(),
            routes: RouteNamespaces::default(),
            limits: Limits::default(),
        }
    }
}

/// The Envoy that runs.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Envoy {
    /// Image with Envoy and Packrat's filters, one that the operator was installed to allow.
    /// Default: the one that the operator was installed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Always, IfNotPresent or Never. Default: what Kubernetes chooses for the tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(Always|IfNotPresent|Never)$"))]
    pub image_pull_policy: Option<String>,
    /// Secrets for the registry, as in a Pod. Default: those that the operator was installed with.
    pub image_pull_secrets: Vec<SecretName>,
    /// Envoy's worker threads. Default: one per processor that the container may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 256))]
    pub workers: Option<i32>,
    /// Envoy's log level. Default: warning; Packrat's own log is at info.
    pub log_level: LogLevel,
}

impl Default for Envoy {
    fn default() -> Self {
        Self {
            image: None,
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            workers: None,
            log_level: LogLevel::Warning,
        }
    }
}

/// A Secret in the EdgeGateway's namespace.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct SecretName {
    /// Its name.
    pub name: String,
}

/// Envoy's log levels.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // they are Envoy's words
pub enum LogLevel {
    Trace,
    Debug,
    Info,
    Warning,
    Error,
    Critical,
    Off,
}

impl LogLevel {
    /// As Envoy writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Off => "off",
        }
    }
}

/// Memory for datagrams that may have to be sent again.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": "!self.bytesPerSession.matches('^[0-9]{1,15}(Ki|Mi|Gi)?$') || !self.bytesTotal.matches('^[0-9]{1,15}(Ki|Mi|Gi)?$') || quantity(self.bytesTotal).compareTo(quantity(self.bytesPerSession)) >= 0", "message": "spec.cache.bytesTotal must be at least spec.cache.bytesPerSession" },
    ]))]
pub struct Cache {
    /// Bytes per session. A bandwidth-delay product of the last mile is enough. Default: 1Mi.
    #[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self.matches('^[1-9][0-9]{0,14}(Ki|Mi|Gi)?$')", "message": "write whole bytes or Ki, Mi or Gi, at least 1, for example 512Ki or 1Mi" },
    ]))]
    #[schemars(length(max = 20))]
    pub bytes_per_session: String,
    /// Bytes of all sessions of one route in one gateway Pod. Leave room for it in
    /// spec.workload.resources. Default: 256Mi.
    #[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self.matches('^[1-9][0-9]{0,14}(Ki|Mi|Gi)?$')", "message": "write whole bytes or Ki, Mi or Gi, at least 1, for example 256Mi or 1Gi" },
    ]))]
    #[schemars(length(max = 20))]
    pub bytes_total: String,
}

impl Default for Cache {
    fn default() -> Self {
        Self { bytes_per_session: "1Mi".to_owned(), bytes_total: "256Mi".to_owned() }
    }
}

/// Limits of the cost of repairs.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Repair {
    /// Repairs in percent of the forwarded bytes, 0 to 1000. Default: 25.
    #[schemars(range(min = 0, max = 1000))]
    pub budget_percent: i32,
    /// True: datagrams of sparse flows (up to 128 kbit/s: audio, games) are sent twice to clients without a
    /// session, 5 ms apart; so are a handshake's first datagrams, and the last datagram before a pause. Only
    /// for protocols that drop duplicates, as QUIC, WebRTC and WireGuard do. Routes can switch it off for
    /// themselves with packrat.dev/config.sparse-copies, and on if spec.limits.sparseCopies lets them.
    /// Default: false.
    pub sparse_copies: bool,
}

impl Default for Repair {
    fn default() -> Self {
        Self { budget_percent: default::REPAIR_BUDGET_PERCENT as i32, sparse_copies: false }
    }
}

/// Limits of sessions.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Sessions {
    /// Sessions of one route in one gateway Pod; datagrams of further clients are dropped.
    /// Default: 25000.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub maximum: i32,
    /// Seconds without a datagram after which a session ends. Default: 120.
    #[schemars(range(min = 1, max = 86_400))]
    pub idle_timeout_seconds: i32,
    /// Assisted sessions of one client address (IPv6: one /64) at the same time. Default: 4096.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub per_source: i32,
    /// The part of a client's address that determines its server. ClientAddress: the address
    /// without the port (IPv6: its /64), so that a client whose port changes finds its server
    /// through every gateway; all clients of one address have one server. ClientPort: address and
    /// port; a client whose port changes keeps its server behind the same gateway only. An assisted
    /// client keeps its server in either case, by a ticket. Routes can set their own with
    /// packrat.dev/config.affinity. Default: ClientAddress.
    #[serde(with = "AffinityName")]
    pub affinity: Affinity,
    /// Clients in percent, 0 to 50, that are refused assistance and forwarded plainly, for comparison:
    /// `packrat stat -o wide` shows the difference, and its certainty. Chosen by address; a client that
    /// returns is treated as before. If assisted clients turn out to be slower, assistance stops by itself.
    /// Routes can set their own with packrat.dev/config.holdout-percent. Default: 0.
    #[schemars(range(min = 0, max = 50))]
    pub holdout_percent: i32,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            maximum: default::MAXIMUM_SESSIONS as i32,
            idle_timeout_seconds: default::IDLE_TIMEOUT_SECONDS as i32,
            per_source: default::SESSIONS_PER_SOURCE as i32,
            affinity: Affinity::Address,
            holdout_percent: 0,
        }
    }
}

/// Tokens, which permit clients to be assisted.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self.rotationHours * 3600 > self.lifetimeSeconds", "message": "spec.tokens.rotationHours must be longer than spec.tokens.lifetimeSeconds: the previous key verifies for one rotation" },
    ]))]
pub struct Tokens {
    /// Off: no client needs a token. Optional: clients without a token are assisted, clients with a
    /// wrong one are not. Required: only clients with a valid token are assisted. All others are
    /// forwarded plainly. Default: Off.
    #[serde(with = "TokenPolicyName")]
    pub policy: TokenPolicy,
    /// Seconds for which a token is good. Default: 300.
    #[schemars(range(min = 10, max = 86_400))]
    pub lifetime_seconds: i32,
    /// Hours after which the operator makes a new key; the previous one verifies for as long
    /// again. Default: 24.
    #[schemars(range(min = 1, max = 8760))]
    pub rotation_hours: i32,
    /// Longest time that datagrams should wait at clients for the repair of an earlier one, in
    /// milliseconds. Default: 1000.
    #[schemars(range(min = 1, max = 10_000))]
    pub maximum_hold_milliseconds: i32,
    /// Tokens are good for the client's network only (/24 of IPv4, /56 of IPv6). Default: false.
    pub bind_to_network: bool,
    /// The certificate of the listener that gives tokens out (GET /.well-known/packrat, TCP, on
    /// the same port numbers as the UDP listeners).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TokenTls>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            policy: TokenPolicy::Off,
            lifetime_seconds: token_endpoint::default::lifetime_seconds() as i32,
            rotation_hours: 24,
            maximum_hold_milliseconds: token_endpoint::default::maximum_hold_ms() as i32,
            bind_to_network: false,
            tls: None,
        }
    }
}

/// Affinities of clients to servers as EdgeGateways write them.
#[derive(JsonSchema, Serialize, Deserialize)]
#[serde(remote = "Affinity")]
enum AffinityName {
    /// The address without its port.
    #[serde(rename = "ClientAddress")]
    Address,
    /// Address and port.
    #[serde(rename = "ClientPort")]
    Port,
}

/// Kinds of senders as EdgeGateways write them.
#[derive(JsonSchema, Serialize, Deserialize)]
#[serde(remote = "SenderKind")]
pub(super) enum SenderKindName {
    /// Not known.
    Any,
    /// CUBIC, NewReno, or any other that answers each loss.
    LossBased,
    /// BBRv2 or BBRv3.
    #[serde(rename = "BBR")]
    Bbr,
    /// BBRv1.
    #[serde(rename = "BBR1")]
    Bbr1,
}

/// Policies about tokens as EdgeGateways write them.
#[derive(JsonSchema, Serialize, Deserialize)]
#[serde(remote = "TokenPolicy")]
enum TokenPolicyName {
    /// No client needs a token.
    Off,
    /// Clients without a token are assisted, clients with a wrong one are not.
    Optional,
    /// Only clients with a valid token are assisted.
    Required,
}

/// A certificate.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TokenTls {
    /// Name of a Secret of type kubernetes.io/tls in the EdgeGateway's namespace, with the label
    /// packrat.dev/for-gateways: "true".
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
    /// Host name at which clients ask for tokens, a name for that alone. Needed if TCP connections to the
    /// same port are passed through (spec.tcp): connections for this name (SNI) get tokens, all others go to
    /// the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub server_name: Option<String>,
}

/// Shutdown of a gateway.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Drain {
    /// Longest time in seconds for which a gateway still forwards after it was asked to end. It
    /// ends earlier when it has no session left. Default: 60.
    #[schemars(range(min = 0, max = 3600))]
    pub seconds: i32,
}

impl Default for Drain {
    fn default() -> Self {
        Self { seconds: 60 }
    }
}

/// Live streams with many receivers.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MulticastStreams {
    /// True if Services may make a live stream of a port with packrat.dev/multicast. The gateways
    /// then open ports and join multicast groups that Services name. Default: false.
    pub enabled: bool,
    /// UDP ports at which streams may arrive. No route listens on them, and no two streams share
    /// one. Default: 5004 to 5059.
    pub ports: PortRange,
}

impl Default for MulticastStreams {
    fn default() -> Self {
        Self { enabled: false, ports: PortRange { first: 5004, last: 5059 } }
    }
}

/// Export of measurements.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Telemetry {
    /// An OpenTelemetry collector that gets all metrics every ten seconds, and each session as a
    /// span when it ends. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<Otlp>,
}

/// An OpenTelemetry collector.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.headersSecret) || self.plainHeaders || self.endpoint.matches('^http://(localhost|127[.][0-9.]+|[[]::1[]])(:[0-9]+)?(/.*)?$')",
        "message": "the headers may be secret and would cross the network in the clear; name a collector on the Pod's loopback interface, or set plainHeaders",
    },
]))]
pub struct Otlp {
    /// URL at which the collector takes OTLP over HTTP, without TLS: http://HOST:4318, or with a path before
    /// /v1/metrics and /v1/traces.
    #[schemars(length(max = 300), regex(pattern = r"^http://[^/@?#\s]+(/[^?#\s]*)?$"))]
    pub endpoint: String,
    /// A key of a Secret with headers for the collector, as OTEL_EXPORTER_OTLP_HEADERS has them:
    /// key=value,key=value, values percent-encoded. Gateways read it when they start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers_secret: Option<SecretKey>,
    /// True: the headers may cross the network in the clear, to a collector outside of the Pod. Default: false.
    #[serde(default)]
    pub plain_headers: bool,
}

/// A value in a Secret.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// Name of a Secret in the EdgeGateway's namespace, with the label packrat.dev/for-gateways:
    /// "true".
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// The namespaces whose Services may use a gateway, with their ports and endpoints.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteNamespaces {
    /// Same: Services of the EdgeGateway's namespace. All: Services of every namespace. Default:
    /// Same.
    pub from: NamespacesFrom,
    /// The ports that Services may have, by namespace; no Service has a port that is not listed.
    /// Without any entry every port is for every namespace.
    #[schemars(length(max = 1000))]
    pub ports: Vec<PortGrant>,
    /// Pods: datagrams go to Pods of the Service's namespace only, as Kubernetes' own EndpointSlice
    /// controller names them. Any: to every EndpointSlice of the Service, so that a user who may
    /// write one chooses the address. Never to loopback, link-local and multicast addresses, nodes,
    /// or addresses of Services. Default: Pods.
    pub endpoints: EndpointsFrom,
}

/// Namespaces.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NamespacesFrom {
    /// The EdgeGateway's own namespace.
    #[default]
    Same,
    /// Every namespace.
    All,
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
