//! The packet protection of this crate's plain sender and receiver: the RTP header in the clear, as
//! with SRTP, the rest sealed with XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03). A gateway
//! derives identifiers from the tag at the end.
//!
//! ```text
//!   bytes  what
//!      12  RTP header; its sequence number is the lower part of the packet's number
//!       4  upper part of the number, so that a receiver that comes late knows it (as RFC 4771)
//!      16  run of the sealing end
//!       …  payload
//!      16  tag
//! ```
//!
//! The cipher derives a key of its own from the stream's key and the run, which is random: an end
//! that has restarted begins to count at zero, and never seals two packets with the same nonce.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};

use crate::rtp::{HEADER_BYTES, RtpHeader};

/// Bytes of a run.
const RUN_BYTES: usize = 16;
/// Bytes in the clear: the RTP header, the upper part of the number, the run.
const CLEAR_BYTES: usize = HEADER_BYTES + 4 + RUN_BYTES;
/// First number that is too large.
const NUMBER_LIMIT: u64 = 1 << 48;

/// The key of a stream, which both ends get by other means.
#[derive(Clone)]
pub struct MediaKey(XChaCha20Poly1305);

impl core::fmt::Debug for MediaKey {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("MediaKey(..)")
    }
}

/// A lifetime of a sealing end, from its start to its end: 128 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run([u8; RUN_BYTES]);

impl Run {
    /// Creates a run from bytes that no other run has.
    pub(crate) fn new(random: [u8; RUN_BYTES]) -> Self {
        Self(random)
    }
}

/// An authentic packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) run: Run,
    pub(crate) number: u64,
    pub(crate) payload: Vec<u8>,
}

impl MediaKey {
    /// Creates a key from 32 secret bytes, which the sender and the receivers of one stream share.
    /// The key may be used again after a restart.
    pub fn new(secret: [u8; 32]) -> Self {
        Self(XChaCha20Poly1305::new(&Key::from(secret)))
    }

    /// A datagram: header, sealed `payload`. `number`: the packet's number that does not wrap,
    /// below 2^48; never used twice with a source in a run. The header's sequence number is made
    /// from it.
    pub(crate) fn seal(
        &self,
        run: Run,
        header: &RtpHeader,
        number: u64,
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let mut datagram = Vec::with_capacity(CLEAR_BYTES + payload.len() + 16);
        RtpHeader { sequence: number as u16, ..*header }.encode(&mut datagram);
        datagram.extend_from_slice(&u32::try_from(number >> 16).ok()?.to_be_bytes());
        datagram.extend_from_slice(&run.0);
        let payload = Payload { msg: payload, aad: &datagram };
        let sealed = self.0.encrypt(&nonce(run, header.source, number), payload).ok()?;
        datagram.extend_from_slice(&sealed);
        Some(datagram)
    }

    /// The content of a datagram; `None` when it was not sealed with this key.
    pub(crate) fn open(&self, header: &RtpHeader, datagram: &[u8]) -> Option<Opened> {
        let (aad, msg) = datagram.split_at_checked(CLEAR_BYTES)?;
        let (_, rest) = aad.split_at_checked(HEADER_BYTES)?;
        let (rollover, run) = rest.split_first_chunk::<4>()?;
        let run = Run(*run.first_chunk()?);
        let number = u64::from(u32::from_be_bytes(*rollover)) << 16 | u64::from(header.sequence);
        let nonce = nonce(run, header.source, number);
        let payload = self.0.decrypt(&nonce, Payload { msg, aad }).ok()?;
        Some(Opened { run, number, payload })
    }
}

/// The run, the lower half of the source, the number. The sources of a stream follow one another,
/// so that the halves differ.
fn nonce(Run(run): Run, source: u32, number: u64) -> XNonce {
    let mut nonce = [0; 24];
    let counter = u64::from(source as u16) << 48 | (number & (NUMBER_LIMIT - 1));
    nonce[..RUN_BYTES].copy_from_slice(&run);
    nonce[RUN_BYTES..].copy_from_slice(&counter.to_be_bytes());
    XNonce::from(nonce)
}

/// The numbers of each run that have arrived; a repeated number is rejected.
///
/// ```text
///   far below the highest | 64 numbers: a bit each | above
///        replayed                                    new, the window moves
/// ```
#[derive(Debug, Default)]
pub(crate) struct ReplayWindows(Vec<(Run, u64, u64)>);

impl ReplayWindows {
    /// Runs to remember: the oldest is forgotten first.
    const RUNS: usize = 64;

    /// True if an authentic packet of this number is the first one.
    pub(crate) fn accept(&mut self, run: Run, number: u64) -> bool {
        let known = self.0.iter_mut().find(|(known, ..)| *known == run);
        let Some((_, highest, bits)) = known else {
            if self.0.len() == Self::RUNS {
                self.0.remove(0);
            }
            self.0.push((run, number, 1));
            return true;
        };
        if number > *highest {
            let shift = u32::try_from(number - *highest).unwrap_or(u32::MAX);
            *bits = bits.checked_shl(shift).unwrap_or(0) | 1;
            *highest = number;
            return true;
        }
        let bit = u32::try_from(*highest - number).ok().and_then(|age| 1u64.checked_shl(age));
        let Some(bit) = bit.filter(|bit| *bits & bit == 0) else { return false };
        *bits |= bit;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: RtpHeader = RtpHeader { payload_type: 96, sequence: 0, timestamp: 5, source: 9 };

    #[test]
    fn only_untouched_bytes_open() {
        let (key, run) = (MediaKey::new([7; 32]), Run::new([1; 16]));
        let sealed = key.seal(run, &HEAD, 65_539, b"sound").unwrap();
        assert_eq!(sealed.len(), CLEAR_BYTES + 5 + 16);
        let open = |sealed: &[u8]| key.open(&RtpHeader::decode(sealed)?, sealed);
        assert_eq!(open(&sealed), Some(Opened { run, number: 65_539, payload: b"sound".to_vec() }));
        for position in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[position] ^= 1;
            assert_eq!(open(&bent), None, "byte {position}");
        }
        assert_eq!(open(&sealed[..CLEAR_BYTES - 1]), None);
        assert_eq!(key.seal(run, &HEAD, NUMBER_LIMIT, b""), None);
    }

    /// Equal numbers are sealed differently in another run and by another source.
    #[test]
    fn equal_numbers_of_other_runs_or_sources_are_sealed_anew() {
        let key = MediaKey::new([7; 32]);
        let bytes = |run: u8, source: u32| {
            let header = RtpHeader { source, ..HEAD };
            key.seal(Run::new([run; 16]), &header, 3, &[0; 32]).unwrap()[CLEAR_BYTES..].to_vec()
        };
        assert_eq!(bytes(1, 9), bytes(1, 9));
        assert_ne!(bytes(1, 9)[..32], bytes(2, 9)[..32], "two units under one keystream");
        assert_ne!(bytes(1, 9)[..32], bytes(1, 10)[..32]);
        assert_ne!(bytes(1, 0xffff)[..32], bytes(1, 0x1_0000)[..32]);
    }

    #[test]
    fn nothing_is_accepted_twice_and_nothing_recent_is_refused() {
        let (mut windows, run) = (ReplayWindows::default(), Run::new([1; 16]));
        for number in [5, 9, 7, 70, 8] {
            assert!(windows.accept(run, number), "{number}");
            assert!(!windows.accept(run, number), "{number}");
        }
        assert!(!windows.accept(run, 6), "too old");
        assert!(windows.accept(run, 1000) && !windows.accept(run, 70));
        assert!(windows.accept(Run::new([2; 16]), 5), "another run");
        for other in 0..ReplayWindows::RUNS as u8 {
            windows.accept(Run::new([other; 16]), 0);
        }
        assert_eq!(windows.0.len(), ReplayWindows::RUNS);
    }
}
