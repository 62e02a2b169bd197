//! Tokens: the policy of a route, and the document of a token endpoint.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Policy about tokens: which clients need one to be assisted. Plain forwarding never does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenPolicy {
    /// Tokens are ignored.
    #[default]
    Off,
    /// A client without a token is assisted, one with a wrong token is not.
    Optional,
    /// Only clients with a valid token are assisted.
    Required,
}

impl TokenPolicy {
    const ALL: [Self; 3] = [Self::Off, Self::Optional, Self::Required];

    /// The name in a route's configuration and in annotations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

impl fmt::Display for TokenPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The error of a text that is no token policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownTokenPolicy;

impl fmt::Display for UnknownTokenPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("write off, optional or required")
    }
}

impl std::error::Error for UnknownTokenPolicy {}

impl FromStr for TokenPolicy {
    type Err = UnknownTokenPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|policy| policy.name() == text).ok_or(UnknownTokenPolicy)
    }
}

/// The answer of a token endpoint: everything that a client needs to be assisted. Readers ignore
/// fields that they do not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenDocument {
    /// [`TokenDocument::VERSION`].
    pub version: u64,
    /// The UDP endpoint at which the gateway assists.
    pub udp: Option<UdpEndpoint>,
    /// The gateway's static public key (X25519), 64 hexadecimal digits.
    pub gateway_key: String,
    /// The token, base64url.
    pub token: String,
    /// Expiry of the token, in seconds since 1970.
    pub expires: Option<u64>,
    /// Parameters for the client.
    #[serde(default)]
    pub parameters: TokenParameters,
}

impl TokenDocument {
    /// The version of the document that is described here.
    pub const VERSION: u64 = 1;
}

/// The UDP endpoint of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpEndpoint {
    /// Host name or address; `None`: the host that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// UDP port.
    pub port: u16,
}

/// Parameters for the client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenParameters {
    /// Longest time that the client should withhold an acknowledgement, in milliseconds.
    pub maximum_hold_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_one_name_in_json_and_in_texts() {
        for policy in TokenPolicy::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert_eq!("Required".parse::<TokenPolicy>(), Err(UnknownTokenPolicy));
    }

    #[test]
    fn the_token_document_has_these_keys_in_this_order() {
        let document = TokenDocument {
            version: TokenDocument::VERSION,
            udp: Some(UdpEndpoint { host: Some("edge.example".to_owned()), port: 443 }),
            gateway_key: "0a".to_owned(),
            token: "AQID".to_owned(),
            expires: Some(9),
            parameters: TokenParameters { maximum_hold_ms: Some(1000) },
        };
        let text = serde_json::to_string(&document).unwrap();
        assert_eq!(
            text,
            r#"{"version":1,"udp":{"host":"edge.example","port":443},"gateway_key":"0a","token":"AQID","expires":9,"parameters":{"maximum_hold_ms":1000}}"#
        );
        assert_eq!(serde_json::from_str::<TokenDocument>(&text).unwrap(), document);
    }

    #[test]
    fn version_key_and_token_are_all_that_a_document_needs() {
        let text = r#"{"version":1,"gateway_key":"0a","token":"AQID","later":[]}"#;
        let document: TokenDocument = serde_json::from_str(text).unwrap();
        assert_eq!((document.udp, document.expires), (None, None));
        assert_eq!(document.parameters, TokenParameters::default());
        let error = serde_json::from_str::<TokenDocument>(r#"{"version":1}"#).unwrap_err();
        assert!(error.to_string().starts_with("missing field `gateway_key`"), "{error}");
    }
}
