//! Tokens: the policy of a route, and the document of a token endpoint.

use serde::{Deserialize, Serialize};

use crate::words::words;

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

words! {
    TokenPolicy,
    /// The error of a text that is no token policy.
    UnknownTokenPolicy "write off, optional or required",
    [Off "off" "Off", Optional "optional" "Optional", Required "required" "Required"]
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
    /// Longest time that datagrams should wait at the client for the repair of an earlier one, in
    /// milliseconds.
    pub maximum_hold_ms: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_have_one_name_in_json_and_in_texts() {
        for &policy in TokenPolicy::ALL {
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
