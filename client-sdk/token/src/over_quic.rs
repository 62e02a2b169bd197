//! A single short GET request over HTTP/3.

use crate::endpoint::{MAXIMUM_DOCUMENT_BYTES, TokenEndpoint, request, share};
use crate::error::TokenError;
use bytes::Buf;
use h3_util::s2n::s2n_quic_h3;
use packrat_s2n_quic::{ConnectError, Endpoint, EndpointConfig};
use s2n_quic::provider::tls::rustls::Client;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Time within which the last datagrams leave.
const CLOSING_TIME: Duration = Duration::from_millis(30);

/// The document, from the first address that answers.
pub(crate) async fn get(
    endpoint: &TokenEndpoint,
    addresses: &[SocketAddr],
) -> Result<Vec<u8>, TokenError> {
    let deadline = Instant::now() + endpoint.connect_timeout;
    let mut failure = TokenError::TimedOut { after: endpoint.connect_timeout };
    for (index, &remote) in addresses.iter().enumerate() {
        let limit = share(deadline, addresses.len() - index);
        match connect(endpoint, remote, limit).await {
            Ok((socket, connection)) => {
                let document = exchange(endpoint, connection).await;
                socket.wait_idle(CLOSING_TIME).await;
                return document;
            }
            // Another address of the same host would present the same certificate.
            Err(error @ TokenError::Tls { .. }) => return Err(error),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

async fn connect(
    endpoint: &TokenEndpoint,
    remote: SocketAddr,
    limit: Duration,
) -> Result<(Endpoint, s2n_quic::Connection), TokenError> {
    let local: SocketAddr = match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let fault = |reason: String| TokenError::Connect { remote, reason };
    let config = EndpointConfig::default()
        .with_assist(None)
        // Ours ends first; s2n-quic's is the safety net.
        .with_handshake_timeout(limit + Duration::from_secs(1));
    let socket = Endpoint::bind(local, Client::from(endpoint.tls_for(&[b"h3"])), config)
        .map_err(|error| fault(error.to_string()))?;
    let host = endpoint.server_name();
    match tokio::time::timeout(limit, socket.connect(remote, &host)).await {
        Err(_) => Err(fault("no answer over UDP".to_owned())),
        Ok(Ok(connection)) => Ok((socket, connection.split().0)),
        Ok(Err(ConnectError::Tls { reason, .. })) => Err(TokenError::Tls { host, reason }),
        Ok(Err(error)) => Err(fault(error.to_string())),
    }
}

async fn exchange(
    endpoint: &TokenEndpoint,
    connection: s2n_quic::Connection,
) -> Result<Vec<u8>, TokenError> {
    let broken = |error: &dyn std::fmt::Display| TokenError::Transfer { reason: error.to_string() };
    let (mut driver, mut requests) =
        h3::client::new(s2n_quic_h3::Connection::new(connection)).await.map_err(|e| broken(&e))?;
    let request = request(endpoint.asked_url().as_str()).body(()).map_err(|e| broken(&e))?;
    let document = async {
        let mut stream = requests.send_request(request).await.map_err(|e| broken(&e))?;
        stream.finish().await.map_err(|e| broken(&e))?;
        endpoint.check(&stream.recv_response().await.map_err(|e| broken(&e))?)?;
        let mut document = Vec::new();
        while let Some(mut data) = stream.recv_data().await.map_err(|e| broken(&e))? {
            if document.len() + data.remaining() > MAXIMUM_DOCUMENT_BYTES {
                return Err(endpoint.too_long());
            }
            document.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        Ok(document)
    };
    tokio::select! {
        biased;
        document = document => document,
        ended = std::future::poll_fn(|context| driver.poll_close(context)) => Err(broken(&ended)),
    }
}
