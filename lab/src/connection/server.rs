//! Servers of several QUIC stacks, as one.

use super::stream::Stream;
use std::io;
use std::net::SocketAddr;

/// A server that accepts connections.
pub(crate) enum Server {
    S2n(s2n_quic::Server),
    Quinn(quinn::Endpoint),
    Noq(noq::Endpoint),
}

/// A connection that a server has accepted.
pub(crate) enum ServerConnection {
    S2n(s2n_quic::Connection),
    Quinn(quinn::Connection),
    Noq(noq::Connection),
}

impl Server {
    /// The address at which it listens.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::S2n(server) => server.local_addr().map_err(io::Error::other),
            Self::Quinn(endpoint) => endpoint.local_addr(),
            Self::Noq(endpoint) => endpoint.local_addr(),
        }
    }

    /// The next connection whose handshake succeeds; `None` when the server has ended.
    pub(crate) async fn accept(&mut self) -> Option<ServerConnection> {
        match self {
            Self::S2n(server) => server.accept().await.map(ServerConnection::S2n),
            Self::Quinn(endpoint) => loop {
                if let Ok(connection) = endpoint.accept().await?.await {
                    return Some(ServerConnection::Quinn(connection));
                }
            },
            Self::Noq(endpoint) => loop {
                if let Ok(connection) = endpoint.accept().await?.await {
                    return Some(ServerConnection::Noq(connection));
                }
            },
        }
    }
}

impl ServerConnection {
    /// The next stream; `None` when the connection has ended.
    pub(crate) async fn accept_stream(&mut self) -> Option<Stream> {
        match self {
            Self::S2n(connection) => {
                connection.accept_bidirectional_stream().await.ok()?.map(Stream::S2n)
            }
            Self::Quinn(connection) => {
                let (send, receive) = connection.accept_bi().await.ok()?;
                Some(Stream::Quinn { send, receive })
            }
            Self::Noq(connection) => {
                let (send, receive) = connection.accept_bi().await.ok()?;
                Some(Stream::Noq { send, receive })
            }
        }
    }
}
