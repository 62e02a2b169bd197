//! What is configured for a route with a live stream.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use packrat_engine::StreamConfig;
use packrat_wire::identifier::IdentifierScheme;
use serde::{Deserialize, Serialize};

use crate::configuration::{ConfigurationError, Hidden, decode_hexadecimal, small_whole_number};

/// One live stream for everybody who subscribes at the route's listeners.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamRoute {
    /// Where the stream arrives: an address of this host, or a multicast group, which is joined.
    pub upstream: SocketAddr,
    /// The only hosts that may send it. Empty: the route's endpoints; without these, whoever reaches the address.
    #[serde(default)]
    pub sources: Vec<IpAddr>,
    /// A multicast group to which the stream is sent once, instead of a copy to each subscriber.
    #[serde(default)]
    pub group: Option<SocketAddr>,
    /// Routers that what is sent to the group may pass, plus one.
    #[serde(default = "default_group_hops", deserialize_with = "small_whole_number")]
    pub group_hops: u32,
    /// The address of the interface at which IPv4 groups are joined and sent to; else the routing table decides. IPv6 groups have it in their
    /// scope.
    #[serde(default)]
    pub interface: Option<Ipv4Addr>,
    /// The stream's key, 64 hexadecimal digits: identifiers are made with it. Without it, a new one at each start.
    #[serde(default)]
    pub key: Option<Hidden>,
    /// Subscribers at the same time.
    #[serde(default = "default_maximum_clients", deserialize_with = "small_whole_number")]
    pub maximum_clients: u32,
    /// Bytes of packets kept for repair, for all subscribers together.
    #[serde(default = "default_cache_bytes", deserialize_with = "small_whole_number")]
    pub cache_bytes: u32,
    /// A subscriber that is silent for so many seconds is forgotten.
    #[serde(default = "default_silence_seconds", deserialize_with = "small_whole_number")]
    pub silence_seconds: u32,
    /// With a group: a repair goes to all of them when so many miss the same packet within a round trip.
    #[serde(default = "default_group_repairs_from", deserialize_with = "small_whole_number")]
    pub group_repairs_from: u32,
}

/// What of a stream can be shown to an operator.
#[derive(Debug, Clone, Serialize)]
pub struct StreamSummary {
    /// Where it arrives.
    pub upstream: SocketAddr,
    /// The group that it is sent to.
    pub group: Option<SocketAddr>,
    /// Subscribers at the same time.
    pub maximum_clients: u32,
}

impl StreamRoute {
    /// A stream with the defaults.
    pub fn new(upstream: SocketAddr) -> Self {
        Self {
            upstream,
            sources: Vec::new(),
            group: None,
            group_hops: default_group_hops(),
            interface: None,
            key: None,
            maximum_clients: default_maximum_clients(),
            cache_bytes: default_cache_bytes(),
            silence_seconds: default_silence_seconds(),
            group_repairs_from: default_group_repairs_from(),
        }
    }

    /// Checks the values; the error names the field.
    pub(crate) fn check(&self) -> Result<(), ConfigurationError> {
        let require = |holds: bool, field: &'static str, problem: &str| {
            if holds { Ok(()) } else { Err(ConfigurationError::Value { field, problem: problem.to_owned() }) }
        };
        let is_group = self.group.is_none_or(|group| group.ip().is_multicast() && group.port() != 0);
        require(is_group, "stream.group", "must be a multicast group with a port, such as 239.9.9.9:5006")?;
        require(
            self.group.is_none_or(|group| group != self.upstream),
            "stream.group",
            "must not be where the stream comes from: what is sent there would come back",
        )?;
        require(
            self.upstream.port() != 0 || !self.upstream.ip().is_multicast(),
            "stream.upstream",
            "must have a port when it is a multicast group",
        )?;
        require((1..=255).contains(&self.group_hops), "stream.group_hops", "must be 1 to 255")?;
        require(self.maximum_clients > 0, "stream.maximum_clients", "must be at least 1")?;
        require(
            self.cache_bytes >= 2048,
            "stream.cache_bytes",
            "must be at least 2048: a packet has to fit",
        )?;
        require(
            (1..=86_400).contains(&self.silence_seconds),
            "stream.silence_seconds",
            "must be 1 to 86400",
        )?;
        require(self.group_repairs_from > 0, "stream.group_repairs_from", "must be at least 1")?;
        self.read_key().map(|_| ())
    }

    /// The configured key.
    pub(crate) fn read_key(&self) -> Result<Option<[u8; 32]>, ConfigurationError> {
        let Some(text) = &self.key else { return Ok(None) };
        let problem = || ConfigurationError::Value {
            field: "stream.key",
            problem: "must be 64 hexadecimal digits (32 bytes)".to_owned(),
        };
        decode_hexadecimal(text.reveal().as_bytes()).map(Some).ok_or_else(problem)
    }

    /// Whether a change from `self` to `other` needs another cache or other identifiers: then subscribers join anew.
    pub(crate) fn needs_another_engine(&self, other: &Self) -> bool {
        self.cache_bytes != other.cache_bytes || self.key != other.key
    }

    /// Whether it needs other sockets.
    pub(crate) fn needs_other_sockets(&self, other: &Self) -> bool {
        let sockets = |config: &Self| (config.upstream, config.group, config.group_hops, config.interface);
        sockets(self) != sockets(other)
    }

    pub(crate) fn engine(&self) -> StreamConfig {
        StreamConfig {
            scheme: IdentifierScheme::Payload,
            cache_bytes: self.cache_bytes as usize,
            maximum_subscribers: self.maximum_clients as usize,
            silence: Duration::from_secs(self.silence_seconds.into()),
            group_repairs_from: self.group.map(|_| self.group_repairs_from),
        }
    }

    pub(crate) fn summary(&self) -> StreamSummary {
        StreamSummary { upstream: self.upstream, group: self.group, maximum_clients: self.maximum_clients }
    }
}

fn default_group_hops() -> u32 {
    1
}
fn default_maximum_clients() -> u32 {
    10_000
}
fn default_cache_bytes() -> u32 {
    64 * 1024
}
fn default_silence_seconds() -> u32 {
    30
}
fn default_group_repairs_from() -> u32 {
    3
}

#[cfg(test)]
mod tests {
    use crate::configuration::RouteConfig;

    fn error(stream: &str) -> String {
        let text = format!("{{\"route\": \"tv\", \"stream\": {stream}}}");
        RouteConfig::from_json(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_stream_needs_no_endpoints_and_mistakes_are_named() {
        let text = br#"{"route": "tv", "stream": {"upstream": "239.1.2.3:5004", "group": "239.9.9.9:5006"}}"#;
        let config = RouteConfig::from_json(text).unwrap();
        assert!(config.endpoints.is_empty() && config.stream.is_some());
        assert!(RouteConfig::from_json(br#"{"route": "tv"}"#).unwrap_err().to_string().contains("endpoints"));
        for (stream, field) in [
            ("{}", "upstream"),
            (r#"{"upstream": "nonsense"}"#, "socket address"),
            (r#"{"upstream": "0.0.0.0:5004", "group": "192.0.2.1:5"}"#, "stream.group"),
            (r#"{"upstream": "239.9.9.9:5", "group": "239.9.9.9:5"}"#, "come back"),
            (r#"{"upstream": "239.9.9.9:0"}"#, "stream.upstream"),
            (r#"{"upstream": "0.0.0.0:5", "maximum_clients": 0}"#, "stream.maximum_clients"),
            (r#"{"upstream": "0.0.0.0:5", "cache_bytes": 9}"#, "stream.cache_bytes"),
            (r#"{"upstream": "0.0.0.0:5", "key": "12"}"#, "stream.key"),
            (r#"{"upstream": "0.0.0.0:5", "colour": 1}"#, "colour"),
        ] {
            assert!(error(stream).contains(field), "{stream}: {}", error(stream));
        }
    }
}
