//! The operator's configuration, as JSON (in Envoy a `google.protobuf.StringValue` or
//! `google.protobuf.Struct`).

use core::net::IpAddr;

use packrat_assist_token::{Binding, Key};
use serde::{Deserialize, Deserializer, de};
use thiserror::Error;

/// Configuration of the token endpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Name of the route, the same as in the configuration of the gateway's UDP filter.
    pub route: String,
    /// The keys with which the gateway verifies tokens, each `identifier:64 hexadecimal digits`.
    /// The first one issues.
    #[serde(deserialize_with = "keys")]
    pub token_keys: Vec<Key>,
    /// The address at which the gateway assists.
    pub udp: Udp,
    /// The gateway's static public key (X25519), 64 hexadecimal digits, which clients pin.
    pub gateway_key: String,
    /// Lifetime of a token in seconds.
    #[serde(default = "default_lifetime", deserialize_with = "whole_number")]
    pub lifetime_seconds: u64,
    /// Longest time that clients should withhold an acknowledgement, in milliseconds.
    #[serde(default = "default_maximum_hold", deserialize_with = "whole_number")]
    pub maximum_hold_ms: u64,
    /// Binds tokens to the client's network. Without it they are valid from everywhere. Clients
    /// whose UDP leaves with another address than their TCP (carrier-grade NAT, IPv6 beside IPv4)
    /// need that.
    #[serde(default)]
    pub bind: Option<Bind>,
    /// The treatment of requests for other paths.
    #[serde(default)]
    pub other_paths: OtherPaths,
    /// The rate limit per client.
    #[serde(default)]
    pub rate: Rate,
}

/// The UDP address at which the gateway assists.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Udp {
    /// Host name or address. By default the host that the client has asked.
    #[serde(default)]
    pub host: Option<String>,
    /// UDP port.
    #[serde(deserialize_with = "whole_number")]
    pub port: u64,
}

/// Lengths of the prefixes that tokens are bound to.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// Bits of an IPv4 address.
    #[serde(default = "default_ipv4_prefix", deserialize_with = "whole_number")]
    pub ipv4_prefix: u64,
    /// Bits of an IPv6 address.
    #[serde(default = "default_ipv6_prefix", deserialize_with = "whole_number")]
    pub ipv6_prefix: u64,
}

/// The treatment of requests for other paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherPaths {
    /// The filters after this one and the route decide.
    #[default]
    Continue,
    /// This filter answers 404: the listener is for tokens only.
    NotFound,
}

/// The rate limit per client (an IPv4 address, or the /64 of an IPv6 address). Each of Envoy's
/// workers counts for itself.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Tokens per minute, in the long run.
    #[serde(default = "default_per_minute", deserialize_with = "whole_number")]
    pub per_minute: u64,
    /// Tokens at once.
    #[serde(default = "default_burst", deserialize_with = "whole_number")]
    pub burst: u64,
    /// Most remembered clients. Beyond, the filter forgets those whose last request is oldest.
    #[serde(default = "default_clients", deserialize_with = "whole_number")]
    pub clients: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            per_minute: default_per_minute(),
            burst: default_burst(),
            clients: default_clients(),
        }
    }
}

/// The reason why a configuration is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// Not JSON, an unknown field, a missing field or a value of the wrong type.
    #[error(
        "the configuration of the token endpoint cannot be read: {0}; correct the field that is named"
    )]
    Syntax(#[from] serde_json::Error),
    /// A value outside its range.
    #[error("field `{field}` of the configuration of the token endpoint {problem}")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// The valid values.
        problem: &'static str,
    },
}

impl Configuration {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ConfigurationError`] names the wrong field and its valid values.
    pub fn from_json(text: &[u8]) -> Result<Self, ConfigurationError> {
        let configuration: Self = serde_json::from_slice(text)?;
        let require = |holds: bool, field: &'static str, problem: &'static str| {
            if holds { Ok(()) } else { Err(ConfigurationError::Value { field, problem }) }
        };
        require(!configuration.route.is_empty(), "route", "must not be empty")?;
        let keys = configuration.token_keys.len();
        require(
            (1..=2).contains(&keys),
            "token_keys",
            "must have one or two keys, the current one first",
        )?;
        require(
            (1..=65_535).contains(&configuration.udp.port),
            "udp.port",
            "must be between 1 and 65535",
        )?;
        let host = configuration.udp.host.as_deref();
        require(
            host.is_none_or(|host| {
                !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/')
            }),
            "udp.host",
            "must be a host name or an IP address",
        )?;
        let key = configuration.gateway_key.as_bytes();
        require(
            key.len() == 64 && key.iter().all(u8::is_ascii_hexdigit),
            "gateway_key",
            "must be 64 hexadecimal digits (the public key, which the gateway logs and shows at /packrat)",
        )?;
        require(
            (10..=86_400).contains(&configuration.lifetime_seconds),
            "lifetime_seconds",
            "must be between 10 and 86400",
        )?;
        require(
            configuration.maximum_hold_ms <= 10_000,
            "maximum_hold_ms",
            "must be at most 10000",
        )?;
        if let Some(bind) = configuration.bind {
            require(bind.ipv4_prefix <= 32, "bind.ipv4_prefix", "must be at most 32")?;
            require(bind.ipv6_prefix <= 128, "bind.ipv6_prefix", "must be at most 128")?;
        }
        let rate = configuration.rate;
        require(
            (1..=60_000).contains(&rate.per_minute),
            "rate.per_minute",
            "must be between 1 and 60000",
        )?;
        require((1..=60_000).contains(&rate.burst), "rate.burst", "must be between 1 and 60000")?;
        require(
            (1..=1_000_000).contains(&rate.clients),
            "rate.clients",
            "must be between 1 and 1000000",
        )?;
        Ok(configuration)
    }

    /// The network to which the token of a client at this address is bound.
    pub(crate) fn binding(&self, client: IpAddr) -> Option<Binding> {
        let bind = self.bind?;
        let client = client.to_canonical();
        let prefix = if client.is_ipv4() { bind.ipv4_prefix } else { bind.ipv6_prefix };
        Binding::new(client, u8::try_from(prefix).ok()?).ok()
    }
}

const fn default_lifetime() -> u64 {
    300
}
const fn default_maximum_hold() -> u64 {
    1000
}
const fn default_ipv4_prefix() -> u64 {
    24
}
const fn default_ipv6_prefix() -> u64 {
    56
}
const fn default_per_minute() -> u64 {
    30
}
const fn default_burst() -> u64 {
    10
}
const fn default_clients() -> u64 {
    4096
}

/// A whole number that may be written as `300` or `300.0`: the numbers of a
/// `google.protobuf.Struct` are floating point.
fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if value >= 0.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0 {
        Ok(value as u64)
    } else {
        Err(de::Error::invalid_value(
            de::Unexpected::Float(value),
            &"a whole number up to 4294967295",
        ))
    }
}

fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Key>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    // The text stays out of the message: it is a secret with a typing error.
    texts
        .iter()
        .map(|text| {
            Key::from_text(text)
                .map_err(|error| de::Error::custom(format_args!("token_keys: {error}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(more: &str) -> String {
        format!(
            r#"{{"route":"web","token_keys":["2:{}"],"udp":{{"port":4433}},"gateway_key":"{}"{more}}}"#,
            "0f".repeat(32),
            "ab".repeat(32)
        )
    }

    #[test]
    fn defaults_and_floating_point_numbers() {
        let configuration =
            Configuration::from_json(text(r#","lifetime_seconds":60.0"#).as_bytes()).unwrap();
        assert_eq!(configuration.lifetime_seconds, 60);
        assert_eq!((configuration.maximum_hold_ms, configuration.rate.per_minute), (1000, 30));
        assert_eq!(configuration.other_paths, OtherPaths::Continue);
        assert_eq!(configuration.binding("192.0.2.1".parse().unwrap()), None);
        assert!(!format!("{configuration:?}").contains("15, 15"), "the key must stay out of logs");
    }

    #[test]
    fn bindings_have_the_prefix_of_their_address_family() {
        let configuration =
            Configuration::from_json(text(r#","bind":{"ipv4_prefix":16}"#).as_bytes()).unwrap();
        let network = |address: &str| configuration.binding(address.parse().unwrap()).unwrap();
        assert_eq!(network("192.0.2.1").network(), "192.0.0.0".parse::<IpAddr>().unwrap());
        assert_eq!(network("::ffff:192.0.2.1").network(), "192.0.0.0".parse::<IpAddr>().unwrap());
        assert_eq!(
            network("2001:db8:0:1ff::1").network(),
            "2001:db8:0:100::".parse::<IpAddr>().unwrap()
        );
    }

    #[test]
    fn errors_name_the_field() {
        let refused =
            |text: &str| Configuration::from_json(text.as_bytes()).unwrap_err().to_string();
        for (more, part) in [
            (r#","lifetime":5"#, "lifetime"),
            (r#","lifetime_seconds":5"#, "lifetime_seconds"),
            (r#","lifetime_seconds":1.5"#, "whole number"),
            (r#","lifetime_seconds":-1"#, "whole number"),
            (r#","maximum_hold_ms":100000"#, "maximum_hold_ms"),
            (r#","bind":{"ipv4_prefix":33}"#, "ipv4_prefix"),
            (r#","bind":{"ipv6_prefix":129}"#, "ipv6_prefix"),
            (r#","rate":{"per_minute":0}"#, "rate.per_minute"),
            (r#","rate":{"clients":0}"#, "rate.clients"),
            (r#","other_paths":"perhaps""#, "perhaps"),
        ] {
            assert!(refused(&text(more)).contains(part), "{more}: {}", refused(&text(more)));
        }
        for (from, to, part) in [
            (r#""2:"#, r#""two:"#, "identifier"),
            ("0f0f", "0f", "64 hexadecimal digits"),
            (r#"["2:"#, r#"["1:00","2:"#, "token_keys"),
            ("abab", "abxx", "gateway_key"),
            ("4433", "70000", "udp.port"),
            (r#"{"port""#, r#"{"host":"a b","port""#, "udp.host"),
            (r#""web""#, r#""""#, "route"),
            (r#""route":"web","#, "", "route"),
        ] {
            let text = text("").replacen(from, to, 1);
            assert!(refused(&text).contains(part), "{text}: {}", refused(&text));
        }
        assert!(refused("").contains("cannot be read"));
        assert!(
            !refused(&text("").replacen("0f0f", "0f", 1)).contains("0f0f"),
            "a key must stay out of messages"
        );
    }
}
