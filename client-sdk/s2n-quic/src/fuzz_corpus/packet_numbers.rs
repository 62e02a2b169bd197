//! QUIC headers as the s2n-quic shell reads them, before anybody has authenticated the datagram,
//! between those of a real connection.
//!
//! Input: byte 0 is the length of the connection's identifier. Then steps of one byte, the kind in
//! the lower three bits and a number in the upper five; some kinds take a length byte and as many
//! bytes.
//!
//! The oracle for packet numbers is s2n-quic's own (RFC 9000, appendix A.3).

use s2n_codec::DecoderBuffer;
use s2n_quic_core::crypto::{HeaderKey, HeaderProtectionMask};
use s2n_quic_core::packet::number::PacketNumberSpace;
use s2n_quic_core::varint::VarInt;

use crate::header_protection::{PacketNumbers, SharedKey};
use crate::packet_protection::Proofs;

use packrat_fuzz_entry::take;

const SAMPLE: usize = 16;
const HIGHEST_NUMBER: u64 = (1 << 62) - 1;

/// The mask is the beginning of the sample: what it looks like does not matter here.
struct BeginningOfSample;

impl HeaderKey for BeginningOfSample {
    fn opening_header_protection_mask(&self, sample: &[u8]) -> HeaderProtectionMask {
        [sample[0], sample[1], sample[2], sample[3], sample[4]]
    }
    fn opening_sample_len(&self) -> usize {
        SAMPLE
    }
    fn sealing_header_protection_mask(&self, sample: &[u8]) -> HeaderProtectionMask {
        self.opening_header_protection_mask(sample)
    }
    fn sealing_sample_len(&self) -> usize {
        SAMPLE
    }
}

struct World {
    numbers: PacketNumbers,
    identifier: Vec<u8>,
    /// The highest number of a packet that the transport has decrypted.
    highest: Option<u64>,
}

/// Runs the steps; panics when a number is read that is not the packet's, or none where one has to
/// be.
pub(crate) fn packet_numbers(data: &[u8]) {
    let (&length, mut rest) = data.split_first().unwrap_or((&8, &[]));
    let identifier: Vec<u8> = (1..=length % 21).collect();
    let mut numbers = PacketNumbers::default();
    numbers.set_keys(SharedKey::new(BeginningOfSample).opener(), Proofs::default());
    numbers.read(&long_header(&identifier), None);
    numbers.confirm_handshake();
    let mut world = World { numbers, identifier, highest: None };
    while let Some((&step, tail)) = rest.split_first() {
        rest = tail;
        let number = step >> 3;
        match step & 7 {
            0 => world.foreign(take(&mut rest)),
            1 => world.authentic(
                world.next() + u64::from(number >> 2),
                usize::from(number & 3) + 1,
                number,
            ),
            2 => world.foreign(&forged_long_header(number, take(&mut rest))),
            // Late.
            3 => world.authentic(world.next().saturating_sub(1 + u64::from(number)), 1, number),
            4 => world.authentic((world.next() + (1 << number)).min(HIGHEST_NUMBER), 4, number),
            5 => {
                let length = world.identifier.len();
                world.identifier.rotate_left(length.min(1));
                world.authentic(world.next(), 2, number);
            }
            // Bent on its way, or forged by an attacker who has seen the identifier: the transport
            // does not decrypt it.
            6 => {
                let forged = short_header(&world.identifier, u64::from(number) << 9, 2, number);
                world.numbers.read(&forged, world.highest);
            }
            _ => compare(take(&mut rest)),
        }
    }
}

impl World {
    fn next(&self) -> u64 {
        self.highest.map_or(0, |highest| highest + 1).min(HIGHEST_NUMBER)
    }

    /// Something arrives that the transport does not decrypt.
    fn foreign(&mut self, datagram: &[u8]) {
        self.numbers.read(datagram, self.highest);
    }

    /// A packet of the connection arrives, and the transport decrypts it. `bytes`: how much of the
    /// number is in the header.
    fn authentic(&mut self, number: u64, bytes: usize, mask: u8) {
        let datagram = short_header(&self.identifier, number, bytes, mask);
        let read = self.numbers.read(&datagram, self.highest);
        assert!(read.is_none_or(|read| read == number), "{read:?} was read of {number}");
        assert!(self.numbers.confirm(number), "the reading has ended");
        self.highest = self.highest.max(Some(number));
        // Its identifier is known now, whatever was forged before.
        let again = short_header(&self.identifier, number, 4, mask);
        assert_eq!(self.numbers.read(&again, self.highest), Some(number));
    }
}

fn long_header(identifier: &[u8]) -> Vec<u8> {
    [&[0xc3, 0, 0, 0, 1, identifier.len() as u8][..], identifier, &[0; 40]].concat()
}

fn forged_long_header(length: u8, rest: &[u8]) -> Vec<u8> {
    [&[0xc3, 0, 0, 0, 1, length][..], rest].concat()
}

/// A 1-RTT packet under a mask that follows from `mask`.
fn short_header(identifier: &[u8], number: u64, bytes: usize, mask: u8) -> Vec<u8> {
    let sample: [u8; SAMPLE] =
        core::array::from_fn(|at| mask.wrapping_mul(37).wrapping_add(at as u8));
    let mut datagram = vec![(0x40 | (bytes as u8 - 1)) ^ (sample[0] & 0x1f)];
    datagram.extend_from_slice(identifier);
    let number = &number.to_be_bytes()[8 - bytes..];
    datagram.extend(number.iter().zip(&sample[1..]).map(|(byte, mask)| byte ^ mask));
    datagram.extend_from_slice(&[7; 3][..4 - bytes]);
    datagram.extend_from_slice(&sample);
    datagram.extend_from_slice(&[1; 20]);
    datagram
}

/// The number that s2n-quic reads of the same bytes next to the same number. Bytes: length of the
/// number, reference, number.
fn compare(bytes: &[u8]) {
    let Some((&[length, a, b, c, d, e, f, g, h], rest)) = bytes.split_first_chunk::<9>() else {
        return;
    };
    let Some(&truncated) = rest.first_chunk::<4>() else { return };
    let (length, truncated) = (usize::from(length & 3) + 1, u32::from_be_bytes(truncated));
    let reference = u64::from_be_bytes([a, b, c, d, e, f, g, h]) & HIGHEST_NUMBER;
    let mut numbers = PacketNumbers::default();
    numbers.set_keys(SharedKey::new(BeginningOfSample).opener(), Proofs::default());
    numbers.read(&long_header(&[9; 8]), None);
    numbers.confirm_handshake();
    let own =
        numbers.read(&short_header(&[9; 8], u64::from(truncated), length, 1), Some(reference));

    let space = PacketNumberSpace::ApplicationData;
    let bytes = &truncated.to_be_bytes()[4 - length..];
    let length = space.new_packet_number_len(length as u8 - 1);
    let (theirs, _) = length
        .decode_truncated_packet_number(DecoderBuffer::new(bytes))
        .expect("as long as it has to be");
    let reference = space.new_packet_number(VarInt::new(reference).expect("below 2^62"));
    assert_eq!(own, Some(theirs.expand(reference).as_u64()), "next to {reference:?}");
}
