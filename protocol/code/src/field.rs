//! The field of 256 elements: polynomials over GF(2) modulo `x^8 + x^4 + x^3 + x^2 + 1` (RFC 5510,
//! section 8.1, as in RFC 8681).

/// Modulus of the field without its highest term.
pub(crate) const FIELD_MODULUS: u8 = 0x1d;

/// Products of each factor with the sixteen lower and the sixteen upper half-bytes: a product with
/// a byte is the sum of the two.
pub(crate) static FACTOR_PRODUCTS: [[[u8; 16]; 2]; 256] = products();

/// Inverse of each element of the field, by element; zero for zero.
static FIELD_INVERSES: [u8; 256] = inverses();

/// The product by definition, bit by bit.
pub(crate) const fn multiply(mut left: u8, mut right: u8) -> u8 {
    let mut product = 0;
    while right != 0 {
        if right & 1 != 0 {
            product ^= left;
        }
        left = (left << 1) ^ if left & 0x80 != 0 { FIELD_MODULUS } else { 0 };
        right >>= 1;
    }
    product
}

/// The product, from the tables.
pub(crate) fn product(factor: u8, byte: u8) -> u8 {
    let [low, high] = &FACTOR_PRODUCTS[usize::from(factor)];
    low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)]
}

/// The number whose product with `value` is one; zero for zero.
pub(crate) fn inverse(value: u8) -> u8 {
    FIELD_INVERSES[usize::from(value)]
}

const fn products() -> [[[u8; 16]; 2]; 256] {
    let mut products = [[[0; 16]; 2]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut half = 0;
        while half < 16 {
            products[factor][0][half] = multiply(factor as u8, half as u8);
            products[factor][1][half] = multiply(factor as u8, (half as u8) << 4);
            half += 1;
        }
        factor += 1;
    }
    products
}

const fn inverses() -> [u8; 256] {
    let mut inverses = [0; 256];
    // Every element but zero is a power of 2: the powers of 2 and of its inverse meet at one.
    let (mut power, mut inverse) = (1, 1);
    let half = multiply_to_one();
    let mut exponent = 0;
    while exponent < 255 {
        inverses[power as usize] = inverse;
        power = multiply(power, 2);
        inverse = multiply(inverse, half);
        exponent += 1;
    }
    inverses
}

/// The inverse of 2.
const fn multiply_to_one() -> u8 {
    let mut candidate = 1;
    while multiply(candidate, 2) != 1 {
        candidate += 1;
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        for left in 0..=255u8 {
            assert_eq!(multiply(left, inverse(left)), u8::from(left != 0));
            for right in 0..=255u8 {
                let product = product(left, right);
                assert_eq!(product, multiply(left, right));
                assert_eq!(product, multiply(right, left));
                assert_eq!(
                    multiply(multiply(left, right), 83),
                    multiply(left, multiply(right, 83))
                );
                assert_eq!(multiply(left ^ right, 83), multiply(left, 83) ^ multiply(right, 83));
            }
        }
    }

    /// The example of RFC 8681's field: 2^8 is the modulus without its highest term.
    #[test]
    fn the_modulus_is_that_of_rfc_8681() {
        assert_eq!(multiply(0x80, 2), 0x1d);
    }
}
