//! Tables of everything that can be set for a route, and for a token endpoint: names, values,
//! defaults, meaning.
//!
//! docs/CONFIGURATION.md is generated from them. Tests hold the fields of [`crate::route`] and
//! [`crate::token_endpoint`], the schema of EdgeGateways and the annotations against them.

use std::fmt;
use std::str::FromStr;

use crate::affinity::Affinity;
use crate::route::{RouteConfig, share_of_percent};
use crate::sender::SenderKind;
use crate::token::TokenPolicy;
pub use crate::words::Words;

/// A setting of a route or of a token endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Knob {
    /// Field in the JSON, preceded by the names of the containing objects and points.
    pub field: &'static str,
    /// Values in this JSON, for people.
    pub values: &'static str,
    /// Default as JSON; `None` if there is no default.
    pub default: Option<&'static str>,
    /// Meaning, as part of a sentence.
    pub meaning: &'static str,
    /// The corresponding setting in Kubernetes.
    pub cluster: Option<ClusterKnob>,
}

/// A setting of a route in an EdgeGateway, and in an annotation that overrides it.
#[derive(Debug, Clone, Copy)]
pub struct ClusterKnob {
    /// Path below `spec` of the EdgeGateway.
    pub edge_gateway: &'static str,
    /// Name of the annotation after `packrat.dev/config.`.
    pub annotation: &'static str,
    /// Values in both.
    pub values: ClusterValues,
    /// The most that a route may have.
    pub limit: Limit,
    /// Puts a value into the configuration of a route.
    pub apply: fn(&mut RouteConfig, Setting),
}

/// The most that a route may have of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Any value.
    Free,
    /// The value of its EdgeGateway.
    Own,
    /// The value of this field below `spec.limits` of its EdgeGateway; `true`: any value; missing
    /// or `false`: the value of the EdgeGateway.
    Field(&'static str),
}

/// A value of a setting in Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// Bytes, or a whole number.
    Number(u64),
    /// On or off.
    Switch(bool),
    /// A word as annotations write it.
    Word(&'static str),
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(formatter),
            Self::Switch(on) => formatter.write_str(if *on { "on" } else { "off" }),
            Self::Word(word) => formatter.write_str(word),
        }
    }
}

impl Setting {
    /// The number; 0 for other values.
    pub const fn number(self) -> u64 {
        if let Self::Number(number) = self { number } else { 0 }
    }

    /// The number, as far as 32 bits hold it; 0 for other values.
    pub fn small(self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }

    /// True for a switch that is on.
    pub const fn is_on(self) -> bool {
        matches!(self, Self::Switch(true))
    }

    /// The value that a word stands for; the default for other values.
    pub fn word<T: FromStr + Default>(self) -> T {
        if let Self::Word(word) = self { word.parse().unwrap_or_default() } else { T::default() }
    }
}

/// Values of a setting in Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterValues {
    /// Sizes as Kubernetes writes them.
    Bytes,
    /// Whole numbers.
    Numbers {
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
    /// A switch: on or off.
    Switch,
    /// Words.
    Words(Words),
}

impl ClusterValues {
    /// The amount that a value asks of the gateway, to compare it with a limit: of words the first asks most.
    pub fn amount(self, setting: Setting) -> u64 {
        match (self, setting) {
            (_, Setting::Number(number)) => number,
            (_, Setting::Switch(on)) => on.into(),
            (Self::Words(words), Setting::Word(word)) => {
                words.all.iter().rev().position(|(name, _)| *name == word).unwrap_or(0) as u64
            }
            (_, Setting::Word(_)) => 0,
        }
    }

    /// The value of a switch or of words that asks most of the gateway; `None` for numbers.
    pub fn most(self) -> Option<Setting> {
        match self {
            Self::Switch => Some(Setting::Switch(true)),
            Self::Words(words) => words.all.first().map(|(word, _)| Setting::Word(word)),
            Self::Bytes | Self::Numbers { .. } => None,
        }
    }
}

impl fmt::Display for ClusterValues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => formatter.write_str("`512Ki`, `1Mi`, `2Gi`"),
            Self::Numbers { least, most } => write!(formatter, "{least} to {most}"),
            Self::Switch => formatter.write_str("`on`, `off`; in an EdgeGateway `true`, `false`"),
            Self::Words(words) => {
                let (annotation, edge_gateway): (Vec<_>, Vec<_>) =
                    words.all.iter().copied().unzip();
                let (annotation, edge_gateway) =
                    (annotation.join("`, `"), edge_gateway.join("`, `"));
                write!(formatter, "`{annotation}`; in an EdgeGateway `{edge_gateway}`")
            }
        }
    }
}

impl Knob {
    const fn new(field: &'static str, values: &'static str, meaning: &'static str) -> Self {
        Self { field, values, default: None, meaning, cluster: None }
    }

    const fn with_default(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    const fn in_cluster(
        self,
        edge_gateway: &'static str,
        annotation: &'static str,
        values: ClusterValues,
        apply: fn(&mut RouteConfig, Setting),
    ) -> Self {
        let limit = Limit::Free;
        let cluster = ClusterKnob { edge_gateway, annotation, values, limit, apply };
        Self { cluster: Some(cluster), ..self }
    }

    const fn limited(self, limit: Limit) -> Self {
        match self.cluster {
            Some(cluster) => Self { cluster: Some(ClusterKnob { limit, ..cluster }), ..self },
            None => self,
        }
    }
}

const fn numbers(least: u32, most: u32) -> ClusterValues {
    ClusterValues::Numbers { least, most }
}

/// All settings of a route, in the order of their documents.
pub const ROUTE_KNOBS: [Knob; 42] = [
    Knob::new(
        "route",
        "1 to 253 bytes",
        "name of the route, a label of its metrics; required",
    ),
    Knob::new("gateway", "1 to 253 bytes", "name of the gateway, a label of the metrics")
        .with_default("\"packrat\""),
    Knob::new("namespace", "1 to 253 bytes", "namespace of the servers, a label of the metrics")
        .with_default("\"default\""),
    Knob::new(
        "endpoints",
        "list of `ip:port`",
        "servers; required without a `stream`",
    )
    .with_default("[]"),
    Knob::new(
        "weights",
        "object of numbers above 0 by `ip:port`",
        "weights of endpoints, 1 where missing; in Kubernetes those of a UDPRoute's `backendRefs`",
    )
    .with_default("{}"),
    Knob::new(
        "refused_weight",
        "from 0",
        "weight of clients that are not forwarded; in Kubernetes that of missing `backendRefs`",
    )
    .with_default("0"),
    Knob::new(
        "affinity",
        "`\"address\"`, `\"port\"`",
        "a client's server follows from its address without the port (IPv6: its /64), the same at every gateway, or from address and port: if the port changes, the client keeps its server at the same gateway only. An assisted client whose address changes keeps its server with both, also at another gateway with the same secret",
    )
    .with_default("\"address\"")
    .in_cluster(
        "sessions.affinity",
        "affinity",
        ClusterValues::Words(Affinity::WORDS),
        |route, value| route.affinity = value.word(),
    ),
    Knob::new(
        "quic_lb",
        "list of objects",
        "connection IDs that name a new client's server ([QUIC-LB](OPERATING.md#connection-ids-that-name-their-server)), before `affinity`, as the servers are configured: `config` (0 to 6, default 0), `server_id_bytes` (1 to 15), `nonce_bytes` (4 to 18), `key` (32 hexadecimal digits; without one, anyone on the path can read the server IDs), and `server_ids`, an object of hexadecimal digits by `ip:port` (default: the last `server_id_bytes` bytes of the endpoint's IP address)",
    )
    .with_default("[]"),
    Knob::new(
        "peers",
        "list of `ip:port`",
        "listeners of the gateways of the same address and secret, with this one, 64 at most. A gateway that an assisted client has moved to asks the others by UDP, and relays its session. In Kubernetes the EdgeGateway's Pods; with more than 64, none",
    )
    .with_default("[]"),
    Knob::new("stream", "object", "a live stream for subscribers; fields below"),
    Knob::new(
        "assist",
        "`true`, `false`",
        "clients may ask for assistance; `false`: control datagrams are dropped, all others forwarded",
    )
    .with_default("true")
    .in_cluster("assist", "assist", ClusterValues::Switch, |route, value| {
        route.assist = value.is_on();
    })
    .limited(Limit::Own),
    Knob::new(
        "new_clients",
        "`true`, `false`",
        "clients without a session get one; `false`, for a route to be removed: their datagrams are dropped and counted, existing sessions continue",
    )
    .with_default("true"),
    Knob::new("cache_bytes_per_session", "from 1", "bytes that one session may keep for repair")
        .with_default("1048576")
        .in_cluster(
            "cache.bytesPerSession",
            "cache-bytes-per-session",
            ClusterValues::Bytes,
            |route, value| route.cache_bytes_per_session = value.number(),
        )
        .limited(Limit::Field("cacheBytesPerSession")),
    Knob::new(
        "cache_bytes_total",
        "from `cache_bytes_per_session`",
        "bytes that all sessions may keep for repair",
    )
    .with_default("268435456")
    .in_cluster("cache.bytesTotal", "cache-bytes-total", ClusterValues::Bytes, |route, value| {
        route.cache_bytes_total = value.number();
    })
    .limited(Limit::Field("cacheBytesTotal")),
    Knob::new(
        "repair_budget",
        "0 to 10",
        "repairs as a share of the forwarded bytes; up to twice that if the measured loss needs it",
    )
    .with_default("0.25")
    .in_cluster("repair.budgetPercent", "repair-budget-percent", numbers(0, 1000), |route, value| {
        route.repair_budget = share_of_percent(value.small());
    })
    .limited(Limit::Field("repairBudgetPercent")),
    Knob::new(
        "early_copies",
        "0 to 1",
        "copies of thin live streams' datagrams where a repair would come too late, as a share of the stream's bytes; 0: none, nor of other flows' first and rare datagrams",
    )
    .with_default("0.5"),
    Knob::new(
        "sparse_copies",
        "`true`, `false`",
        "clients without a session get datagrams twice, 5 ms apart: of sparse flows (up to 128 kbit/s: audio, games), of a handshake's beginning, and the last one before a pause, five times a second. A loss of *p* becomes *p*² without an SDK. The transport must drop duplicates, as QUIC, WebRTC and WireGuard do. An address that has proved nothing gets at most three times the bytes that came from it",
    )
    .with_default("false")
    .in_cluster("repair.sparseCopies", "sparse-copies", ClusterValues::Switch, |route, value| {
        route.sparse_copies = value.is_on();
    })
    .limited(Limit::Field("sparseCopies")),
    Knob::new(
        "residual_loss_target",
        "above 0, below 1",
        "accepted probability that a repaired datagram is missing when it is needed",
    )
    .with_default("0.00001"),
    Knob::new(
        "idle_timeout_seconds",
        "1 to 86400",
        "seconds without a datagram in either direction until a session ends",
    )
    .with_default("120")
    .in_cluster(
        "sessions.idleTimeoutSeconds",
        "idle-timeout-seconds",
        numbers(1, 86_400),
        |route, value| route.idle_timeout_seconds = value.number(),
    )
    .limited(Limit::Field("idleTimeoutSeconds")),
    Knob::new(
        "maximum_sessions",
        "from 1",
        "sessions at once; further clients' datagrams are dropped and counted",
    )
    .with_default("25000")
    .in_cluster("sessions.maximum", "maximum-sessions", numbers(1, 10_000_000), |route, value| {
        route.maximum_sessions = value.number();
    })
    .limited(Limit::Field("maximumSessions")),
    Knob::new(
        "sessions_per_source",
        "from 1",
        "assisted sessions at once of one source (an IPv4 address, or a /64 of IPv6)",
    )
    .with_default("4096")
    .in_cluster(
        "sessions.perSource",
        "sessions-per-source",
        numbers(1, 10_000_000),
        |route, value| route.sessions_per_source = value.small(),
    )
    .limited(Limit::Field("sessionsPerSource")),
    Knob::new(
        "handshakes_per_second_per_source",
        "from 1",
        "assisted sessions that one source may begin per second, and in one burst",
    )
    .with_default("100"),
    Knob::new(
        "handshakes_per_second_without_cookie",
        "from 0",
        "handshakes per second up to which clients need no cookie, and save its round trip; 0: always a cookie",
    )
    .with_default("100"),
    Knob::new(
        "static_key",
        "64 hexadecimal digits",
        "the gateway's static private key (X25519); without it and `static_key_file`, random at each start",
    ),
    Knob::new(
        "static_key_file",
        "path",
        "file with the static key: 32 raw bytes, or 64 hexadecimal digits",
    ),
    Knob::new(
        "peer_keys",
        "list of 64 hexadecimal digits each",
        "secrets for messages and tickets between gateways: the one in use, then the next or previous; without one, the static key",
    )
    .with_default("[]"),
    Knob::new(
        "sender",
        "`\"any\"`, `\"loss-based\"`, `\"bbr\"`, `\"bbr1\"`",
        "the servers' congestion control. `bbr` (BBRv2, BBRv3): losses up to 3 % on the last mile are left to the server; `bbr1` (BBRv1): all are. `loss-based` (CUBIC, NewReno): losses are repaired, and hidden meanwhile. `any`: the same, unless [sessions find](POLICY.md#does-the-sender-need-help) that servers tolerate losses",
    )
    .with_default("\"any\"")
    .in_cluster("sender", "sender", ClusterValues::Words(SenderKind::WORDS), |route, value| {
        route.sender = value.word();
    }),
    Knob::new(
        "holdout",
        "0 to 0.5",
        "share of the clients that are refused assistance, for comparison. A hash of the address (IPv6: the /64) and a secret from the static key choose them: clients that return and clients behind one NAT are treated alike. If assisted sessions are slower, [assistance stops](RUNBOOK.md#packratassistancestopped), and is tried again later",
    )
    .with_default("0.0")
    .in_cluster("sessions.holdoutPercent", "holdout-percent", numbers(0, 50), |route, value| {
        route.holdout = share_of_percent(value.small());
    }),
    Knob::new("tokens", "`\"off\"`, `\"optional\"`, `\"required\"`", "which clients need a token to be assisted")
        .with_default("\"off\"")
        .in_cluster(
            "tokens.policy",
            "tokens",
            ClusterValues::Words(TokenPolicy::WORDS),
            |route, value| route.tokens = value.word(),
        )
        .limited(Limit::Field("weakerTokens")),
    Knob::new(
        "token_keys",
        "list of `identifier:64 hexadecimal digits`",
        "keys of the token endpoint: the current one, then the previous one",
    )
    .with_default("[]"),
    Knob::new("token_keys_file", "path", "file with these keys, one in a line"),
    Knob::new(
        "optional",
        "list of names of fields",
        "fields that a gateway ignores if it does not know them",
    )
    .with_default("[]"),
    Knob::new(
        "stream.upstream",
        "`ip:port`",
        "where the stream arrives: an address of the gateway, or a multicast group to join; required",
    ),
    Knob::new(
        "stream.sources",
        "list of addresses",
        "hosts that may send it; empty: the `endpoints`; without these, any host",
    )
    .with_default("[]"),
    Knob::new(
        "stream.group",
        "`ip:port`",
        "multicast group that gets the stream once, instead of each subscriber",
    ),
    Knob::new(
        "stream.group_hops",
        "1 to 255",
        "hop limit (TTL) towards the group",
    )
    .with_default("1"),
    Knob::new(
        "stream.interface",
        "IPv4 address",
        "address of the interface for IPv4 groups; else the routing table decides",
    ),
    Knob::new(
        "stream.key",
        "64 hexadecimal digits",
        "key of identifiers; without it, random at each start",
    ),
    Knob::new("stream.maximum_clients", "from 1", "subscribers at once").with_default("10000"),
    Knob::new(
        "stream.cache_bytes",
        "from 2048",
        "bytes of packets kept for repair, for all subscribers",
    )
    .with_default("65536"),
    Knob::new(
        "stream.silence_seconds",
        "1 to 86400",
        "seconds of silence until a subscriber is forgotten",
    )
    .with_default("30"),
    Knob::new(
        "stream.group_repairs_from",
        "from 1",
        "with a group: from so many subscribers that miss a packet within a round trip, the repair goes to all",
    )
    .with_default("3"),
];

/// All settings of a token endpoint, in the order of their documents.
pub const TOKEN_ENDPOINT_KNOBS: [Knob; 16] = [
    Knob::new("route", "1 to 253 bytes", "name of the route, as in its configuration; required"),
    Knob::new(
        "token_keys",
        "one or two `identifier:64 hexadecimal digits`",
        "keys with which the gateway verifies tokens; the first one issues; required",
    ),
    Knob::new("udp", "object", "the address at which the gateway assists; fields below; required"),
    Knob::new(
        "gateway_key",
        "64 hexadecimal digits",
        "the gateway's public key, its status's `public_key`; required",
    ),
    Knob::new("lifetime_seconds", "10 to 86400", "lifetime of a token").with_default("300"),
    Knob::new(
        "maximum_hold_ms",
        "0 to 10000",
        "longest time that datagrams should wait at clients for repairs",
    )
    .with_default("1000"),
    Knob::new(
        "bind",
        "object",
        "with it, even empty, tokens are valid only from the client's network; fields below",
    ),
    Knob::new(
        "other_paths",
        "`\"continue\"`, `\"not_found\"`",
        "requests for other paths: `continue` passes them on, `not_found` answers 404",
    )
    .with_default("\"continue\""),
    Knob::new("rate", "object", "the rate limit per client; fields below"),
    Knob::new(
        "udp.host",
        "host name or address",
        "host of the gateway's UDP address; without it, the request's host",
    ),
    Knob::new("udp.port", "1 to 65535", "port of the gateway's UDP address; required"),
    Knob::new("bind.ipv4_prefix", "0 to 32", "length of the prefix of an IPv4 network")
        .with_default("24"),
    Knob::new("bind.ipv6_prefix", "0 to 128", "length of the prefix of an IPv6 network")
        .with_default("56"),
    Knob::new(
        "rate.per_minute",
        "1 to 60000",
        "tokens per minute of a client (an IPv4 address, or a /64 of IPv6), at each Envoy worker",
    )
    .with_default("30"),
    Knob::new("rate.burst", "1 to 60000", "tokens of a client at once").with_default("10"),
    Knob::new("rate.clients", "1 to 1000000", "clients in the rate limiter's table")
        .with_default("4096"),
];

/// The settings that EdgeGateways and annotations also have.
pub fn in_cluster() -> impl Iterator<Item = (&'static Knob, &'static ClusterKnob)> {
    ROUTE_KNOBS.iter().filter_map(|knob| Some((knob, knob.cluster.as_ref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{RouteConfig, StreamRoute};
    use crate::token_endpoint::{ClientRate, NetworkBinding, TokenEndpointConfig, UdpAddress};
    use serde_json::{Value, json};

    /// The fields that serde knows, read from its error about an unknown one.
    fn fields<T: serde::de::DeserializeOwned>(prefix: &str) -> Vec<String> {
        let error = serde_json::from_value::<T>(json!({ "?": 1 })).err().unwrap().to_string();
        let known = error.split_once("expected ").unwrap().1;
        known.split('`').skip(1).step_by(2).map(|field| format!("{prefix}{field}")).collect()
    }

    #[test]
    fn every_field_has_a_row_and_every_row_a_field() {
        let rows: Vec<&str> = ROUTE_KNOBS.iter().map(|knob| knob.field).collect();
        let expected = [fields::<RouteConfig>(""), fields::<StreamRoute>("stream.")].concat();
        assert_eq!(rows, expected);
        let rows: Vec<&str> = TOKEN_ENDPOINT_KNOBS.iter().map(|knob| knob.field).collect();
        let expected = [
            fields::<TokenEndpointConfig>(""),
            fields::<UdpAddress>("udp."),
            fields::<NetworkBinding>("bind."),
            fields::<ClientRate>("rate."),
        ];
        assert_eq!(rows, expected.concat());
    }

    #[test]
    fn a_missing_field_has_the_default_of_the_table() {
        let route = json!({ "route": "web", "stream": { "upstream": "192.0.2.1:5" } });
        defaults_hold::<RouteConfig>(&ROUTE_KNOBS, &route);
        let endpoint = json!({
            "route": "web", "token_keys": [], "gateway_key": "", "udp": { "port": 1 }, "bind": {}, "rate": {},
        });
        defaults_hold::<TokenEndpointConfig>(&TOKEN_ENDPOINT_KNOBS, &endpoint);
    }

    fn defaults_hold<T>(knobs: &[Knob], bare: &Value)
    where
        T: serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        for knob in knobs {
            let Some(default) = knob.default else { continue };
            let mut said = bare.clone();
            let pointer = format!("/{}", knob.field.replace('.', "/"));
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            said.pointer_mut(parent).unwrap()[key] = serde_json::from_str(default).unwrap();
            let read = |value: Value| serde_json::from_value::<T>(value).unwrap();
            assert_eq!(read(said), read(bare.clone()), "{}", knob.field);
        }
    }

    #[test]
    fn what_has_no_default_is_required_or_may_be_missing() {
        let required = |knobs: &[Knob]| -> Vec<&str> {
            let required = knobs.iter().filter(|knob| knob.meaning.ends_with("; required"));
            required.inspect(|knob| assert_eq!(knob.default, None)).map(|knob| knob.field).collect()
        };
        assert_eq!(required(&ROUTE_KNOBS), ["route", "stream.upstream"]);
        let of_endpoint = ["route", "token_keys", "udp", "gateway_key", "udp.port"];
        assert_eq!(required(&TOKEN_ENDPOINT_KNOBS), of_endpoint);
        for field in ["route", "token_keys", "udp", "gateway_key"] {
            let mut config = json!({
                "route": "web", "token_keys": [], "gateway_key": "", "udp": { "port": 1 },
            });
            assert!(serde_json::from_value::<TokenEndpointConfig>(config.clone()).is_ok());
            config.as_object_mut().unwrap().remove(field);
            assert!(serde_json::from_value::<TokenEndpointConfig>(config).is_err(), "{field}");
        }
    }
}
