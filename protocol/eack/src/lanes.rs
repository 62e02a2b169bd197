//! The power sums of sixteen identifiers at a time, with vectors.
//!
//! Neighbouring powers of an identifier are independent lanes: eight of them times `x^8` are the
//! next eight. The factor stays the same all along, so that Shoup's multiplication (known from
//! number theoretic transforms) reduces without a division: with `quotient = floor(factor * 2^w /
//! P)`, for any `value` below `2^w`,
//!
//! ```text
//! value * factor - floor(value * quotient / 2^w) * P     is in 0..2 P
//! ```
//!
//! AVX2 multiplies 32 by 32 bits (`w = 32`), so that each product is brought below `P`; AVX-512
//! with its multiplication of 52 bits need not. Which of them is used, or neither, is decided on
//! the processor that runs this; all give the same sums.

use fearless_simd::Level;

use crate::recurrence::add_recurrence;

/// Identifiers that are inserted together.
pub(crate) const BATCH_IDENTIFIERS: usize = 16;

/// The vector instructions of this processor.
pub(crate) fn level() -> Level {
    #[cfg(feature = "std")]
    return Level::new();
    #[cfg(not(feature = "std"))]
    Level::baseline()
}

/// Adds the power sums of the first `length` identifiers of a batch (the others are zero) to
/// `sums`, of which there are at most 255.
pub(crate) fn add_batch(
    level: Level,
    batch: &[u32; BATCH_IDENTIFIERS],
    length: usize,
    sums: &mut [u32],
) {
    crate::field::count(length * sums.len());
    #[cfg(target_arch = "x86_64")]
    if let Some(narrow) = level.as_avx2() {
        return match level.as_avx512() {
            Some(wide) => vectors::add_eight(wide, narrow, batch, length, sums),
            None => vectors::add_four(narrow, batch, length, sums),
        };
    }
    let _ = level;
    add_recurrence(batch, length, sums);
}

#[cfg(target_arch = "x86_64")]
mod vectors {
    use core::arch::x86_64::*;
    use core::hint::black_box;

    use fearless_simd::prelude::*;
    use fearless_simd::x86::{Avx2, Avx512};
    use fearless_simd::{kernel, u64x4, u64x8};

    use super::BATCH_IDENTIFIERS;
    use crate::field::FIELD_MODULUS;

    /// Identifiers whose powers are kept in registers together.
    const GROUP_IDENTIFIERS: usize = 4;
    /// Room for the power sums of any sketch, and one more.
    const SUMS_ROOM: usize = 256;
    const MASK_52: i64 = (1 << 52) - 1;

    kernel!(
        /// The product of lanes below `2^32` and factors below `P`, in `0..P`, by Shoup's
        /// multiplication.
        #[inline(always)]
        fn multiply(
            _avx2: Avx2,
            values: __m256i,
            factors: __m256i,
            quotients: __m256i,
            modulus: __m256i,
        ) -> __m256i {
            let whole = _mm256_srli_epi64::<32>(_mm256_mul_epu32(values, quotients));
            let product = _mm256_sub_epi64(
                _mm256_mul_epu32(values, factors),
                _mm256_mul_epu32(whole, modulus),
            );
            let less = _mm256_sub_epi64(product, modulus);
            // The sign of `less` chooses.
            _mm256_castpd_si256(_mm256_blendv_pd(
                _mm256_castsi256_pd(less),
                _mm256_castsi256_pd(product),
                _mm256_castsi256_pd(less),
            ))
        }
    );

    kernel!(
        /// The modulus in every lane, hidden from the compiler, which would otherwise split one
        /// multiplication into two.
        #[inline(always)]
        fn modulus(_avx2: Avx2) -> __m256i {
            _mm256_set1_epi64x(black_box(FIELD_MODULUS as i64))
        }
    );

    kernel!(
        /// `floor(factor * 2^32 / P)`: as `2^32 = P + 5`, the factor and as many more as there are
        /// fifths of `P` in it.
        #[inline(always)]
        fn quotients(_avx2: Avx2, factors: __m256i) -> __m256i {
            let mut quotients = factors;
            for fifths in 1..5u64 {
                let below = _mm256_set1_epi64x(((fifths * FIELD_MODULUS).div_ceil(5) - 1) as i64);
                quotients = _mm256_sub_epi64(quotients, _mm256_cmpgt_epi64(factors, below));
            }
            quotients
        }
    );

    kernel!(
        /// The first four powers of each of four identifiers, and the fourth powers of all.
        #[inline(always)]
        fn first_powers(
            avx2: Avx2,
            identifiers: [u32; GROUP_IDENTIFIERS],
            modulus: __m256i,
        ) -> ([__m256i; GROUP_IDENTIFIERS], __m256i) {
            let first: u64x4<Avx2> = identifiers.map(u64::from).simd_into(avx2);
            let first: __m256i = first.into();
            let quotient = quotients(avx2, first);
            let second = multiply(avx2, first, first, quotient, modulus);
            let third = multiply(avx2, second, first, quotient, modulus);
            let fourth = multiply(avx2, third, first, quotient, modulus);
            // Transposed.
            let (low, high) =
                (_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second));
            let (low_end, high_end) =
                (_mm256_unpacklo_epi64(third, fourth), _mm256_unpackhi_epi64(third, fourth));
            let powers = [
                _mm256_permute2x128_si256::<0x20>(low, low_end),
                _mm256_permute2x128_si256::<0x20>(high, high_end),
                _mm256_permute2x128_si256::<0x31>(low, low_end),
                _mm256_permute2x128_si256::<0x31>(high, high_end),
            ];
            (powers, fourth)
        }
    );

    kernel!(
        /// Each lane in all lanes.
        #[inline(always)]
        fn spread(_avx2: Avx2, lanes: __m256i) -> [__m256i; GROUP_IDENTIFIERS] {
            [
                _mm256_permute4x64_epi64::<0x00>(lanes),
                _mm256_permute4x64_epi64::<0x55>(lanes),
                _mm256_permute4x64_epi64::<0xaa>(lanes),
                _mm256_permute4x64_epi64::<0xff>(lanes),
            ]
        }
    );

    /// Adds totals, each below `2^40`, to sums. Without a check for overflow, it is done in vectors.
    #[inline(always)]
    fn fold(totals: &[u64], sums: &mut [u32]) {
        for (sum, total) in sums.iter_mut().zip(totals) {
            let total = u64::from(*sum).wrapping_add(*total);
            let folded = (total & 0xffff_ffff) + 5 * (total >> 32);
            *sum = if folded >= FIELD_MODULUS { folded - FIELD_MODULUS } else { folded } as u32;
        }
    }

    kernel!(
        /// Four sums in step.
        pub(super) fn add_four(
            avx2: Avx2,
            batch: &[u32; BATCH_IDENTIFIERS],
            length: usize,
            sums: &mut [u32],
        ) {
            let steps = sums.len().div_ceil(4);
            let modulus = modulus(avx2);
            let mut totals = [[0u64; 4]; SUMS_ROOM / 4];
            for group in batch
                .as_chunks::<GROUP_IDENTIFIERS>()
                .0
                .iter()
                .take(length.div_ceil(GROUP_IDENTIFIERS))
            {
                let (mut powers, fourth) = first_powers(avx2, *group, modulus);
                // As with the modulus.
                let factors = black_box(spread(avx2, fourth));
                let quotients = black_box(spread(avx2, quotients(avx2, fourth)));
                for total in totals.iter_mut().take(steps) {
                    let so_far: u64x4<Avx2> = (*total).simd_into(avx2);
                    let mut so_far: __m256i = so_far.into();
                    for ((power, factor), quotient) in powers.iter_mut().zip(factors).zip(quotients)
                    {
                        so_far = _mm256_add_epi64(so_far, *power);
                        *power = multiply(avx2, *power, factor, quotient, modulus);
                    }
                    let so_far: u64x4<Avx2> = so_far.simd_into(avx2);
                    *total = so_far.into();
                }
            }
            fold(totals.as_flattened(), sums);
        }
    );

    kernel!(
        /// Eight sums in step; `narrow` is the same processor.
        pub(super) fn add_eight(
            wide: Avx512,
            narrow: Avx2,
            batch: &[u32; BATCH_IDENTIFIERS],
            length: usize,
            sums: &mut [u32],
        ) {
            let steps = sums.len().div_ceil(8);
            let modulus = modulus(narrow);
            let mut totals = [[0u64; 8]; SUMS_ROOM / 8];
            let (zero, mask) = (_mm512_setzero_si512(), _mm512_set1_epi64(MASK_52));
            let less = _mm512_set1_epi64((MASK_52 + 1) - FIELD_MODULUS as i64);
            for group in batch
                .as_chunks::<GROUP_IDENTIFIERS>()
                .0
                .iter()
                .take(length.div_ceil(GROUP_IDENTIFIERS))
            {
                let (lower, fourth) = first_powers(narrow, *group, modulus);
                let fourth_quotient = quotients(narrow, fourth);
                let eighth = multiply(narrow, fourth, fourth, fourth_quotient, modulus);
                let (by_four, by_four_quotient) =
                    (spread(narrow, fourth), spread(narrow, fourth_quotient));
                let by_eight = spread(narrow, eighth);
                let mut powers = [zero; GROUP_IDENTIFIERS];
                let mut factors = [zero; GROUP_IDENTIFIERS];
                let mut quotients = [zero; GROUP_IDENTIFIERS];
                for index in 0..GROUP_IDENTIFIERS {
                    let upper = multiply(
                        narrow,
                        lower[index],
                        by_four[index],
                        by_four_quotient[index],
                        modulus,
                    );
                    powers[index] =
                        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(lower[index]), upper);
                    factors[index] = _mm512_broadcast_i64x4(by_eight[index]);
                    // floor(factor 2^52 / P), at most one less: the product stays below 3 P.
                    let five =
                        _mm512_add_epi64(factors[index], _mm512_slli_epi64::<2>(factors[index]));
                    quotients[index] = _mm512_add_epi64(
                        _mm512_slli_epi64::<20>(factors[index]),
                        _mm512_srli_epi64::<12>(five),
                    );
                }
                for total in totals.iter_mut().take(steps) {
                    let so_far: u64x8<Avx512> = (*total).simd_into(wide);
                    let mut so_far: __m512i = so_far.into();
                    for ((power, factor), quotient) in powers.iter_mut().zip(factors).zip(quotients)
                    {
                        so_far = _mm512_add_epi64(so_far, *power);
                        let whole = _mm512_madd52hi_epu64(zero, *power, quotient);
                        let product = _mm512_madd52lo_epu64(zero, *power, factor);
                        *power =
                            _mm512_and_si512(_mm512_madd52lo_epu64(product, whole, less), mask);
                    }
                    let so_far: u64x8<Avx512> = so_far.simd_into(wide);
                    *total = so_far.into();
                }
            }
            fold(totals.as_flattened(), sums);
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FIELD_MODULUS;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// The reference: a multiplication and a remainder per identifier and sum.
    fn plain(identifiers: &[u32], sums: &mut [u32]) {
        for identifier in identifiers {
            let mut power = 1u64;
            for sum in &mut *sums {
                power = power * u64::from(*identifier) % FIELD_MODULUS;
                *sum = ((u64::from(*sum) + power) % FIELD_MODULUS) as u32;
            }
        }
    }

    /// Every implementation that this processor supports.
    fn levels() -> Vec<Level> {
        let mut levels = alloc::vec![Level::new(), Level::baseline()];
        #[cfg(target_arch = "x86_64")]
        levels.extend(Level::new().as_avx2().map(fearless_simd::Simd::level));
        levels
    }

    proptest! {
        #[test]
        fn a_batch_equals_single_insertions(
            identifiers in prop::collection::vec(
                prop_oneof![0..FIELD_MODULUS as u32, FIELD_MODULUS as u32 - 3..FIELD_MODULUS as u32, 0u32..3],
                0..=BATCH_IDENTIFIERS,
            ),
            sums in prop::collection::vec(0..FIELD_MODULUS as u32, 0..=255),
        ) {
            let mut batch = [0; BATCH_IDENTIFIERS];
            batch[..identifiers.len()].copy_from_slice(&identifiers);
            let mut slow = sums.clone();
            plain(&identifiers, &mut slow);
            for level in levels() {
                let mut quick = sums.clone();
                add_batch(level, &batch, identifiers.len(), &mut quick);
                prop_assert_eq!(&quick, &slow);
            }
        }
    }
}
