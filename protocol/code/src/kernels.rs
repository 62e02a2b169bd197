//! Sums of multiples of byte strings, a vector of sixteen to sixty-four bytes at a time.
//!
//! Two ways, which give the same sums:
//!
//! - *By planes*, for many summands. A factor is a sum of powers of `x`, so the sum of all multiples
//!   is `p0 + x (p1 + x (p2 + ...))`, where `p_i` is the sum of those strings whose factors contain
//!   `x^i`. Each string is added as often as its factor has bits; the multiplications by `x` are
//!   seven in all, however many strings there are. Coefficients have at most two bits.
//! - *By look-ups*, for few. A product with a fixed factor is two look-ups in tables of sixteen
//!   entries, one for each half of a byte, and processors look up a whole vector at once (`pshufb`
//!   of SSSE3, its wide forms of AVX2 and AVX-512, `tbl` of NEON, `swizzle` of WebAssembly).
//!   Processors without one use the same tables byte by byte.
//!
//! The vectors' width is decided on the processor that runs this.

use fearless_simd::prelude::*;
use fearless_simd::{Level, Simd, dispatch, u8x16};

use crate::field::{FACTOR_PRODUCTS, FIELD_MODULUS};

/// Maximum number of summands that are combined at a time.
pub(crate) const MAXIMUM_SUMMANDS: usize = 64;
/// Number of summands from which planes are worth their doublings.
const PLANE_SUMMANDS: usize = 6;

/// Vectors of a sum that are kept in registers.
const REGISTER_VECTORS: usize = 12;

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
    if looks_up_vectors(level) && factor != 1 {
        dispatch!(level, simd => look_up_all(simd, &mut sum[..bytes.len()], factor, bytes));
    } else {
        dispatch!(level, _ => plain(sum, factor, bytes));
    }
}

/// Adds at most [`MAXIMUM_SUMMANDS`] summands to `sum`, which is at least as long as the longest of them.
pub(crate) fn combine(level: Level, sum: &mut [u8], summands: &[Summand<'_>]) {
    let shared = if summands.len() < PLANE_SUMMANDS {
        0
    } else {
        dispatch!(level, simd => combine_shared(simd, sum, summands))
    };
    for (factor, bytes) in summands {
        if bytes.len() > shared {
            multiply_add(level, &mut sum[shared..], *factor, &bytes[shared..]);
        }
    }
}

/// Adds the columns that all summands have, and returns how many these are.
#[inline(always)]
fn combine_shared<S: Simd>(simd: S, sum: &mut [u8], summands: &[Summand<'_>]) -> usize {
    let planes = Planes::of(summands);
    if planes.entries() > 3 * summands.len() {
        return 0;
    }
    add_planes(simd, &mut sum[..planes.shared], &planes);
    planes.shared
}

/// A multiplication with the tables, byte by byte.
#[inline(always)]
fn plain(sum: &mut [u8], factor: u8, bytes: &[u8]) {
    if factor == 1 {
        sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
        return;
    }
    let [low, high] = &FACTOR_PRODUCTS[usize::from(factor)];
    for (sum, byte) in sum.iter_mut().zip(bytes) {
        *sum ^= low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)];
    }
}

/// The summands, and the summands of each plane by index.
struct Planes<'a> {
    strings: [&'a [u8]; MAXIMUM_SUMMANDS],
    lists: [[u8; MAXIMUM_SUMMANDS]; 8],
    lengths: [u8; 8],
    /// The length of the shortest.
    shared: usize,
}

impl<'a> Planes<'a> {
    #[inline(always)]
    fn of(summands: &[Summand<'a>]) -> Self {
        let mut planes = Self {
            strings: [&[]; MAXIMUM_SUMMANDS],
            lists: [[0; MAXIMUM_SUMMANDS]; 8],
            lengths: [0; 8],
            shared: usize::MAX,
        };
        for (index, ((factor, bytes), string)) in
            summands.iter().zip(&mut planes.strings).enumerate()
        {
            *string = bytes;
            planes.shared = planes.shared.min(bytes.len());
            let mut factor = *factor;
            while factor != 0 {
                let plane = (factor.trailing_zeros() & 7) as usize;
                let length = &mut planes.lengths[plane];
                planes.lists[plane][usize::from(*length) % MAXIMUM_SUMMANDS] = index as u8;
                *length = length.wrapping_add(1);
                factor &= factor.wrapping_sub(1);
            }
        }
        planes
    }

    #[inline(always)]
    fn entries(&self) -> usize {
        self.lengths.iter().map(|length| usize::from(*length)).sum()
    }

    #[inline(always)]
    fn list(&self, plane: usize) -> &[u8] {
        &self.lists[plane][..usize::from(self.lengths[plane])]
    }
}

/// Adds to `sum` the summands, as far as it is long.
#[inline(always)]
fn add_planes<S: Simd>(simd: S, sum: &mut [u8], planes: &Planes<'_>) {
    let width = <S::u8s as SimdBase<S>>::LEN;
    // The last columns rarely fill a block. A block that ends with them covers some columns twice:
    // its sum is computed first, from the bytes before, and stored last.
    let mut at = 0;
    if sum.len() >= REGISTER_VECTORS * width {
        let last = sum.len() - REGISTER_VECTORS * width;
        let end = plane_columns::<S, REGISTER_VECTORS>(simd, planes, last);
        let end = added::<S, REGISTER_VECTORS>(simd, end, sum, last);
        while at < last {
            let totals = plane_columns::<S, REGISTER_VECTORS>(simd, planes, at);
            store::<S, REGISTER_VECTORS>(
                added::<S, REGISTER_VECTORS>(simd, totals, sum, at),
                sum,
                at,
            );
            at += REGISTER_VECTORS * width;
        }
        store::<S, REGISTER_VECTORS>(end, sum, last);
    } else if sum.len() >= width {
        let last = sum.len() - width;
        let end = plane_columns::<S, 1>(simd, planes, last);
        let end = added::<S, 1>(simd, end, sum, last);
        while at < last {
            let totals = plane_columns::<S, 1>(simd, planes, at);
            store::<S, 1>(added::<S, 1>(simd, totals, sum, at), sum, at);
            at += width;
        }
        store::<S, 1>(end, sum, last);
    } else {
        for plane in 0..8 {
            for index in planes.list(plane) {
                plain(
                    sum,
                    1 << plane,
                    &planes.strings[usize::from(*index) % MAXIMUM_SUMMANDS][..sum.len()],
                );
            }
        }
    }
}

/// `COUNT` vectors of the sum of all planes, from `at` on.
#[inline(always)]
fn plane_columns<S: Simd, const COUNT: usize>(
    simd: S,
    planes: &Planes<'_>,
    at: usize,
) -> [S::u8s; COUNT] {
    let width = <S::u8s as SimdBase<S>>::LEN;
    let zero = S::u8s::splat(simd, 0);
    let modulus = S::u8s::splat(simd, FIELD_MODULUS);
    let mut totals = [zero; COUNT];
    let mut is_zero = true;
    for plane in (0..8).rev() {
        if !is_zero {
            for total in &mut totals {
                // Bits shifted out come back as the modulus.
                *total = (*total + *total) ^ ((zero - (*total >> 7)) & modulus);
            }
        }
        for index in planes.list(plane) {
            let bytes = planes.strings[usize::from(*index) % MAXIMUM_SUMMANDS];
            let bytes = &bytes[at..][..COUNT * width];
            for (column, total) in totals.iter_mut().enumerate() {
                *total ^= S::u8s::from_slice(simd, &bytes[column * width..][..width]);
            }
            is_zero = false;
        }
    }
    totals
}

/// Adds vectors to the vectors of `sum` from `at` on.
#[inline(always)]
fn added<S: Simd, const COUNT: usize>(
    simd: S,
    mut totals: [S::u8s; COUNT],
    sum: &[u8],
    at: usize,
) -> [S::u8s; COUNT] {
    let width = <S::u8s as SimdBase<S>>::LEN;
    for (column, total) in totals.iter_mut().enumerate() {
        *total ^= S::u8s::from_slice(simd, &sum[at + column * width..][..width]);
    }
    totals
}

#[inline(always)]
fn store<S: Simd, const COUNT: usize>(totals: [S::u8s; COUNT], sum: &mut [u8], at: usize) {
    let width = <S::u8s as SimdBase<S>>::LEN;
    for (column, total) in totals.iter().enumerate() {
        total.store_slice(&mut sum[at + column * width..][..width]);
    }
}

/// Adds `factor` times `bytes` to `sum`, which is as long.
#[inline(always)]
fn look_up_all<S: Simd>(simd: S, sum: &mut [u8], factor: u8, bytes: &[u8]) {
    let width = <S::u8s as SimdBase<S>>::LEN;
    if sum.len() < width {
        plain(sum, factor, bytes);
        return;
    }
    let [low, high] = &FACTOR_PRODUCTS[usize::from(factor)];
    let low = S::u8s::block_splat(u8x16::load_array_ref(simd, low));
    let high = S::u8s::block_splat(u8x16::load_array_ref(simd, high));
    // The last columns as with planes.
    let last = sum.len() - width;
    let mut tail = S::u8s::from_slice(simd, &sum[last..]);
    tail = look_up(simd, tail, low, high, &bytes[last..]);
    for (sum, bytes) in sum.chunks_exact_mut(width).zip(bytes.chunks_exact(width)) {
        let total = S::u8s::from_slice(simd, sum);
        look_up(simd, total, low, high, bytes).store_slice(sum);
    }
    tail.store_slice(&mut sum[last..]);
}

/// Adds a multiple of a vector's bytes to `total`.
#[inline(always)]
fn look_up<S: Simd>(simd: S, total: S::u8s, low: S::u8s, high: S::u8s, bytes: &[u8]) -> S::u8s {
    let bytes = S::u8s::from_slice(simd, bytes);
    total
        ^ low.swizzle_dyn_within_blocks(bytes & S::u8s::splat(simd, 15))
        ^ high.swizzle_dyn_within_blocks(bytes >> 4)
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
            summands in prop::collection::vec((any::<u8>(), 0usize..=770, any::<u8>()), 0..24),
            bits in 0u8..=255, same in prop::option::of(0usize..=770),
        ) {
            let summands: Vec<(u8, Vec<u8>)> = summands
                .into_iter()
                .map(|(factor, length, seed)| (factor & bits, bytes(same.unwrap_or(length), seed)))
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
