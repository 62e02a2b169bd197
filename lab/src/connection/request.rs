//! A client's request on a stream.
//!
//! A request is a number of bytes (big-endian, eight bytes), and its answer that many zeroes. With
//! a ninth byte the request announces an upload: the stream continues with that many zeroes, and
//! the answer is one byte when all of them have arrived.

use bytes::Bytes;

/// Ninth byte of a request to upload.
const UPLOAD_MARK: u8 = 1;
/// Bytes of a request to upload.
const UPLOAD_REQUEST: usize = 9;

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
