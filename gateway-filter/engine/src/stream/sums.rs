//! Power sums as plain numbers, to shift a subscriber's set onto the stream's.
//!
//! The stream has one sketch of all packets that were ever sent. A subscriber's set lacks the
//! packets sent before its subscription, the packets under way, and the given-up ones. They need
//! not be decoded: they are added to the sums that the subscriber sends. The remaining difference
//! is missing.

use packrat_eack::{Encoding, Identifier, Sketch};

/// Number of sums that a stream and its subscribers keep (as for multicast in Packrat26, table 4).
pub(super) const SUM_COUNT: usize = 40;
/// Prime of the field of the sums (docs/PROTOCOL.md section 9).
const FIELD_PRIME: u64 = (1 << 32) - 5;
/// Bytes of the set's size before the sums.
const SIZE_BYTES: usize = 2;

/// A set, or a difference of sets: its size and its first [`SUM_COUNT`] power sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    sums: [u32; SUM_COUNT],
    size: u16,
}

impl Sums {
    pub(super) const ZERO: Self = Self { sums: [0; SUM_COUNT], size: 0 };

    /// Sums of a sketch; `None` if it has fewer.
    pub(super) fn of(sketch: &Sketch) -> Option<Self> {
        let mut bytes = Vec::with_capacity(SIZE_BYTES + 4 * SUM_COUNT);
        sketch.write_prefix(Encoding::PowerSums { count: SUM_COUNT as u8 }, &mut bytes).ok()?;
        Some(Self::read(&bytes))
    }

    /// Writes the sums in the form that a [`Sketch`] takes.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.size.to_be_bytes());
        out.extend(self.sums.iter().flat_map(|sum| sum.to_be_bytes()));
    }

    fn read(bytes: &[u8]) -> Self {
        let mut read = Self::ZERO;
        let Some((size, sums)) = bytes.split_first_chunk::<SIZE_BYTES>() else { return read };
        read.size = u16::from_be_bytes(*size);
        for (sum, bytes) in read.sums.iter_mut().zip(sums.as_chunks::<4>().0) {
            *sum = u32::from_be_bytes(*bytes);
        }
        read
    }

    pub(super) fn insert(&mut self, identifier: Identifier) {
        self.size = self.size.wrapping_add(1);
        let (x, mut power) = (u64::from(identifier.get()), 1u64);
        for sum in &mut self.sums {
            power = power * x % FIELD_PRIME;
            *sum = ((u64::from(*sum) + power) % FIELD_PRIME) as u32;
        }
    }

    pub(super) fn remove(&mut self, identifier: Identifier) {
        self.size = self.size.wrapping_sub(1);
        let (x, mut power) = (u64::from(identifier.get()), 1u64);
        for sum in &mut self.sums {
            power = power * x % FIELD_PRIME;
            *sum = ((u64::from(*sum) + FIELD_PRIME - power) % FIELD_PRIME) as u32;
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.size = self.size.wrapping_add(other.size);
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            *sum = ((u64::from(*sum) + u64::from(*other)) % FIELD_PRIME) as u32;
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.size = self.size.wrapping_sub(other.size);
        for (sum, other) in self.sums.iter_mut().zip(&other.sums) {
            *sum = ((u64::from(*sum) + FIELD_PRIME - u64::from(*other)) % FIELD_PRIME) as u32;
        }
    }

    /// A prefix of `count` power sums with these sums added to it; `None` if it is invalid, or
    /// longer than [`SUM_COUNT`].
    pub(super) fn shift(&self, count: u8, prefix: &[u8]) -> Option<Vec<u8>> {
        let (size, sums) = prefix.split_first_chunk::<SIZE_BYTES>()?;
        let (sums, rest) = sums.as_chunks::<4>();
        if sums.len() != usize::from(count) || sums.len() > SUM_COUNT || !rest.is_empty() {
            return None;
        }
        let mut shifted = Vec::with_capacity(prefix.len());
        shifted.extend_from_slice(&u16::from_be_bytes(*size).wrapping_add(self.size).to_be_bytes());
        for (theirs, own) in sums.iter().zip(&self.sums) {
            let theirs = u64::from(u32::from_be_bytes(*theirs));
            if theirs >= FIELD_PRIME {
                return None;
            }
            shifted.extend_from_slice(
                &(((theirs + u64::from(*own)) % FIELD_PRIME) as u32).to_be_bytes(),
            );
        }
        Some(shifted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_eack::{SketchKey, SketchLimits};

    #[test]
    fn they_are_those_of_a_sketch() {
        let limits = SketchLimits { coded_symbols: 0, power_sums: SUM_COUNT as u8 };
        let mut sketch = Sketch::new(SketchKey::new([1, 2]), limits);
        let mut sums = Sums::ZERO;
        let identifiers: Vec<_> = (1..50u64)
            .map(|number| Identifier::from_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        for identifier in &identifiers {
            sketch.insert(*identifier);
            sums.insert(*identifier);
        }
        assert_eq!(Sums::of(&sketch), Some(sums));
        let mut half = Sums::ZERO;
        for identifier in &identifiers[..20] {
            half.insert(*identifier);
            sums.remove(*identifier);
        }
        let mut whole = sums;
        whole.add(&half);
        assert_eq!(Sums::of(&sketch), Some(whole));
        whole.subtract(&half);
        assert_eq!(whole, sums);
        let mut prefix = Vec::new();
        sketch
            .write_prefix(Encoding::PowerSums { count: 5 }, &mut prefix)
            .expect("within the limits");
        let mut back = Sums::ZERO;
        back.subtract(&Sums::of(&sketch).expect("enough sums"));
        assert_eq!(back.shift(5, &prefix), Some(vec![0; 22]));
        assert_eq!(back.shift(4, &prefix), None);
        assert_eq!(back.shift(5, &[255; 22]), None, "not below the prime");
    }
}
