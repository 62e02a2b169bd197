//! Power sums of identifiers with 16, 24, 32 or 64 bits, decoded as Sidekick24 does it: Newton's identities
//! make a polynomial of the sums, and every packet that was sent is tried as its root.

/// Bits of an identifier, and of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Bits16,
    Bits24,
    Bits32,
    Bits64,
}

impl Width {
    pub(crate) const ALL: [Self; 4] = [Self::Bits16, Self::Bits24, Self::Bits32, Self::Bits64];

    /// Bytes on the wire.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Bits16 => 2,
            Self::Bits24 => 3,
            Self::Bits32 => 4,
            Self::Bits64 => 8,
        }
    }
}

/// The outcome of decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Packets whose identifier is a root.
    pub(crate) roots: usize,
    /// Missing packets according to the counts: with fewer, or with more roots, identifiers
    /// collide.
    pub(crate) count: usize,
}

/// The first sums of the powers of a set, in the field of a width.
#[derive(Debug, Clone)]
pub(crate) struct Sums<const MODULUS: u64> {
    sums: Vec<u64>,
    count: usize,
}

const fn multiply<const MODULUS: u64>(one: u64, other: u64) -> u64 {
    // The modulus is constant for the compiler, so it avoids a division by a variable if the
    // product fits in 64 bits.
    if MODULUS <= u32::MAX as u64 {
        one * other % MODULUS
    } else {
        (one as u128 * other as u128 % MODULUS as u128) as u64
    }
}

const fn add<const MODULUS: u64>(one: u64, other: u64) -> u64 {
    let (sum, over) = one.overflowing_add(other);
    if over || sum >= MODULUS { sum.wrapping_sub(MODULUS) } else { sum }
}

const fn subtract<const MODULUS: u64>(one: u64, other: u64) -> u64 {
    if one >= other { one - other } else { MODULUS - (other - one) }
}

fn inverse<const MODULUS: u64>(value: u64) -> u64 {
    let (mut power, mut base, mut exponent) = (1, value, MODULUS - 2);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = multiply::<MODULUS>(power, base);
        }
        base = multiply::<MODULUS>(base, base);
        exponent >>= 1;
    }
    power
}

impl<const MODULUS: u64> Sums<MODULUS> {
    /// An empty set with this many sums.
    pub(crate) fn new(threshold: usize) -> Self {
        Self { sums: vec![0; threshold], count: 0 }
    }

    pub(crate) fn insert(&mut self, identifier: u64) {
        self.count += 1;
        let mut power = identifier;
        for sum in &mut self.sums {
            *sum = add::<MODULUS>(*sum, power);
            power = multiply::<MODULUS>(power, identifier);
        }
    }

    /// Decodes the datagrams of `sent`, whose sums these are, that are missing in `received`;
    /// `None` if there are more of them than sums.
    pub(crate) fn decode(&self, received: &Self, sent: &[u64]) -> Option<Missing> {
        let count =
            self.count.checked_sub(received.count).filter(|count| *count <= self.sums.len())?;
        let differences: Vec<u64> = self
            .sums
            .iter()
            .zip(&received.sums)
            .map(|(own, theirs)| subtract::<MODULUS>(*own, *theirs))
            .collect();
        // e_k = (e_(k-1) d_1 - e_(k-2) d_2 + ...) / k
        let mut symmetric = vec![1];
        for k in 1..=count {
            let mut sum = 0;
            for (i, difference) in differences[..k].iter().enumerate() {
                let term = multiply::<MODULUS>(symmetric[k - 1 - i], *difference);
                sum = if i.is_multiple_of(2) {
                    add::<MODULUS>(sum, term)
                } else {
                    subtract::<MODULUS>(sum, term)
                };
            }
            symmetric.push(multiply::<MODULUS>(sum, inverse::<MODULUS>(k as u64)));
        }
        // The signs alternate: x^m - e_1 x^(m-1) + e_2 x^(m-2) - ...
        for value in symmetric.iter_mut().skip(1).step_by(2) {
            *value = subtract::<MODULUS>(0, *value);
        }
        let is_root = |identifier: &&u64| {
            let value = symmetric.iter().fold(0, |value, coefficient| {
                add::<MODULUS>(multiply::<MODULUS>(value, **identifier), *coefficient)
            });
            value == 0
        };
        Some(Missing { roots: sent.iter().filter(is_root).count(), count })
    }
}

/// Calls generic code with a width's modulus, the largest prime that fits.
macro_rules! with_modulus {
    ($width:expr, $call:ident $arguments:tt) => {
        match $width {
            $crate::quack::Width::Bits16 => $call::<{ (1 << 16) - 15 }> $arguments,
            $crate::quack::Width::Bits24 => $call::<{ (1 << 24) - 3 }> $arguments,
            $crate::quack::Width::Bits32 => $call::<{ (1 << 32) - 5 }> $arguments,
            $crate::quack::Width::Bits64 => $call::<{ u64::MAX - 58 }> $arguments,
        }
    };
}
pub(crate) use with_modulus;

#[cfg(test)]
mod tests {
    use super::*;

    fn roundtrip<const MODULUS: u64>(missing: usize) -> Missing {
        let mut hash = 1_u64;
        let sent: Vec<u64> = (0..40)
            .map(|_| {
                hash = hash.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                hash % MODULUS
            })
            .collect();
        let (mut all, mut received) = (Sums::<MODULUS>::new(10), Sums::<MODULUS>::new(10));
        sent.iter().for_each(|identifier| all.insert(*identifier));
        sent[missing..].iter().for_each(|identifier| received.insert(*identifier));
        let decoded = all.decode(&received, &sent).unwrap();
        // No other packets than the missing ones.
        let first = all.decode(&received, &sent[..missing]).unwrap();
        assert_eq!(first.roots, missing);
        decoded
    }

    #[test]
    fn every_width_decodes_as_many_as_it_has_sums() {
        for width in Width::ALL {
            for missing in [0, 1, 5, 10] {
                let decoded = with_modulus!(width, roundtrip(missing));
                assert_eq!((decoded.roots, decoded.count), (missing, missing), "{width:?}");
            }
        }
    }

    #[test]
    fn more_than_the_sums_are_no_answer() {
        let (mut all, received) = (Sums::<65_521>::new(2), Sums::<65_521>::new(2));
        let sent = [5, 7, 11];
        sent.iter().for_each(|identifier| all.insert(*identifier));
        assert_eq!(all.decode(&received, &sent), None);
    }

    #[test]
    fn moduli_fit_their_widths() {
        fn of<const MODULUS: u64>() -> u64 {
            MODULUS
        }
        for width in Width::ALL {
            let bytes = width.bytes() as u32;
            assert_eq!(u64::BITS - with_modulus!(width, of()).leading_zeros(), 8 * bytes);
        }
    }
}
