//! Streams of several QUIC stacks, as one.

use super::request::Request;
use bytes::Bytes;
use s2n_quic::stream::BidirectionalStream;
use std::error::Error;

/// What a step of a connection comes to.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// A stream that a client has opened, at either end.
pub(crate) enum Stream {
    S2n(BidirectionalStream),
    Quinn { send: quinn::SendStream, receive: quinn::RecvStream },
    Noq { send: noq::SendStream, receive: noq::RecvStream },
}

impl Stream {
    /// Reads a request, and the number of bytes of an upload that came with it; `None` if it is
    /// not a request.
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

    /// The next bytes; `None` at the end.
    pub(crate) async fn receive(&mut self) -> Outcome<Option<Bytes>> {
        match self {
            Self::S2n(stream) => Ok(stream.receive().await?),
            Self::Quinn { receive, .. } => {
                Ok(receive.read_chunk(usize::MAX, true).await?.map(|chunk| chunk.bytes))
            }
            Self::Noq { receive, .. } => Ok(receive.read_chunk(usize::MAX).await?),
        }
    }

    /// Sends as soon as there is room.
    pub(crate) async fn send(&mut self, data: Bytes) -> Outcome {
        match self {
            Self::S2n(stream) => Ok(stream.send(data).await?),
            Self::Quinn { send, .. } => Ok(send.write_chunk(data).await?),
            Self::Noq { send, .. } => Ok(send.write_chunk(data).await?),
        }
    }

    /// Ends the sending direction.
    pub(crate) fn finish(&mut self) -> Outcome {
        match self {
            Self::S2n(stream) => Ok(stream.finish()?),
            Self::Quinn { send, .. } => Ok(send.finish()?),
            Self::Noq { send, .. } => Ok(send.finish()?),
        }
    }
}
