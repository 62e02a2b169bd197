//! A download over TCP: HTTP/2, or HTTP/1.1 if the server has no HTTP/2. For networks that block
//! UDP, and for proxies; a gateway repairs nothing there.

use super::connect::{IDLE_TIMEOUT, resolve};
use super::error::GetError;
use super::proxy;
use super::request::Request;
use super::trust::{self, Verdict};
use bytes::Bytes;
use http::header::HOST;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Position;

/// A connection on which HTTP has not begun.
pub(super) struct Connection {
    pub(super) remote: SocketAddr,
    pub(super) connect_time: Duration,
    stream: TlsStream<TcpStream>,
}

/// The answer to a request; its body is yet to come.
pub(super) struct Answer {
    /// The protocol's name as TLS has it.
    pub(super) protocol: &'static str,
    pub(super) response: http::Response<Incoming>,
}

/// Connects to the first address that takes the connection.
///
/// # Errors
/// None does, or TLS fails.
pub(super) async fn connect(request: &Request) -> Result<Connection, GetError> {
    let started = Instant::now();
    if let Some(proxy) = request.proxy() {
        let attempt = async {
            let stream = proxy::connect(&proxy, &request.target()).await?;
            let remote = stream
                .peer_addr()
                .map_err(|error| GetError::Local { reason: error.to_string() })?;
            let stream = secure(request, stream).await?;
            Ok(Connection { remote, connect_time: started.elapsed(), stream })
        };
        let connected = tokio::time::timeout(request.connect_timeout, attempt).await;
        return connected.unwrap_or_else(|_| {
            let reason = format!("no answer within {:?}", request.connect_timeout);
            Err(GetError::Proxy { proxy: proxy.uri().to_string(), reason })
        });
    }
    let deadline = started + request.connect_timeout;
    let addresses = resolve(request).await?;
    let (host, _) = request.target();
    let mut failure = GetError::Resolve { host, reason: "it has no address".to_owned() };
    for (index, &remote) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let limit = deadline.saturating_duration_since(Instant::now()) / left;
        let attempt = async {
            let stream = TcpStream::connect(remote).await;
            let stream = stream.map_err(|source| GetError::Connect {
                remote,
                reason: format!("over TCP: {source}"),
            })?;
            secure(request, stream).await
        };
        match tokio::time::timeout(limit, attempt).await {
            Ok(Ok(stream)) => {
                return Ok(Connection { remote, connect_time: started.elapsed(), stream });
            }
            Ok(Err(error @ GetError::Certificate { .. })) => return Err(error),
            Ok(Err(error)) => failure = error,
            Err(_) => {
                let reason = "no answer over TCP".to_owned();
                failure = GetError::Connect { remote, reason };
            }
        }
    }
    Err(failure)
}

async fn secure(request: &Request, stream: TcpStream) -> Result<TlsStream<TcpStream>, GetError> {
    let verdict = Verdict::default();
    let host = request.server_name();
    let name = ServerName::try_from(host.clone()).map_err(|_| GetError::MalformedUrl {
        url: request.url.to_string(),
        reason: format!("{host:?} is not a host name"),
    })?;
    let config = trust::client_config(&request.trust, &verdict, &[b"h2", b"http/1.1"])?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| match verdict.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(refused) => GetError::Certificate { host, fault: trust::fault(&refused) },
        None => GetError::Tls { host, reason: format!("{error} (over TCP)") },
    })
}

impl Connection {
    /// Sends a request; its answer, without the body.
    ///
    /// # Errors
    /// The connection breaks, or is silent for too long.
    pub(super) async fn send(
        self,
        request: &Request,
        message: http::Request<()>,
    ) -> Result<Answer, GetError> {
        let broken = |reason: String| GetError::Transfer { bytes: 0, reason };
        let exchange = async {
            let (mut head, ()) = message.into_parts();
            if self.stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
                // A window that follows the path, as QUIC's does.
                builder.adaptive_window(true);
                let (mut requests, connection) =
                    builder.handshake(TokioIo::new(self.stream)).await?;
                // Ends when the request's handles are gone.
                tokio::spawn(connection);
                let message = http::Request::from_parts(head, Empty::<Bytes>::new());
                let response = requests.send_request(message).await?;
                return Ok(Answer { protocol: "h2", response });
            }
            // HTTP/1.1 names the host beside the path (RFC 9112, section 3.2).
            let url = &request.url;
            if let (Ok(path), Ok(host)) = (
                url[Position::BeforePath..Position::AfterQuery].parse(),
                url[Position::BeforeHost..Position::AfterPort].parse(),
            ) {
                head.uri = path;
                head.headers.insert(HOST, host);
            }
            let (mut requests, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(self.stream)).await?;
            tokio::spawn(connection);
            let message = http::Request::from_parts(head, Empty::<Bytes>::new());
            let response = requests.send_request(message).await?;
            Ok::<_, hyper::Error>(Answer { protocol: "http/1.1", response })
        };
        match tokio::time::timeout(IDLE_TIMEOUT, exchange).await {
            Ok(answer) => answer.map_err(|error| broken(format!("no response: {error}"))),
            Err(_) => Err(broken(silence())),
        }
    }
}

impl Answer {
    /// The next part of the body.
    ///
    /// # Errors
    /// The reason why the body ended.
    pub(super) async fn next_chunk(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let frame = self.response.body_mut().frame();
            let frame = tokio::time::timeout(IDLE_TIMEOUT, frame).await.map_err(|_| silence())?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(error.to_string()),
                // Trailers have no needed fields.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

fn silence() -> String {
    format!("the server was silent for {} s; it or the network is down", IDLE_TIMEOUT.as_secs())
}
