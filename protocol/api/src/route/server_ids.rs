//! Connection IDs that name their server (QUIC-LB, draft-ietf-quic-load-balancers-21), in a route's
//! configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::key::Hidden;
use super::number;
use crate::invalid_field::InvalidField;

/// A configuration of QUIC-LB, shared with the servers of the route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerIds {
    /// The number of the configuration in connection IDs, 0 to 6 (config rotation).
    #[serde(default, deserialize_with = "number::small_whole")]
    pub config: u32,
    /// Bytes of a server ID.
    #[serde(deserialize_with = "number::small_whole")]
    pub server_id_bytes: u32,
    /// Bytes of a nonce.
    #[serde(deserialize_with = "number::small_whole")]
    pub nonce_bytes: u32,
    /// The key of 32 hexadecimal digits that server IDs are encrypted with. Without one everybody can
    /// read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Hidden>,
    /// Server IDs in hexadecimal digits, by endpoint. One that is not named has the end of its IP
    /// address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server_ids: BTreeMap<SocketAddr, String>,
}

/// The problem of a value, with the field in front of it.
fn require(holds: bool, problem: &str) -> Result<(), InvalidField> {
    if holds { Ok(()) } else { Err(InvalidField::of_route("quic_lb", problem)) }
}

impl ServerIds {
    /// The server ID of an endpoint: the configured one, or the last bytes of its IP address, with
    /// leading zeros if that is shorter.
    pub fn of(&self, endpoint: SocketAddr) -> Vec<u8> {
        if let Some(bytes) = self.server_ids.get(&endpoint).and_then(|text| bytes_of(text)) {
            return bytes;
        }
        let address = match endpoint.ip().to_canonical() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let length = self.server_id_bytes as usize;
        let zeros = std::iter::repeat_n(0, length.saturating_sub(address.len()));
        let skipped = address.len().saturating_sub(length);
        zeros.chain(address.into_iter().skip(skipped)).collect()
    }

    /// The key as bytes.
    pub fn key_bytes(&self) -> Option<[u8; 16]> {
        bytes_of(self.key.as_ref()?.reveal())?.try_into().ok()
    }

    /// Checks all configurations of a route.
    ///
    /// # Errors
    /// [`InvalidField`] with the fault.
    pub fn check_all(all: &[Self]) -> Result<(), InvalidField> {
        let numbers: BTreeSet<u32> = all.iter().map(|one| one.config).collect();
        require(numbers.len() == all.len(), "has two configurations with the same `config`")?;
        all.iter().try_for_each(Self::check)
    }

    fn check(&self) -> Result<(), InvalidField> {
        let problem = "has a `config` above 6: 7 says that a connection ID names no server";
        require(self.config <= 6, problem)?;
        let fits = self.server_id_bytes >= 1
            && self.nonce_bytes >= 4
            && self.server_id_bytes.saturating_add(self.nonce_bytes) <= 19;
        let problem = "needs a `server_id_bytes` of 1 or more and a `nonce_bytes` of 4 or more, together at most 19";
        require(fits, problem)?;
        require(
            self.key.is_none() || self.key_bytes().is_some(),
            "has a `key` that is not 32 hexadecimal digits (16 bytes)",
        )?;
        let ids: BTreeSet<Option<Vec<u8>>> =
            self.server_ids.values().map(|text| bytes_of(text)).collect();
        let is_id = |id: &Option<Vec<u8>>| {
            id.as_ref().is_some_and(|id| id.len() == self.server_id_bytes as usize)
        };
        let problem = "has `server_ids` that are not `server_id_bytes` bytes in hexadecimal digits";
        require(ids.iter().all(is_id), problem)?;
        require(ids.len() == self.server_ids.len(), "has the same server ID twice in `server_ids`")
    }
}

/// Bytes from hexadecimal digits of either case.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    base16ct::mixed::decode_vec(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::RouteConfig;
    use serde_json::{Value, json};

    fn read(quic_lb: &Value) -> Result<RouteConfig, String> {
        let route = json!({ "route": "web", "endpoints": ["192.0.2.10:443"], "quic_lb": quic_lb });
        let config: RouteConfig =
            serde_json::from_value(route).map_err(|error| error.to_string())?;
        config.checked().map_err(|error| error.to_string())
    }

    /// Through Envoy numbers are floating-point ones.
    #[test]
    fn a_configuration_is_read_and_written() {
        let config = read(&json!([
            { "server_id_bytes": 4.0, "nonce_bytes": 12.0, "key": "8f95f09245765f80256934e50c66207f" },
            { "config": 1, "server_id_bytes": 3, "nonce_bytes": 4, "server_ids": { "192.0.2.10:443": "C4605e" } },
        ]))
        .unwrap();
        let written = serde_json::to_string(&config).unwrap();
        assert_eq!(RouteConfig::read(written.as_bytes()).unwrap(), config);
        assert!(!format!("{config:?}").contains("8f95"), "keys stay out of logs");
        let endpoint = "192.0.2.10:443".parse().unwrap();
        assert_eq!(config.quic_lb[0].of(endpoint), [192, 0, 2, 10]);
        assert_eq!(config.quic_lb[1].of(endpoint), [0xc4, 0x60, 0x5e]);
        assert_eq!(config.quic_lb[0].key_bytes().unwrap()[..2], [0x8f, 0x95]);
    }

    #[test]
    fn a_server_id_is_the_end_of_the_address_and_longer_with_zeros() {
        let of = |bytes: u32, endpoint: &str| {
            let config = ServerIds {
                config: 0,
                server_id_bytes: bytes,
                nonce_bytes: 4,
                key: None,
                server_ids: BTreeMap::new(),
            };
            config.of(endpoint.parse().unwrap())
        };
        assert_eq!(of(2, "10.244.1.7:443"), [1, 7]);
        assert_eq!(of(6, "10.244.1.7:443"), [0, 0, 10, 244, 1, 7]);
        assert_eq!(of(4, "[::ffff:10.244.1.7]:443"), [10, 244, 1, 7]);
        assert_eq!(of(2, "[2001:db8::1:7]:443"), [0, 7]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let good = json!({ "server_id_bytes": 3, "nonce_bytes": 4 });
        let with = |field: &str, value: Value| {
            let mut changed = good.clone();
            changed[field] = value;
            json!([changed])
        };
        for (quic_lb, part) in [
            (json!([good, good]), "same `config`"),
            (with("config", 7.into()), "above 6"),
            (with("server_id_bytes", 0.into()), "together at most 19"),
            (with("server_id_bytes", 16.into()), "together at most 19"),
            (with("nonce_bytes", 3.into()), "together at most 19"),
            (with("key", "8f95".into()), "32 hexadecimal digits"),
            (with("server_ids", json!({ "192.0.2.10:443": "c4605" })), "in hexadecimal digits"),
            (with("server_ids", json!({ "192.0.2.10:443": "c460" })), "in hexadecimal digits"),
            (
                with(
                    "server_ids",
                    json!({ "192.0.2.10:443": "c4605e", "192.0.2.11:443": "C4605E" }),
                ),
                "same server ID twice",
            ),
            (with("nonce", 4.into()), "unknown field `nonce`"),
        ] {
            let error = read(&quic_lb).unwrap_err();
            assert!(error.contains(part), "{quic_lb}: {error}");
        }
    }
}
