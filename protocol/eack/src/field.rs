//! Arithmetic in the prime field of `P = 2^32 - 5` elements, the largest prime below 2^32.
//!
//! `2^32 ≡ 5`, so reduction is a shift, a multiplication by five and an addition. Sums of products
//! are accumulated in 128 bits and reduced once: therefore a power sum costs about one
//! multiplication per identifier.

/// Work of a power, an inverse or a square root, in multiplications that need not wait for each
/// other: it has 64 that do.
pub(crate) const POWER_WORK: u64 = 256;

/// Modulus of the field, `2^32 - 5`.
pub(crate) const FIELD_MODULUS: u64 = 4_294_967_291;

/// Inverses of the small integers, `SMALL_INVERSES[k] * k = 1` (entry 0 is unused).
pub(crate) const SMALL_INVERSES: [u32; 256] = {
    let mut table = [0u32; 256];
    table[1] = 1;
    let mut k = 2;
    while k < 256 {
        // P = q*k + r, so 1/k = -q/r.
        let quotient = FIELD_MODULUS / k as u64;
        let remainder = (FIELD_MODULUS % k as u64) as usize;
        table[k] = (FIELD_MODULUS - (quotient * table[remainder] as u64) % FIELD_MODULUS) as u32;
        k += 1;
    }
    table
};

/// Counts multiplications that follow, for tests.
#[inline(always)]
pub(crate) fn count(multiplications: usize) {
    #[cfg(feature = "count-operations")]
    crate::operations::count(multiplications);
    let _ = multiplications;
}

/// Any 64-bit number, reduced to `0..P`.
#[inline(always)]
pub(crate) fn reduce(value: u64) -> u32 {
    count(1);
    let once = (value >> 32) * 5 + (value & 0xffff_ffff);
    let twice = (once >> 32) * 5 + (once & 0xffff_ffff);
    (if twice >= FIELD_MODULUS { twice - FIELD_MODULUS } else { twice }) as u32
}

/// A sum of fewer than 2^32 products of two field elements, reduced to `0..P`.
#[inline(always)]
pub(crate) fn reduce_sum(value: u128) -> u32 {
    count(1);
    // 2^64 ≡ 25; the upper part is below 2^32, so this stays below 2^37 + 2^35.
    let upper = (value >> 64) as u64;
    let lower = value as u64;
    let once = (lower >> 32) * 5 + (lower & 0xffff_ffff) + upper * 25;
    let twice = (once >> 32) * 5 + (once & 0xffff_ffff);
    (if twice >= FIELD_MODULUS { twice - FIELD_MODULUS } else { twice }) as u32
}

/// The product.
#[inline(always)]
pub(crate) fn multiply(left: u32, right: u32) -> u32 {
    reduce(left as u64 * right as u64)
}

/// The sum.
#[inline(always)]
pub(crate) const fn add(left: u32, right: u32) -> u32 {
    let sum = left as u64 + right as u64;
    (if sum >= FIELD_MODULUS { sum - FIELD_MODULUS } else { sum }) as u32
}

/// The difference.
#[inline(always)]
pub(crate) const fn subtract(left: u32, right: u32) -> u32 {
    let difference = left as u64 + FIELD_MODULUS - right as u64;
    (if difference >= FIELD_MODULUS { difference - FIELD_MODULUS } else { difference }) as u32
}

/// The additive inverse.
#[inline(always)]
pub(crate) const fn negate(value: u32) -> u32 {
    if value == 0 { 0 } else { (FIELD_MODULUS - value as u64) as u32 }
}

/// Returns `base` to the power of `exponent`.
pub(crate) fn power(base: u32, exponent: u32) -> u32 {
    let mut result = 1;
    let mut square = base;
    let mut rest = exponent;
    while rest > 0 {
        if rest & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        rest >>= 1;
    }
    result
}

/// The multiplicative inverse (0 for 0), by Fermat's little theorem.
pub(crate) fn invert(value: u32) -> u32 {
    power(value, (FIELD_MODULUS - 2) as u32)
}

/// A square root, if there is one. `P ≡ 3 (mod 4)`, so it is a single power.
pub(crate) fn square_root(value: u32) -> Option<u32> {
    let root = power(value, FIELD_MODULUS.div_ceil(4) as u32);
    if multiply(root, root) == value { Some(root) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_modulus_is_prime_and_three_modulo_four() {
        assert_eq!(FIELD_MODULUS % 4, 3);
        assert!((2..65_536).all(|divisor| !FIELD_MODULUS.is_multiple_of(divisor)));
    }

    #[test]
    fn small_inverses() {
        for k in 1..256u32 {
            assert_eq!(multiply(k, SMALL_INVERSES[k as usize]), 1, "{k}");
        }
    }

    #[test]
    fn reduction_at_the_edges() {
        for value in [
            0,
            1,
            FIELD_MODULUS - 1,
            FIELD_MODULUS,
            FIELD_MODULUS + 1,
            1 << 32,
            (1 << 32) + 24,
            u64::MAX - 1,
            u64::MAX,
        ] {
            assert_eq!(u64::from(reduce(value)), value % FIELD_MODULUS, "{value}");
            assert_eq!(u64::from(reduce_sum(value.into())), value % FIELD_MODULUS, "{value}");
        }
        let largest = u128::from((FIELD_MODULUS - 1) * (FIELD_MODULUS - 1)) * 0xffff_ffff;
        assert_eq!(u128::from(reduce_sum(largest)), largest % u128::from(FIELD_MODULUS));
    }

    proptest! {
        #[test]
        fn agrees_with_plain_remainders(a in 0..FIELD_MODULUS, b in 0..FIELD_MODULUS, wide in any::<u64>()) {
            let (x, y) = (a as u32, b as u32);
            prop_assert_eq!(u64::from(multiply(x, y)), a * b % FIELD_MODULUS);
            prop_assert_eq!(u64::from(add(x, y)), (a + b) % FIELD_MODULUS);
            prop_assert_eq!(u64::from(subtract(x, y)), (a + FIELD_MODULUS - b) % FIELD_MODULUS);
            prop_assert_eq!(add(x, negate(x)), 0);
            prop_assert_eq!(u64::from(reduce(wide)), wide % FIELD_MODULUS);
            if x != 0 {
                prop_assert_eq!(multiply(x, invert(x)), 1);
            }
            let square = multiply(x, x);
            let root = square_root(square);
            prop_assert!(root == Some(x) || root == Some(negate(x)));
        }
    }
}
