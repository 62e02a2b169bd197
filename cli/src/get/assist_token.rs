//! Tokens of a gateway's token endpoint: the permission to be assisted, and the gateway's key.

use super::download::download;
use super::error::GetError;
use super::over_tcp;
use super::request::Request;
use super::token_document::{AssistToken, parse};
use packrat_assist_token::WELL_KNOWN_PATH;
use packrat_s2n_quic::{ClientConfig, Token};
use std::convert::Infallible;
use std::io;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use url::Url;

/// Longest document that is read.
const MAXIMUM_DOCUMENT: usize = 16 * 1024;
/// Longest time for the transfer of the document, after the connection stands.
const TRANSFER_TIME: Duration = Duration::from_secs(10);
/// HTTP/3 is asked this much earlier than the others: who speaks it is asked once.
const HEAD_START: Duration = Duration::from_millis(300);

/// A token is renewed when so much of its time is over, and at least this long after it was asked
/// for...
const RENEWED_AFTER: f64 = 0.75;
const SHORTEST_RENEWAL: Duration = Duration::from_secs(5);
/// ...and one that never expires, or the clocks are wrong, after this.
const LONGEST_RENEWAL: Duration = Duration::from_secs(3600);
/// After a renewal that has failed, the next attempt comes after this.
const RENEWAL_RETRY: Duration = Duration::from_secs(30);

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

impl AssistToken {
    /// Uses the token, and pins the gateway's key. A hold that the user has set stays.
    pub(crate) fn apply(self, config: &mut ClientConfig, hold_is_set: bool) {
        config.token = self.token;
        config.gateway_key = Some(self.gateway_key);
        if let Some(hold) = self.maximum_hold
            && !hold_is_set
        {
            config.maximum_hold = hold;
        }
    }
}

/// Asks for a token, with the certificate authorities of `request`.
///
/// # Errors
/// Whatever can go wrong with a download, said of this one; or the answer is not what a token
/// endpoint says.
pub(crate) async fn fetch(
    source: &TokenSource,
    request: &Request,
) -> Result<AssistToken, GetError> {
    let token_request = token_request(source, request)?;
    let url = token_request.url.to_string();
    let host = token_request.server_name();
    match ask(&token_request).await {
        Ok(document) => {
            parse(&document, &host).map_err(|reason| GetError::TokenDocument { url, reason })
        }
        Err(GetError::Write { source, .. }) => {
            Err(GetError::TokenDocument { url, reason: source.to_string() })
        }
        Err(error @ GetError::TokenDocument { .. }) => Err(error),
        Err(error) => Err(GetError::Token { source: Box::new(error) }),
    }
}

/// Keeps the token of a long download fresh.
pub(crate) struct Renewal {
    source: TokenSource,
    /// The download's, as it was when the first token was asked for.
    request: Request,
    gateway_key: [u8; 32],
    /// When the first token expires, as time since 1970.
    expires: Option<Duration>,
    tokens: watch::Sender<Token>,
}

impl Renewal {
    /// `token`: the first one. Later ones come to the receiver.
    pub(crate) fn new(
        source: &TokenSource,
        request: &Request,
        token: &AssistToken,
    ) -> (Self, watch::Receiver<Token>) {
        let (tokens, later_tokens) = watch::channel(Token::default());
        let renewal = Self {
            source: source.clone(),
            request: request.clone(),
            gateway_key: token.gateway_key,
            expires: token.expires,
            tokens,
        };
        (renewal, later_tokens)
    }

    /// Does `work`, and asks for a new token each time before the last one expires. A session that
    /// exists does not need it; the next handshake does, when the gateway has started anew.
    /// Failures are of no consequence until then: the download goes on, and the endpoint is
    /// asked again.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            result = work => result,
            never = self.renew() => match never {},
        }
    }

    async fn renew(&self) -> Infallible {
        let mut wait = time_until_renewal(self.expires, unix_now());
        loop {
            tokio::time::sleep(wait).await;
            wait = match fetch(&self.source, &self.request).await {
                // The key that was pinned at the beginning stays pinned.
                Ok(token) if token.gateway_key == self.gateway_key => {
                    self.tokens.send_replace(token.token);
                    time_until_renewal(token.expires, unix_now())
                }
                Ok(_) | Err(_) => RENEWAL_RETRY,
            };
        }
    }
}

/// Time until a new token must be renewed.
fn time_until_renewal(expires: Option<Duration>, now: Duration) -> Duration {
    let lifetime = expires.map_or(LONGEST_RENEWAL, |expires| expires.saturating_sub(now));
    // Wherever a clock is wrong a token seems to have expired already, or to last for years.
    lifetime.min(LONGEST_RENEWAL).mul_f64(RENEWED_AFTER).max(SHORTEST_RENEWAL)
}

fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The document over HTTP/3, or over HTTP/2 or 1.1 when that answers first.
async fn ask(request: &Request) -> Result<Vec<u8>, GetError> {
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
            // Over HTTP/3 it may be the server behind the gateway who has answered, and who knows of no tokens.
            Err(error @ GetError::Status { .. }) => over_tcp.await.map_err(|_| error),
            Err(error) if !is_answer(&error) => over_tcp.await,
            result => result,
        },
        result = &mut over_tcp => match result {
            Err(error) if !is_answer(&error) => over_quic.await,
            result => result,
        },
    }
}

/// True if the endpoint has answered, or must not be asked: another way to it would lead to the
/// same.
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

#[cfg(test)]
mod tests {
    use super::super::token_document::MAXIMUM_HOLD;
    use super::*;

    fn document(more: &str) -> String {
        let key = "0a".repeat(32);
        format!(
            r#"{{"version":1,"gateway_key":"{key}","token":"AQID","expires":9,"later":[]{more}}}"#
        )
    }

    #[test]
    fn a_document_sets_token_key_and_hold() {
        let token = parse(
            document(r#","parameters":{"maximum_hold_ms":80,"later":1}"#).as_bytes(),
            "asked",
        )
        .unwrap();
        let mut config = ClientConfig::default();
        token.clone().apply(&mut config, false);
        assert_eq!((config.token.as_bytes(), config.gateway_key), (&[1, 2, 3][..], Some([10; 32])));
        assert_eq!(config.maximum_hold, Duration::from_millis(80));
        let mut config = ClientConfig::default();
        token.apply(&mut config, true);
        assert_eq!(config.maximum_hold, ClientConfig::default().maximum_hold);

        let token =
            parse(document(r#","parameters":{"maximum_hold_ms":0}"#).as_bytes(), "asked").unwrap();
        token.apply(&mut config, false);
        assert_eq!(config.maximum_hold, Duration::ZERO);
        let token = parse(
            document(r#","parameters":{"maximum_hold_ms":18446744073709551615}"#).as_bytes(),
            "asked",
        )
        .unwrap();
        assert_eq!(token.maximum_hold, Some(MAXIMUM_HOLD));
        assert_eq!(parse(document("").as_bytes(), "asked").unwrap().maximum_hold, None);
    }

    #[test]
    fn a_token_is_renewed_before_it_expires_and_never_without_a_pause() {
        let now = Duration::from_secs(1_800_000_000);
        let wait = |seconds: i64| {
            time_until_renewal(Some(Duration::from_secs((1_800_000_000 + seconds) as u64)), now)
        };
        assert_eq!(wait(300), Duration::from_secs(225));
        assert_eq!((wait(3), wait(-9)), (SHORTEST_RENEWAL, SHORTEST_RENEWAL));
        assert_eq!(wait(10_000_000), LONGEST_RENEWAL.mul_f64(RENEWED_AFTER));
        assert_eq!(time_until_renewal(None, now), LONGEST_RENEWAL.mul_f64(RENEWED_AFTER));
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
        assert!(
            token_request(&TokenSource::Url("http://elsewhere/".to_owned()), &request).is_err()
        );
    }
}
