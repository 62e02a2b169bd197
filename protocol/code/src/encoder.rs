//! Makes repair symbols from datagrams that are somewhere else.

use alloc::vec::Vec;

use fearless_simd::Level;
use thiserror::Error;

use crate::field::product;
use crate::framing::{FIRST_HALF_BYTES, Half, LENGTH_PREFIX_BYTES, MAXIMUM_DATAGRAM_BYTES};
use crate::kernels::{MAXIMUM_SUMMANDS, Summand, combine, level, multiply_add};
use crate::window::Window;

/// The reason for which a window has no symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// A datagram of the window is not there any more: begin the window after it.
    #[error("datagram {0} is not cached any more; begin the window after it")]
    Missing(u64),
    /// A datagram of the window is too long: end the window before it, or begin after it.
    #[error("datagram {0} is longer than {MAXIMUM_DATAGRAM_BYTES} bytes and can't be coded")]
    TooLong(u64),
    /// No datagram of the window reaches into this half: a symbol would be empty.
    #[error("no datagram of the window reaches into this half")]
    Empty,
}

/// Makes repair symbols. It keeps no datagram: they stay in the caller's cache.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    level: Level,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder with the vector instructions of this processor.
    pub fn new() -> Self {
        Self { level: level() }
    }

    /// Appends the repair symbol of a window to `out`. `datagram` gives the bytes of a place, in two
    /// pieces if a ring cuts them in two; it is called once per place.
    ///
    /// # Errors
    /// The window has no such symbol; `out` is as it was.
    pub fn encode<'a>(
        &self,
        window: Window,
        half: Half,
        seed: u16,
        mut datagram: impl FnMut(u64) -> Option<(&'a [u8], &'a [u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let start = out.len();
        out.resize(start + FIRST_HALF_BYTES, 0);
        let made = self.sum(window, half, seed, &mut datagram, &mut out[start..]);
        match made {
            Ok(length) if length > 0 => {
                out.truncate(start + length);
                Ok(())
            }
            Ok(_) => {
                out.truncate(start);
                Err(EncodeError::Empty)
            }
            Err(error) => {
                out.truncate(start);
                Err(error)
            }
        }
    }

    fn sum<'a>(
        &self,
        window: Window,
        half: Half,
        seed: u16,
        datagram: &mut impl FnMut(u64) -> Option<(&'a [u8], &'a [u8])>,
        sum: &mut [u8],
    ) -> Result<usize, EncodeError> {
        let (lengths, content) = match half {
            Half::First => sum.split_at_mut(LENGTH_PREFIX_BYTES),
            Half::Second => sum.split_at_mut(0),
        };
        let mut summands: [Summand<'a>; MAXIMUM_SUMMANDS] = [(0, &[]); MAXIMUM_SUMMANDS];
        let (mut waiting, mut longest) = (0, 0);
        for (place, coefficient) in window.coefficients(seed) {
            let (first, second) = datagram(place).ok_or(EncodeError::Missing(place))?;
            let length = first.len() + second.len();
            if length > MAXIMUM_DATAGRAM_BYTES {
                return Err(EncodeError::TooLong(place));
            }
            for (sum, byte) in lengths.iter_mut().zip((length as u16).to_be_bytes()) {
                *sum ^= product(coefficient, byte);
            }
            let (first, second) = cut(half, first, second);
            longest = longest.max(first.len() + second.len());
            #[cfg(feature = "count-operations")]
            crate::operations::count(first.len() + second.len());
            if !second.is_empty() {
                multiply_add(self.level, &mut content[first.len()..], coefficient, second);
            }
            if !first.is_empty() {
                summands[waiting] = (coefficient, first);
                waiting += 1;
            }
            if waiting == MAXIMUM_SUMMANDS {
                combine(self.level, content, &summands);
                waiting = 0;
            }
        }
        combine(self.level, content, &summands[..waiting]);
        Ok(longest + lengths.len())
    }
}

/// The part of a datagram's pieces that lies in a half, without the length.
#[inline]
fn cut<'a>(half: Half, first: &'a [u8], second: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    /// Bytes of the longest datagram whose frame is in the first half alone.
    const HALF_BORDER_BYTES: usize = FIRST_HALF_BYTES - LENGTH_PREFIX_BYTES;
    if second.is_empty() {
        let (before, behind) = first.split_at(first.len().min(HALF_BORDER_BYTES));
        return (if half == Half::First { before } else { behind }, &[]);
    }
    match (half, first.len() <= HALF_BORDER_BYTES) {
        (Half::First, true) => {
            (first, &second[..second.len().min(HALF_BORDER_BYTES - first.len())])
        }
        (Half::First, false) => (&first[..HALF_BORDER_BYTES], &[]),
        (Half::Second, true) => {
            (second.get(HALF_BORDER_BYTES - first.len()..).unwrap_or_default(), &[])
        }
        (Half::Second, false) => (&first[HALF_BORDER_BYTES..], second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::multiply;
    use alloc::vec;
    use proptest::prelude::*;

    fn content(place: u64, length: usize) -> Vec<u8> {
        (0..length).map(|at| (at as u64 * 31 + place * 57 + (at as u64 >> 5)) as u8).collect()
    }

    /// The oracle: framed datagrams, padded with zeros, multiplied byte by byte.
    fn defined(window: Window, half: Half, seed: u16, datagrams: &[Vec<u8>]) -> Vec<u8> {
        let (mut sum, mut longest) = (vec![0; 1502], 0);
        for (place, coefficient) in window.coefficients(seed) {
            let datagram = &datagrams[place as usize];
            let framed = [&(datagram.len() as u16).to_be_bytes(), &datagram[..]].concat();
            longest = longest.max(framed.len());
            sum.iter_mut().zip(framed).for_each(|(sum, byte)| *sum ^= multiply(coefficient, byte));
        }
        half.of(&sum[..longest]).to_vec()
    }

    proptest! {
        #[test]
        fn a_symbol_is_as_defined_wherever_the_ring_cuts_the_datagrams(
            lengths in prop::collection::vec(prop_oneof![0usize..=1500, 765..=775usize, Just(1452)], 1..70),
            cut_at in 0usize..=1500, seed: u16, step in 1u8..4,
        ) {
            let datagrams: Vec<Vec<u8>> =
                lengths.iter().enumerate().map(|(place, length)| content(place as u64, *length)).collect();
            let count = datagrams.len().div_ceil(usize::from(step)) as u8;
            let window = Window::new(0, count, step).unwrap();
            for half in Half::BOTH {
                let mut out = vec![1, 2, 3];
                let made = Encoder::new().encode(window, half, seed, |place| {
                    let datagram = &datagrams[place as usize];
                    Some(datagram.split_at(datagram.len().min(cut_at)))
                }, &mut out);
                let expected = defined(window, half, seed, &datagrams);
                prop_assert_eq!(made.is_err(), expected.is_empty());
                prop_assert_eq!(&out[3..], &expected[..]);
                prop_assert!(expected.len() <= half.longest());
            }
        }
    }

    #[test]
    fn what_cannot_be_coded_is_said_and_changes_nothing() {
        let long = [0; 1501];
        let window = Window::new(4, 3, 1).unwrap();
        let mut out = vec![9];
        let mut encode =
            |half, datagram: &dyn Fn(u64) -> Option<(&'static [u8], &'static [u8])>| {
                let made = Encoder::new().encode(window, half, 1, datagram, &mut out);
                assert_eq!(out, [9]);
                made
            };
        let missing = encode(Half::First, &|place| (place != 5).then_some((&[1], &[])));
        assert_eq!(missing, Err(EncodeError::Missing(5)));
        assert_eq!(encode(Half::Second, &|_| Some((&[1; 768], &[]))), Err(EncodeError::Empty));
        let too_long =
            Encoder::new().encode(window, Half::First, 1, |_| Some((&long[..], &[][..])), &mut out);
        assert_eq!(too_long, Err(EncodeError::TooLong(4)));
        assert_eq!(out, [9]);
    }
}
