//! The packet protection of this crate's plain sender and receiver: the RTP header in the clear, as
//! with SRTP, everything behind it sealed with ChaCha20-Poly1305 (RFC 8439). A gateway makes
//! identifiers of the tag at the end. Between the two is the upper part of the packet's number, so
//! that a receiver that comes late knows it (RFC 4771 does that for SRTP).

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};

use crate::rtp::{HEADER, RtpHeader};

/// Bytes in the clear: the RTP header, and the upper part of the number.
const CLEAR: usize = HEADER + 4;

/// The key of a stream, which both ends have from elsewhere.
#[derive(Clone)]
pub struct MediaKey(ChaCha20Poly1305);

impl core::fmt::Debug for MediaKey {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("MediaKey(..)")
    }
}

impl MediaKey {
    /// From 32 secret bytes. A key must be used by one sender only, and for one stream of numbers
    /// per source.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(ChaCha20Poly1305::new(&Key::from(secret)))
    }

    /// A datagram: header, sealed `payload`. `number`: the packet's number that does not wrap,
    /// below 2^48; never used twice with a source. The header's sequence number is made from
    /// it.
    pub fn seal(&self, header: &RtpHeader, number: u64, payload: &[u8]) -> Option<Vec<u8>> {
        let mut datagram = Vec::with_capacity(CLEAR + payload.len() + 16);
        RtpHeader { sequence: number as u16, ..*header }.encode(&mut datagram);
        datagram.extend_from_slice(&u32::try_from(number >> 16).ok()?.to_be_bytes());
        let payload = Payload { msg: payload, aad: &datagram };
        let sealed = self.0.encrypt(&nonce(header.source, number), payload).ok()?;
        datagram.extend_from_slice(&sealed);
        Some(datagram)
    }

    /// The number and the payload of a datagram; `None` when it was not sealed with this key.
    pub fn open(&self, header: &RtpHeader, datagram: &[u8]) -> Option<(u64, Vec<u8>)> {
        let (aad, msg) = datagram.split_at_checked(CLEAR)?;
        let rollover = u32::from_be_bytes(*aad.last_chunk()?);
        let number = u64::from(rollover) << 16 | u64::from(header.sequence);
        let payload = self.0.decrypt(&nonce(header.source, number), Payload { msg, aad }).ok()?;
        Some((number, payload))
    }
}

fn nonce(source: u32, number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&source.to_be_bytes());
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::from(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_untouched_bytes_open() {
        let key = MediaKey::new([7; 32]);
        let header = RtpHeader { payload_type: 96, sequence: 0, timestamp: 5, source: 9 };
        let sealed = key.seal(&header, 65_539, b"sound").unwrap();
        assert_eq!(sealed.len(), CLEAR + 5 + 16);
        let open = |sealed: &[u8]| key.open(&RtpHeader::decode(sealed)?, sealed);
        assert_eq!(open(&sealed), Some((65_539, b"sound".to_vec())));
        for position in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[position] ^= 1;
            assert_eq!(open(&bent), None, "byte {position}");
        }
        assert_eq!(open(&sealed[..CLEAR - 1]), None);
        assert_eq!(key.seal(&header, 1 << 48, b""), None);
    }
}
