//! The configuration of a route: the JSON object that the operator or a person writes and both
//! gateways read. Unknown fields are errors, unless the writer allows gateways to ignore them
//! ([`RouteConfig::read`]).

pub(crate) mod check;
pub mod default;
pub(crate) mod key;
pub(crate) mod number;
mod server_ids;
mod stream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use check::{MAXIMUM_NAME_BYTES, MAXIMUM_PEERS};
pub use key::Hidden;
pub use server_ids::ServerIds;
pub use stream::StreamRoute;

use crate::affinity::Affinity;
pub use crate::invalid_field::InvalidField;
use crate::knobs::ROUTE_KNOBS;
use crate::sender::SenderKind;
use crate::token::TokenPolicy;

/// The configuration of one route: one set of endpoints behind one or several listeners.
///
/// Written, a field that the operator cannot set is left out while it has its default, so that
/// gateways of another version understand the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default = "RouteConfig::bare")]
pub struct RouteConfig {
    /// Name of the route: the key of its sessions, and a label of its metrics.
    pub route: String,
    /// Name of the gateway; a label of the metrics.
    pub gateway: String,
    /// Kubernetes namespace of the servers; a label of the metrics.
    pub namespace: String,
    /// Servers to forward to. A client is assigned to one of them by rendezvous hashing of its
    /// address.
    pub endpoints: Vec<SocketAddr>,
    /// Weights of endpoints, by which clients are shared among them. One that is not named has 1.
    #[serde(deserialize_with = "number::fractions", skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<SocketAddr, f64>,
    /// Weight of clients that are not forwarded, relative to the endpoints' weights.
    #[serde(deserialize_with = "number::fraction", skip_serializing_if = "default::is_nothing")]
    pub refused_weight: f64,
    /// The part of a client's address that is hashed.
    #[serde(skip_serializing_if = "default::is_affinity")]
    pub affinity: Affinity,
    /// Configurations of QUIC-LB: a client that begins here in mid-connection gets the server that its
    /// connection ID names. Of the others the server follows from the address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quic_lb: Vec<ServerIds>,
    /// The listeners of the gateways that have the same secret, including this one: a client
    /// that has moved from one of them to another keeps its session there, and is relayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<SocketAddr>,
    /// A live stream for all subscribers at the listeners. Endpoints may then be omitted; they
    /// receive subscribers' own datagrams, and may send the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamRoute>,
    /// True if clients may ask for assistance. Without it, control datagrams are dropped and
    /// everything else is forwarded.
    #[serde(skip_serializing_if = "default::is_on")]
    pub assist: bool,
    /// True if clients without a session get one. Without it, only the sessions that are there are
    /// served: the route is about to go.
    #[serde(skip_serializing_if = "default::is_on")]
    pub new_clients: bool,
    /// Bytes that one session may keep for repair.
    #[serde(deserialize_with = "number::whole", serialize_with = "number::as_text")]
    pub cache_bytes_per_session: u64,
    /// Bytes that all sessions of the route together may keep for repair.
    #[serde(deserialize_with = "number::whole", serialize_with = "number::as_text")]
    pub cache_bytes_total: u64,
    /// Repairs as a share of the forwarded bytes (0.25 = 25 %); up to twice that if the measured
    /// loss needs it.
    #[serde(deserialize_with = "number::fraction")]
    pub repair_budget: f64,
    /// Share of a thin live stream's forwarded bytes for second copies, sent at once if a repair
    /// would come too late; 0: no copies, neither of such streams nor of the first and rare
    /// datagrams of other flows.
    #[serde(
        deserialize_with = "number::fraction",
        skip_serializing_if = "default::is_early_copies"
    )]
    pub early_copies: f64,
    /// True if sparse flows (audio, games, handshakes, the last datagram before a pause) are sent
    /// twice to clients without a session.
    #[serde(skip_serializing_if = "default::is_off")]
    pub sparse_copies: bool,
    /// Probability that a repaired datagram may still be missing when it is needed.
    #[serde(deserialize_with = "number::fraction")]
    pub residual_loss_target: f64,
    /// Seconds without a datagram in either direction after which a session ends.
    #[serde(deserialize_with = "number::whole")]
    pub idle_timeout_seconds: u64,
    /// Sessions that may exist at once; datagrams of further clients are dropped and counted.
    #[serde(deserialize_with = "number::whole")]
    pub maximum_sessions: u64,
    /// Assisted sessions that clients of one address (IPv6: of one /64) may have at the same time;
    /// further ones are refused assistance and forwarded plainly.
    #[serde(deserialize_with = "number::small_whole")]
    pub sessions_per_source: u32,
    /// Assisted sessions that clients of one address (IPv6: of one /64) may begin per second, with
    /// bursts of as many; further ones are refused assistance and forwarded plainly.
    #[serde(deserialize_with = "number::small_whole")]
    pub handshakes_per_second_per_source: u32,
    /// Handshakes per second below which clients save the round trip of the cookie; 0: a cookie is
    /// always demanded.
    #[serde(
        deserialize_with = "number::small_whole",
        skip_serializing_if = "number::is::<{ default::HANDSHAKES_PER_SECOND_WITHOUT_COOKIE }>"
    )]
    pub handshakes_per_second_without_cookie: u32,
    /// The gateway's 32-byte static private key (X25519) as 64 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_key: Option<Hidden>,
    /// A file with the static key: 32 raw bytes, or 64 hexadecimal digits with optional white
    /// space around them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_key_file: Option<PathBuf>,
    /// Secrets of the gateways that share `static_key`, each 64 hexadecimal digits: the one in use,
    /// then the next or previous one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_keys: Vec<Hidden>,
    /// Congestion control of the servers.
    #[serde(skip_serializing_if = "default::is_any_sender")]
    pub sender: SenderKind,
    /// Share of the clients that are refused assistance, so that there is something to compare with.
    #[serde(deserialize_with = "number::fraction", skip_serializing_if = "default::is_nothing")]
    pub holdout: f64,
    /// Policy about tokens.
    pub tokens: TokenPolicy,
    /// The keys of the token endpoint, each `identifier:64 hexadecimal digits`: the current one,
    /// then the previous one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub token_keys: Vec<Hidden>,
    /// A file with these keys, one in a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_keys_file: Option<PathBuf>,
    /// Names of fields that a gateway of another version may ignore: the writer knows whether that
    /// is safe.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub optional: Vec<String>,
}

impl RouteConfig {
    /// Reads a configuration, without checking its values. A field that does not exist is ignored
    /// if `optional` names it.
    ///
    /// # Errors
    /// When it is not JSON, or a field is missing, not known or of the wrong type.
    pub fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text).or_else(|error| {
            // This error is about the text itself, with line and column.
            let Ok(mut fields) = serde_json::from_slice::<Map<String, Value>>(text) else {
                return Err(error);
            };
            let optional = fields.get("optional").and_then(Value::as_array).cloned();
            for name in optional.iter().flatten().filter_map(Value::as_str) {
                if ROUTE_KNOBS.iter().all(|knob| knob.field != name) {
                    fields.remove(name);
                }
            }
            serde_json::from_value(Value::Object(fields)).map_err(|_| error)
        })
    }

    /// A route with the defaults.
    ///
    /// # Errors
    /// [`InvalidField`] when the name or the list of endpoints is not usable.
    pub fn new(
        route: impl Into<String>,
        endpoints: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Self, InvalidField> {
        Self::unchecked(route, endpoints).checked()
    }

    /// Returns a route with only a stream, and the defaults.
    ///
    /// # Errors
    /// [`InvalidField`] if the name or the stream is not usable.
    pub fn of_stream(route: impl Into<String>, stream: StreamRoute) -> Result<Self, InvalidField> {
        Self { stream: Some(stream), ..Self::unchecked(route, []) }.checked()
    }

    /// A route with the defaults, not checked yet: [`RouteConfig::checked`] does that.
    pub fn unchecked(
        route: impl Into<String>,
        endpoints: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        Self {
            route: route.into(),
            gateway: "packrat".to_owned(),
            namespace: "default".to_owned(),
            endpoints: endpoints.into_iter().collect(),
            weights: BTreeMap::new(),
            refused_weight: 0.0,
            affinity: Affinity::Address,
            quic_lb: Vec::new(),
            peers: Vec::new(),
            stream: None,
            assist: true,
            new_clients: true,
            cache_bytes_per_session: 1 << 20,
            cache_bytes_total: 256 << 20,
            repair_budget: share_of_percent(default::REPAIR_BUDGET_PERCENT),
            early_copies: default::EARLY_COPIES,
            sparse_copies: false,
            residual_loss_target: 1e-5,
            idle_timeout_seconds: default::IDLE_TIMEOUT_SECONDS,
            maximum_sessions: default::MAXIMUM_SESSIONS,
            sessions_per_source: default::SESSIONS_PER_SOURCE,
            handshakes_per_second_per_source: 100,
            handshakes_per_second_without_cookie: default::HANDSHAKES_PER_SECOND_WITHOUT_COOKIE,
            static_key: None,
            static_key_file: None,
            peer_keys: Vec::new(),
            sender: SenderKind::Any,
            holdout: 0.0,
            tokens: TokenPolicy::Off,
            token_keys: Vec::new(),
            token_keys_file: None,
            optional: Vec::new(),
        }
    }

    /// The defaults of all fields. The name of the route is empty, which [`RouteConfig::checked`] refuses.
    fn bare() -> Self {
        Self::unchecked("", [])
    }

    /// Time without a datagram after which a session ends.
    pub const fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_seconds)
    }
}

/// A share of one, such as `repair_budget`, from percent: the unit of EdgeGateways and annotations.
pub const fn share_of_percent(percent: u32) -> f64 {
    percent as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<RouteConfig, String> {
        let config: RouteConfig = serde_json::from_str(text).map_err(|error| error.to_string())?;
        config.checked().map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_and_floating_point_numbers() {
        let text = r#"{"maximum_sessions":1e3,"sessions_per_source":16.0,"route":"web","endpoints":["192.0.2.1:443","[2001:db8::1]:443"],"idle_timeout_seconds":30.0,"cache_bytes_total":"5000000000","repair_budget":"0.3","residual_loss_target":1e-6}"#;
        let config = read(text).unwrap();
        assert_eq!(config.maximum_sessions, 1000);
        assert_eq!(
            (config.sessions_per_source, config.handshakes_per_second_per_source),
            (16, 100)
        );
        assert_eq!(config.cache_bytes_total, 5_000_000_000);
        assert_eq!((config.repair_budget, config.residual_loss_target), (0.3, 1e-6));
        assert_eq!(config.idle_timeout(), Duration::from_secs(30));
        assert_eq!(config.endpoints.len(), 2);
        assert!(config.assist);
        assert_eq!(config.static_key, None);
    }

    /// Through Envoy a fraction arrives as a text.
    #[test]
    fn weights_are_numbers_by_endpoint() {
        let text = r#"{"route":"web","endpoints":["192.0.2.1:443","[2001:db8::1]:443"],"weights":{"192.0.2.1:443":"0.5","[2001:db8::1]:443":9},"refused_weight":"0.25"}"#;
        let config = read(text).unwrap();
        let weights: Vec<f64> = config.weights.values().copied().collect();
        assert_eq!((weights, config.refused_weight), (vec![0.5, 9.0], 0.25));
        assert_eq!(read(&serde_json::to_string(&config).unwrap()), Ok(config));
    }

    /// The operator writes them as optional; a person may.
    #[test]
    fn peers_need_a_key_and_are_no_servers() {
        let route = |rest: &str| {
            read(&format!(r#"{{"route":"web","endpoints":["192.0.2.1:443"],{rest}}}"#))
        };
        let key = format!(r#""static_key":"{}""#, "0f".repeat(32));
        let config =
            route(&format!(r#"{key},"peers":["192.0.2.9:443","192.0.2.8:443","192.0.2.9:443"]"#));
        let config = config.unwrap();
        assert_eq!(config.peers.len(), 2);
        assert_eq!(read(&serde_json::to_string(&config).unwrap()), Ok(config));
        let many: Vec<String> = (1..=65).map(|host| format!(r#""192.0.2.{host}:9""#)).collect();
        for (rest, problem) in [
            (r#""peers":["192.0.2.9:443"]"#.to_owned(), "static_key"),
            (format!(r#"{key},"peers":["192.0.2.1:443"]"#), "other addresses than `endpoints`"),
            (format!(r#"{key},"peers":["0.0.0.0:443"]"#), "nothing can be sent to"),
            (format!(r#"{key},"peers":[{}]"#, many.join(",")), "64 gateways at most"),
        ] {
            let error = route(&rest).unwrap_err();
            assert!(error.contains("peers") && error.contains(problem), "{error}");
        }
    }

    /// An omitted field has the same value in a parsed route and in a constructed one.
    #[test]
    fn there_is_one_set_of_defaults() {
        let endpoint = "192.0.2.1:443".parse().unwrap();
        let made = RouteConfig::new("web", [endpoint]).unwrap();
        assert_eq!(read(r#"{"route":"web","endpoints":["192.0.2.1:443"]}"#), Ok(made));
        let upstream = "239.1.2.3:5004".parse().unwrap();
        let made = RouteConfig::of_stream("tv", StreamRoute::new(upstream)).unwrap();
        assert_eq!(read(r#"{"route":"tv","stream":{"upstream":"239.1.2.3:5004"}}"#), Ok(made));
    }

    #[test]
    fn the_operator_writes_these_fields_and_the_gateway_reads_them() {
        let endpoint = "192.0.2.1:443".parse().unwrap();
        let mut config = RouteConfig::new("shop/web/443", [endpoint]).unwrap();
        config.static_key = Some(Hidden::new("0f".repeat(32)));
        let mut expected = json!({
            "route": "shop/web/443",
            "gateway": "packrat",
            "namespace": "default",
            "endpoints": ["192.0.2.1:443"],
            "cache_bytes_per_session": "1048576",
            "cache_bytes_total": "268435456",
            "repair_budget": 0.25,
            "residual_loss_target": 0.00001,
            "idle_timeout_seconds": 120,
            "maximum_sessions": 25_000,
            "sessions_per_source": 4096,
            "handshakes_per_second_per_source": 100,
            "static_key": "0f".repeat(32),
            "tokens": "off",
        });
        assert_eq!(serde_json::to_value(&config).unwrap(), expected);
        config.stream = Some(StreamRoute::new("0.0.0.0:5004".parse().unwrap()));
        config.tokens = TokenPolicy::Required;
        config.token_keys = vec![Hidden::new("1:00")];
        expected["stream"] = json!({ "upstream": "0.0.0.0:5004", "group": null });
        expected["tokens"] = "required".into();
        expected["token_keys"] = json!(["1:00"]);
        assert_eq!(serde_json::to_value(&config).unwrap(), expected);
        let config = config.checked().unwrap();
        assert_eq!(read(&expected.to_string()), Ok(config.clone()));
        assert!(!format!("{config:?}").contains("0f0f"), "secrets stay out of logs");
    }

    /// Fields that the operator cannot set are written unless they have their default.
    #[test]
    fn fields_beyond_the_operator_are_written_unless_default() {
        let mut config =
            RouteConfig::of_stream("tv", StreamRoute::new("0.0.0.0:5".parse().unwrap())).unwrap();
        config.assist = false;
        config.early_copies = 0.0;
        config.sparse_copies = true;
        config.holdout = 0.05;
        config.handshakes_per_second_without_cookie = 0;
        let stream = config.stream.as_mut().unwrap();
        stream.sources = vec!["192.0.2.7".parse().unwrap()];
        stream.group_hops = 2;
        stream.interface = Some("192.0.2.1".parse().unwrap());
        stream.key = Some(Hidden::new("0f".repeat(32)));
        stream.maximum_clients = 5;
        stream.cache_bytes = 4096;
        stream.silence_seconds = 7;
        stream.group_repairs_from = 4;
        assert_eq!(read(&serde_json::to_string(&config).unwrap()), Ok(config));
    }

    /// The fields that gateways of 0.1.0 know: they refuse every other one.
    const FIRST_VERSION: &str = "route gateway namespace endpoints stream assist cache_bytes_per_session cache_bytes_total repair_budget early_copies residual_loss_target idle_timeout_seconds maximum_sessions sessions_per_source handshakes_per_second_per_source handshakes_per_second_without_cookie static_key static_key_file tokens token_keys token_keys_file";

    /// During an upgrade, gateways of the former version accept the operator's configuration,
    /// unless it sets fields that they lack.
    #[test]
    fn gateways_of_the_first_version_take_a_route_with_defaults() {
        let mut config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        config.static_key = Some(Hidden::new("0f".repeat(32)));
        config.stream = Some(StreamRoute::new("0.0.0.0:5004".parse().unwrap()));
        config.tokens = TokenPolicy::Required;
        config.token_keys = vec![Hidden::new("1:00")];
        config.maximum_sessions = 7;
        let unknown = |config: &RouteConfig| -> Vec<String> {
            let Value::Object(fields) = serde_json::to_value(config).unwrap() else { panic!() };
            let known = |field: &String| FIRST_VERSION.split(' ').any(|known| known == *field);
            fields.into_iter().map(|(field, _)| field).filter(|field| !known(field)).collect()
        };
        assert_eq!(unknown(&config), Vec::<String>::new());
        config.new_clients = false;
        config.sender = SenderKind::Bbr;
        config.affinity = Affinity::Port;
        config.weights = [("192.0.2.1:443".parse().unwrap(), 2.0)].into();
        config.refused_weight = 1.0;
        config.holdout = 0.05;
        config.sparse_copies = true;
        let mut unknown = unknown(&config);
        unknown.sort();
        assert_eq!(
            unknown,
            [
                "affinity",
                "holdout",
                "new_clients",
                "refused_weight",
                "sender",
                "sparse_copies",
                "weights"
            ]
        );
    }

    /// A later operator may mark fields that this version may ignore.
    #[test]
    fn a_later_versions_field_is_ignored_if_marked_as_ignorable() {
        let bare = r#"{"route":"web","endpoints":["192.0.2.1:443"],"#;
        let read = |rest: &str| {
            let read = RouteConfig::read(format!("{bare}{rest}}}").as_bytes());
            read.map_err(|error| error.to_string())
        };
        let config = read(r#""warp":{"factor":9},"optional":["warp","repair_budget"]"#).unwrap();
        assert_eq!((config.repair_budget, config.optional.len()), (0.25, 2));
        let refused = read(r#""warp":{"factor":9}"#).unwrap_err();
        assert!(refused.starts_with("unknown field `warp`"), "{refused}");
        let refused = read(r#""warp":1,"weft":1,"optional":["weft"]"#).unwrap_err();
        assert!(refused.starts_with("unknown field `warp`"), "{refused}");
        // One that this version knows has to be right.
        let refused = read(r#""repair_budget":[],"optional":["repair_budget"]"#).unwrap_err();
        assert!(refused.contains("invalid type"), "{refused}");
    }

    #[test]
    fn shares_of_other_units_are_the_numbers_that_people_write() {
        assert_eq!((share_of_percent(25), share_of_percent(1000)), (0.25, 10.0));
    }
}
