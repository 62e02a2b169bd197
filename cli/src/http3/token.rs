//! `--assist-token-from`: the endpoint that is asked, and the meaning of its failures for the
//! command.

use super::error::GetError;
use super::request::Request;
use super::trust::{self, Verdict};
use packrat_token_client::{AssistToken, Renewal, TokenEndpoint, TokenError};
use packrat_wire::hexadecimal;
use std::convert::Infallible;
use std::str::FromStr;
use std::sync::PoisonError;
use tokio::sync::watch;
use url::Url;

/// The source of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenSource {
    /// The well-known path of the host that the download comes from.
    SameHost,
    /// A token endpoint with this URL.
    Url(String),
}

impl FromStr for TokenSource {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "auto" { Self::SameHost } else { Self::Url(text.to_owned()) })
    }
}

/// Keeps the token of a long download fresh.
pub(crate) struct FreshToken {
    renewal: Renewal,
    /// The gateway key that the user has given: tokens for another one are not used.
    given: Option<[u8; 32]>,
    tokens: watch::Sender<AssistToken>,
}

impl FreshToken {
    /// Does `work`; tokens that come during it go to the receiver that came with this.
    pub(crate) async fn during<T>(self, work: impl Future<Output = T>) -> T {
        let Self { renewal, given, tokens } = self;
        let pass_on = |token: AssistToken| {
            if check(given, &token).is_ok() {
                tokens.send_replace(token);
            }
        };
        renewal.during(work, pass_on).await
    }
}

/// Asks for a token, with the certificate authorities of `request`, and for later ones. `given`:
/// the gateway key that the user has given.
///
/// # Errors
/// Every error of a download, reworded for this one; or the answer is not a token endpoint's, or
/// names another gateway key than the given one.
pub(crate) async fn fetch(
    source: &TokenSource,
    request: &Request,
    given: Option<[u8; 32]>,
) -> Result<(AssistToken, FreshToken, watch::Receiver<AssistToken>), GetError> {
    let verdict = Verdict::default();
    let endpoint = endpoint(source, request, &verdict)?;
    let token = endpoint.fetch().await.map_err(|error| {
        let verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
        explain(error, verdict)
    })?;
    check(given, &token)?;
    let (tokens, later) = watch::channel(token.clone());
    let renewal = Renewal::new(endpoint, &token);
    Ok((token, FreshToken { renewal, given, tokens }, later))
}

fn check(given: Option<[u8; 32]>, token: &AssistToken) -> Result<(), GetError> {
    match given {
        Some(given) if given != token.gateway_key => {
            Err(GetError::OtherGatewayKey { named: hexadecimal::encode(&token.gateway_key) })
        }
        _ => Ok(()),
    }
}

fn endpoint(
    source: &TokenSource,
    request: &Request,
    verdict: &Verdict,
) -> Result<TokenEndpoint, GetError> {
    let tls = trust::client_config(&request.trust, verdict, &[])?;
    let endpoint = match source {
        TokenSource::Url(url) => {
            // For the same words as for the download's own URL.
            let own = Request::new(url)?;
            let place =
                |url: &Url| (url.host_str().map(str::to_owned), url.port_or_known_default());
            let is_same = place(&own.url) == place(&request.url);
            TokenEndpoint::new(url, tls)
                .map(|new| new.with_connect_to(request.connect_to.clone().filter(|_| is_same)))
        }
        TokenSource::SameHost => TokenEndpoint::of_host(request.url.as_str(), tls)
            .map(|new| new.with_connect_to(request.connect_to.clone())),
    };
    let endpoint = endpoint.map_err(|error| explain(error, None))?;
    Ok(endpoint.with_connect_timeout(request.connect_timeout))
}

/// The command's word for a failure. `verdict`: why a certificate was refused.
fn explain(error: TokenError, verdict: Option<rustls::Error>) -> GetError {
    let source = match (error, verdict) {
        (TokenError::Document { url, reason }, _) => {
            return GetError::TokenDocument { url, reason };
        }
        (TokenError::Tls { host, .. }, Some(error)) => {
            GetError::Certificate { host, fault: trust::fault(&error) }
        }
        (TokenError::Tls { host, reason }, None) => GetError::Tls { host, reason },
        (TokenError::Url { url, reason }, _) => GetError::MalformedUrl { url, reason },
        (TokenError::Resolve { host, reason }, _) => GetError::Resolve { host, reason },
        (TokenError::Connect { remote, reason }, _) => GetError::Connect { remote, reason },
        (TokenError::TimedOut { after }, _) => GetError::TimedOut { after, bytes: 0 },
        (TokenError::Status { url, status }, _) => GetError::Status { url, status },
        (TokenError::Redirect { url, status, location }, _) => {
            GetError::Redirect { url, status, location: Some(location) }
        }
        (error, _) => GetError::Transfer { bytes: 0, reason: error.to_string() },
    };
    GetError::Token { source: Box::new(source) }
}
