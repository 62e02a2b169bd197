//! What an operator configures for a route; read by both shells from the same JSON.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use packrat_engine::TokenPolicy;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::stream::{StreamRoute, StreamSummary};
use crate::tokens::{Tokens, read_lines};

/// Longest name of a route or gateway, in bytes; names become label values of metrics.
pub const MAXIMUM_NAME_BYTES: usize = 253;

/// Everything that is configured for one route (one set of endpoints behind one or several listeners).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Name of the route: the key of its sessions, and a label of its metrics.
    pub route: String,
    /// Name of the gateway; a label of the metrics.
    #[serde(default = "default_gateway")]
    pub gateway: String,
    /// Kubernetes namespace of what is behind the route; a label of the metrics.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Servers to forward to. A client is assigned to one of them by rendezvous hashing of its address.
    #[serde(default)]
    pub endpoints: Vec<SocketAddr>,
    /// A live stream for everybody who subscribes at the listeners. Then endpoints may be left out; they are where subscribers' own datagrams
    /// go, and who may send the stream.
    #[serde(default)]
    pub stream: Option<StreamRoute>,
    /// Whether clients may ask for assistance. Without it, control datagrams are dropped and everything else is forwarded.
    #[serde(default = "default_assist")]
    pub assist: bool,
    /// Bytes that one session may keep for repair.
    #[serde(default = "default_cache_per_session", deserialize_with = "whole_number")]
    pub cache_bytes_per_session: u64,
    /// Bytes that all sessions of the route together may keep for repair.
    #[serde(default = "default_cache_total", deserialize_with = "whole_number")]
    pub cache_bytes_total: u64,
    /// Repairs as a share of the forwarded bytes (0.25 = 25 %); up to twice that where the measured loss needs it.
    #[serde(default = "default_repair_budget", deserialize_with = "fraction")]
    pub repair_budget: f64,
    /// Probability that a repaired datagram may still be missing when it is needed.
    #[serde(default = "default_residual_loss_target", deserialize_with = "fraction")]
    pub residual_loss_target: f64,
    /// Seconds without a datagram in either direction after which a session ends.
    #[serde(default = "default_idle_timeout", deserialize_with = "whole_number")]
    pub idle_timeout_seconds: u64,
    /// Sessions that may exist at once; datagrams of further clients are dropped and counted.
    #[serde(default = "default_maximum_sessions", deserialize_with = "whole_number")]
    pub maximum_sessions: u64,
    /// Assisted sessions that clients of one address (IPv6: of one /64) may have at the same time; further ones are refused
    /// assistance and forwarded plainly.
    #[serde(default = "default_sessions_per_source", deserialize_with = "small_whole_number")]
    pub sessions_per_source: u32,
    /// Assisted sessions that clients of one address (IPv6: of one /64) may begin per second, with bursts of as many; further
    /// ones are refused assistance and forwarded plainly.
    #[serde(default = "default_handshakes_per_second_per_source", deserialize_with = "small_whole_number")]
    pub handshakes_per_second_per_source: u32,
    /// Handshakes per second below which clients save the round trip of the cookie; 0: a cookie is always demanded.
    #[serde(
        default = "default_handshakes_per_second_without_cookie",
        deserialize_with = "small_whole_number"
    )]
    pub handshakes_per_second_without_cookie: u32,
    /// The gateway's 32-byte static private key (X25519) as 64 hexadecimal digits.
    #[serde(default)]
    pub static_key: Option<Hidden>,
    /// A file with the static key: 32 raw bytes, or 64 hexadecimal digits with optional white space around them.
    #[serde(default)]
    pub static_key_file: Option<PathBuf>,
    /// Whether clients need a token to be assisted.
    #[serde(default)]
    pub tokens: Tokens,
    /// The keys of the token endpoint, each `identifier:64 hexadecimal digits`: the current one, then the previous one.
    #[serde(default)]
    pub token_keys: Vec<Hidden>,
    /// A file with these keys, one in a line.
    #[serde(default)]
    pub token_keys_file: Option<PathBuf>,
}

/// A secret that does not show up in logs.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Hidden(String);

impl Hidden {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(hidden)")
    }
}

/// What of a route's configuration can be shown to an operator (no secrets).
#[derive(Debug, Clone, Serialize)]
pub struct RouteSummary {
    /// Name of the gateway.
    pub gateway: String,
    /// Namespace of what is behind the route.
    pub namespace: String,
    /// Servers that are forwarded to.
    pub endpoints: Vec<SocketAddr>,
    /// The live stream.
    pub stream: Option<StreamSummary>,
    /// Whether clients may ask for assistance.
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
    /// Why that is less than what is configured.
    pub sessions_limited_by: Option<String>,
    /// Whether clients need a token to be assisted.
    pub tokens: Tokens,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// Not JSON, an unknown field, a missing field or a value of the wrong type.
    #[error("the route configuration cannot be read: {0}; correct the field that is named")]
    Syntax(#[from] serde_json::Error),
    /// A value outside its range.
    #[error("field `{field}` of the route configuration {problem}")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A file with a static key or token keys cannot be read.
    #[error("the key file {path} cannot be read: {source}; check the path and its permissions")]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The operating system gave no random bytes for a key.
    #[error(
        "the operating system gave no random bytes: {0}; configure `static_key_file` and check /dev/urandom"
    )]
    Random(getrandom::Error),
}

impl RouteConfig {
    /// A route with nothing but a stream, and the defaults.
    ///
    /// # Errors
    /// [`ConfigurationError::Value`] when the name or the stream is not usable.
    pub fn of_stream(route: impl Into<String>, stream: StreamRoute) -> Result<Self, ConfigurationError> {
        Self { stream: Some(stream), ..Self::unchecked(route, []) }.checked()
    }

    /// A route with the defaults.
    ///
    /// # Errors
    /// [`ConfigurationError::Value`] when the name or the list of endpoints is not usable.
    pub fn new(
        route: impl Into<String>,
        endpoints: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Self, ConfigurationError> {
        Self::unchecked(route, endpoints).checked()
    }

    fn unchecked(route: impl Into<String>, endpoints: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            route: route.into(),
            gateway: default_gateway(),
            namespace: default_namespace(),
            endpoints: endpoints.into_iter().collect(),
            stream: None,
            assist: default_assist(),
            cache_bytes_per_session: default_cache_per_session(),
            cache_bytes_total: default_cache_total(),
            repair_budget: default_repair_budget(),
            residual_loss_target: default_residual_loss_target(),
            idle_timeout_seconds: default_idle_timeout(),
            maximum_sessions: default_maximum_sessions(),
            sessions_per_source: default_sessions_per_source(),
            handshakes_per_second_per_source: default_handshakes_per_second_per_source(),
            handshakes_per_second_without_cookie: default_handshakes_per_second_without_cookie(),
            static_key: None,
            static_key_file: None,
            tokens: Tokens::Off,
            token_keys: Vec::new(),
            token_keys_file: None,
        }
    }

    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ConfigurationError::Syntax`] or [`ConfigurationError::Value`], both naming the field.
    pub fn from_json(text: &[u8]) -> Result<Self, ConfigurationError> {
        let config: Self = serde_json::from_slice(text)?;
        config.checked()
    }

    /// The same configuration when every value is within its range.
    ///
    /// # Errors
    /// [`ConfigurationError::Value`] naming the first field that is not.
    pub fn checked(mut self) -> Result<Self, ConfigurationError> {
        let require = |holds: bool, field: &'static str, problem: &str| {
            if holds { Ok(()) } else { Err(ConfigurationError::Value { field, problem: problem.to_owned() }) }
        };
        let is_name = |name: &str| {
            !name.is_empty() && name.len() <= MAXIMUM_NAME_BYTES && !name.contains(char::is_control)
        };
        let name_problem = "must be a text of 1 to 253 bytes without control characters";
        require(is_name(&self.route), "route", name_problem)?;
        require(is_name(&self.gateway), "gateway", name_problem)?;
        require(is_name(&self.namespace), "namespace", name_problem)?;
        require(
            !self.endpoints.is_empty() || self.stream.is_some(),
            "endpoints",
            "must name at least one \"ip:port\"",
        )?;
        self.stream.as_ref().map_or(Ok(()), StreamRoute::check)?;
        for endpoint in &self.endpoints {
            let usable =
                endpoint.port() != 0 && !endpoint.ip().is_unspecified() && !endpoint.ip().is_multicast();
            let problem =
                format!("contains {endpoint}, which nothing can be sent to; give a unicast ip:port");
            require(usable, "endpoints", &problem)?;
        }
        self.endpoints.sort_unstable();
        self.endpoints.dedup();
        require(self.cache_bytes_per_session > 0, "cache_bytes_per_session", "must be at least 1")?;
        require(
            self.cache_bytes_total >= self.cache_bytes_per_session,
            "cache_bytes_total",
            "must be at least `cache_bytes_per_session`",
        )?;
        require((0.0..=10.0).contains(&self.repair_budget), "repair_budget", "must be between 0 and 10")?;
        require(
            self.residual_loss_target > 0.0 && self.residual_loss_target < 1.0,
            "residual_loss_target",
            "must be above 0 and below 1",
        )?;
        require(
            (1..=86_400).contains(&self.idle_timeout_seconds),
            "idle_timeout_seconds",
            "must be between 1 and 86400",
        )?;
        require(self.maximum_sessions > 0, "maximum_sessions", "must be at least 1")?;
        require(
            self.sessions_per_source > 0,
            "sessions_per_source",
            "must be at least 1; to assist nobody set `assist` to false",
        )?;
        require(
            self.handshakes_per_second_per_source > 0,
            "handshakes_per_second_per_source",
            "must be at least 1; to assist nobody set `assist` to false",
        )?;
        require(
            self.static_key.is_none() || self.static_key_file.is_none(),
            "static_key",
            "and `static_key_file` are both given; give one of them",
        )?;
        require(
            self.token_keys.is_empty() || self.token_keys_file.is_none(),
            "token_keys",
            "and `token_keys_file` are both given; give one of them",
        )?;
        require(
            self.tokens == Tokens::Off || !self.token_keys.is_empty() || self.token_keys_file.is_some(),
            "tokens",
            "cannot be verified without `token_keys` or `token_keys_file`",
        )?;
        Ok(self)
    }

    /// Time without a datagram after which a session ends.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_seconds)
    }

    /// The static key that is configured, or `None` when one is to be made.
    ///
    /// # Errors
    /// When the text or the file is not a key.
    pub fn read_static_key(&self) -> Result<Option<[u8; 32]>, ConfigurationError> {
        if let Some(Hidden(text)) = &self.static_key {
            let problem = || ConfigurationError::Value {
                field: "static_key",
                problem: "must be 64 hexadecimal digits (32 bytes)".to_owned(),
            };
            return decode_hexadecimal(text.as_bytes()).map(Some).ok_or_else(problem);
        }
        let Some(path) = &self.static_key_file else { return Ok(None) };
        let content = std::fs::read(path)
            .map_err(|source| ConfigurationError::KeyFile { path: path.clone(), source })?;
        let raw = <[u8; 32]>::try_from(content.as_slice()).ok();
        let key = raw.or_else(|| decode_hexadecimal(content.trim_ascii()));
        key.map(Some).ok_or_else(|| ConfigurationError::Value {
            field: "static_key_file",
            problem: format!(
                "names {}, which holds neither 32 raw bytes nor 64 hexadecimal digits",
                path.display()
            ),
        })
    }

    /// The engine's policy, with the keys that are configured.
    ///
    /// # Errors
    /// When a text is not a key, there are more than two, or the file cannot be read.
    pub fn read_token_policy(&self) -> Result<TokenPolicy, ConfigurationError> {
        match &self.token_keys_file {
            Some(path) if self.tokens != Tokens::Off => {
                let content = read_lines(path)?;
                let lines = content.lines().map(str::trim).filter(|line| !line.is_empty());
                self.tokens.policy(&self.route, lines, "token_keys_file")
            }
            _ => {
                let texts = self.token_keys.iter().map(|Hidden(text)| text.as_str());
                self.tokens.policy(&self.route, texts, "token_keys")
            }
        }
    }

    /// What can be shown to an operator.
    pub(crate) fn summary(&self, capacity: &Capacity) -> RouteSummary {
        let is_limited = self.maximum_sessions > capacity.sessions();
        RouteSummary {
            gateway: self.gateway.clone(),
            namespace: self.namespace.clone(),
            endpoints: self.endpoints.clone(),
            stream: self.stream.as_ref().map(StreamRoute::summary),
            assist: self.assist,
            cache_bytes_per_session: self.cache_bytes_per_session,
            cache_bytes_total: self.cache_bytes_total,
            repair_budget: self.repair_budget,
            idle_timeout_seconds: self.idle_timeout_seconds,
            maximum_sessions: self.maximum_sessions,
            maximum_sessions_in_force: self.maximum_sessions.min(capacity.sessions()),
            sessions_limited_by: is_limited.then(|| capacity.reason().to_owned()),
            tokens: self.tokens,
        }
    }
}

fn default_gateway() -> String {
    "packrat".to_owned()
}
fn default_namespace() -> String {
    "default".to_owned()
}
const fn default_assist() -> bool {
    true
}
const fn default_cache_per_session() -> u64 {
    1 << 20
}
const fn default_cache_total() -> u64 {
    256 << 20
}
const fn default_repair_budget() -> f64 {
    0.25
}
const fn default_residual_loss_target() -> f64 {
    1e-5
}
/// Seconds without a datagram in either direction after which a session ends, unless a route says otherwise.
const IDLE_TIMEOUT_SECONDS: u64 = 120;
const fn default_idle_timeout() -> u64 {
    IDLE_TIMEOUT_SECONDS
}
const fn default_maximum_sessions() -> u64 {
    100_000
}
const fn default_sessions_per_source() -> u32 {
    4096
}
const fn default_handshakes_per_second_per_source() -> u32 {
    100
}
const fn default_handshakes_per_second_without_cookie() -> u32 {
    100
}

pub(crate) fn decode_hexadecimal(text: &[u8]) -> Option<[u8; 32]> {
    let digit = |byte: u8| (byte as char).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut key = [0; 32];
    if text.len() != 2 * key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(key)
}

/// Reads a whole number that may be written as `120`, `120.0`, `1.2e2` or `"120"`. Envoy passes this configuration as a
/// `google.protobuf.Struct`: its numbers are floating point, and fractions or numbers above 2^31 of a YAML
/// file arrive as texts.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    struct WholeNumber;

    impl Visitor<'_> for WholeNumber {
        type Value = u64;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a whole number that is not negative")
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
            Ok(value)
        }

        fn visit_f64<E: de::Error>(self, value: f64) -> Result<u64, E> {
            // Above 2^53 a floating-point number no longer says which whole number was meant.
            if value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value) {
                Ok(value as u64)
            } else {
                Err(E::invalid_value(de::Unexpected::Float(value), &self))
            }
        }

        fn visit_str<E: de::Error>(self, value: &str) -> Result<u64, E> {
            value.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
        }
    }

    deserializer.deserialize_any(WholeNumber)
}

/// Reads a whole number below 2^32, written in any of the same ways.
pub(crate) fn small_whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let value = whole_number(deserializer)?;
    u32::try_from(value)
        .map_err(|_| de::Error::invalid_value(de::Unexpected::Unsigned(value), &"a whole number below 2^32"))
}

/// Reads a number that may be written as `0.25` or `"0.25"`, for the same reason.
fn fraction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    struct Fraction;

    impl Visitor<'_> for Fraction {
        type Value = f64;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a number")
        }

        fn visit_u64<E: de::Error>(self, value: u64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_i64<E: de::Error>(self, value: i64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_f64<E: de::Error>(self, value: f64) -> Result<f64, E> {
            Ok(value)
        }

        fn visit_str<E: de::Error>(self, value: &str) -> Result<f64, E> {
            value.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
        }
    }

    deserializer.deserialize_any(Fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        RouteConfig::from_json(text.as_bytes()).expect_err("must be refused").to_string()
    }

    #[test]
    fn defaults_and_floating_point_numbers() {
        let text = br#"{"maximum_sessions":1e3,"sessions_per_source":16.0,"route":"web","endpoints":["192.0.2.1:443","[2001:db8::1]:443"],"idle_timeout_seconds":30.0,"cache_bytes_total":"5000000000","repair_budget":"0.3","residual_loss_target":1e-6}"#;
        let config = RouteConfig::from_json(text).unwrap();
        assert_eq!(config.maximum_sessions, 1000);
        assert_eq!((config.sessions_per_source, config.handshakes_per_second_per_source), (16, 100));
        assert_eq!(config.cache_bytes_total, 5_000_000_000);
        assert_eq!((config.repair_budget, config.residual_loss_target), (0.3, 1e-6));
        assert_eq!(config.idle_timeout(), Duration::from_secs(30));
        assert_eq!(config.endpoints.len(), 2);
        assert!(config.assist);
        assert_eq!(config.read_static_key().unwrap(), None);
    }

    #[test]
    fn errors_name_the_field() {
        let endpoints = r#""route":"web","endpoints":["192.0.2.1:443"]"#;
        for (text, part) in [
            (r#"{"route":"web"}"#.to_owned(), "endpoints"),
            (r#"{"route":"web","endpoints":[]}"#.to_owned(), "endpoints"),
            (r#"{"route":"web","endpoints":["0.0.0.0:443"]}"#.to_owned(), "0.0.0.0:443"),
            (r#"{"route":"web","endpoints":["example.org:443"]}"#.to_owned(), "invalid socket address"),
            (r#"{"route":"","endpoints":["192.0.2.1:443"]}"#.to_owned(), "route"),
            (format!(r#"{{{endpoints},"repair_budjet":1}}"#), "repair_budjet"),
            (format!(r#"{{{endpoints},"repair_budget":-1}}"#), "repair_budget"),
            (format!(r#"{{{endpoints},"repair_budget":"NaN"}}"#), "repair_budget"),
            (format!(r#"{{{endpoints},"repair_budget":"much"}}"#), "a number"),
            (format!(r#"{{{endpoints},"residual_loss_target":0}}"#), "residual_loss_target"),
            (format!(r#"{{{endpoints},"idle_timeout_seconds":0}}"#), "idle_timeout_seconds"),
            (format!(r#"{{{endpoints},"maximum_sessions":1.5}}"#), "whole number"),
            (format!(r#"{{{endpoints},"maximum_sessions":"-5"}}"#), "whole number"),
            (format!(r#"{{{endpoints},"cache_bytes_total":1}}"#), "cache_bytes_total"),
            (format!(r#"{{{endpoints},"sessions_per_source":0}}"#), "sessions_per_source"),
            (format!(r#"{{{endpoints},"sessions_per_source":4294967296}}"#), "below 2^32"),
            (
                format!(r#"{{{endpoints},"handshakes_per_second_per_source":"0"}}"#),
                "handshakes_per_second_per_source",
            ),
            (format!(r#"{{{endpoints},"handshakes_per_second_per_source":-1}}"#), "whole number"),
            (format!(r#"{{{endpoints},"static_key":"ab","static_key_file":"x"}}"#), "static_key"),
            (format!(r#"{{{endpoints},"token_keys":["1:00"],"token_keys_file":"x"}}"#), "token_keys_file"),
            (format!(r#"{{{endpoints},"tokens":"required"}}"#), "token_keys"),
            (format!(r#"{{{endpoints},"tokens":"perhaps"}}"#), "perhaps"),
        ] {
            assert!(refused(&text).contains(part), "{text}: {}", refused(&text));
        }
    }

    #[test]
    fn token_keys_inline_and_in_a_file() {
        let lines = format!("2:{}\n\n 1:{}\n", "02".repeat(32), "01".repeat(32));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys");
        std::fs::write(&file, &lines).unwrap();
        let mut config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        config.token_keys_file = Some(file.clone());
        assert_eq!(config.read_token_policy().unwrap(), TokenPolicy::Off);
        config.tokens = Tokens::Required;
        let from_file = config.read_token_policy().unwrap();
        config.token_keys = lines.split_whitespace().map(|line| Hidden(line.to_owned())).collect();
        config.token_keys_file = None;
        assert_eq!(config.read_token_policy().unwrap(), from_file);
        assert!(matches!(from_file, TokenPolicy::Required(check) if check.keys.previous.is_some()));
        assert!(!format!("{config:?}").contains("0202"));
        config.token_keys_file = Some(directory.path().join("nothing"));
        assert!(config.read_token_policy().unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn static_keys_in_three_forms() {
        let hexadecimal = "0f".repeat(32);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let mut config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        config.static_key_file = Some(file.clone());
        for content in
            [vec![15; 32], hexadecimal.clone().into_bytes(), format!("{hexadecimal}\n").into_bytes()]
        {
            std::fs::write(&file, content).unwrap();
            assert_eq!(config.read_static_key().unwrap(), Some([15; 32]));
        }
        std::fs::write(&file, "short").unwrap();
        assert!(config.read_static_key().unwrap_err().to_string().contains("64 hexadecimal digits"));
        std::fs::remove_file(&file).unwrap();
        assert!(config.read_static_key().unwrap_err().to_string().contains("cannot be read"));
        config.static_key_file = None;
        config.static_key = Some(Hidden(hexadecimal));
        assert_eq!(config.read_static_key().unwrap(), Some([15; 32]));
        assert!(!format!("{config:?}").contains("0f0f"));
    }
}
