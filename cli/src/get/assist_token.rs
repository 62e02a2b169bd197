//! What a gateway's token endpoint says: the permission to be assisted, and by whom.

use super::download::download;
use super::error::GetError;
use super::over_tcp;
use super::request::Request;
use packrat_assist_token::{WELL_KNOWN_PATH, from_text};
use packrat_s2n_quic::ClientConfig;
use serde::Deserialize;
use std::io;
use std::str::FromStr;
use std::time::Duration;
use url::Url;

/// Longest document that is read.
const MAXIMUM_DOCUMENT: usize = 16 * 1024;
/// Longest time for the transfer of the document, after the connection stands.
const TRANSFER_TIME: Duration = Duration::from_secs(10);
/// HTTP/3 is asked this much earlier than the others: who speaks it is asked once.
const HEAD_START: Duration = Duration::from_millis(300);
/// Longest hold that a token endpoint can ask for.
const MAXIMUM_HOLD: Duration = Duration::from_secs(10);

/// Where to ask for a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenSource {
    /// The well-known path of the host that the download comes from.
    SameHost,
    /// This URL.
    Url(String),
}

impl FromStr for TokenSource {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "auto" { Self::SameHost } else { Self::Url(text.to_owned()) })
    }
}

/// What the token endpoint has issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AssistToken {
    token: Vec<u8>,
    gateway_key: [u8; 32],
    /// Where the gateway assists: host and UDP port.
    endpoint: Option<(String, u16)>,
    maximum_hold: Option<Duration>,
}

impl AssistToken {
    /// Where the gateway assists: host and UDP port.
    pub(crate) fn endpoint(&self) -> Option<&(String, u16)> {
        self.endpoint.as_ref()
    }

    /// Uses the token, and pins the gateway's key. A hold that the user has set stays.
    pub(crate) fn apply(self, config: &mut ClientConfig, hold_is_set: bool) {
        config.token = self.token;
        config.gateway_key = Some(self.gateway_key);
        if let Some(hold) = self.maximum_hold
            && !hold_is_set
        {
            config.maximum_hold = hold;
            config.hold = hold > Duration::ZERO;
        }
    }

    /// The gateway's static public key.
    pub(crate) fn gateway_key(&self) -> [u8; 32] {
        self.gateway_key
    }
}

/// Asks for a token, with the certificate authorities of `request`.
///
/// # Errors
/// Whatever can go wrong with a download, said of this one; or the answer is not what a token endpoint says.
pub(crate) async fn fetch(source: &TokenSource, request: &Request) -> Result<AssistToken, GetError> {
    let token_request = token_request(source, request)?;
    let url = token_request.url.to_string();
    let host = token_request.server_name();
    match document(&token_request).await {
        Ok(document) => parse(&document, &host).map_err(|reason| GetError::TokenDocument { url, reason }),
        Err(GetError::Write { source, .. }) => {
            Err(GetError::TokenDocument { url, reason: source.to_string() })
        }
        Err(error @ GetError::TokenDocument { .. }) => Err(error),
        Err(error) => Err(GetError::Token { source: Box::new(error) }),
    }
}

/// The document over HTTP/3, or over HTTP/2 or 1.1 when that answers first.
async fn document(request: &Request) -> Result<Vec<u8>, GetError> {
    let over_quic = async {
        let mut document = Document::default();
        download(request, &mut document, |_| {}).await.map(|_| document.bytes)
    };
    let over_tcp = async {
        tokio::time::sleep(HEAD_START).await;
        over_tcp::get(request, MAXIMUM_DOCUMENT).await
    };
    tokio::pin!(over_quic, over_tcp);
    tokio::select! {
        biased;
        result = &mut over_quic => match result {
            Err(error) if !is_answer(&error) => over_tcp.await,
            result => result,
        },
        result = &mut over_tcp => match result {
            Err(error) if !is_answer(&error) => over_quic.await,
            result => result,
        },
    }
}

/// Whether somebody is there who has answered, or must not be asked: another way to him would lead to the same.
fn is_answer(error: &GetError) -> bool {
    matches!(
        error,
        GetError::Status { .. }
            | GetError::Redirect { .. }
            | GetError::Certificate { .. }
            | GetError::NoTrust { .. }
            | GetError::Resolve { .. }
            | GetError::Write { .. }
            | GetError::TokenDocument { .. }
    )
}

fn token_request(source: &TokenSource, request: &Request) -> Result<Request, GetError> {
    let mut token_request = match source {
        TokenSource::Url(url) => Request::new(url)?,
        TokenSource::SameHost => {
            let mut url = request.url.clone();
            url.set_path(WELL_KNOWN_PATH);
            url.set_query(None);
            url.set_fragment(None);
            Request::new(url.as_str())?
        }
    };
    let place = |url: &Url| (url.host_str().map(str::to_owned), url.port_or_known_default());
    if place(&token_request.url) == place(&request.url) {
        token_request.connect_to.clone_from(&request.connect_to);
    }
    token_request.assist = None;
    token_request.trust = request.trust.clone();
    token_request.connect_timeout = request.connect_timeout;
    token_request.max_time = Some(request.connect_timeout + TRANSFER_TIME);
    Ok(token_request)
}

/// Keeps a document of bounded length.
#[derive(Default)]
struct Document {
    bytes: Vec<u8>,
}

impl io::Write for Document {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > MAXIMUM_DOCUMENT {
            return Err(io::Error::other(format!("it is longer than {MAXIMUM_DOCUMENT} bytes")));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fields that are not known here are for later versions of clients.
#[derive(Deserialize)]
struct Fields {
    version: u64,
    gateway_key: String,
    token: String,
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

/// `asked`: the host that has answered.
fn parse(document: &[u8], asked: &str) -> Result<AssistToken, String> {
    let fields: Fields = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    if fields.version != 1 {
        return Err(format!("its version is {}, and 1 is the only one known here", fields.version));
    }
    let gateway_key = gateway_key(&fields.gateway_key).map_err(|error| format!("gateway_key: {error}"))?;
    let token = from_text(&fields.token).map_err(|error| format!("token: {error}"))?;
    let endpoint = fields.udp.map(|udp| {
        let host = udp.host.unwrap_or_else(|| asked.to_owned());
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
        (bare.unwrap_or(host), udp.port)
    });
    if endpoint.as_ref().is_some_and(|(host, port)| host.is_empty() || *port == 0) {
        return Err("udp: expected a host that is not empty, and a port from 1 to 65535".to_owned());
    }
    let maximum_hold = fields.parameters.maximum_hold_ms.map(Duration::from_millis);
    let maximum_hold = maximum_hold.map(|hold| hold.min(MAXIMUM_HOLD));
    Ok(AssistToken { token, gateway_key, endpoint, maximum_hold })
}

/// Reads a gateway's static public key, 64 hexadecimal digits.
///
/// # Errors
/// It is something else.
pub(crate) fn gateway_key(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "expected the gateway's public key, 64 hexadecimal digits".to_owned();
    let digits: Vec<_> =
        text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>().ok_or_else(wrong)?;
    let bytes: Vec<_> = digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    if digits.len() % 2 == 0 { bytes.try_into().map_err(|_| wrong()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(more: &str) -> String {
        format!(
            r#"{{"version":1,"udp":{{"port":4433}},"gateway_key":"{}","token":"AQID","expires":9,"later":[]{more}}}"#,
            "0a".repeat(32)
        )
    }

    #[test]
    fn a_document_sets_token_key_and_hold() {
        let token =
            parse(document(r#","parameters":{"maximum_hold_ms":80,"later":1}"#).as_bytes(), "asked").unwrap();
        let mut config = ClientConfig::default();
        token.clone().apply(&mut config, false);
        assert_eq!((config.token.as_slice(), config.gateway_key), (&[1, 2, 3][..], Some([10; 32])));
        assert_eq!((config.maximum_hold, config.hold), (Duration::from_millis(80), true));
        let mut config = ClientConfig::default();
        token.apply(&mut config, true);
        assert_eq!(config.maximum_hold, ClientConfig::default().maximum_hold);

        let token = parse(document(r#","parameters":{"maximum_hold_ms":0}"#).as_bytes(), "asked").unwrap();
        token.apply(&mut config, false);
        assert!(!config.hold);
        let token =
            parse(document(r#","parameters":{"maximum_hold_ms":18446744073709551615}"#).as_bytes(), "asked")
                .unwrap();
        assert_eq!(token.maximum_hold, Some(MAXIMUM_HOLD));
        assert_eq!(parse(document("").as_bytes(), "asked").unwrap().maximum_hold, None);
    }

    #[test]
    fn the_gateway_is_where_the_document_says() {
        let endpoint = |udp: &str| {
            let document = document("").replace(r#""udp":{"port":4433},"#, udp);
            parse(document.as_bytes(), "asked").map(|token| token.endpoint)
        };
        let at = |host: &str, port| Ok(Some((host.to_owned(), port)));
        assert_eq!(endpoint(r#""udp":{"port":4433},"#), at("asked", 4433));
        assert_eq!(endpoint(r#""udp":{"port":9,"host":"edge.example","later":1},"#), at("edge.example", 9));
        assert_eq!(endpoint(r#""udp":{"port":9,"host":"[2001:db8::1]"},"#), at("2001:db8::1", 9));
        assert_eq!(endpoint(""), Ok(None));
        for wrong in [r#""udp":{"port":0},"#, r#""udp":{"port":9,"host":""},"#, r#""udp":{"port":70000},"#] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
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
    fn the_endpoint_of_the_same_host_is_reached_the_same_way() {
        let mut request = Request::new("https://host:4433/folder/file?query#part").unwrap();
        request.connect_to = Some(("127.0.0.1".to_owned(), 9));
        let asked = token_request(&TokenSource::SameHost, &request).unwrap();
        assert_eq!(asked.url.as_str(), "https://host:4433/.well-known/packrat");
        assert_eq!(asked.target(), ("127.0.0.1".to_owned(), 9));
        assert!(asked.assist.is_none());
        let source: TokenSource = "https://elsewhere/token".parse().unwrap();
        let asked = token_request(&source, &request).unwrap();
        assert_eq!(asked.target(), ("elsewhere".to_owned(), 443));
        assert!(token_request(&TokenSource::Url("http://elsewhere/".to_owned()), &request).is_err());
    }
}
