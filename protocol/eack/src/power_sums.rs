//! Power sums: exactly four bytes per difference, and decoding never fails below their capacity.
//!
//! Sum number `k` of a set is the sum of the `k`-th powers of its identifiers in the field of
//! `P = 2^32 - 5` elements (Sidekick's quACK counts and sums the same way; there only for a subset,
//! here the difference may go both ways). Let `s_k` be the difference of two sketches' sums, `X`
//! the identifiers only here and `Y` those only there. Then
//!
//! ```text
//!                       s_k            product over X of (1 - x z)
//!  exp( - sum over k of --- z^k )  =  -----------------------------
//!                        k             product over Y of (1 - y z)
//! ```
//!
//! The left side is known up to `z^t`; the right side is a rational function whose degrees add up
//! to the number of differences. The Euclidean algorithm finds it (a Padé approximant), its roots
//! are the inverse identifiers: this is the minimal set reconciliation of Minsky, Trachtenberg and
//! Zippel (2003) with Newton's identities in front. The sizes of both sets are known, and hence the
//! difference of the degrees. One sum beyond the number of differences reveals a difference that
//! does not fit: it goes undetected with a probability of 2^-32.

use alloc::vec;
use alloc::vec::Vec;

use fearless_simd::Level;

use crate::field::{self, SMALL_INVERSES, reduce_sum};
use crate::lanes::{self, BATCH_IDENTIFIERS, add_batch};
use crate::roots::{RootFinder, trim};
use crate::{DecodeError, Identifier};

/// Bytes of the set's size, modulo 2^16, before the sums on the wire.
pub(crate) const SIZE_BYTES: usize = 2;

/// Bytes of a sum on the wire.
pub(crate) const SUM_BYTES: usize = 4;

/// A set of identifiers as power sums.
///
/// The first `n` sums of a longer sketch are the sketch of length `n`. Insertions and removals
/// commute, and a removal may come first. An identifier that was inserted twice counts twice.
///
/// Insertion costs as much per sum in the capacity. It is done in batches of sixteen, with the
/// vector instructions that the processor has. A sketch with fewer identifiers than that has no
/// sums yet, only the identifiers: it takes a hundred bytes.
#[derive(Clone, Debug)]
pub struct PowerSums {
    /// Empty until the first batch is added.
    sums: Vec<u32>,
    capacity: u8,
    level: Level,
    size: u16,
    /// Inserted, but not yet in the sums. Zeros follow after `pending_length`.
    pending: [u32; BATCH_IDENTIFIERS],
    pending_length: usize,
}

impl PowerSums {
    /// The largest capacity.
    pub const MAX_CAPACITY: u8 = u8::MAX;

    /// Creates an empty sketch of `capacity` sums. With zero, insertions are free.
    pub fn new(capacity: u8) -> Self {
        Self {
            sums: Vec::new(),
            capacity,
            level: lanes::level(),
            size: 0,
            pending: [0; BATCH_IDENTIFIERS],
            pending_length: 0,
        }
    }

    /// Number of sums that can be read.
    pub fn capacity(&self) -> u8 {
        self.capacity
    }

    /// Adds an identifier.
    #[inline]
    pub fn insert(&mut self, identifier: Identifier) {
        self.size = self.size.wrapping_add(1);
        if let Some(place) = self.pending.get_mut(self.pending_length) {
            *place = identifier.get();
            self.pending_length += 1;
        }
        if self.pending_length == BATCH_IDENTIFIERS {
            self.allocate();
            add_batch(self.level, &self.pending, BATCH_IDENTIFIERS, &mut self.sums);
            self.pending = [0; BATCH_IDENTIFIERS];
            self.pending_length = 0;
        }
    }

    #[inline]
    fn allocate(&mut self) {
        if self.sums.is_empty() {
            self.sums = vec![0; usize::from(self.capacity)];
        }
    }

    /// Removes an identifier, whether or not it was added before.
    pub fn remove(&mut self, identifier: Identifier) {
        self.size = self.size.wrapping_sub(1);
        self.allocate();
        let mut power = 1;
        for sum in &mut self.sums {
            power = field::multiply(power, identifier.get());
            *sum = field::subtract(*sum, power);
        }
    }

    /// Removes all of these identifiers, at the cost of insertions in batches.
    pub fn remove_all(&mut self, identifiers: &[Identifier]) {
        let mut removed = Self::new(self.capacity);
        identifiers.iter().for_each(|identifier| removed.insert(*identifier));
        let mut sums = Vec::new();
        removed.prefix(self.capacity, &mut sums);
        self.size = self.size.wrapping_sub(removed.size);
        self.allocate();
        for (own, sum) in self.sums.iter_mut().zip(sums) {
            *own = field::subtract(*own, sum);
        }
    }

    /// Adds a whole set from its serialised form: its size, and as many sums as this sketch has.
    /// Returns false, with the sketch unchanged, for any other length or values out of range.
    pub fn add(&mut self, set: &[u8]) -> bool {
        let Some((size, sums)) = set.split_first_chunk::<SIZE_BYTES>() else { return false };
        let (sums, rest) = sums.as_chunks::<SUM_BYTES>();
        let in_field =
            sums.iter().all(|sum| u64::from(u32::from_be_bytes(*sum)) < field::FIELD_MODULUS);
        if sums.len() != usize::from(self.capacity) || !rest.is_empty() || !in_field {
            return false;
        }
        self.size = self.size.wrapping_add(u16::from_be_bytes(*size));
        self.allocate();
        for (own, sum) in self.sums.iter_mut().zip(sums) {
            *own = field::reduce(u64::from(*own) + u64::from(u32::from_be_bytes(*sum)));
        }
        true
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.sums.fill(0);
        self.size = 0;
        self.pending = [0; BATCH_IDENTIFIERS];
        self.pending_length = 0;
    }

    /// Insertions minus removals since the set was empty, modulo 2^16.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Replaces the contents of `out` by the first `count` sums, at most the capacity.
    pub fn prefix(&self, count: u8, out: &mut Vec<u32>) {
        out.clear();
        out.resize(usize::from(count.min(self.capacity)), 0);
        self.read(out);
    }

    /// Appends the size and the first `count` sums to `out`.
    pub(crate) fn write_prefix(&self, count: u8, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.size.to_be_bytes());
        let mut sums = [0; Self::MAX_CAPACITY as usize];
        let sums = &mut sums[..usize::from(count.min(self.capacity))];
        self.read(sums);
        for sum in sums {
            out.extend_from_slice(&sum.to_be_bytes());
        }
    }

    /// Fills in the first sums, at most the capacity; `sums` are zero.
    fn read(&self, sums: &mut [u32]) {
        for (sum, own) in sums.iter_mut().zip(&self.sums) {
            *sum = *own;
        }
        if self.pending_length > 0 {
            add_batch(self.level, &self.pending, self.pending_length, sums);
        }
    }

    /// Decodes the identifiers that are only here and those only in the serialised prefix `theirs`,
    /// whose length gives the number of sums.
    pub(crate) fn decode(
        &self,
        theirs: &[u8],
        here: impl IntoIterator<Item = Identifier>,
        there: impl IntoIterator<Item = Identifier>,
        solver: &mut Solver,
    ) -> Result<(), DecodeError> {
        let Some((size, sums)) = theirs.split_first_chunk::<SIZE_BYTES>() else {
            return Err(DecodeError::DifferenceTooLarge);
        };
        let (sums, _) = sums.as_chunks::<SUM_BYTES>();
        let count = sums.len().min(usize::from(self.capacity));
        self.prefix(count as u8, &mut solver.sums);
        for (own, bytes) in solver.sums.iter_mut().zip(sums) {
            *own = field::subtract(*own, field::reduce(u32::from_be_bytes(*bytes).into()));
        }
        let surplus = self.size.wrapping_sub(u16::from_be_bytes(*size)) as i16;
        solver.solve(surplus.into(), here, there)
    }
}

/// Solves for the difference. Holds the working memory, to be used again.
#[derive(Clone, Debug)]
pub(crate) struct Solver {
    sums: Vec<u32>,
    remainders: [Vec<u32>; 2],
    cofactors: [Vec<u32>; 2],
    polynomial: Vec<u32>,
    roots: RootFinder,
    pub(crate) only_here: Vec<Identifier>,
    pub(crate) only_there: Vec<Identifier>,
}

impl Solver {
    /// Multiplications since the last call.
    pub(crate) fn take_work(&mut self) -> u64 {
        core::mem::take(&mut self.roots.work)
    }

    pub(crate) fn new() -> Self {
        let polynomial = || Vec::with_capacity(260);
        Self {
            sums: polynomial(),
            remainders: [polynomial(), polynomial()],
            cofactors: [polynomial(), polynomial()],
            polynomial: polynomial(),
            roots: RootFinder::new(),
            only_here: Vec::with_capacity(256),
            only_there: Vec::with_capacity(256),
        }
    }

    /// Solves for the signed sums in `self.sums`; `surplus` is the number of identifiers here minus
    /// that there.
    fn solve(
        &mut self,
        surplus: isize,
        here_candidates: impl IntoIterator<Item = Identifier>,
        there_candidates: impl IntoIterator<Item = Identifier>,
    ) -> Result<(), DecodeError> {
        self.only_here.clear();
        self.only_there.clear();
        let count = self.sums.len();
        self.roots.work += 4 * count as u64;
        if surplus.unsigned_abs() >= count {
            // One sum is the redundancy.
            return Err(DecodeError::DifferenceTooLarge);
        }
        // With the larger side as the numerator the Euclidean algorithm has as many rounds as the
        // smaller side has identifiers: usually zero.
        let swap = surplus < 0;
        if swap {
            for sum in &mut self.sums {
                *sum = field::negate(*sum);
            }
        }
        self.rational_function(surplus.unsigned_abs())?;
        let numerator_is_here = !swap;
        let here = usize::from(!numerator_is_here);
        self.reverse_into_polynomial(here);
        self.roots.find(&mut self.polynomial, here_candidates, &mut self.only_here)?;
        self.reverse_into_polynomial(1 - here);
        self.roots.find(&mut self.polynomial, there_candidates, &mut self.only_there)
    }

    /// The rational function of the sums: numerator in `remainders[0]`, denominator in
    /// `cofactors[0]`, whose degrees differ by `surplus`. Coefficients in ascending order,
    /// leading coefficients not zero.
    fn rational_function(&mut self, surplus: usize) -> Result<(), DecodeError> {
        let count = self.sums.len();
        let [numerator, previous] = &mut self.remainders;
        let [denominator, previous_cofactor] = &mut self.cofactors;
        exponential(&self.sums, numerator);
        self.roots.work += (count * (count + 3) / 2) as u64;
        // Fast path, and the usual one: the other side has no identifiers of its own, so the series
        // is a polynomial.
        trim(numerator);
        denominator.clear();
        denominator.push(1);
        let largest_denominator = (count - surplus) / 2;
        let largest_numerator = count - largest_denominator;
        if numerator.len() > largest_numerator + 1 {
            previous.clear();
            previous.resize(count + 1, 0);
            previous.push(1);
            previous_cofactor.clear();
            while numerator.len() > largest_numerator + 1 {
                let steps = (previous.len() + 1).saturating_sub(numerator.len());
                self.roots.work +=
                    field::POWER_WORK + (steps * (numerator.len() + denominator.len() + 1)) as u64;
                reduce_by(previous, previous_cofactor, numerator, denominator);
                core::mem::swap(previous, numerator);
                core::mem::swap(previous_cofactor, denominator);
                trim(numerator);
                trim(denominator);
            }
        }
        // The two constant coefficients are equal and not zero for an honest difference; and the
        // degrees must leave one sum of redundancy.
        let honest = numerator.first().is_some_and(|constant| *constant != 0)
            && denominator.first().is_some_and(|constant| *constant != 0)
            && numerator.len() == denominator.len() + surplus
            && numerator.len() + denominator.len() - 2 < count;
        if honest { Ok(()) } else { Err(DecodeError::DifferenceTooLarge) }
    }

    /// Turns the numerator (0) or the denominator (1) into the monic polynomial whose roots are the
    /// identifiers.
    fn reverse_into_polynomial(&mut self, which: usize) {
        let source = if which == 0 { &self.remainders[0] } else { &self.cofactors[0] };
        self.polynomial.clear();
        self.roots.work += field::POWER_WORK + source.len() as u64;
        let Some(constant) = source.first() else { return };
        let scale = if *constant == 1 { 1 } else { field::invert(*constant) };
        self.polynomial
            .extend(source.iter().rev().map(|coefficient| field::multiply(*coefficient, scale)));
    }
}

/// `out = exp(- sum of sums[k-1]/k z^k)` up to `z^count`, by `k c_k = - sum of s_j c_(k-j)`.
fn exponential(sums: &[u32], out: &mut Vec<u32>) {
    out.clear();
    out.push(1);
    for (index, inverse) in (0..sums.len()).zip(&SMALL_INVERSES[1..]) {
        let mut total = 0u128;
        field::count(index + 1);
        for (sum, coefficient) in sums.iter().take(index + 1).zip(out.iter().rev()) {
            total += u128::from(u64::from(*sum) * u64::from(*coefficient));
        }
        out.push(field::negate(field::multiply(reduce_sum(total), *inverse)));
    }
}

/// A step of the extended Euclidean algorithm: subtracts `divisor` from `dividend` as often as
/// possible, and does the same to the cofactors.
fn reduce_by(
    dividend: &mut Vec<u32>,
    cofactor: &mut Vec<u32>,
    divisor: &[u32],
    divisor_cofactor: &[u32],
) {
    let Some((leading, _)) = divisor.split_last() else { return };
    let inverse = field::invert(*leading);
    let largest_shift = dividend.len().saturating_sub(divisor.len());
    cofactor.resize(cofactor.len().max(divisor_cofactor.len() + largest_shift), 0);
    while let Some(last) = dividend.last()
        && dividend.len() >= divisor.len()
    {
        let quotient = field::negate(field::multiply(*last, inverse));
        let shift = dividend.len() - divisor.len();
        if quotient != 0 {
            add_multiple(&mut dividend[shift..], divisor, quotient);
            add_multiple(&mut cofactor[shift..], divisor_cofactor, quotient);
        }
        dividend.pop();
    }
}

/// `target += factor * source`.
fn add_multiple(target: &mut [u32], source: &[u32], factor: u32) {
    for (value, other) in target.iter_mut().zip(source) {
        *value = field::reduce(u64::from(*other) * u64::from(factor) + u64::from(*value));
    }
}
