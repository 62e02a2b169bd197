//! The number in front of a datagram of the base connection: its place in forwarding order
//! (docs/PROTOCOL.md, section 11, "Numbers").
//!
//! ```text
//!   0        1        2        3        4              5 .. 7            8
//!  +--------+--------+--------+--------+-----+--------+-----------------+----------------
//!  |  0x0B  |  'P'   |  'k'   |  'r'   | ver |    9   | place + mask    | base datagram
//!  +--------+--------+--------+--------+-----+--------+-----------------+----------------
//! ```
//!
//! The mask follows from the datagram's identifier and a key of the session. It costs no byte,
//! hides how much flows, and makes a number that an outsider invents a jump to anywhere.

mod places;

use core::fmt;

use packrat_eack::Identifier;

use crate::control::{FIRST_BYTE, MAGIC, PROTOCOL_VERSION};
use crate::identifier::folded_multiply;

pub use places::{MAXIMUM_JUMP, MAXIMUM_LATENESS, Places};

/// Length of the number in front of a datagram.
pub const NUMBER_LENGTH: usize = 8;
/// Control type of a numbered datagram.
const NUMBERED_TYPE: u8 = 9;
/// Modulus of numbers: a number is a place modulo this.
const NUMBER_MODULUS: u32 = 1 << 24;

/// The eight bytes in front of a numbered datagram.
pub type NumberHeader = [u8; NUMBER_LENGTH];

/// A number as it travels: 24 bits, masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MaskedNumber(u32);

impl MaskedNumber {
    /// The 24 bits.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The session's key of the mask.
#[derive(Clone, Copy)]
pub struct NumberKey([u64; 2]);

impl fmt::Debug for NumberKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NumberKey(..)")
    }
}

impl NumberKey {
    /// Creates a key from 16 bytes of key material.
    pub const fn new(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// The bytes in front of the datagram with this identifier at this place.
    #[inline]
    pub fn header(&self, place: u64, identifier: Identifier) -> NumberHeader {
        let number = (place as u32).wrapping_add(self.mask(identifier)) % NUMBER_MODULUS;
        let [_, high, middle, low] = number.to_be_bytes();
        let [p, k, r] = MAGIC;
        [FIRST_BYTE, p, k, r, PROTOCOL_VERSION << 4 | NUMBERED_TYPE, high, middle, low]
    }

    /// The place next to `expected`, ahead or behind, that a number stands for.
    #[inline]
    pub fn place(&self, number: MaskedNumber, identifier: Identifier, expected: u64) -> u64 {
        let low = number.0.wrapping_sub(self.mask(identifier)) % NUMBER_MODULUS;
        let ahead = u64::from(low.wrapping_sub(expected as u32) % NUMBER_MODULUS);
        let behind = u64::from(NUMBER_MODULUS) - ahead;
        if ahead < behind {
            expected.saturating_add(ahead)
        } else {
            // There are no places before the first.
            expected.checked_sub(behind).unwrap_or(expected + ahead)
        }
    }

    #[inline]
    fn mask(&self, identifier: Identifier) -> u32 {
        let [first, second] = self.0;
        folded_multiply(u64::from(identifier.get()) ^ first, second) as u32
    }
}

/// Takes a numbered datagram apart: its number and the base datagram. `None` for any other.
#[inline]
pub fn split(datagram: &[u8]) -> Option<(MaskedNumber, &[u8])> {
    let (header, base) = datagram.split_first_chunk::<NUMBER_LENGTH>()?;
    let [first, magic @ .., kind, high, middle, low] = *header;
    let is_numbered =
        first == FIRST_BYTE && magic == MAGIC && kind == PROTOCOL_VERSION << 4 | NUMBERED_TYPE;
    is_numbered.then(|| (MaskedNumber(u32::from_be_bytes([0, high, middle, low])), base))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::is_control;
    use proptest::prelude::*;

    fn key() -> NumberKey {
        NumberKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210])
    }

    fn identifier(number: u64) -> Identifier {
        Identifier::from_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn without_an_agreement_it_is_a_type_that_nobody_knows() {
        let datagram = [&key().header(7, identifier(1))[..], b"base"].concat();
        assert!(is_control(&datagram) && Control::decode(&datagram).is_err());
        assert_eq!(split(&datagram).map(|(_, base)| base), Some(&b"base"[..]));
        assert_eq!(split(&datagram[..7]), None);
        for byte in 0..5 {
            let mut other = datagram.clone();
            other[byte] ^= 1;
            assert_eq!(split(&other), None, "byte {byte}");
        }
    }

    #[test]
    fn an_invented_number_is_seldom_next_to_the_expected_one() {
        let (window, expected) = (8192, 1_000_000);
        let near = (0..100_000u64)
            .filter(|&attempt| {
                let header = key().header(expected, identifier(attempt));
                let (number, _) = split(&header).unwrap();
                let place = key().place(number, identifier(attempt + 1), expected);
                place.abs_diff(expected) <= window
            })
            .count();
        // 16,385 of 2^24 numbers: 98 of 100,000, give or take ten.
        assert!((50..150).contains(&near), "{near}");
    }

    proptest! {
        #[test]
        fn a_place_is_found_again_next_to_the_expected_one(
            place in 0..1u64 << 40, distance in -(1i64 << 23) + 1..1 << 23, number: u64,
        ) {
            let header = key().header(place, identifier(number));
            let (masked, base) = split(&header).unwrap();
            prop_assert!(base.is_empty());
            if let Some(expected) = place.checked_add_signed(distance) {
                prop_assert_eq!(key().place(masked, identifier(number), expected), place);
            }
        }

        #[test]
        fn any_number_next_to_any_place_is_a_place(bytes: [u8; 3], expected in 0..1u64 << 40, number: u64) {
            let mut header = key().header(0, identifier(0));
            header[5..].copy_from_slice(&bytes);
            let (masked, _) = split(&header).unwrap();
            let place = key().place(masked, identifier(number), expected);
            prop_assert!(place.abs_diff(expected) <= 1 << 24);
        }
    }
}
