//! Request and settings of a download.

use http::HeaderValue;
use hyper_util::client::proxy::matcher::Intercept;
use packrat_s2n_quic::ClientConfig;
use packrat_token_client::AssistToken;
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use url::Url;

use super::credentials::take;
use super::error::{GetError, redacted};
use super::field::UserField;
use super::netrc::Netrc;
use super::places::{Places, host_and_port_of};
use super::proxy::Proxies;
use super::resume::Resume;

/// Which certificate authorities are trusted.
#[derive(Debug, Clone)]
pub(crate) struct Trust {
    /// The operating system's roots.
    pub(crate) system_roots: bool,
    /// Roots on top of them.
    pub(crate) additional: Vec<CertificateDer<'static>>,
}

impl Default for Trust {
    fn default() -> Self {
        Self { system_roots: true, additional: Vec::new() }
    }
}

/// The parameters of a download.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// URL to download; its scheme is `https`, and it has no user and no password.
    pub(crate) url: Url,
    /// The field `Authorization`; at first for the user and the password of the URL.
    pub(crate) authorization: Option<HeaderValue>,
    /// The user's fields.
    pub(crate) fields: Vec<UserField>,
    /// Logins of the hosts that a redirect may lead to.
    pub(crate) netrc: Option<Arc<Netrc>>,
    /// Ask for the head of a response alone.
    pub(crate) head_only: bool,
    /// Follow redirects of a download.
    pub(crate) follow: bool,
    /// The user's rules about addresses.
    pub(crate) places: Places,
    /// The proxy of downloads.
    pub(crate) proxies: Option<Proxies>,
    /// Assistance; `None` switches it off.
    pub(crate) assist: Option<ClientConfig>,
    /// Tokens that come during the download.
    pub(crate) later_tokens: Option<watch::Receiver<AssistToken>>,
    /// Trusted certificate authorities.
    pub(crate) trust: Trust,
    /// Connect to this host and port instead of the URL's; the URL's host is still what the
    /// certificate must be valid for.
    pub(crate) connect_to: Option<(String, u16)>,
    /// Ask this DNS server which gateway the host has, instead of the system's.
    pub(crate) dns_server: Option<SocketAddr>,
    /// Longest time until the connection stands, over all addresses together.
    pub(crate) connect_timeout: Duration,
    /// Longest time for everything; passing it is an error.
    pub(crate) max_time: Option<Duration>,
    /// Stop this long after the request was sent and report the bytes received by then; not an
    /// error.
    pub(crate) stop_after: Option<Duration>,
    /// Take at most this many bytes of a body per second, on average.
    pub(crate) limit_rate: Option<u32>,
    /// Download over TCP if UDP brings no answer.
    pub(crate) may_use_tcp: bool,
    /// The qlog of the connection; of the last one where several addresses were tried.
    pub(crate) qlog: Option<PathBuf>,
    /// Resume instead of starting at the beginning.
    pub(crate) resume: Option<Resume>,
}

impl Request {
    /// A request with defaults: assistance on, system roots, 10 s to connect, no time limit.
    ///
    /// # Errors
    /// When `url` cannot be parsed, its scheme is not `https`, or it names no host.
    pub(crate) fn new(url: &str) -> Result<Self, GetError> {
        let mut parsed = Url::parse(url).map_err(|error| GetError::MalformedUrl {
            url: redacted(url),
            reason: error.to_string(),
        })?;
        if parsed.scheme() != "https" {
            return Err(GetError::UnsupportedScheme {
                url: redacted(url),
                scheme: parsed.scheme().to_owned(),
            });
        }
        if parsed.host().is_none() {
            return Err(GetError::MalformedUrl {
                url: redacted(url),
                reason: "it names no host".to_owned(),
            });
        }
        Ok(Self {
            authorization: take(&mut parsed)?,
            url: parsed,
            fields: Vec::new(),
            netrc: None,
            head_only: false,
            follow: false,
            places: Places::default(),
            proxies: None,
            assist: Some(ClientConfig::default()),
            later_tokens: None,
            trust: Trust::default(),
            connect_to: None,
            dns_server: None,
            connect_timeout: Duration::from_secs(10),
            max_time: None,
            stop_after: None,
            limit_rate: None,
            may_use_tcp: false,
            qlog: None,
            resume: None,
        })
    }

    /// The proxy on the way to the URL.
    pub(crate) fn proxy(&self) -> Option<Intercept> {
        self.proxies.as_ref()?.of(&self.url)
    }

    /// The host that the certificate must be valid for: a DNS name or an IP address without
    /// brackets.
    pub(crate) fn server_name(&self) -> String {
        host_and_port_of(&self.url).0
    }

    /// Host and port to look up and connect to.
    pub(crate) fn target(&self) -> (String, u16) {
        self.connect_to.clone().unwrap_or_else(|| host_and_port_of(&self.url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_taken() {
        assert!(
            matches!(Request::new("http://a/"), Err(GetError::UnsupportedScheme { scheme, .. }) if scheme == "http")
        );
        assert!(matches!(Request::new("example.org/file"), Err(GetError::MalformedUrl { .. })));
        assert!(matches!(Request::new("https://"), Err(GetError::MalformedUrl { .. })));
    }

    #[test]
    fn the_target_is_the_urls_host_unless_told_otherwise() {
        let mut request = Request::new("https://[::1]:4433/x").unwrap();
        assert_eq!(request.target(), ("::1".to_owned(), 4433));
        assert_eq!(
            Request::new("https://example.org/x").unwrap().target(),
            ("example.org".to_owned(), 443)
        );
        request.connect_to = Some(("127.0.0.1".to_owned(), 9));
        assert_eq!(request.target(), ("127.0.0.1".to_owned(), 9));
        assert_eq!(request.server_name(), "::1");
    }
}
