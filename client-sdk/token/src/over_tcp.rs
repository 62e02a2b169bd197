//! A single short GET request over TLS and TCP: HTTP/2, or HTTP/1.1 if the server lacks HTTP/2.

use crate::endpoint::{MAXIMUM_DOCUMENT_BYTES, TokenEndpoint, request, share};
use crate::error::TokenError;
use bytes::Bytes;
use http::header::HOST;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The document, from the first address that takes the connection.
pub(crate) async fn get(
    endpoint: &TokenEndpoint,
    addresses: &[SocketAddr],
) -> Result<Vec<u8>, TokenError> {
    let (remote, stream) = connect(endpoint, addresses).await?;
    let broken = |error: &dyn Display| TokenError::Transfer { reason: error.to_string() };
    let url = endpoint.asked_url();
    let with_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let response = if with_http2 {
        let message =
            request(url.as_str()).body(Empty::<Bytes>::new()).map_err(|error| broken(&error))?;
        let (mut requests, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .map_err(|error| broken(&error))?;
        // Ends when the request's handles are gone.
        tokio::spawn(connection);
        requests.send_request(message).await
    } else {
        // HTTP/1.1 names the host beside the path (RFC 9112 section 3.2).
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let builder = request(path).header(HOST, url.authority());
        let message = builder.body(Empty::<Bytes>::new()).map_err(|error| broken(&error))?;
        let (mut requests, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| broken(&error))?;
        tokio::spawn(connection);
        requests.send_request(message).await
    };
    let response = response.map_err(|error| broken(&format!("{remote} (TCP): {error}")))?;
    endpoint.check(&response)?;
    match Limited::new(response.into_body(), MAXIMUM_DOCUMENT_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes().to_vec()),
        Err(error) if error.is::<LengthLimitError>() => Err(endpoint.too_long()),
        Err(error) => Err(broken(&error)),
    }
}

/// The first address that takes the connection, with TLS on it.
async fn connect(
    endpoint: &TokenEndpoint,
    addresses: &[SocketAddr],
) -> Result<(SocketAddr, TlsStream<TcpStream>), TokenError> {
    let deadline = Instant::now() + endpoint.connect_timeout;
    let mut failure = TokenError::TimedOut { after: endpoint.connect_timeout };
    for (index, &remote) in addresses.iter().enumerate() {
        let limit = share(deadline, addresses.len() - index);
        let reason = match tokio::time::timeout(limit, TcpStream::connect(remote)).await {
            Ok(Ok(stream)) => return Ok((remote, secure(endpoint, remote, stream).await?)),
            Ok(Err(error)) => format!("over TCP: {error}"),
            Err(_) => "no answer over TCP".to_owned(),
        };
        failure = TokenError::Connect { remote, reason };
    }
    Err(failure)
}

async fn secure(
    endpoint: &TokenEndpoint,
    remote: SocketAddr,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, TokenError> {
    let host = endpoint.server_name();
    let name = ServerName::try_from(host.clone()).map_err(|_| TokenError::Url {
        url: endpoint.url.to_string(),
        reason: format!("{host:?} is not a host name"),
    })?;
    let config = endpoint.tls_for(&[b"h2", b"http/1.1"]);
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| TokenError::Tls { host, reason: format!("{error} (TCP, {remote})") })
}
