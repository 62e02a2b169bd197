//! The configuration of a token endpoint: the JSON object that the operator or a person writes and
//! the token filter reads. Unknown fields are errors.

pub mod default;

use serde::{Deserialize, Serialize};

use crate::invalid_field::InvalidField;
use crate::route::Hidden;
use crate::route::check::{NAME_PROBLEM, is_name};
use crate::route::key::is_key;
use crate::route::number;

/// The configuration of a token endpoint, which issues the tokens of one route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEndpointConfig {
    /// Name of the route, the same as in the route's configuration.
    pub route: String,
    /// The keys with which the gateway verifies tokens, each `identifier:64 hexadecimal digits`.
    /// The first one issues.
    pub token_keys: Vec<Hidden>,
    /// The address at which the gateway assists.
    pub udp: UdpAddress,
    /// The gateway's static public key (X25519), 64 hexadecimal digits, which clients pin.
    pub gateway_key: String,
    /// Lifetime of a token in seconds.
    #[serde(default = "default::lifetime_seconds", deserialize_with = "number::small_whole")]
    pub lifetime_seconds: u32,
    /// Longest time that datagrams should wait at clients for the repair of an earlier one, in
    /// milliseconds.
    #[serde(default = "default::maximum_hold_ms", deserialize_with = "number::small_whole")]
    pub maximum_hold_ms: u32,
    /// Binds tokens to the client's network. Without it they are valid from everywhere. Clients
    /// whose UDP leaves with another address than their TCP (carrier-grade NAT, IPv6 beside IPv4)
    /// need that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<NetworkBinding>,
    /// The treatment of requests for other paths.
    #[serde(default)]
    pub other_paths: OtherPaths,
    /// The rate limit per client.
    #[serde(default, skip_serializing_if = "ClientRate::is_default")]
    pub rate: ClientRate,
}

/// The UDP address at which the gateway assists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpAddress {
    /// Host name or address. By default the host that the client has asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// UDP port.
    #[serde(deserialize_with = "number::small_whole")]
    pub port: u32,
}

/// Lengths of the prefixes that tokens are bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkBinding {
    /// Bits of an IPv4 address.
    #[serde(default = "default::ipv4_prefix", deserialize_with = "number::small_whole")]
    pub ipv4_prefix: u32,
    /// Bits of an IPv6 address.
    #[serde(default = "default::ipv6_prefix", deserialize_with = "number::small_whole")]
    pub ipv6_prefix: u32,
}

impl Default for NetworkBinding {
    fn default() -> Self {
        Self { ipv4_prefix: default::ipv4_prefix(), ipv6_prefix: default::ipv6_prefix() }
    }
}

/// The treatment of requests for other paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientRate {
    /// Tokens per minute, in the long run.
    #[serde(default = "default::per_minute", deserialize_with = "number::small_whole")]
    pub per_minute: u32,
    /// Tokens at once.
    #[serde(default = "default::burst", deserialize_with = "number::small_whole")]
    pub burst: u32,
    /// Largest number of remembered clients. Above it, the filter forgets clients with the oldest
    /// last request.
    #[serde(default = "default::clients", deserialize_with = "number::small_whole")]
    pub clients: u32,
}

impl Default for ClientRate {
    fn default() -> Self {
        Self {
            per_minute: default::per_minute(),
            burst: default::burst(),
            clients: default::clients(),
        }
    }
}

impl ClientRate {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn require(holds: bool, field: &'static str, problem: &str) -> Result<(), InvalidField> {
    if holds { Ok(()) } else { Err(InvalidField::of_token_endpoint(field, problem)) }
}

impl TokenEndpointConfig {
    /// A token endpoint with the defaults, not checked yet: [`TokenEndpointConfig::checked`] does
    /// that.
    pub fn unchecked(
        route: impl Into<String>,
        token_keys: Vec<Hidden>,
        udp_port: u16,
        gateway_key: impl Into<String>,
    ) -> Self {
        Self {
            route: route.into(),
            token_keys,
            udp: UdpAddress { host: None, port: udp_port.into() },
            gateway_key: gateway_key.into(),
            lifetime_seconds: default::lifetime_seconds(),
            maximum_hold_ms: default::maximum_hold_ms(),
            bind: None,
            other_paths: OtherPaths::default(),
            rate: ClientRate::default(),
        }
    }

    /// Returns the configuration if every value is within its range. The texts of the keys are not
    /// checked.
    ///
    /// # Errors
    /// [`InvalidField`] with the first field out of range.
    pub fn checked(self) -> Result<Self, InvalidField> {
        require(is_name(&self.route), "route", NAME_PROBLEM)?;
        require(
            (1..=2).contains(&self.token_keys.len()),
            "token_keys",
            "must have one or two keys, the current one first",
        )?;
        self.udp.check()?;
        require(
            is_key(&self.gateway_key),
            "gateway_key",
            "must be 64 hexadecimal digits (the public key, which the gateway logs and shows at /packrat)",
        )?;
        require(
            (10..=86_400).contains(&self.lifetime_seconds),
            "lifetime_seconds",
            "must be between 10 and 86400",
        )?;
        require(self.maximum_hold_ms <= 10_000, "maximum_hold_ms", "must be at most 10000")?;
        if let Some(bind) = self.bind {
            require(bind.ipv4_prefix <= 32, "bind.ipv4_prefix", "must be at most 32")?;
            require(bind.ipv6_prefix <= 128, "bind.ipv6_prefix", "must be at most 128")?;
        }
        self.rate.check()?;
        Ok(self)
    }
}

impl UdpAddress {
    fn check(&self) -> Result<(), InvalidField> {
        require((1..=65_535).contains(&self.port), "udp.port", "must be between 1 and 65535")?;
        let is_host = |host: &str| {
            !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/')
        };
        require(
            self.host.as_deref().is_none_or(is_host),
            "udp.host",
            "must be a host name or an IP address",
        )
    }
}

impl ClientRate {
    fn check(&self) -> Result<(), InvalidField> {
        let problem = "must be between 1 and 60000";
        require((1..=60_000).contains(&self.per_minute), "rate.per_minute", problem)?;
        require((1..=60_000).contains(&self.burst), "rate.burst", problem)?;
        require(
            (1..=1_000_000).contains(&self.clients),
            "rate.clients",
            "must be between 1 and 1000000",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<TokenEndpointConfig, String> {
        let config: TokenEndpointConfig =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        config.checked().map_err(|error| error.to_string())
    }

    fn text(more: &str) -> String {
        format!(
            r#"{{"route":"web","token_keys":["2:00"],"udp":{{"port":4433}},"gateway_key":"{}"{more}}}"#,
            "ab".repeat(32)
        )
    }

    fn made() -> TokenEndpointConfig {
        let keys = vec![Hidden::new("2:00")];
        TokenEndpointConfig::unchecked("web", keys, 4433, "ab".repeat(32))
    }

    /// An omitted field has the same value in a parsed configuration and in a constructed one.
    #[test]
    fn there_is_one_set_of_defaults() {
        assert_eq!(read(&text("")), Ok(made()));
        let with_networks = TokenEndpointConfig { bind: Some(NetworkBinding::default()), ..made() };
        assert_eq!(read(&text(r#","bind":{}"#)), Ok(with_networks));
    }

    #[test]
    fn numbers_may_have_a_fraction_of_zero_or_be_texts() {
        let config = read(&text(r#","lifetime_seconds":60.0,"rate":{"burst":"7"}"#)).unwrap();
        assert_eq!((config.lifetime_seconds, config.rate.burst), (60, 7));
    }

    #[test]
    fn the_token_filter_reads_the_fields_that_the_operator_writes() {
        let mut config = made();
        config.other_paths = OtherPaths::NotFound;
        let mut expected = json!({
            "route": "web",
            "token_keys": ["2:00"],
            "udp": { "port": 4433 },
            "gateway_key": "ab".repeat(32),
            "lifetime_seconds": 300,
            "maximum_hold_ms": 1000,
            "other_paths": "not_found",
        });
        assert_eq!(serde_json::to_value(&config).unwrap(), expected);
        config.udp.host = Some("edge.example".to_owned());
        config.bind = Some(NetworkBinding::default());
        config.rate.per_minute = 6;
        expected["udp"]["host"] = "edge.example".into();
        expected["bind"] = json!({ "ipv4_prefix": 24, "ipv6_prefix": 56 });
        expected["rate"] = json!({ "per_minute": 6, "burst": 10, "clients": 4096 });
        assert_eq!(serde_json::to_value(&config).unwrap(), expected);
        assert_eq!(read(&expected.to_string()), Ok(config.clone()));
        assert!(!format!("{config:?}").contains("2:00"), "secrets stay out of logs");
    }

    #[test]
    fn errors_name_the_field() {
        for (more, part) in [
            (r#","lifetime":5"#, "lifetime"),
            (r#","lifetime_seconds":5"#, "lifetime_seconds"),
            (r#","lifetime_seconds":1.5"#, "whole number"),
            (r#","lifetime_seconds":-1"#, "whole number"),
            (r#","maximum_hold_ms":100000"#, "maximum_hold_ms"),
            (r#","bind":{"ipv4_prefix":33}"#, "ipv4_prefix"),
            (r#","bind":{"ipv6_prefix":129}"#, "ipv6_prefix"),
            (r#","rate":{"per_minute":0}"#, "rate.per_minute"),
            (r#","rate":{"burst":60001}"#, "rate.burst"),
            (r#","rate":{"clients":0}"#, "rate.clients"),
            (r#","other_paths":"perhaps""#, "perhaps"),
        ] {
            let error = read(&text(more)).unwrap_err();
            assert!(error.contains(part), "{more}: {error}");
        }
        for (from, to, part) in [
            (r#"["2:00"]"#, "[]", "token_keys"),
            (r#"["2:00"]"#, r#"["2:00","1:00","0:00"]"#, "token_keys"),
            ("abab", "abxx", "gateway_key"),
            ("4433", "70000", "udp.port"),
            ("4433", "0", "udp.port"),
            (r#"{"port""#, r#"{"host":"a b","port""#, "udp.host"),
            (r#""web""#, r#""""#, "route"),
            (r#""route":"web","#, "", "route"),
        ] {
            let text = text("").replacen(from, to, 1);
            let error = read(&text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(
            read(&text(r#","lifetime_seconds":5"#)).unwrap_err(),
            "field `lifetime_seconds` of the configuration of the token endpoint must be between 10 and 86400"
        );
    }
}
