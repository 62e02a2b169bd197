//! Sums of multiples of byte strings, sixteen to sixty-four bytes at a time.
//!
//! A product with a fixed factor is two look-ups in tables of sixteen entries, one for each half of
//! a byte, and processors look up a whole vector at once (`pshufb` of SSSE3, its wide forms of AVX2
//! and AVX-512, `tbl` of NEON, `swizzle` of WebAssembly). Which of them is used is decided on the
//! processor that runs this; processors without one use the same tables byte by byte. All give the
//! same sums.

use fearless_simd::prelude::*;
use fearless_simd::{Level, Simd, dispatch, u8x16};

use crate::field::PRODUCTS;

/// Vectors of one sum that are kept in registers.
const WIDE: usize = 8;

/// A multiple of a byte string.
pub(crate) type Summand<'a> = (u8, &'a [u8]);

/// The vector instructions of this processor.
pub(crate) fn level() -> Level {
    #[cfg(feature = "std")]
    return Level::new();
    #[cfg(not(feature = "std"))]
    Level::baseline()
}

/// True if a look-up of a whole vector is one instruction.
fn looks_up_vectors(level: Level) -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return level.as_sse4_2().is_some();
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
    !level.is_fallback()
}

/// Adds `factor` times `bytes` to the beginning of `sum`, which is at least as long.
pub(crate) fn multiply_add(level: Level, sum: &mut [u8], factor: u8, bytes: &[u8]) {
    combine(level, sum, &[(factor, bytes)]);
}

/// Adds summands to `sum`, which is at least as long as the longest of them.
pub(crate) fn combine(level: Level, sum: &mut [u8], summands: &[Summand<'_>]) {
    let Some(shared) = summands.iter().map(|(_, bytes)| bytes.len()).min() else { return };
    if looks_up_vectors(level) {
        dispatch!(level, simd => combine_vectors(simd, sum, summands, shared));
    } else {
        summands.iter().for_each(|(factor, bytes)| plain(sum, *factor, bytes));
    }
}

/// The same with the tables, byte by byte.
#[inline(always)]
fn plain(sum: &mut [u8], factor: u8, bytes: &[u8]) {
    if factor == 1 {
        sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
        return;
    }
    let [low, high] = &PRODUCTS[usize::from(factor)];
    for (sum, byte) in sum.iter_mut().zip(bytes) {
        *sum ^= low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)];
    }
}

/// All summands up to the length that they share, column by column; then the rest of each.
#[inline(always)]
fn combine_vectors<S: Simd>(simd: S, sum: &mut [u8], summands: &[Summand<'_>], shared: usize) {
    if summands.iter().all(|(factor, _)| *factor == 1) {
        summands.iter().for_each(|(_, bytes)| plain(sum, 1, bytes));
        return;
    }
    rows(simd, &mut sum[..shared], summands, 0);
    for (factor, bytes) in summands {
        if bytes.len() > shared {
            rows(simd, &mut sum[shared..bytes.len()], &[(*factor, *bytes)], shared);
        }
    }
}

/// Adds to `sum` what the summands hold from `skipped` on.
#[inline(always)]
fn rows<S: Simd>(simd: S, sum: &mut [u8], summands: &[Summand<'_>], skipped: usize) {
    let width = <S::u8s as SimdBase<S>>::LEN;
    if sum.len() < width {
        for (factor, bytes) in summands {
            plain(sum, *factor, &bytes[skipped..]);
        }
        return;
    }
    // The last columns fill no vector. A vector that ends with them covers some columns twice: its
    // sum is made from the bytes before, and stored last.
    let last = sum.len() - width;
    let before = S::u8s::from_slice(simd, &sum[last..]);
    let mut at = 0;
    while sum.len() - at >= WIDE * width {
        columns::<S, WIDE>(simd, sum, summands, skipped, at);
        at += WIDE * width;
    }
    while sum.len() - at >= width {
        columns::<S, 1>(simd, sum, summands, skipped, at);
        at += width;
    }
    if at < sum.len() {
        before.store_slice(&mut sum[last..]);
        columns::<S, 1>(simd, sum, summands, skipped, last);
    }
}

/// `COUNT` vectors of the sum, from `at` on.
#[inline(always)]
fn columns<S: Simd, const COUNT: usize>(
    simd: S,
    sum: &mut [u8],
    summands: &[Summand<'_>],
    skipped: usize,
    at: usize,
) {
    let width = <S::u8s as SimdBase<S>>::LEN;
    let sum = &mut sum[at..at + COUNT * width];
    let lower = S::u8s::splat(simd, 15);
    let mut totals = [S::u8s::splat(simd, 0); COUNT];
    for (index, total) in totals.iter_mut().enumerate() {
        *total = S::u8s::from_slice(simd, &sum[index * width..][..width]);
    }
    for (factor, bytes) in summands {
        let [low, high] = &PRODUCTS[usize::from(*factor)];
        let low = S::u8s::block_splat(u8x16::load_array_ref(simd, low));
        let high = S::u8s::block_splat(u8x16::load_array_ref(simd, high));
        let bytes = &bytes[skipped + at..][..COUNT * width];
        for (index, total) in totals.iter_mut().enumerate() {
            let bytes = S::u8s::from_slice(simd, &bytes[index * width..][..width]);
            *total = *total
                ^ low.swizzle_dyn_within_blocks(bytes & lower)
                ^ high.swizzle_dyn_within_blocks(bytes >> 4);
        }
    }
    for (index, total) in totals.iter().enumerate() {
        total.store_slice(&mut sum[index * width..][..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::multiply;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// The oracle: the definition of a product, a byte at a time.
    fn defined(sum: &mut [u8], summands: &[Summand<'_>]) {
        for (factor, bytes) in summands {
            for (sum, byte) in sum.iter_mut().zip(*bytes) {
                *sum ^= multiply(*factor, *byte);
            }
        }
    }

    /// Every implementation that this processor supports.
    fn levels() -> Vec<Level> {
        let mut levels = vec![Level::new(), Level::baseline()];
        #[cfg(target_arch = "x86_64")]
        {
            levels.extend(Level::new().as_sse4_2().map(Simd::level));
            levels.extend(Level::new().as_avx2().map(Simd::level));
        }
        levels
    }

    fn bytes(length: usize, seed: u8) -> Vec<u8> {
        (0..length).map(|at| (at as u8).wrapping_mul(151).wrapping_add(seed)).collect()
    }

    #[test]
    fn every_length_at_every_alignment_is_as_defined() {
        let (memory, sums) = (bytes(300, 7), bytes(300, 99));
        for level in levels() {
            for alignment in 0..32 {
                for length in 0..=200 {
                    let factor = (3 * length + alignment) as u8;
                    let summand = (factor, &memory[alignment..alignment + length]);
                    let (mut made, mut expected) = (sums.clone(), sums.clone());
                    let from = (alignment * 7) % 32;
                    multiply_add(level, &mut made[from..], summand.0, summand.1);
                    defined(&mut expected[from..], &[summand]);
                    assert_eq!(made, expected, "{level:?}: {length} bytes at {alignment}");
                }
            }
        }
    }

    #[test]
    fn every_factor_is_as_defined() {
        let all: Vec<u8> = (0..=255).collect();
        for level in levels() {
            for factor in 0..=255 {
                let (mut made, mut expected) = (vec![0; 256], vec![0; 256]);
                multiply_add(level, &mut made, factor, &all);
                defined(&mut expected, &[(factor, &all)]);
                assert_eq!(made, expected, "{level:?}: {factor}");
            }
        }
    }

    proptest! {
        #[test]
        fn summands_of_any_lengths_are_as_defined(
            summands in prop::collection::vec((any::<u8>(), 0usize..=770, any::<u8>()), 0..12),
            only_ones: bool,
        ) {
            let summands: Vec<(u8, Vec<u8>)> = summands
                .into_iter()
                .map(|(factor, length, seed)| (if only_ones { 1 } else { factor }, bytes(length, seed)))
                .collect();
            let summands: Vec<Summand<'_>> = summands.iter().map(|(factor, bytes)| (*factor, &bytes[..])).collect();
            let mut expected = bytes(770, 200);
            defined(&mut expected, &summands);
            for level in levels() {
                let mut made = bytes(770, 200);
                combine(level, &mut made, &summands);
                prop_assert_eq!(&made, &expected);
            }
        }
    }
}
