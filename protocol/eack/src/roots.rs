//! The roots of a polynomial all of whose roots are distinct identifiers.
//!
//! Three ways, the cheapest first: evaluate at the identifiers that may be roots and divide by each
//! that is one; closed forms for a remainder of degree one or two; and for unknown identifiers
//! equal-degree splitting (Cantor81): `(x + s)^((P-1)/2)` is 1 at about half of the roots and -1 at
//! the others, so its greatest common divisor with the polynomial splits it. The shifts `s` are
//! counted up instead of drawn, so the result never depends on randomness.

use alloc::vec::Vec;

use crate::field::{self, FIELD_MODULUS, reduce_sum};
use crate::{DecodeError, Identifier};

/// Candidates that are evaluated together, so that their multiplications overlap.
const PARALLEL_CANDIDATES: usize = 8;

/// Shifts to try until a polynomial splits: each fails with a probability of at most one half.
const SPLIT_ATTEMPTS: u32 = 64;

/// Largest number of roots to split off without a candidate. Splitting costs as much as the square
/// of their number, and an honest peer's differences are among the candidates, except for the few
/// forged datagrams that a receiver cannot tell from its stream's.
pub(crate) const MAX_UNKNOWN: usize = 64;

/// The most multiplications that candidates are evaluated with. It is enough for 4096 candidates
/// of the largest polynomial, and bounds the cost of a hostile prefix.
const MAX_CANDIDATE_WORK: u64 = 1 << 19;

/// Finds roots. Holds the working memory, to be used again.
#[derive(Clone, Debug)]
pub(crate) struct RootFinder {
    /// Multiplications in the field since the caller has last taken them.
    pub(crate) work: u64,
    /// Monic polynomials still to split, one behind the other, and their lengths.
    factors: Vec<u32>,
    lengths: Vec<usize>,
    factor: Vec<u32>,
    power: Vec<u32>,
    divisor: Vec<u32>,
    wide: Vec<u128>,
}

impl RootFinder {
    pub(crate) fn new() -> Self {
        let polynomial = || Vec::with_capacity(260);
        Self {
            work: 0,
            factors: Vec::with_capacity(520),
            lengths: Vec::with_capacity(64),
            factor: polynomial(),
            power: polynomial(),
            divisor: polynomial(),
            wide: Vec::with_capacity(520),
        }
    }

    /// Appends the roots of the monic `polynomial` to `roots`. Coefficients are in ascending order,
    /// and are consumed. Fails when a root is not an identifier, or occurs twice.
    pub(crate) fn find(
        &mut self,
        polynomial: &mut Vec<u32>,
        candidates: impl IntoIterator<Item = Identifier>,
        roots: &mut Vec<Identifier>,
    ) -> Result<(), DecodeError> {
        if polynomial.len() > 3 {
            self.work += divide_by_candidates(polynomial, candidates, roots);
        }
        if polynomial.len() > MAX_UNKNOWN + 1 {
            return Err(DecodeError::DifferenceTooLarge);
        }
        self.split(polynomial, roots)
    }

    /// Finds roots without candidates.
    fn split(
        &mut self,
        polynomial: &[u32],
        roots: &mut Vec<Identifier>,
    ) -> Result<(), DecodeError> {
        self.work += polynomial.len() as u64;
        self.factors.clear();
        self.lengths.clear();
        self.factors.extend_from_slice(polynomial);
        self.lengths.push(polynomial.len());
        let mut verified = false;
        let mut shift = 0;
        while let Some(length) = self.lengths.pop() {
            let start = self.factors.len() - length;
            self.factor.clear();
            self.factor.extend(self.factors.drain(start..));
            match *self.factor.as_slice() {
                [] | [_] => {}
                [constant, _] => push_root(field::negate(constant), roots)?,
                [constant, linear, _] => {
                    self.work += field::POWER_WORK;
                    let (one, other) = quadratic_roots(constant, linear)?;
                    push_root(one, roots)?;
                    push_root(other, roots)?;
                }
                _ => {
                    let last = shift + SPLIT_ATTEMPTS;
                    loop {
                        shift += 1;
                        if shift > last {
                            return Err(DecodeError::DifferenceTooLarge);
                        }
                        self.half_power(shift);
                        if !verified && !self.has_only_distinct_roots(shift) {
                            return Err(DecodeError::DifferenceTooLarge);
                        }
                        verified = true;
                        self.greatest_common_divisor();
                        if self.divisor.len() > 1 && self.divisor.len() < self.factor.len() {
                            break;
                        }
                    }
                    self.push_factors();
                }
            }
        }
        Ok(())
    }

    /// `power = (x + shift)^((P-1)/2) mod factor`.
    fn half_power(&mut self, shift: u32) {
        let exponent = (FIELD_MODULUS / 2) as u32;
        self.power.clear();
        self.power.push(1);
        for bit in (0..u32::BITS - exponent.leading_zeros()).rev() {
            self.square_power();
            if exponent >> bit & 1 == 1 {
                self.work += 2 * self.factor.len() as u64;
                multiply_by_linear(&mut self.power, shift, &self.factor);
            }
        }
    }

    /// `power = power^2 mod factor`.
    fn square_power(&mut self) {
        let degree = self.factor.len() - 1;
        let length = self.power.len();
        self.work +=
            (length * (length + 1) / 2 + (2 * length).saturating_sub(degree) * degree) as u64;
        self.wide.clear();
        self.wide.resize(2 * self.power.len(), 0);
        // The products of two different coefficients occur twice.
        for (index, left) in self.power.iter().enumerate() {
            let (targets, others) = (&mut self.wide[2 * index + 1..], &self.power[index + 1..]);
            field::count(others.len());
            for (total, right) in targets.iter_mut().zip(others) {
                *total += u128::from(u64::from(*left) * u64::from(*right));
            }
        }
        for (index, coefficient) in self.power.iter().enumerate() {
            field::count(1);
            self.wide[2 * index] *= 2;
            self.wide[2 * index] += u128::from(u64::from(*coefficient) * u64::from(*coefficient));
            self.wide[2 * index + 1] *= 2;
        }
        while self.wide.len() > degree {
            let Some(last) = self.wide.pop() else { break };
            let quotient = u64::from(field::negate(reduce_sum(last)));
            if quotient != 0 {
                // The popped coefficient stood for x^length.
                let shift = self.wide.len() - degree;
                field::count(self.factor.len());
                for (total, coefficient) in self.wide[shift..].iter_mut().zip(&self.factor) {
                    *total += u128::from(quotient * u64::from(*coefficient));
                }
            }
        }
        self.power.clear();
        self.power.extend(self.wide.iter().map(|total| reduce_sum(*total)));
    }

    /// True if `(x + shift)^P = x + shift` modulo the factor: exactly when the factor is a product
    /// of distinct linear factors. `power` is `(x + shift)^((P-1)/2)` and does not change.
    fn has_only_distinct_roots(&mut self, shift: u32) -> bool {
        self.divisor.clear();
        self.divisor.extend_from_slice(&self.power);
        self.square_power();
        multiply_by_linear(&mut self.power, shift, &self.factor);
        let holds = self.power == [shift, 1];
        core::mem::swap(&mut self.power, &mut self.divisor);
        holds
    }

    /// `divisor = gcd(factor, power - 1)`, monic; consumes `power`.
    fn greatest_common_divisor(&mut self) {
        self.divisor.clear();
        self.divisor.extend_from_slice(&self.factor);
        if let Some(constant) = self.power.first_mut() {
            *constant = field::subtract(*constant, 1);
        }
        trim(&mut self.power);
        while let Some(leading) = self.power.last() {
            let inverse = field::invert(*leading);
            let (length, steps) =
                (self.power.len(), self.divisor.len().saturating_sub(self.power.len()) + 1);
            self.work += field::POWER_WORK + (length * (steps + 1)) as u64;
            for coefficient in &mut self.power {
                *coefficient = field::multiply(*coefficient, inverse);
            }
            remainder_by_monic(&mut self.divisor, &self.power);
            core::mem::swap(&mut self.divisor, &mut self.power);
        }
    }

    /// Splits `factor` into `divisor` and the quotient, both to be split further.
    fn push_factors(&mut self) {
        // Division in place leaves the quotient in the upper coefficients.
        let degree = self.divisor.len() - 1;
        self.work += ((self.factor.len() - degree) * degree) as u64;
        for index in (degree..self.factor.len()).rev() {
            let quotient = field::negate(self.factor[index]);
            let lower = &mut self.factor[index - degree..index];
            for (value, coefficient) in lower.iter_mut().zip(&self.divisor) {
                *value = field::reduce(
                    u64::from(quotient) * u64::from(*coefficient) + u64::from(*value),
                );
            }
        }
        self.factors.extend_from_slice(&self.divisor);
        self.lengths.push(self.divisor.len());
        self.factors.extend_from_slice(&self.factor[degree..]);
        self.lengths.push(self.factor.len() - degree);
    }
}

/// Divides `polynomial` by every candidate that is a root of it, until the rest has a closed form
/// or the work is too much. Returns the number of multiplications.
fn divide_by_candidates(
    polynomial: &mut Vec<u32>,
    candidates: impl IntoIterator<Item = Identifier>,
    roots: &mut Vec<Identifier>,
) -> u64 {
    let mut candidates = candidates.into_iter();
    let mut work = 0;
    while polynomial.len() > 3 && work < MAX_CANDIDATE_WORK {
        let mut lanes = [0u32; PARALLEL_CANDIDATES];
        let mut filled = 0;
        for (lane, candidate) in lanes.iter_mut().zip(&mut candidates) {
            *lane = candidate.get();
            filled += 1;
        }
        if filled == 0 {
            break;
        }
        work += (PARALLEL_CANDIDATES * polynomial.len()) as u64;
        // Horner's scheme in all lanes. An unfilled lane evaluates at zero, which is never a root.
        let mut values = [0u32; PARALLEL_CANDIDATES];
        for coefficient in polynomial.iter().rev() {
            for (value, lane) in values.iter_mut().zip(&lanes) {
                *value =
                    field::reduce(u64::from(*value) * u64::from(*lane) + u64::from(*coefficient));
            }
        }
        for (value, lane) in values.iter().zip(&lanes).take(filled) {
            // The values are of the polynomial before it was divided by a candidate of an earlier
            // lane.
            if *value == 0
                && let Some(identifier) = Identifier::from_field(*lane)
            {
                work += 2 * polynomial.len() as u64;
                if divide_by_root(polynomial, *lane) {
                    roots.push(identifier);
                }
            }
        }
    }
    work
}

/// Divides by `x - root`, when that leaves no remainder.
fn divide_by_root(polynomial: &mut Vec<u32>, root: u32) -> bool {
    let evaluate = |value: u32, coefficient: &u32| {
        field::reduce(u64::from(value) * u64::from(root) + u64::from(*coefficient))
    };
    if polynomial.len() < 2 || polynomial.iter().rev().fold(0, evaluate) != 0 {
        return false;
    }
    let mut carry = 0;
    for coefficient in polynomial.iter_mut().rev() {
        let value = evaluate(carry, coefficient);
        *coefficient = carry;
        carry = value;
    }
    // The shift left zero in the leading place.
    polynomial.pop();
    true
}

/// Adds a root that must be an identifier.
fn push_root(root: u32, roots: &mut Vec<Identifier>) -> Result<(), DecodeError> {
    let identifier = Identifier::from_field(root).ok_or(DecodeError::DifferenceTooLarge)?;
    roots.push(identifier);
    Ok(())
}

/// The roots of `x^2 + linear x + constant`.
fn quadratic_roots(constant: u32, linear: u32) -> Result<(u32, u32), DecodeError> {
    let half = field::multiply(field::negate(linear), field::SMALL_INVERSES[2]);
    let discriminant = field::subtract(field::multiply(half, half), constant);
    let root = field::square_root(discriminant).ok_or(DecodeError::DifferenceTooLarge)?;
    Ok((field::add(half, root), field::subtract(half, root)))
}

/// `power = power * (x + shift) mod factor`; `power` is of lower degree than the monic `factor`.
fn multiply_by_linear(power: &mut Vec<u32>, shift: u32, factor: &[u32]) {
    let mut previous = 0;
    for coefficient in power.iter_mut() {
        let current = *coefficient;
        *coefficient = field::reduce(u64::from(current) * u64::from(shift) + u64::from(previous));
        previous = current;
    }
    power.push(previous);
    remainder_by_monic(power, factor);
}

/// `dividend = dividend mod divisor`, without leading zeros; `divisor` is monic.
fn remainder_by_monic(dividend: &mut Vec<u32>, divisor: &[u32]) {
    while dividend.len() >= divisor.len() {
        let Some(last) = dividend.pop() else { break };
        let quotient = field::negate(last);
        if quotient != 0 {
            let shift = dividend.len() + 1 - divisor.len();
            for (value, coefficient) in dividend[shift..].iter_mut().zip(divisor) {
                *value = field::reduce(
                    u64::from(quotient) * u64::from(*coefficient) + u64::from(*value),
                );
            }
        }
    }
    trim(dividend);
}

/// Removes trailing zero coefficients.
pub(crate) fn trim(polynomial: &mut Vec<u32>) {
    while polynomial.last() == Some(&0) {
        polynomial.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn product(roots: &[u32]) -> Vec<u32> {
        let mut polynomial = alloc::vec![1];
        for root in roots {
            polynomial.insert(0, 0);
            for index in 0..polynomial.len() - 1 {
                let upper = polynomial[index + 1];
                polynomial[index] =
                    field::subtract(polynomial[index], field::multiply(upper, *root));
            }
        }
        polynomial
    }

    fn find(mut polynomial: Vec<u32>, candidates: &[u32]) -> Option<Vec<u32>> {
        let mut roots = Vec::new();
        let candidates = candidates.iter().filter_map(|value| Identifier::new(*value));
        RootFinder::new().find(&mut polynomial, candidates, &mut roots).ok()?;
        let mut roots: Vec<u32> = roots.into_iter().map(Identifier::get).collect();
        roots.sort_unstable();
        Some(roots)
    }

    proptest! {
        #[test]
        fn finds_the_roots_with_and_without_candidates(
            roots in proptest::collection::btree_set(1..FIELD_MODULUS as u32, 0..=MAX_UNKNOWN),
            known in any::<u64>(),
            others in proptest::collection::vec(1..FIELD_MODULUS as u32, 0..30),
        ) {
            let roots: Vec<u32> = roots.into_iter().collect();
            let mut candidates: Vec<u32> = roots
                .iter()
                .enumerate()
                .filter(|(index, _)| known >> index & 1 == 1)
                .map(|(_, root)| *root)
                .collect();
            candidates.extend(others);
            prop_assert_eq!(find(product(&roots), &candidates), Some(roots.clone()));
            prop_assert_eq!(find(product(&roots), &[]), Some(roots));
        }
    }

    #[test]
    fn irreducible_factors_are_refused() {
        // x^2 + 1 has no root, because -1 is not a square when P = 3 (mod 4).
        assert_eq!(find(alloc::vec![1, 0, 1], &[]), None);
        let with_roots = product(&[3, 4, 5]);
        let mut product = alloc::vec![0; 6];
        for (index, coefficient) in with_roots.iter().enumerate() {
            product[index] = field::add(product[index], *coefficient);
            product[index + 2] = field::add(product[index + 2], *coefficient);
        }
        assert_eq!(find(product.clone(), &[]), None);
        assert_eq!(find(product, &[3, 4, 5]), None);
    }

    #[test]
    fn a_multiple_root_is_refused_when_it_has_to_be_split() {
        assert_eq!(find(product(&[7, 7, 8, 9]), &[]), None);
    }

    #[test]
    fn zero_is_not_an_identifier() {
        assert_eq!(find(product(&[0]), &[]), None);
        assert_eq!(find(product(&[0, 1]), &[]), None);
        assert_eq!(find(product(&[0, 1, 2, 3]), &[1, 2, 3]), None);
    }
}
