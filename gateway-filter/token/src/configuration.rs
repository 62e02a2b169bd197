//! The configuration, as Envoy passes it on: JSON (a `google.protobuf.StringValue` or
//! `google.protobuf.Struct`).

use core::net::IpAddr;

use packrat_api::route::InvalidField;
use packrat_api::token_endpoint::TokenEndpointConfig;
use packrat_assist_token::{Binding, Key};
use thiserror::Error;

/// A configuration that was checked, and its key.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The configuration.
    pub endpoint: TokenEndpointConfig,
    /// The key that issues.
    pub key: Key,
}

/// The reason why a configuration is refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// The text is not JSON, or has an unknown field, a missing field or a value of the wrong type.
    #[error(
        "the configuration of the token endpoint cannot be read: {0}; correct the field that is named"
    )]
    Syntax(#[from] serde_json::Error),
    /// A value outside its range.
    #[error(transparent)]
    Field(#[from] InvalidField),
}

impl Configuration {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ConfigurationError`] names the wrong field and its valid values.
    pub fn from_json(text: &[u8]) -> Result<Self, ConfigurationError> {
        let endpoint = serde_json::from_slice::<TokenEndpointConfig>(text)?.checked()?;
        // The text stays out of the message: it is a secret with a typing error.
        let refused = |problem: String| InvalidField::of_token_endpoint("token_keys", problem);
        let mut keys = Vec::new();
        for text in &endpoint.token_keys {
            let key = Key::from_text(text.reveal());
            keys.push(key.map_err(|error| refused(format!("has a text that is no key: {error}")))?);
        }
        let key = keys.into_iter().next().ok_or_else(|| refused("is empty".to_owned()))?;
        Ok(Self { endpoint, key })
    }

    /// The network to which the token of a client at this address is bound.
    pub(crate) fn binding(&self, client: IpAddr) -> Option<Binding> {
        let bind = self.endpoint.bind?;
        let client = client.to_canonical();
        let prefix = if client.is_ipv4() { bind.ipv4_prefix } else { bind.ipv6_prefix };
        Binding::new(client, u8::try_from(prefix).ok()?).ok()
    }
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
    fn the_first_key_issues_and_stays_out_of_logs() {
        let configuration = Configuration::from_json(text("").as_bytes()).unwrap();
        assert_eq!(configuration.key.id(), 2);
        assert_eq!(configuration.binding("192.0.2.1".parse().unwrap()), None);
        let shown = format!("{configuration:?}");
        assert!(!shown.contains("15, 15") && !shown.contains("0f0f"), "{shown}");
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
    fn errors_name_the_field_and_no_key() {
        let refused =
            |text: &str| Configuration::from_json(text.as_bytes()).unwrap_err().to_string();
        let cases = [
            (r#""2:"#, r#""two:"#, "identifier"),
            ("0f0f", "0f", "64 hexadecimal digits"),
            (r#"["2:"#, r#"["1:00","2:"#, "token_keys"),
            ("4433", "70000", "udp.port"),
            (r#""udp""#, r#""tcp""#, "tcp"),
        ];
        for (from, to, part) in cases {
            let text = text("").replacen(from, to, 1);
            let error = refused(&text);
            assert!(error.contains(part) && !error.contains("0f0f"), "{text}: {error}");
        }
        assert!(refused("").contains("cannot be read"));
    }
}
