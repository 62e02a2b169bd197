//! Requests and answers on the streams of a connection, of any QUIC stack.
//!
//! A request is a number of bytes (big-endian, eight bytes), and its answer that many zeroes. With
//! a ninth byte the request announces an upload: the stream continues with that many zeroes, and
//! the answer is one byte when all of them have arrived.

use super::arrivals::Arrivals;
use crate::clock::VirtualClock;
use crate::server::ServerStream;
use bytes::Bytes;
use s2n_quic::stream::BidirectionalStream;
use std::error::Error;
use std::sync::Arc;

/// Bytes given to a stream at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Content of every stream.
static ZERO_CHUNK: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];
/// Ninth byte of a request to upload.
const UPLOAD_MARK: u8 = 1;
/// Bytes of a request to upload.
const UPLOAD_REQUEST: usize = 9;

/// Failure of a connection.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A client's connection.
#[derive(Clone)]
pub(crate) enum ClientConnection {
    S2n(s2n_quic::connection::Handle),
    Quinn(quinn::Connection),
}

/// A stream that a client has opened.
pub(crate) enum ClientStream {
    S2n(BidirectionalStream),
    Quinn { send: quinn::SendStream, receive: quinn::RecvStream },
}

impl ClientConnection {
    pub(crate) async fn open(&mut self) -> Result<ClientStream, Failure> {
        match self {
            Self::S2n(handle) => Ok(ClientStream::S2n(handle.open_bidirectional_stream().await?)),
            Self::Quinn(connection) => {
                let (send, receive) = connection.open_bi().await?;
                Ok(ClientStream::Quinn { send, receive })
            }
        }
    }
}

impl ClientStream {
    /// Sends as soon as there is room.
    pub(crate) async fn send(&mut self, data: Bytes) -> Result<(), Failure> {
        match self {
            Self::S2n(stream) => Ok(stream.send(data).await?),
            Self::Quinn { send, .. } => Ok(send.write_chunk(data).await?),
        }
    }

    /// The next bytes; `None` at the end.
    pub(crate) async fn receive(&mut self) -> Result<Option<Bytes>, Failure> {
        match self {
            Self::S2n(stream) => Ok(stream.receive().await?),
            Self::Quinn { receive, .. } => {
                Ok(receive.read_chunk(usize::MAX, true).await?.map(|chunk| chunk.bytes))
            }
        }
    }

    /// Ends the sending direction.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        match self {
            Self::S2n(stream) => Ok(stream.finish()?),
            Self::Quinn { send, .. } => Ok(send.finish()?),
        }
    }
}

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes of the object.
    pub(crate) size: u64,
    /// True if the client sends it.
    pub(crate) upload: bool,
}

impl Request {
    /// The request as bytes on the wire.
    pub(crate) fn bytes(self) -> Bytes {
        let mut bytes = self.size.to_be_bytes().to_vec();
        bytes.extend(self.upload.then_some(UPLOAD_MARK));
        bytes.into()
    }

    /// Read from the first bytes of a stream, with the bytes of the upload that came with it.
    pub(crate) fn read(first: &[u8]) -> Option<(Self, u64)> {
        let (size, rest) = first.split_first_chunk()?;
        let upload = rest.first() == Some(&UPLOAD_MARK);
        Some((
            Self { size: u64::from_be_bytes(*size), upload },
            rest.len().saturating_sub(1) as u64,
        ))
    }

    /// The most bytes of a stream that a server may read at first.
    pub(crate) const LENGTH: usize = UPLOAD_REQUEST;
}

/// Downloads an object, counting its bytes.
pub(crate) async fn fetch(
    mut connection: ClientConnection,
    size: u64,
    clock: VirtualClock,
    arrivals: Arc<Arrivals>,
) -> Result<(), Failure> {
    let mut stream = connection.open().await?;
    stream.send(Request { size, upload: false }.bytes()).await?;
    let mut left = size;
    while left > 0 {
        let Some(data) = stream.receive().await? else {
            return Err("the server ended an answer early".into());
        };
        left = left.saturating_sub(data.len() as u64);
        arrivals.add(data.len() as u64, clock);
    }
    Ok(())
}

/// Uploads an object; the server counts its bytes. Ends when all of them have arrived.
pub(crate) async fn put(mut connection: ClientConnection, size: u64) -> Result<(), Failure> {
    let mut stream = connection.open().await?;
    stream.send(Request { size, upload: true }.bytes()).await?;
    let mut left = size;
    while left > 0 {
        let length = left.min(CHUNK_BYTES as u64);
        stream.send(Bytes::from_static(&ZERO_CHUNK).slice(..length as usize)).await?;
        left -= length;
    }
    stream.finish()?;
    match stream.receive().await? {
        Some(_) => Ok(()),
        None => Err("the server did not confirm an upload".into()),
    }
}

/// Answers one stream.
pub(crate) async fn answer(mut stream: ServerStream, arrivals: Arc<Arrivals>, clock: VirtualClock) {
    let Some((Request { size, upload }, begun)) = stream.requested().await else { return };
    if upload {
        let mut received = begun;
        arrivals.add(begun, clock);
        while received < size {
            let Some(data) = stream.receive().await else { return };
            received += data.len() as u64;
            arrivals.add(data.len() as u64, clock);
        }
        if !stream.send(Bytes::from_static(&ZERO_CHUNK).slice(..1)).await {
            return;
        }
    } else {
        let mut left = size;
        while left > 0 {
            let length = left.min(CHUNK_BYTES as u64);
            if !stream.send(Bytes::from_static(&ZERO_CHUNK).slice(..length as usize)).await {
                return;
            }
            left -= length;
        }
    }
    stream.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        for request in
            [Request { size: 7, upload: false }, Request { size: u64::MAX, upload: true }]
        {
            assert_eq!(Request::read(&request.bytes()), Some((request, 0)));
        }
        let mut early = Request { size: 5, upload: true }.bytes().to_vec();
        early.extend([0; 3]);
        assert_eq!(Request::read(&early), Some((Request { size: 5, upload: true }, 3)));
        assert_eq!(Request::read(&[0; 7]), None);
    }
}
