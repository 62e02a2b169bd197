//! A token endpoint: its address, and the request to it.

use crate::document::{AssistToken, parse};
use crate::error::TokenError;
#[cfg(feature = "http3")]
use crate::over_quic;
use crate::over_tcp;
use packrat_assist_token::WELL_KNOWN_PATH;
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::time::Duration;
use url::{Host, Url};

/// Bytes of the longest document that is read.
pub(crate) const MAXIMUM_DOCUMENT_BYTES: usize = 16 * 1024;
/// Longest time for the transfer of the document, after the connection stands.
const TRANSFER_TIME: Duration = Duration::from_secs(10);
/// HTTP/3 is asked this much earlier than the others: who speaks it is asked once.
#[cfg(feature = "http3")]
const HEAD_START: Duration = Duration::from_millis(300);
/// Longest time until the connection stands, unless set otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A gateway's token endpoint.
#[derive(Debug, Clone)]
pub struct TokenEndpoint {
    pub(crate) url: Url,
    pub(crate) tls: ClientConfig,
    pub(crate) connect_to: Option<(String, u16)>,
    pub(crate) connect_timeout: Duration,
}

impl TokenEndpoint {
    /// The endpoint at an https URL. `tls`: whom to trust; the application protocols that it names
    /// are replaced.
    ///
    /// # Errors
    /// [`TokenError::Url`].
    pub fn new(url: &str, tls: ClientConfig) -> Result<Self, TokenError> {
        let fault = |reason: String| TokenError::Url { url: url.to_owned(), reason };
        let url = Url::parse(url).map_err(|error| fault(error.to_string()))?;
        if url.scheme() != "https" {
            return Err(fault(format!("its scheme is {:?}", url.scheme())));
        }
        if url.host().is_none() {
            return Err(fault("it names no host".to_owned()));
        }
        Ok(Self { url, tls, connect_to: None, connect_timeout: CONNECT_TIMEOUT })
    }

    /// The endpoint at the well-known path of a URL's host.
    ///
    /// # Errors
    /// As with [`Self::new`].
    pub fn of_host(url: &str, tls: ClientConfig) -> Result<Self, TokenError> {
        let mut endpoint = Self::new(url, tls)?;
        endpoint.url.set_path(WELL_KNOWN_PATH);
        endpoint.url.set_query(None);
        endpoint.url.set_fragment(None);
        Ok(endpoint)
    }

    /// Sets the host and port to connect to instead of the URL's; the certificate must still be
    /// valid for the URL's host.
    ///
    /// Defaults to the URL's own.
    #[must_use]
    pub fn with_connect_to(mut self, target: impl Into<Option<(String, u16)>>) -> Self {
        self.connect_to = target.into();
        self
    }

    /// Sets the longest time until the connection stands, over all addresses together.
    ///
    /// Defaults to 10 s.
    #[must_use]
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Asks for a token. Must run inside a Tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub async fn fetch(&self) -> Result<AssistToken, TokenError> {
        let limit = self.connect_timeout + TRANSFER_TIME;
        let asked = tokio::time::timeout(limit, self.ask());
        let document = asked.await.map_err(|_| TokenError::TimedOut { after: limit })??;
        let url = self.url.to_string();
        parse(&document, &self.server_name()).map_err(|reason| TokenError::Document { url, reason })
    }

    /// The document over HTTP/2 or 1.1.
    #[cfg(not(feature = "http3"))]
    async fn ask(&self) -> Result<Vec<u8>, TokenError> {
        over_tcp::get(self, &self.resolve().await?).await
    }

    /// The document over HTTP/3, or over HTTP/2 or 1.1 when that answers first.
    #[cfg(feature = "http3")]
    async fn ask(&self) -> Result<Vec<u8>, TokenError> {
        let addresses = self.resolve().await?;
        let over_quic = over_quic::get(self, &addresses);
        let over_tcp = async {
            tokio::time::sleep(HEAD_START).await;
            over_tcp::get(self, &addresses).await
        };
        tokio::pin!(over_quic, over_tcp);
        tokio::select! {
            biased;
            result = &mut over_quic => match result {
                // Over HTTP/3 it may be the server behind the gateway who has answered, and who
                // knows of no tokens.
                Err(error @ TokenError::Status { .. }) => over_tcp.await.map_err(|_| error),
                Err(error) if !error.is_answer() => over_tcp.await,
                result => result,
            },
            result = &mut over_tcp => match result {
                Err(error) if !error.is_answer() => over_quic.await,
                result => result,
            },
        }
    }

    /// The host that the certificate must be valid for: a DNS name or an IP address without
    /// brackets.
    pub(crate) fn server_name(&self) -> String {
        match self.url.host() {
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(host) => host.to_string(),
            None => String::new(),
        }
    }

    fn target(&self) -> (String, u16) {
        let own = || (self.server_name(), self.url.port().unwrap_or(443));
        self.connect_to.clone().unwrap_or_else(own)
    }

    /// The addresses of the target, in the resolver's order.
    async fn resolve(&self) -> Result<Vec<SocketAddr>, TokenError> {
        let (host, port) = self.target();
        let fault = |reason: String| TokenError::Resolve { host: host.clone(), reason };
        let lookup = tokio::net::lookup_host((host.as_str(), port));
        let found = tokio::time::timeout(self.connect_timeout, lookup)
            .await
            .map_err(|_| fault(format!("no answer within {:?}", self.connect_timeout)))?
            .map_err(|error| fault(error.to_string()))?;
        let mut addresses = Vec::new();
        for address in found {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            Err(fault("it has no address".to_owned()))
        } else {
            Ok(addresses)
        }
    }

    /// TLS settings for these application protocols, best first.
    pub(crate) fn tls_for(&self, protocols: &[&[u8]]) -> ClientConfig {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        tls
    }

    /// The URL as it is asked for: credentials are for another server, and this one must not see
    /// them.
    pub(crate) fn asked_url(&self) -> Url {
        let mut url = self.url.clone();
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        url.set_fragment(None);
        url
    }

    /// Checks the head of an answer.
    pub(crate) fn check<B>(&self, response: &http::Response<B>) -> Result<(), TokenError> {
        let (url, status) = (self.url.to_string(), response.status());
        if status.is_redirection() {
            let location = response.headers().get(http::header::LOCATION);
            let location = location.and_then(|location| location.to_str().ok());
            let location = location.unwrap_or("an unknown place").to_owned();
            return Err(TokenError::Redirect { url, status: status.as_u16(), location });
        }
        if status != http::StatusCode::OK {
            return Err(TokenError::Status { url, status: status.as_u16() });
        }
        Ok(())
    }

    /// The error of a document that is longer than [`MAXIMUM_DOCUMENT_BYTES`].
    pub(crate) fn too_long(&self) -> TokenError {
        let reason = format!("it is longer than {MAXIMUM_DOCUMENT_BYTES} bytes");
        TokenError::Document { url: self.url.to_string(), reason }
    }
}

/// The request for a document.
pub(crate) fn request(url: &str) -> http::request::Builder {
    http::Request::get(url)
        .header(http::header::USER_AGENT, concat!("packrat/", env!("CARGO_PKG_VERSION")))
        .header(http::header::ACCEPT, "application/json")
}

/// The share of the time left until `deadline` that the next of `left` addresses may take, so that
/// a dead address does not use up the time of the others.
pub(crate) fn share(deadline: std::time::Instant, left: usize) -> Duration {
    let left = u32::try_from(left).unwrap_or(u32::MAX).max(1);
    deadline.saturating_duration_since(std::time::Instant::now()) / left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls() -> ClientConfig {
        ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth()
    }

    #[test]
    fn the_endpoint_of_the_same_host_is_reached_the_same_way() {
        let endpoint = TokenEndpoint::of_host("https://host:4433/folder/file?query#part", tls());
        let endpoint = endpoint.unwrap().with_connect_to(("127.0.0.1".to_owned(), 9));
        assert_eq!(endpoint.url.as_str(), "https://host:4433/.well-known/packrat");
        assert_eq!(endpoint.target(), ("127.0.0.1".to_owned(), 9));
        let endpoint = TokenEndpoint::new("https://[::1]/token", tls()).unwrap();
        assert_eq!(endpoint.target(), ("::1".to_owned(), 443));
    }

    #[test]
    fn only_https_is_asked_and_sees_no_credentials() {
        for wrong in ["http://elsewhere/", "elsewhere/token", "https://"] {
            let refused = TokenEndpoint::new(wrong, tls());
            assert!(matches!(refused, Err(TokenError::Url { .. })), "{wrong}");
        }
        let endpoint = TokenEndpoint::new("https://me:secret@host/token#part", tls()).unwrap();
        assert_eq!(endpoint.asked_url().as_str(), "https://host/token");
    }
}
