//! HTTP proxies, which pass connections over TCP by CONNECT (RFC 9110, section 9.3.6), and no UDP.

use super::error::GetError;
use super::places::host_and_port_of;
use hyper::service::Service as _;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::service::TowerToHyperService;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use url::Url;

/// The user's proxy, and the hosts that are reached without it.
#[derive(Debug, Clone)]
pub(crate) struct Proxies {
    matcher: Arc<Matcher>,
    /// This machine is reached without it: the proxy has another `localhost`.
    spares_loopback: bool,
}

impl Proxies {
    /// The proxy of an option, or of the environment variables that curl reads. `spared`: the hosts
    /// without it, in place of `NO_PROXY`.
    ///
    /// # Errors
    /// It is no HTTP proxy.
    pub(crate) fn new(given: Option<&str>, spared: Option<&str>) -> Result<Option<Self>, GetError> {
        let set = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| std::env::var(name).ok());
            values.find(|value| !value.is_empty())
        };
        let text = given
            .map(str::to_owned)
            .or_else(|| set(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]));
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
        let any = http::Uri::from_static("https://any.example");
        let proxy = Matcher::builder().all(text.as_str()).build().intercept(&any);
        if proxy.is_none_or(|proxy| proxy.uri().scheme_str() != Some("http")) {
            return Err(GetError::Usage {
                reason: "the proxy (--proxy, HTTPS_PROXY or ALL_PROXY) is no http://HOST:PORT; others are \
                         not supported"
                    .to_owned(),
            });
        }
        let spared = spared.map(str::to_owned).or_else(|| set(&["NO_PROXY", "no_proxy"]));
        let matcher = Matcher::builder().all(text).no(spared.unwrap_or_default()).build();
        Ok(Some(Self { matcher: Arc::new(matcher), spares_loopback: given.is_none() }))
    }

    /// The proxy on the way to a URL.
    pub(super) fn of(&self, url: &Url) -> Option<Intercept> {
        let (host, _) = host_and_port_of(url);
        let is_here =
            host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let uri = url.as_str().parse().ok()?;
        self.matcher.intercept(&uri).filter(|_| !(is_here && self.spares_loopback))
    }
}

/// Connects to a host and port, whose name the proxy looks up.
///
/// # Errors
/// The proxy does not answer, or refuses.
pub(super) async fn connect(
    proxy: &Intercept,
    (host, port): &(String, u16),
) -> Result<TcpStream, GetError> {
    let failed = |reason: String| GetError::Proxy { proxy: proxy.uri().to_string(), reason };
    let mut tunnel = Tunnel::new(proxy.uri().clone(), HttpConnector::new());
    if let Some(credentials) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let target = format!("https://{host}:{port}/")
        .parse()
        .map_err(|error: http::uri::InvalidUri| failed(error.to_string()))?;
    let stream = TowerToHyperService::new(tunnel).call(target).await;
    let stream = stream.map_err(|error| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        failed(format!("{error}{}", source.unwrap_or_default()))
    })?;
    Ok(stream.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_spared_as_curl_spares_them() {
        let url = |text: &str| Url::parse(text).unwrap();
        let proxies = Proxies::new(Some("me:it@proxy:8080"), Some("near.example, 10.0.0.0/8"))
            .unwrap()
            .unwrap();
        assert_eq!(proxies.of(&url("https://far.example/")).unwrap().uri(), "http://proxy:8080/");
        for spared in ["https://near.example/", "https://a.near.example/", "https://10.1.2.3/"] {
            assert!(proxies.of(&url(spared)).is_none(), "{spared}");
        }
        assert!(proxies.of(&url("https://localhost/")).is_some(), "as the user said");
        let environment = Proxies { spares_loopback: true, ..proxies };
        for here in ["https://localhost/", "https://127.0.0.1/", "https://[::1]/"] {
            assert!(environment.of(&url(here)).is_none(), "{here}");
        }
        assert!(Proxies::new(Some(""), None).unwrap().is_none());
        for wrong in ["socks5://proxy:1080", "https://proxy", "ftp://proxy", "http://"] {
            assert!(Proxies::new(Some(wrong), None).is_err(), "{wrong}");
        }
    }
}
