//! Clients' connections of several QUIC stacks, as one.

use super::stream::{Outcome, Stream};

/// A client's connection.
#[derive(Clone)]
pub(crate) enum ClientConnection {
    S2n(s2n_quic::connection::Handle),
    Quinn(quinn::Connection),
}

impl ClientConnection {
    /// Opens a stream.
    pub(crate) async fn open(&mut self) -> Outcome<Stream> {
        match self {
            Self::S2n(handle) => Ok(Stream::S2n(handle.open_bidirectional_stream().await?)),
            Self::Quinn(connection) => {
                let (send, receive) = connection.open_bi().await?;
                Ok(Stream::Quinn { send, receive })
            }
        }
    }
}
