//! Packet numbers of datagrams that the transport has not seen yet.
//!
//! The number of a 1-RTT packet is hidden under a mask that follows from its own ciphertext and the
//! header protection key (RFC 9001, section 5.4). That key never changes on a connection (section
//! 6), and knowing it reveals nothing but numbers. What is read here is not authenticated: a
//! number that would keep a datagram from s2n-quic has to be proven ([`PacketNumbers::proves`]).

use crate::packet_protection::Proofs;
use s2n_quic_core::crypto::{HeaderKey, HeaderProtectionMask, OneRttHeaderKey};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Set in the first byte of datagrams that do not begin with a 1-RTT packet (RFC 8999, section
/// 5.1).
const LONG_HEADER: u8 = 0x80;
/// Where a long header tells the length of the destination connection identifier, which follows.
const LENGTH_OFFSET: usize = 5;
/// The ciphertext that the mask is made from begins where it would if the number had this length.
const LONGEST_NUMBER: usize = 4;
/// Connection identifiers in use at the same time that are known.
const IDENTIFIERS: usize = 4;

/// Opens the header protection of one connection.
pub(crate) trait Opener: Send {
    /// The mask, and how long `sample` must be.
    fn mask(&self, sample: &[u8]) -> HeaderProtectionMask;
    /// Bytes of ciphertext that [`Self::mask`] needs.
    fn sample_length(&self) -> usize;
}

/// s2n-quic's own key, of which a second owner reads packet numbers.
pub(crate) struct SharedKey<K>(Arc<Mutex<K>>);

/// The second owner's.
pub(crate) type SharedOpener = Arc<Mutex<dyn Opener>>;

impl<K: HeaderKey> Opener for K {
    fn mask(&self, sample: &[u8]) -> HeaderProtectionMask {
        self.opening_header_protection_mask(sample)
    }

    fn sample_length(&self) -> usize {
        self.opening_sample_len()
    }
}

impl<K: HeaderKey + 'static> SharedKey<K> {
    pub(crate) fn new(key: K) -> Self {
        Self(Arc::new(Mutex::new(key)))
    }

    pub(crate) fn opener(&self) -> SharedOpener {
        self.0.clone()
    }

    fn with<R>(&self, call: impl FnOnce(&K) -> R) -> R {
        // A key is never changed, so that a panic elsewhere leaves it as it was.
        call(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: HeaderKey + 'static> HeaderKey for SharedKey<K> {
    fn opening_header_protection_mask(&self, sample: &[u8]) -> HeaderProtectionMask {
        self.with(|key| key.opening_header_protection_mask(sample))
    }

    fn opening_sample_len(&self) -> usize {
        self.with(HeaderKey::opening_sample_len)
    }

    fn sealing_header_protection_mask(&self, sample: &[u8]) -> HeaderProtectionMask {
        self.with(|key| key.sealing_header_protection_mask(sample))
    }

    fn sealing_sample_len(&self) -> usize {
        self.with(HeaderKey::sealing_sample_len)
    }
}

impl<K: OneRttHeaderKey + 'static> OneRttHeaderKey for SharedKey<K> {}

impl<K> fmt::Debug for SharedKey<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SharedKey")
    }
}

/// A header without its protection.
struct Header {
    bytes: Vec<u8>,
    number: u64,
}

/// Set in the first byte of a 1-RTT packet under keys of the second, fourth... generation.
const KEY_PHASE: u8 = 0x04;
/// Bits of a 1-RTT packet's first byte that are protected.
const PROTECTED: u8 = 0x1f;

/// Reads the packet numbers of one connection.
#[derive(Default)]
pub(crate) struct PacketNumbers {
    opener: Option<SharedOpener>,
    proofs: Proofs,
    /// Destination connection identifiers of datagrams that were this connection's; all are
    /// equally long.
    identifiers: Vec<Vec<u8>>,
    /// The number read from the datagram that is with s2n-quic now, or its connection identifier
    /// when that is not known.
    current: Current,
    /// A number was read that was not the right one: none is read any more.
    wrong: bool,
}

/// Packet number, or else connection identifier, of the datagram that is with s2n-quic now. The
/// identifier is believed when s2n-quic has decrypted a packet of that datagram.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum Current {
    #[default]
    Nothing,
    Read(u64),
    Unknown(Vec<u8>),
}

impl fmt::Debug for PacketNumbers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PacketNumbers").field("wrong", &self.wrong).finish_non_exhaustive()
    }
}

impl PacketNumbers {
    /// The connection's keys are known.
    pub(crate) fn set_keys(&mut self, opener: SharedOpener, proofs: Proofs) {
        self.opener = Some(opener);
        self.proofs = proofs;
    }

    /// True if the keys are known.
    pub(crate) fn has_keys(&self) -> bool {
        self.opener.is_some()
    }

    /// The packet number of a datagram, next to `reference`, if it begins with a 1-RTT packet of
    /// this connection.
    pub(crate) fn read(&mut self, datagram: &[u8], reference: Option<u64>) -> Option<u64> {
        self.current = Current::Nothing;
        let first = *datagram.first()?;
        if first & LONG_HEADER != 0 {
            let length = usize::from(*datagram.get(LENGTH_OFFSET)?);
            let identifier = datagram.get(LENGTH_OFFSET + 1..)?.get(..length)?;
            self.current = Current::Unknown(identifier.to_vec());
            return None;
        }
        let length = self.identifiers.last()?.len();
        let identifier = datagram.get(1..)?.get(..length)?;
        if !self.identifiers.iter().any(|known| known == identifier) {
            self.current = Current::Unknown(identifier.to_vec());
            return None;
        }
        if self.wrong {
            return None;
        }
        let number = self.unprotect(datagram, length, reference)?.number;
        self.current = Current::Read(number);
        Some(number)
    }

    /// True if the packet that a datagram begins with is authentic and has this number, which was
    /// read from it.
    pub(crate) fn proves(&self, datagram: &[u8], number: u64) -> bool {
        let length = self.identifiers.last().map(Vec::len);
        let reference = number.checked_sub(1);
        let header = length.and_then(|length| self.unprotect(datagram, length, reference));
        header.is_some_and(|header| {
            let phase = header.bytes.first().is_some_and(|first| first & KEY_PHASE != 0);
            let payload = &datagram[header.bytes.len()..];
            header.number == number && self.proofs.proves(number, phase, &header.bytes, payload)
        })
    }

    /// The header of a 1-RTT packet whose connection identifier is so long.
    fn unprotect(&self, datagram: &[u8], length: usize, reference: Option<u64>) -> Option<Header> {
        let opener = self.opener.as_ref()?;
        let opener = opener.lock().unwrap_or_else(PoisonError::into_inner);
        let start = 1 + length;
        let sample = datagram.get(start + LONGEST_NUMBER..)?.get(..opener.sample_length())?;
        let mask = opener.mask(sample);
        let first = datagram.first()? ^ (mask[0] & PROTECTED);
        let end = start + usize::from(first & 3) + 1;
        let mut bytes = datagram.get(..end)?.to_vec();
        bytes[0] = first;
        for (byte, mask) in bytes[start..].iter_mut().zip(&mask[1..]) {
            *byte ^= mask;
        }
        let truncated =
            bytes[start..].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let number = expand(truncated, end - start, reference);
        Some(Header { bytes, number })
    }

    /// A datagram goes to s2n-quic that was read before, with this result.
    pub(crate) fn hand_over(&mut self, number: u64) {
        self.current = Current::Read(number);
    }

    /// s2n-quic has decrypted a packet of this number in the datagram that is with it. False:
    /// another number had been read, and none is read from now on.
    pub(crate) fn confirm(&mut self, number: u64) -> bool {
        match std::mem::take(&mut self.current) {
            Current::Nothing => {}
            Current::Read(read) => self.wrong |= read != number,
            Current::Unknown(identifier) => self.learn(&identifier),
        }
        !self.wrong
    }

    /// s2n-quic has decrypted a packet without a number of use here in the datagram that is with
    /// it.
    pub(crate) fn confirm_handshake(&mut self) {
        if let Current::Unknown(identifier) = &self.current {
            let identifier = identifier.clone();
            self.learn(&identifier);
        }
    }

    fn learn(&mut self, identifier: &[u8]) {
        // All are equally long: the shell's own side chooses them.
        self.identifiers.retain(|known| known.len() == identifier.len());
        if self.identifiers.iter().all(|known| known != identifier) {
            if self.identifiers.len() == IDENTIFIERS {
                self.identifiers.remove(0);
            }
            self.identifiers.push(identifier.to_vec());
        }
    }
}

/// Packet numbers end here (RFC 9000, section 12.3).
const NUMBERS: u64 = 1 << 62;

/// The number next to `reference` + 1 whose lowest `bytes` are `truncated` (RFC 9000, appendix
/// A.3).
fn expand(truncated: u64, bytes: usize, reference: Option<u64>) -> u64 {
    let expected = reference.map_or(0, |reference| reference + 1);
    let window = 1u64 << (8 * bytes);
    let candidate = (expected & !(window - 1)) | truncated;
    if candidate + window / 2 <= expected && candidate < NUMBERS - window {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate.min(NUMBERS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_keys::{IDENTIFIER, Numbered, Plain, long_header, short_header};

    /// The transport has decrypted a packet of the handshake.
    fn shake_hands(numbers: &mut PacketNumbers) {
        assert_eq!(numbers.read(&long_header(), None), None);
        numbers.confirm_handshake();
    }

    #[test]
    fn numbers_are_read_once_key_and_identifier_are_known() {
        let mut numbers = PacketNumbers::default();
        assert_eq!(numbers.read(&short_header(&IDENTIFIER, 5, 0), None), None);
        shake_hands(&mut numbers);
        assert_eq!(numbers.read(&short_header(&IDENTIFIER, 5, 0), None), None);
        numbers.set_keys(SharedKey::new(Plain).opener(), Proofs::default());
        assert_eq!(numbers.read(&short_header(&IDENTIFIER, 5, 0), None), Some(5));
        assert_eq!(
            numbers.read(&short_header(&IDENTIFIER, 70_000, 0xa7), Some(69_000)),
            Some(70_000)
        );
        assert!(numbers.confirm(70_000));
        assert_eq!(
            numbers.read(&short_header(&IDENTIFIER, 70_000, 0)[..20], Some(69_000)),
            None,
            "too short"
        );
    }

    #[test]
    fn another_connection_identifier_is_believed_when_the_transport_has_decrypted_its_packet() {
        let mut numbers = PacketNumbers::default();
        numbers.set_keys(SharedKey::new(Plain).opener(), Proofs::default());
        shake_hands(&mut numbers);
        let other = short_header(&[4; 8], 6, 0);
        assert_eq!(numbers.read(&other, None), None);
        assert_eq!(numbers.read(&other, None), None);
        assert!(numbers.confirm(6));
        assert_eq!(numbers.read(&other, None), Some(6));
    }

    #[test]
    fn after_a_wrong_number_none_is_read() {
        let mut numbers = PacketNumbers::default();
        numbers.set_keys(SharedKey::new(Plain).opener(), Proofs::default());
        shake_hands(&mut numbers);
        assert_eq!(numbers.read(&short_header(&IDENTIFIER, 6, 0), None), Some(6));
        assert!(!numbers.confirm(7));
        assert_eq!(numbers.read(&short_header(&IDENTIFIER, 8, 0), None), None);
    }

    #[test]
    fn a_forged_long_header_does_not_end_the_reading() {
        let mut numbers = PacketNumbers::default();
        numbers.set_keys(SharedKey::new(Plain).opener(), Proofs::default());
        shake_hands(&mut numbers);
        assert_eq!(numbers.read(&short_header(&IDENTIFIER, 6, 0), None), Some(6));
        assert!(numbers.confirm(6));
        let mut number = 7;
        for length in 0..=20u8 {
            let forged = [&[0xc3, 0, 0, 0, 1, length][..], &[length; 60]].concat();
            assert_eq!(numbers.read(&forged, None), None);
            let datagram = short_header(&IDENTIFIER, number, 0);
            assert_eq!(
                numbers.read(&datagram, Some(number - 1)),
                Some(number),
                "after one of {length} bytes"
            );
            assert!(numbers.confirm(number));
            number += 1;
        }
        // As long as the connection's own, and more than are remembered.
        for forged in 0..9u8 {
            numbers.read(&[&[0xc3, 0, 0, 0, 1, 8][..], &[forged; 48]].concat(), None);
        }
        let datagram = short_header(&IDENTIFIER, number, 0);
        assert_eq!(numbers.read(&datagram, Some(number - 1)), Some(number));
    }

    #[test]
    fn a_forged_long_header_in_front_of_the_first_packet_is_not_believed_either() {
        let mut numbers = PacketNumbers::default();
        numbers.set_keys(SharedKey::new(Plain).opener(), Proofs::default());
        shake_hands(&mut numbers);
        numbers.read(&[&[0xc3, 0, 0, 0, 1, 5][..], &[5; 60]].concat(), None);
        assert_eq!(numbers.read(&short_header(&IDENTIFIER, 6, 0), None), Some(6));
    }

    #[test]
    fn only_what_the_packet_protection_key_opens_is_proven() {
        use crate::packet_protection::ProvingKey;
        let mut numbers = PacketNumbers::default();
        let proofs = ProvingKey::new(Numbered(1)).proofs();
        numbers.set_keys(SharedKey::new(Plain).opener(), proofs);
        shake_hands(&mut numbers);
        let authentic = short_header(&IDENTIFIER, 70_000, 0xa3);
        let number = numbers.read(&authentic, Some(69_000)).unwrap();
        assert!(numbers.proves(&authentic, number));
        let mut forged = authentic.clone();
        *forged.last_mut().unwrap() = 9;
        assert_eq!(numbers.read(&forged, Some(69_000)), Some(number), "its header is the same");
        assert!(!numbers.proves(&forged, number));
        assert!(!numbers.proves(&authentic, number + 1), "another number was read");
        assert!(!numbers.proves(&authentic[..12], number));
    }

    #[test]
    fn arbitrary_datagrams_are_survived() {
        let mut numbers = PacketNumbers::default();
        numbers.set_keys(SharedKey::new(Plain).opener(), Proofs::default());
        let mut state = 1u64;
        for round in 0..20_000usize {
            let mut datagram = vec![0; round % 61];
            for byte in &mut datagram {
                // A linear congruential generator.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
            if let Some(byte) = datagram.get_mut(LENGTH_OFFSET) {
                *byte %= 24;
            }
            let reference = (round % 3 > 0).then_some(state >> (2 + round % 62));
            if let Some(number) = numbers.read(&datagram, reference) {
                // Also when it has read wrongly before: begin anew.
                if !numbers.confirm(number) {
                    numbers = PacketNumbers::default();
                    numbers.set_keys(SharedKey::new(Plain).opener(), Proofs::default());
                }
            } else {
                numbers.confirm(state & 0xffff);
            }
            assert!(numbers.identifiers.len() <= IDENTIFIERS);
        }
    }

    #[test]
    fn truncated_numbers_are_expanded_as_in_the_standard() {
        // The example of RFC 9000, appendix A.3.
        assert_eq!(expand(0x9b32, 2, Some(0xa82f_30ea)), 0xa82f_9b32);
        assert_eq!(expand(3, 1, None), 3);
        assert_eq!(expand(0xff, 1, Some(0x100)), 0xff);
        assert_eq!(expand(0, 1, Some(0xfe)), 0x100);
    }
}
