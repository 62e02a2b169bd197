//! The document of a token endpoint, parsed from untrusted bytes.

use packrat_assist_token::from_text;
use packrat_client::{Access, Token};
use packrat_wire::hexadecimal;
use serde::Deserialize;
use std::time::Duration;

/// Longest hold that a token endpoint can ask for; an application may allow more.
pub const MAXIMUM_HOLD: Duration = Duration::from_secs(1);

/// A token that a token endpoint has issued, with the gateway that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssistToken {
    /// The permission.
    pub token: Token,
    /// Expiry of the token, as time since 1970.
    pub expires: Option<Duration>,
    /// The gateway's static public key.
    pub gateway_key: [u8; 32],
    /// Address at which the gateway assists: host and UDP port.
    pub endpoint: Option<(String, u16)>,
    /// The hold that the endpoint asks for, at most [`MAXIMUM_HOLD`].
    pub maximum_hold: Option<Duration>,
}

impl AssistToken {
    /// The settings that use the token and accept no other gateway than its own. `hold`: the
    /// application's choice, instead of the endpoint's.
    ///
    /// ```
    /// let key = "0a".repeat(32);
    /// let document = format!(
    ///     r#"{{"version":1,"gateway_key":"{key}","token":"AQID","parameters":{{"maximum_hold_ms":80}}}}"#
    /// );
    /// let token = packrat_token_client::parse(document.as_bytes(), "example.org")?;
    /// let access = token.access(None);
    /// assert_eq!((access.gateway_key, access.maximum_hold.as_millis()), (Some([10; 32]), 80));
    /// # Ok::<(), String>(())
    /// ```
    pub fn access(&self, hold: Option<Duration>) -> Access {
        let access = Access::default();
        let maximum_hold = hold.or(self.maximum_hold).unwrap_or(access.maximum_hold);
        access
            .with_token(self.token.clone())
            .with_gateway_key(self.gateway_key)
            .with_maximum_hold(maximum_hold)
    }
}

/// Fields that are not known here are for later versions of clients.
#[derive(Deserialize)]
struct Fields {
    version: u64,
    gateway_key: String,
    token: String,
    expires: Option<u64>,
    udp: Option<Endpoint>,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Deserialize)]
struct Endpoint {
    host: Option<String>,
    port: u16,
}

#[derive(Deserialize, Default)]
struct Parameters {
    maximum_hold_ms: Option<u64>,
}

/// Reads a document. `asked`: the host that answered.
///
/// # Errors
/// A description of the fault.
pub fn parse(document: &[u8], asked: &str) -> Result<AssistToken, String> {
    let fields: Fields = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    if fields.version != 1 {
        return Err(format!("its version is {}, and 1 is the only one known here", fields.version));
    }
    let gateway_key =
        gateway_key(&fields.gateway_key).map_err(|error| format!("gateway_key: {error}"))?;
    let token = from_text(&fields.token).map_err(|error| format!("token: {error}"))?;
    let token = Token::new(token).map_err(|error| format!("token: {error}"))?;
    let endpoint = fields.udp.map(|udp| {
        let host = udp.host.unwrap_or_else(|| asked.to_owned());
        let bare =
            host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
        (bare.unwrap_or(host), udp.port)
    });
    if endpoint.as_ref().is_some_and(|(host, port)| host.is_empty() || *port == 0) {
        return Err("udp: expected a host that is not empty, and a port from 1 to 65535".to_owned());
    }
    let maximum_hold = fields.parameters.maximum_hold_ms.map(Duration::from_millis);
    let maximum_hold = maximum_hold.map(|hold| hold.min(MAXIMUM_HOLD));
    let expires = fields.expires.map(Duration::from_secs);
    Ok(AssistToken { token, expires, gateway_key, endpoint, maximum_hold })
}

/// Reads a gateway's static public key, 64 hexadecimal digits.
///
/// # Errors
/// It is something else.
pub fn gateway_key(text: &str) -> Result<[u8; 32], String> {
    hexadecimal::decode_key(text.as_bytes())
        .ok_or_else(|| "expected the gateway's public key, 64 hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use packrat_fuzz_entry::corpus;

    use super::*;

    fn document(more: &str) -> String {
        format!(
            r#"{{"version":1,"udp":{{"port":4433}},"gateway_key":"{}","token":"AQID","expires":9,"later":[]{more}}}"#,
            "0a".repeat(32)
        )
    }

    #[test]
    fn the_gateway_is_where_the_document_says() {
        let endpoint = |udp: &str| {
            let document = document("").replace(r#""udp":{"port":4433},"#, udp);
            parse(document.as_bytes(), "asked").map(|token| token.endpoint)
        };
        let at = |host: &str, port| Ok(Some((host.to_owned(), port)));
        assert_eq!(endpoint(r#""udp":{"port":4433},"#), at("asked", 4433));
        assert_eq!(
            endpoint(r#""udp":{"port":9,"host":"edge.example","later":1},"#),
            at("edge.example", 9)
        );
        assert_eq!(endpoint(r#""udp":{"port":9,"host":"[2001:db8::1]"},"#), at("2001:db8::1", 9));
        assert_eq!(endpoint(""), Ok(None));
        for wrong in
            [r#""udp":{"port":0},"#, r#""udp":{"port":9,"host":""},"#, r#""udp":{"port":70000},"#]
        {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_document_sets_token_key_and_hold() {
        let access = |parameters: &str, hold: Option<u64>| {
            let document = document(&format!(r#","parameters":{parameters}"#));
            let token = parse(document.as_bytes(), "asked").unwrap();
            token.access(hold.map(Duration::from_millis))
        };
        let with = access(r#"{"maximum_hold_ms":80,"later":1}"#, None);
        assert_eq!((with.token.as_bytes(), with.gateway_key), (&[1, 2, 3][..], Some([10; 32])));
        assert_eq!(with.maximum_hold, Duration::from_millis(80));
        // The application's own choice comes first, and has no bound but the application.
        assert_eq!(access(r#"{"maximum_hold_ms":80}"#, Some(3000)).maximum_hold.as_millis(), 3000);
        assert_eq!(access(r#"{"maximum_hold_ms":0}"#, None).maximum_hold, Duration::ZERO);
        assert_eq!(access("{}", None).maximum_hold, Access::default().maximum_hold);
    }

    #[test]
    fn a_token_endpoint_cannot_ask_for_a_longer_hold_than_a_second() {
        for hold in ["1001", "10000", "18446744073709551615"] {
            let document = document(&format!(r#","parameters":{{"maximum_hold_ms":{hold}}}"#));
            let token = parse(document.as_bytes(), "asked").unwrap();
            assert_eq!(token.access(None).maximum_hold, Duration::from_secs(1));
        }
    }

    #[test]
    fn wrong_documents_are_refused_with_a_reason() {
        for (from, to, part) in [
            (r#""version":1"#, r#""version":2"#, "version is 2"),
            (r#""version":1,"#, "", "version"),
            ("0a0a", "0a", "gateway_key"),
            ("0a0a", "xx0a", "gateway_key"),
            ("AQID", "AQ+D", "token"),
            ("AQID", &"A".repeat(400), "token"),
            ("{", "<html>", "expected value"),
        ] {
            let reason = parse(document("").replacen(from, to, 1).as_bytes(), "asked").unwrap_err();
            assert!(reason.contains(part), "{to}: {reason}");
        }
    }

    #[test]
    fn the_fuzz_targets_corpus_is_survived() {
        corpus::run("token_document", &["empty", "document", "deep", "port_too_large"], |data| {
            if let Ok(token) = parse(data, "asked") {
                assert!(token.endpoint.is_none_or(|(host, port)| !host.is_empty() && port > 0));
            }
        });
    }
}
