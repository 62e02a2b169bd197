//! One short GET request over TLS and TCP: HTTP/2, or HTTP/1.1 where the server has no HTTP/2.

use super::connect::resolve;
use super::error::GetError;
use super::request::Request;
use super::trust::{self, Verdict};
use bytes::Bytes;
use http::header::{ACCEPT, HOST, LOCATION, USER_AGENT};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Downloads at most `most` bytes, with the certificate authorities and the time limits of
/// `request`.
///
/// # Errors
/// As those of a download; [`GetError::TokenDocument`] when it is longer.
pub(super) async fn get(request: &Request, most: usize) -> Result<Vec<u8>, GetError> {
    let limit = request.max_time.unwrap_or(request.connect_timeout);
    let timed_out = |_| GetError::TimedOut { after: limit, bytes: 0 };
    tokio::time::timeout(limit, exchange(request, most)).await.map_err(timed_out)?
}

async fn exchange(request: &Request, most: usize) -> Result<Vec<u8>, GetError> {
    let (remote, stream) = connect(request).await?;
    let broken = |reason: String| GetError::Transfer { bytes: 0, reason };
    // The credentials in the URL are for another server: this one must not see them.
    let mut url = request.url.clone();
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.set_fragment(None);
    let authority = url.authority().to_owned();
    let builder = http::Request::get(url.as_str())
        .header(USER_AGENT, concat!("packrat/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "application/json");
    let with_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let response = if with_http2 {
        let message =
            builder.body(Empty::<Bytes>::new()).map_err(|error| broken(error.to_string()))?;
        let (mut requests, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .map_err(|error| broken(error.to_string()))?;
        // Ends when the request's handles are gone.
        tokio::spawn(connection);
        requests.send_request(message).await
    } else {
        // HTTP/1.1 names the host beside the path (RFC 9112 section 3.2).
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let builder = builder.uri(path).header(HOST, authority);
        let message =
            builder.body(Empty::<Bytes>::new()).map_err(|error| broken(error.to_string()))?;
        let (mut requests, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| broken(error.to_string()))?;
        tokio::spawn(connection);
        requests.send_request(message).await
    };
    let response = response.map_err(|error| broken(format!("{remote} (TCP): {error}")))?;
    body(request, response, most).await
}

async fn body(
    request: &Request,
    response: http::Response<Incoming>,
    most: usize,
) -> Result<Vec<u8>, GetError> {
    let (url, status) = (request.url.to_string(), response.status());
    if status.is_redirection() {
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let location = location.unwrap_or("an unknown place").to_owned();
        return Err(GetError::Redirect { url, status: status.as_u16(), location });
    }
    if status != http::StatusCode::OK {
        return Err(GetError::Status { url, status: status.as_u16() });
    }
    let limited = Limited::new(response.into_body(), most);
    match limited.collect().await {
        Ok(body) => Ok(body.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(GetError::TokenDocument { url, reason: format!("it is longer than {most} bytes") })
        }
        Err(error) => Err(GetError::Transfer { bytes: 0, reason: error.to_string() }),
    }
}

/// The first address that takes the connection, with TLS on it.
async fn connect(request: &Request) -> Result<(SocketAddr, TlsStream<TcpStream>), GetError> {
    let deadline = Instant::now() + request.connect_timeout;
    let addresses = resolve(request).await?;
    let host = request.server_name();
    let mut last_error = None;
    for (index, &remote) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let limit = deadline.saturating_duration_since(Instant::now()) / left;
        match tokio::time::timeout(limit, TcpStream::connect(remote)).await {
            Ok(Ok(stream)) => return Ok((remote, secure(request, remote, stream, &host).await?)),
            Ok(Err(error)) => {
                last_error =
                    Some(GetError::Connect { remote, reason: format!("over TCP: {error}") });
            }
            Err(_) => {
                last_error =
                    Some(GetError::Connect { remote, reason: "no answer over TCP".to_owned() })
            }
        }
    }
    Err(last_error.unwrap_or(GetError::Resolve { host, reason: "it has no address".to_owned() }))
}

async fn secure(
    request: &Request,
    remote: SocketAddr,
    stream: TcpStream,
    host: &str,
) -> Result<TlsStream<TcpStream>, GetError> {
    let verdict = Verdict::default();
    let config = trust::client_config(&request.trust, &verdict, &[b"h2", b"http/1.1"])?;
    let name = ServerName::try_from(host.to_owned()).map_err(|_| GetError::MalformedUrl {
        url: request.url.to_string(),
        reason: format!("{host:?} is not a host name"),
    })?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| {
        let verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
        let host = host.to_owned();
        match verdict {
            Some(error) => GetError::Certificate { host, fault: trust::fault(&error) },
            None => GetError::Tls { host, reason: format!("{error} (TCP, {remote})") },
        }
    })
}
