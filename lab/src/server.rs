//! Servers of several QUIC stacks, as one.

use crate::traffic::exchange::Request;
use bytes::Bytes;
use s2n_quic::stream::BidirectionalStream;
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

/// A stream that a client has opened.
pub(crate) enum ServerStream {
    S2n(BidirectionalStream),
    Quinn { send: quinn::SendStream, receive: quinn::RecvStream },
    Noq { send: noq::SendStream, receive: noq::RecvStream },
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
    pub(crate) async fn accept_stream(&mut self) -> Option<ServerStream> {
        match self {
            Self::S2n(connection) => {
                connection.accept_bidirectional_stream().await.ok()?.map(ServerStream::S2n)
            }
            Self::Quinn(connection) => {
                let (send, receive) = connection.accept_bi().await.ok()?;
                Some(ServerStream::Quinn { send, receive })
            }
            Self::Noq(connection) => {
                let (send, receive) = connection.accept_bi().await.ok()?;
                Some(ServerStream::Noq { send, receive })
            }
        }
    }
}

impl ServerStream {
    /// Reads a request, and the bytes of an upload that came with it; `None` if it is not a
    /// request.
    pub(crate) async fn requested(&mut self) -> Option<(Request, u64)> {
        let request = match self {
            Self::S2n(stream) => stream.receive().await.ok()??,
            Self::Quinn { receive, .. } => {
                receive.read_chunk(Request::LENGTH, true).await.ok()??.bytes
            }
            Self::Noq { receive, .. } => receive.read_chunk(Request::LENGTH).await.ok()??,
        };
        Request::read(&request)
    }

    /// The next bytes of an upload; `None` at its end, or when the client has gone.
    pub(crate) async fn receive(&mut self) -> Option<Bytes> {
        match self {
            Self::S2n(stream) => stream.receive().await.ok()?,
            Self::Quinn { receive, .. } => {
                receive.read_chunk(usize::MAX, true).await.ok()?.map(|chunk| chunk.bytes)
            }
            Self::Noq { receive, .. } => receive.read_chunk(usize::MAX).await.ok()?,
        }
    }

    /// Sends as soon as there is room; false when the client has gone.
    pub(crate) async fn send(&mut self, data: Bytes) -> bool {
        match self {
            Self::S2n(stream) => stream.send(data).await.is_ok(),
            Self::Quinn { send, .. } => send.write_chunk(data).await.is_ok(),
            Self::Noq { send, .. } => send.write_chunk(data).await.is_ok(),
        }
    }

    /// Ends the sending direction. An error means that the client has gone.
    pub(crate) fn finish(mut self) {
        match &mut self {
            Self::S2n(stream) => {
                let _ = stream.finish();
            }
            Self::Quinn { send, .. } => {
                let _ = send.finish();
            }
            Self::Noq { send, .. } => {
                let _ = send.finish();
            }
        }
    }
}
