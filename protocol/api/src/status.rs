//! Answers of a gateway at `/packrat` and below.
//!
//! Readers accept documents of other versions: unknown keys are ignored, and every key has a
//! default that the document makes sense without.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::sender::SenderKind;
use crate::token::TokenPolicy;

/// `/packrat`: all routes with their configuration and metrics. `Value` is the type of a metric's
/// value: gateways write whole numbers, readers that calculate may take `f64`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status<Value = u64> {
    /// Version of the gateway.
    #[serde(default)]
    pub version: String,
    /// True if the gateway is about to end and refuses new sessions.
    #[serde(default)]
    pub draining: bool,
    /// Metrics of the process, by series.
    #[serde(default = "BTreeMap::new")]
    pub process: BTreeMap<String, Value>,
    /// The network around it, as far as it can see.
    #[serde(default)]
    pub network: NetworkStatus,
    /// Routes.
    pub routes: Vec<RouteStatus<Value>>,
}

/// The network around a gateway, as its own network namespace shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkStatus {
    /// Largest IP packet that the way to clients takes as far as the kernel knows it: the smallest of
    /// the listeners'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_to_clients: Option<u32>,
    /// Largest IP packet that the ways to servers take as far as the kernel knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu_to_servers: Option<u32>,
    /// The kernel's table of tracked connections; `None` if it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracking: Option<ConnectionTracking>,
}

/// The kernel's table of tracked connections (conntrack). Entries and timeouts belong to the
/// gateway's network namespace; the maximum belongs to the whole host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionTracking {
    /// Entries now; 0 if no rule of the namespace tracks connections.
    pub entries: u64,
    /// Most entries.
    pub maximum: u64,
    /// Seconds until a UDP flow is forgotten that has had datagrams in one direction only.
    pub udp_timeout_seconds: u64,
    /// Seconds until any other UDP flow is forgotten.
    pub udp_stream_timeout_seconds: u64,
}

/// A route in [`Status`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteStatus<Value = u64> {
    /// Name of the route.
    #[serde(default)]
    pub route: String,
    /// The gateway's static public key, 64 hexadecimal digits.
    #[serde(default)]
    pub public_key: Option<String>,
    /// Addresses that clients send to.
    #[serde(default)]
    pub listeners: Vec<SocketAddr>,
    /// Configuration, without secrets.
    #[serde(default)]
    pub configuration: RouteSummary,
    /// Counters and gauges, by series.
    pub metrics: BTreeMap<String, Value>,
    /// Histograms, by name.
    #[serde(default)]
    pub distributions: BTreeMap<String, Distribution>,
    /// Assisted sessions compared with sessions left without assistance; `None` if there are none
    /// of the latter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<ComparisonStatus>,
}

/// A route's sessions to compare: of the last day, one per address and hour.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComparisonStatus {
    /// Share of the clients that is left without assistance, as configured.
    pub holdout: f64,
    /// The consequence of the comparison.
    pub stage: Stage,
    /// Seconds until assistance that has stopped is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_seconds: Option<u64>,
    /// Sessions by their size.
    pub sizes: Vec<SizeComparison>,
}

/// The consequence of a route's comparison for its clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Assisted sessions are not slower.
    #[default]
    Assisting,
    /// Assisted sessions were slower than others.
    Stopped,
    /// Half of the sessions are assisted again, to see whether it pays by now.
    Trial,
}

/// Goodputs of sessions that have brought their clients about as many bytes, in bits per second, as the
/// number of sessions by bucket: bucket `i` begins at 1000 · 2^(i/20).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeComparison {
    /// Smallest number of bytes to the client; the next entry's is larger.
    pub least_bytes: u64,
    /// Number of assisted sessions by bucket.
    pub assisted: BTreeMap<u16, u64>,
    /// Number of sessions by bucket that would have been assisted.
    pub holdout: BTreeMap<u16, u64>,
}

/// A route's configuration, without secrets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteSummary {
    /// Name of the gateway.
    pub gateway: String,
    /// Kubernetes namespace of the servers.
    pub namespace: String,
    /// Servers.
    pub endpoints: Vec<SocketAddr>,
    /// The live stream.
    pub stream: Option<StreamSummary>,
    /// True if clients may ask for assistance.
    pub assist: bool,
    /// Bytes that one session may keep for repair.
    pub cache_bytes_per_session: u64,
    /// Bytes that all sessions of the route together may keep for repair.
    pub cache_bytes_total: u64,
    /// Repairs as a share of the forwarded bytes.
    pub repair_budget: f64,
    /// Seconds without a datagram after which a session ends.
    pub idle_timeout_seconds: u64,
    /// Sessions that may exist at once, as configured.
    pub maximum_sessions: u64,
    /// Sessions that may exist at once: no more than the process can hold for all routes together.
    pub maximum_sessions_in_force: u64,
    /// The reason why the limit in force is below the configured one.
    pub sessions_limited_by: Option<String>,
    /// Policy about tokens.
    pub tokens: TokenPolicy,
    /// The servers' answer to lost datagrams, as configured.
    pub sender: SenderKind,
}

/// A live stream's configuration, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSummary {
    /// Address at which the stream arrives.
    pub upstream: SocketAddr,
    /// Multicast group that the stream is sent to.
    pub group: Option<SocketAddr>,
    /// Subscribers at the same time, at most.
    pub maximum_clients: u32,
    /// The reason why the stream does not arrive although it should; it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// A histogram in numbers, in the unit of its name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Distribution {
    /// Number of samples.
    pub count: u64,
    /// Mean; `None` without samples.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// `/packrat/sessions`: sessions of all routes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// Number of sessions; fewer may be listed.
    pub total: u64,
    /// Sessions, those first that have carried most.
    pub sessions: Vec<SessionSnapshot>,
}

/// `/packrat/clients`: the clients of one server, for that server itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// Number of clients; fewer may be listed.
    pub total: u64,
    /// Clients.
    pub clients: Vec<ClientOfServer>,
}

/// A client, and its address as seen by its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientOfServer {
    /// The gateway's address and port, from which the server gets the client's datagrams.
    pub upstream: SocketAddr,
    /// The client's own address and port, now.
    pub client: SocketAddr,
    /// The server's address and port.
    pub server: SocketAddr,
    /// The route.
    pub route: String,
    /// Number of the session in log lines.
    pub session: u64,
}

/// One client's session now; totals since it was opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSnapshot {
    /// Number in log lines.
    pub session: u64,
    /// The client as log lines show it; `None` when they do not.
    pub client: Option<String>,
    /// Server that it is forwarded to, or the gateway that it is relayed to.
    pub endpoint: SocketAddr,
    /// True if another gateway of the same address has its session, and everything goes there.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub relayed: bool,
    /// Session id of its assistance on the wire, while it is assisted.
    pub assistance: Option<u32>,
    /// Age in seconds.
    pub seconds: f64,
    /// Datagrams forwarded to the client.
    #[serde(default)]
    pub to_client_datagrams: u64,
    /// Payload bytes forwarded to the client.
    pub to_client_bytes: u64,
    /// Datagrams forwarded to the server.
    #[serde(default)]
    pub to_server_datagrams: u64,
    /// Payload bytes forwarded to the server.
    #[serde(default)]
    pub to_server_bytes: u64,
    /// Datagrams recorded for possible repair.
    pub recorded: u64,
    /// Recorded datagrams that eACKs showed to be missing.
    pub missing: u64,
    /// Missing datagrams that were sent again.
    #[serde(default)]
    pub repairs: u64,
    /// Repaired datagrams that eACKs showed to have arrived.
    pub repairs_arrived: u64,
    /// Resets of either side.
    pub resets: u64,
    /// Bytes kept for repair now.
    pub cache_bytes: u64,
    /// Smoothed last-mile round trip; 0: not known.
    pub last_mile_round_trip_microseconds: u64,
    /// Last-mile loss in parts per million.
    #[serde(default)]
    pub last_mile_loss_ppm: u64,
    /// First round trip to the server, with its time to answer; 0: not known.
    #[serde(default)]
    pub far_round_trip_microseconds: u64,
    /// Name of the route.
    pub route: String,
    /// Why its client was last refused assistance, as in the label `result` of handshakes_total;
    /// `None` if it was not, or has been assisted since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The engine's counts for it, without zeros; only if one session or client was requested.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, u64>,
}

/// `/packrat/events`: the last log lines. docs/METRICS.md lists the keys of a `Line`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Events<Line> {
    /// Number of the newest line; the next request asks for later ones.
    pub newest: u64,
    /// Log lines, oldest first.
    pub events: Vec<Line>,
}

/// `/packrat/events?session=`: a step of a session's reconciliation and repair. A datagram is named
/// by its number: how many datagrams the session had recorded before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// Number of the event, from 1.
    pub number: u64,
    /// RFC 3339, UTC, with milliseconds.
    pub ts: String,
    /// Time since the gateway started.
    pub microseconds: u64,
    /// Name of the route.
    pub route: String,
    /// Number of the session in log lines.
    pub session: u64,
    /// Session id of its assistance on the wire.
    pub assistance: u32,
    /// The step.
    #[serde(flatten)]
    pub step: SessionStep,
}

/// A step of a session. The key `event` names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionStep {
    /// The first eACK of an epoch has reported the beginning of the client's set.
    EpochAnchored {
        /// The epoch.
        epoch: u32,
        /// The first datagram that the epoch is about.
        first: u64,
    },
    /// An eACK was decoded.
    EackDecoded {
        /// Counter of the eACK.
        eack: u32,
        /// Datagrams recorded so far.
        recorded: u64,
        /// The newest datagram that it names.
        newest: Option<u64>,
        /// Datagrams that it shows to be missing for the first time.
        newly_missing: u64,
        /// Datagrams missing now.
        missing: u64,
    },
    /// An eACK could not be decoded: its prefix is shorter than the difference.
    EackFailed {
        /// Counter of the eACK.
        eack: u32,
        /// Symbols of its prefix.
        symbols: u32,
        /// True if a Reset follows, false if the client is asked for a longer prefix.
        resets: bool,
    },
    /// An eACK was not looked at.
    EackIgnored {
        /// Counter of the eACK.
        eack: u32,
        /// `stale`, `other_epoch` or `limited`.
        reason: String,
    },
    /// A datagram is missing.
    DatagramMissing {
        /// The datagram.
        datagram: u64,
        /// Time since it was forwarded.
        age_microseconds: u64,
    },
    /// A missing datagram was sent again.
    RepairSent {
        /// The datagram.
        datagram: u64,
        /// The number of this transmission of the datagram, from 1.
        transmission: u32,
        /// Time since the datagram was forwarded.
        age_microseconds: u64,
    },
    /// A repair was wanted, and not sent now.
    RepairRefused {
        /// The datagram.
        datagram: u64,
        /// `budget_empty` or `bytes_gone`.
        reason: String,
    },
    /// The newest datagram was sent again after silence.
    TailProbeSent {
        /// The datagram.
        datagram: u64,
    },
    /// A missing datagram is not missing any more.
    MissingArrived {
        /// The datagram.
        datagram: u64,
        /// Number of repairs; 0: the datagram was only late.
        transmissions: u32,
        /// Time since it was forwarded.
        age_microseconds: u64,
    },
    /// The client has received a report on an eACK.
    ReportSent {
        /// The eACK's counter.
        eack: u32,
        /// A datagram that the client has; earlier ones are not being repaired any more.
        settled: Option<u64>,
        /// Symbols of the prefix that the next eACK should have.
        wanted_symbols: Option<u32>,
        /// True if a queue stands on the last mile: its losses are not repaired.
        queue_stands: bool,
    },
    /// A new epoch begins with empty sets.
    Reset {
        /// The epoch that begins.
        epoch: u32,
        /// The end that asks for it: `client` or `gateway`.
        side: String,
        /// `decode_failed`, `state_lost` or `client_overflow`.
        reason: String,
    },
    /// The client may have another address, which is asked to prove it.
    PathChallenged,
    /// The client has another address now.
    PathValidated,
    /// A missing datagram is not repaired any more.
    GivenUp {
        /// The datagram; `None`: the history has forgotten it.
        datagram: Option<u64>,
        /// Number of repairs.
        transmissions: u32,
        /// `queue_stands`, `bytes_gone`, `window_over`, `too_old`, `too_many_repairs`, `quiet` or
        /// `forgotten`.
        reason: String,
    },
}

/// `/packrat/log`: how the log is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSettings {
    /// `debug`, `info`, `warning` or `error`.
    pub level: String,
    /// `hashed`, `shown` or `hidden`.
    pub clients: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of a document's objects, in order, to detect lost or renamed ones.
    fn keys(value: &serde_json::Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn status_documents_have_these_keys() {
        let route = RouteStatus {
            route: "web".to_owned(),
            public_key: None,
            listeners: Vec::new(),
            configuration: RouteSummary::default(),
            metrics: [("packrat_sessions".to_owned(), 3)].into(),
            distributions: [("packrat_decode".to_owned(), Distribution::default())].into(),
            comparison: Some(ComparisonStatus {
                retry_seconds: Some(7),
                sizes: vec![SizeComparison { holdout: [(40, 2)].into(), ..Default::default() }],
                ..Default::default()
            }),
        };
        let status = Status {
            version: "0.1.0".to_owned(),
            draining: false,
            process: BTreeMap::new(),
            network: NetworkStatus::default(),
            routes: vec![route],
        };
        let written = serde_json::to_value(&status).unwrap();
        assert_eq!(keys(&written), ["version", "draining", "process", "network", "routes"]);
        let route = &written["routes"][0];
        assert_eq!(
            keys(route),
            [
                "route",
                "public_key",
                "listeners",
                "configuration",
                "metrics",
                "distributions",
                "comparison"
            ]
        );
        assert_eq!(keys(&route["comparison"]), ["holdout", "stage", "retry_seconds", "sizes"]);
        assert_eq!(keys(&route["comparison"]["sizes"][0]), ["least_bytes", "assisted", "holdout"]);
        assert_eq!(
            keys(&route["configuration"]),
            [
                "gateway",
                "namespace",
                "endpoints",
                "stream",
                "assist",
                "cache_bytes_per_session",
                "cache_bytes_total",
                "repair_budget",
                "idle_timeout_seconds",
                "maximum_sessions",
                "maximum_sessions_in_force",
                "sessions_limited_by",
                "tokens",
                "sender"
            ]
        );
        assert_eq!(
            keys(&route["distributions"]["packrat_decode"]),
            ["count", "mean", "p50", "p90", "p99"]
        );
        assert_eq!(route["metrics"]["packrat_sessions"], 3);
        assert_eq!(serde_json::from_value::<Status>(written.clone()).unwrap(), status);
        let calculating: Status<f64> = serde_json::from_value(written).unwrap();
        assert_eq!(calculating.routes[0].metrics["packrat_sessions"], 3.0);
    }

    #[test]
    fn a_session_has_these_keys() {
        let text = r#"{"session":1,"client":null,"endpoint":"192.0.2.1:443","assistance":7,"seconds":1.5,"to_client_datagrams":2,"to_client_bytes":3,"to_server_datagrams":4,"to_server_bytes":5,"recorded":6,"missing":7,"repairs":8,"repairs_arrived":9,"resets":10,"cache_bytes":11,"last_mile_round_trip_microseconds":12,"last_mile_loss_ppm":13,"far_round_trip_microseconds":14,"route":"web"}"#;
        let session: SessionSnapshot = serde_json::from_str(text).unwrap();
        assert_eq!((session.client.as_deref(), session.route.as_str()), (None, "web"));
        assert_eq!(serde_json::to_string(&session).unwrap(), text);
    }
}
