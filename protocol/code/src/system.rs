//! The equations of one half, in reduced form.
//!
//! Each row has a *pivot*: the oldest unknown datagram in it. No other row contains a pivot.
//! Therefore a row with only its pivot is solved; and when the oldest place is forgotten, the row
//! with that pivot is the only one that contains it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use fearless_simd::Level;

use crate::field::{inverse, product};
use crate::kernels::{Summand, combine, multiply_add};

/// Bytes whose multiplication and addition is one unit of work.
const WORK_UNIT_BYTES: usize = 32;

/// An equation: the sum of unknown halves times their coefficients is `symbol`.
#[derive(Debug)]
pub(crate) struct Row {
    pivot: u64,
    /// Coefficients by place modulo the number of places.
    coefficients: Box<[u8]>,
    symbol: Vec<u8>,
}

impl Row {
    /// An equation without unknowns.
    pub(crate) fn new(places: usize, symbol: &[u8]) -> Self {
        Self { pivot: 0, coefficients: vec![0; places].into(), symbol: symbol.to_vec() }
    }

    /// Adds an unknown.
    pub(crate) fn add_unknown(&mut self, place: u64, coefficient: u8) {
        let column = place as usize & (self.coefficients.len() - 1);
        self.coefficients[column] = coefficient;
    }

    /// Moves known halves to the other side. False if one is longer than the symbol allows; they
    /// are cut to its length.
    pub(crate) fn subtract(&mut self, level: Level, known: &mut [Summand<'_>]) -> bool {
        let mut fits = true;
        for (_, half) in known.iter_mut() {
            let (within, beyond) = half.split_at(half.len().min(self.symbol.len()));
            fits &= beyond.iter().all(|byte| *byte == 0);
            *half = within;
        }
        combine(level, &mut self.symbol, known);
        fits
    }

    fn coefficient(&self, place: u64) -> u8 {
        self.coefficients[place as usize & (self.coefficients.len() - 1)]
    }

    fn clear(&mut self, place: u64) {
        self.add_unknown(place, 0);
    }

    /// Adds a multiple of another row, so that `place` is in this one no longer.
    fn eliminate(&mut self, level: Level, place: u64, other: &Self) {
        let factor = product(self.coefficient(place), inverse(other.coefficient(place)));
        multiply_add(level, &mut self.coefficients, factor, &other.coefficients);
        if self.symbol.len() < other.symbol.len() {
            self.symbol.resize(other.symbol.len(), 0);
        }
        multiply_add(level, &mut self.symbol, factor, &other.symbol);
    }

    /// The oldest unknown, where `base` is the oldest place.
    fn oldest_unknown(&self, base: u64) -> Option<u64> {
        let start = base as usize & (self.coefficients.len() - 1);
        let (before, after) = self.coefficients.split_at(start);
        let index = after.iter().chain(before).position(|coefficient| *coefficient != 0)?;
        Some(base + index as u64)
    }

    fn is_solved(&self) -> bool {
        self.coefficients.iter().filter(|coefficient| **coefficient != 0).count() == 1
    }

    fn is_zero(&self) -> bool {
        self.symbol.iter().all(|byte| *byte == 0)
    }
}

/// The result of a new equation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// The row adds information.
    Innovative,
    /// The row follows from the others.
    Redundant,
    /// The row contradicts the others.
    Contradiction,
}

/// The equations of one half.
#[derive(Debug, Default)]
pub(crate) struct System {
    rows: Vec<Row>,
    /// Equations that were contradicted, since they were last taken.
    contradictions: u64,
    work: u64,
}

impl System {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
    }

    pub(crate) fn take_work(&mut self) -> u64 {
        core::mem::take(&mut self.work)
    }

    pub(crate) fn take_contradictions(&mut self) -> u64 {
        core::mem::take(&mut self.contradictions)
    }

    /// Counts the work on `bytes`.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.work += 1 + bytes.div_ceil(WORK_UNIT_BYTES) as u64;
    }

    /// Adds an equation, of which `base` is the oldest place.
    pub(crate) fn add(&mut self, level: Level, mut row: Row, base: u64) -> Added {
        for other in &self.rows {
            if row.coefficient(other.pivot) != 0 {
                self.work += 1
                    + (row.coefficients.len() + other.symbol.len()) as u64 / WORK_UNIT_BYTES as u64;
                row.eliminate(level, other.pivot, other);
            }
        }
        self.count(row.coefficients.len());
        if !self.insert(level, row, base) {
            return Added::Redundant;
        }
        if self.take_contradictions() > 0 { Added::Contradiction } else { Added::Innovative }
    }

    /// Inserts a row without others' pivots, and eliminates its own from the others. Returns false
    /// if the row is empty; counts a contradiction if it is one.
    fn insert(&mut self, level: Level, mut row: Row, base: u64) -> bool {
        let Some(pivot) = row.oldest_unknown(base) else {
            let says_nothing = row.is_zero();
            self.contradictions += u64::from(!says_nothing);
            return !says_nothing;
        };
        row.pivot = pivot;
        for other in &mut self.rows {
            if other.coefficient(pivot) != 0 {
                self.work +=
                    1 + (row.coefficients.len() + row.symbol.len()) as u64 / WORK_UNIT_BYTES as u64;
                other.eliminate(level, pivot, &row);
            }
        }
        self.rows.push(row);
        true
    }

    /// Moves a half that is now known to the other side.
    pub(crate) fn substitute(&mut self, level: Level, place: u64, half: &[u8], base: u64) {
        let (mut without_pivot, mut index) = (None, 0);
        while index < self.rows.len() {
            let row = &mut self.rows[index];
            let coefficient = row.coefficient(place);
            if coefficient == 0 {
                index += 1;
                continue;
            }
            self.work += 1 + half.len().div_ceil(WORK_UNIT_BYTES) as u64;
            let fits = row.subtract(level, &mut [(coefficient, half)]);
            row.clear(place);
            let is_pivot = row.pivot == place;
            if fits && !is_pivot {
                index += 1;
                continue;
            }
            let row = self.rows.swap_remove(index);
            if fits {
                without_pivot = Some(row);
            } else {
                self.contradictions += 1;
            }
        }
        if let Some(row) = without_pivot {
            self.count(row.coefficients.len());
            self.insert(level, row, base);
        }
    }

    /// Takes a solved row out: its place, and the half of it, padded with zeros.
    pub(crate) fn take_solved(&mut self, level: Level) -> Option<(u64, Vec<u8>)> {
        let places = self.rows.first()?.coefficients.len();
        self.work += (self.rows.len() * places).div_ceil(WORK_UNIT_BYTES) as u64;
        let index = self.rows.iter().position(Row::is_solved)?;
        let row = self.rows.swap_remove(index);
        self.count(row.symbol.len());
        let mut half = vec![0; row.symbol.len()];
        multiply_add(level, &mut half, inverse(row.coefficient(row.pivot)), &row.symbol);
        Some((row.pivot, half))
    }

    /// Gives up the oldest place.
    pub(crate) fn forget(&mut self, place: u64) {
        if let Some(index) = self.rows.iter().position(|row| row.pivot == place) {
            self.rows.swap_remove(index);
        }
    }

    /// Gives up the row whose pivot is oldest.
    pub(crate) fn forget_oldest_row(&mut self) {
        let oldest = self.rows.iter().map(|row| row.pivot).min();
        oldest.into_iter().for_each(|pivot| self.forget(pivot));
    }

    /// Equations that contain a place.
    #[cfg(test)]
    pub(crate) fn rows_contain(&self, place: u64) -> usize {
        self.rows.iter().filter(|row| row.coefficient(place) != 0).count()
    }

    /// Asserts the invariants in the module comment.
    #[cfg(test)]
    pub(crate) fn check(&self, base: u64) {
        for (index, row) in self.rows.iter().enumerate() {
            assert_eq!(row.oldest_unknown(base), Some(row.pivot), "the pivot is not the oldest");
            for (other, another) in self.rows.iter().enumerate() {
                assert!(index == other || another.coefficient(row.pivot) == 0, "not reduced");
            }
        }
    }
}
