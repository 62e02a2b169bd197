//! Ranges of a route's fields.

use std::net::SocketAddr;

use super::key::is_key;
use super::{RouteConfig, ServerIds, StreamRoute};
use crate::invalid_field::InvalidField;
use crate::token::TokenPolicy;

/// Longest name of a route or gateway, in bytes; names become label values of metrics.
pub const MAXIMUM_NAME_BYTES: usize = 253;

/// Most gateways that a route names as its peers: each is asked about each client that has moved.
pub const MAXIMUM_PEERS: usize = 64;

/// The problem of a text that is no [`is_name`].
pub(crate) const NAME_PROBLEM: &str = "must be a text of 1 to 253 bytes without control characters";

/// True for a name of a route, gateway or namespace.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAXIMUM_NAME_BYTES && !name.contains(char::is_control)
}

fn require(holds: bool, field: &'static str, problem: &str) -> Result<(), InvalidField> {
    if holds { Ok(()) } else { Err(InvalidField::of_route(field, problem)) }
}

impl RouteConfig {
    /// Returns the configuration if every value is within its range.
    ///
    /// # Errors
    /// [`InvalidField`] with the first field out of range.
    pub fn checked(mut self) -> Result<Self, InvalidField> {
        self.check_names()?;
        require(
            !self.endpoints.is_empty() || self.stream.is_some(),
            "endpoints",
            "must name at least one \"ip:port\"",
        )?;
        self.stream.as_ref().map_or(Ok(()), StreamRoute::check)?;
        self.endpoints.iter().try_for_each(|endpoint| check_address("endpoints", endpoint))?;
        self.endpoints.sort_unstable();
        self.endpoints.dedup();
        self.check_peers()?;
        self.check_weights()?;
        ServerIds::check_all(&self.quic_lb)?;
        self.check_numbers()?;
        self.check_keys()?;
        Ok(self)
    }

    fn check_names(&self) -> Result<(), InvalidField> {
        require(is_name(&self.route), "route", NAME_PROBLEM)?;
        require(is_name(&self.gateway), "gateway", NAME_PROBLEM)?;
        require(is_name(&self.namespace), "namespace", NAME_PROBLEM)
    }

    fn check_peers(&mut self) -> Result<(), InvalidField> {
        self.peers.iter().try_for_each(|peer| check_address("peers", peer))?;
        self.peers.sort_unstable();
        self.peers.dedup();
        let problem = format!("must name {MAXIMUM_PEERS} gateways at most; leave it out with more");
        require(self.peers.len() <= MAXIMUM_PEERS, "peers", &problem)?;
        let apart = self.peers.iter().all(|peer| !self.endpoints.contains(peer));
        require(apart, "peers", "must be other addresses than `endpoints`")?;
        let has_key = self.static_key.is_some() || self.static_key_file.is_some();
        let problem = "need a `static_key`, the same for all of them";
        require(self.peers.is_empty() || has_key, "peers", problem)
    }

    fn check_weights(&self) -> Result<(), InvalidField> {
        let is_weight = |weight: f64| weight.is_finite() && weight >= 0.0;
        let positive = self.weights.values().all(|weight| is_weight(*weight) && *weight > 0.0);
        require(positive, "weights", "must be above 0; leave out an endpoint that gets no client")?;
        let known = self.weights.keys().all(|endpoint| self.endpoints.contains(endpoint));
        require(known, "weights", "must be those of `endpoints`")?;
        require(is_weight(self.refused_weight), "refused_weight", "must be 0 or more")
    }

    fn check_numbers(&self) -> Result<(), InvalidField> {
        require(self.cache_bytes_per_session > 0, "cache_bytes_per_session", "must be at least 1")?;
        require(
            self.cache_bytes_total >= self.cache_bytes_per_session,
            "cache_bytes_total",
            "must be at least `cache_bytes_per_session`",
        )?;
        require(
            (0.0..=10.0).contains(&self.repair_budget),
            "repair_budget",
            "must be between 0 and 10",
        )?;
        require(
            (0.0..=1.0).contains(&self.early_copies),
            "early_copies",
            "must be between 0 and 1",
        )?;
        require((0.0..=0.5).contains(&self.holdout), "holdout", "must be between 0 and 0.5")?;
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
        let problem = "must be at least 1; to assist no client set `assist` to false";
        require(self.sessions_per_source > 0, "sessions_per_source", problem)?;
        require(
            self.handshakes_per_second_per_source > 0,
            "handshakes_per_second_per_source",
            problem,
        )
    }

    fn check_keys(&self) -> Result<(), InvalidField> {
        require(
            self.static_key.is_none() || self.static_key_file.is_none(),
            "static_key",
            "and `static_key_file` are both given; give one of them",
        )?;
        let problem = "must be two at most: the one in use, and the next or previous one";
        require(self.peer_keys.len() <= 2, "peer_keys", problem)?;
        let has_key = self.static_key.is_some() || self.static_key_file.is_some();
        let problem = "need a `static_key`, the same for all gateways of the address";
        require(self.peer_keys.is_empty() || has_key, "peer_keys", problem)?;
        require(
            self.token_keys.is_empty() || self.token_keys_file.is_none(),
            "token_keys",
            "and `token_keys_file` are both given; give one of them",
        )?;
        require(
            self.tokens == TokenPolicy::Off
                || !self.token_keys.is_empty()
                || self.token_keys_file.is_some(),
            "tokens",
            "cannot be verified without `token_keys` or `token_keys_file`",
        )
    }
}

fn check_address(field: &'static str, address: &SocketAddr) -> Result<(), InvalidField> {
    let usable =
        address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast();
    let problem =
        format!("contains {address}, which nothing can be sent to; give a unicast ip:port");
    require(usable, field, &problem)
}

impl StreamRoute {
    fn check(&self) -> Result<(), InvalidField> {
        let is_group =
            self.group.is_none_or(|group| group.ip().is_multicast() && group.port() != 0);
        require(
            is_group,
            "stream.group",
            "must be a multicast group with a port, such as 239.9.9.9:5006",
        )?;
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
        require(
            self.key.as_ref().is_none_or(|key| is_key(key.reveal())),
            "stream.key",
            "must be 64 hexadecimal digits (32 bytes)",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RouteConfig, String> {
        let config: RouteConfig = serde_json::from_str(text).map_err(|error| error.to_string())?;
        config.checked().map_err(|error| error.to_string())
    }

    #[test]
    fn errors_name_the_field() {
        let endpoints = r#""route":"web","endpoints":["192.0.2.1:443"]"#;
        for (text, part) in [
            (r#"{"route":"web"}"#.to_owned(), "endpoints"),
            (r#"{"route":"web","endpoints":[]}"#.to_owned(), "endpoints"),
            (r#"{"route":"web","endpoints":["0.0.0.0:443"]}"#.to_owned(), "0.0.0.0:443"),
            (
                r#"{"route":"web","endpoints":["example.org:443"]}"#.to_owned(),
                "invalid socket address",
            ),
            (r#"{"route":"","endpoints":["192.0.2.1:443"]}"#.to_owned(), "route"),
            (format!(r#"{{{endpoints},"repair_budjet":1}}"#), "repair_budjet"),
            (format!(r#"{{{endpoints},"repair_budget":-1}}"#), "repair_budget"),
            (format!(r#"{{{endpoints},"repair_budget":"NaN"}}"#), "repair_budget"),
            (format!(r#"{{{endpoints},"repair_budget":"much"}}"#), "a number"),
            (format!(r#"{{{endpoints},"early_copies":1.5}}"#), "early_copies"),
            (format!(r#"{{{endpoints},"holdout":0.51}}"#), "holdout"),
            (format!(r#"{{{endpoints},"weights":{{"192.0.2.1:443":0}}}}"#), "weights"),
            (format!(r#"{{{endpoints},"weights":{{"192.0.2.2:443":1}}}}"#), "weights"),
            (format!(r#"{{{endpoints},"refused_weight":-1}}"#), "refused_weight"),
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
            (
                format!(r#"{{{endpoints},"token_keys":["1:00"],"token_keys_file":"x"}}"#),
                "token_keys_file",
            ),
            (format!(r#"{{{endpoints},"tokens":"required"}}"#), "token_keys"),
            (format!(r#"{{{endpoints},"peer_keys":["0f"]}}"#), "static_key"),
            (
                format!(r#"{{{endpoints},"static_key":"ab","peer_keys":["a","b","c"]}}"#),
                "two at most",
            ),
            (format!(r#"{{{endpoints},"tokens":"perhaps"}}"#), "perhaps"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(
            read(&format!(r#"{{{endpoints},"sessions_per_source":0}}"#)).unwrap_err(),
            "field `sessions_per_source` of the route configuration must be at least 1; to assist no client set `assist` to false"
        );
    }

    #[test]
    fn a_stream_needs_no_endpoints_and_mistakes_are_named() {
        let text = r#"{"route": "tv", "stream": {"upstream": "239.1.2.3:5004", "group": "239.9.9.9:5006"}}"#;
        let config = read(text).unwrap();
        assert!(config.endpoints.is_empty() && config.stream.is_some());
        assert!(read(r#"{"route": "tv"}"#).unwrap_err().contains("endpoints"));
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
            let error = read(&format!(r#"{{"route": "tv", "stream": {stream}}}"#)).unwrap_err();
            assert!(error.contains(field), "{stream}: {error}");
        }
    }
}
