//! The power sums of sixteen identifiers at a time, on any processor.

use crate::field::{self, reduce_sum};
use crate::lanes::BATCH_IDENTIFIERS;

/// Adds the power sums of the first `length` identifiers of a batch (the others are zero) to
/// `sums`, on processors without vectors. The sums of a batch follow a linear recurrence (Newton's
/// identities), which costs one multiplication per identifier and sum, and one reduction per sum
/// for all sixteen.
pub(crate) fn add_recurrence(batch: &[u32; BATCH_IDENTIFIERS], length: usize, sums: &mut [u32]) {
    // The coefficients of the product of (1 - x z), from z^0 to z^16.
    let mut coefficients = [0u32; BATCH_IDENTIFIERS + 1];
    coefficients[0] = 1;
    for (degree, identifier) in batch.iter().enumerate().take(length) {
        let negated = u64::from(field::negate(*identifier));
        for index in (0..=degree).rev() {
            // One reduction for both: (2^32 - 6)^2 + 2^32 is below 2^64.
            let sum = u64::from(coefficients[index]) * negated + u64::from(coefficients[index + 1]);
            coefficients[index + 1] = field::reduce(sum);
        }
    }
    // From z^16 down to z^1.
    let mut weights = [0u32; BATCH_IDENTIFIERS];
    for (weight, coefficient) in weights.iter_mut().zip(coefficients[1..].iter().rev()) {
        *weight = *coefficient;
    }
    // Newton: p_k = - (c_1 p_(k-1) + ... + c_16 p_(k-16)) - k c_k, with p_k = 0 for k < 1 and c_k =
    // 0 for k > 16.
    let mut powers = [0u32; BATCH_IDENTIFIERS + 256];
    let (first, rest) = sums.split_at_mut(BATCH_IDENTIFIERS.min(sums.len()));
    for (index, sum) in first.iter_mut().enumerate() {
        let own = u64::from(coefficients[index + 1]) * (index as u64 + 1);
        // There are only `index` sums before this one.
        let products =
            weights[BATCH_IDENTIFIERS - index..].iter().zip(&powers[BATCH_IDENTIFIERS..]);
        let total = products.fold(u128::from(own), |total, (weight, power)| {
            total + u128::from(u64::from(*weight) * u64::from(*power))
        });
        let power = field::negate(reduce_sum(total));
        powers[index + BATCH_IDENTIFIERS] = power;
        *sum = field::add(*sum, power);
    }
    for (index, sum) in (BATCH_IDENTIFIERS..).zip(rest) {
        let Some(window) =
            powers.get(index..).and_then(|rest| rest.first_chunk::<BATCH_IDENTIFIERS>())
        else {
            return;
        };
        let mut total = 0u128;
        for (weight, power) in weights.iter().zip(window) {
            total += u128::from(u64::from(*weight) * u64::from(*power));
        }
        let power = field::negate(reduce_sum(total));
        if let Some(place) = powers.get_mut(index + BATCH_IDENTIFIERS) {
            *place = power;
        }
        *sum = field::add(*sum, power);
    }
}
