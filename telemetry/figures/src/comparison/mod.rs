//! The worth of assistance: assisted sessions beside sessions left without for comparison, and how
//! sure the difference is.
//!
//! Compared are medians of the sessions' goodputs. A median does not follow single sessions that
//! are very fast; the interval of each comes from the order of the measurements (binomial
//! distribution), and the ratio's interval from both, by MOVER on the logarithms: Donner and Zou,
//! "Closed-form confidence intervals for functions of the normal mean and standard deviation"
//! (2012), section 2.

mod median;

use std::collections::BTreeMap;
use std::fmt;

pub use median::{Confidence, Interval, Measurements};

use crate::text::{bits, times};

/// Sessions that each arm needs for a verdict.
pub const FEWEST_SESSIONS: u64 = 30;

/// Goodputs of sessions in bits per second, by arm. Which arm a session is in is chance: a hash of its
/// client's address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Goodputs of assisted sessions.
    pub assisted: Measurements,
    /// Goodputs of sessions that were left without assistance.
    pub holdout: Measurements,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Benefit {
    /// No session has been left without assistance: there is nothing to compare with.
    NoHoldout,
    /// Too few sessions for a verdict.
    NotEnough {
        /// Sessions so far.
        assisted: u64,
        /// Sessions without assistance.
        holdout: u64,
    },
    /// Ratio of the assisted sessions' goodput to the other sessions'.
    Measured(Interval),
}

impl Comparison {
    /// Sessions by the bucket of their goodput, as a gateway's status has them
    /// ([`Measurements::buckets`]).
    pub fn from_buckets(assisted: &BTreeMap<u16, u64>, holdout: &BTreeMap<u16, u64>) -> Self {
        let of = Measurements::from_buckets;
        Self { assisted: of(assisted), holdout: of(holdout) }
    }

    /// Adds all sessions of another one.
    pub fn merge(&mut self, other: &Self) {
        self.assisted.merge(&other.assisted);
        self.holdout.merge(&other.holdout);
    }

    /// The median goodput of assisted sessions as a multiple of the other sessions' median.
    pub fn benefit(&self, confidence: Confidence) -> Benefit {
        let (assisted, holdout) = (self.assisted.count(), self.holdout.count());
        if holdout == 0 {
            return Benefit::NoHoldout;
        }
        let medians = (assisted.min(holdout) >= FEWEST_SESSIONS)
            .then(|| self.assisted.median(confidence).zip(self.holdout.median(confidence)));
        match medians.flatten() {
            Some((assisted, holdout)) => Benefit::Measured(ratio(assisted, holdout)),
            None => Benefit::NotEnough { assisted, holdout },
        }
    }
}

/// The ratio of two medians that do not depend on each other.
fn ratio(one: Interval, other: Interval) -> Interval {
    let logarithms =
        |interval: Interval| (interval.lower.ln(), interval.estimate.ln(), interval.upper.ln());
    let ((low, middle, high), (other_low, other_middle, other_high)) =
        (logarithms(one), logarithms(other));
    let difference = middle - other_middle;
    Interval {
        lower: (difference - (middle - low).hypot(other_high - other_middle)).exp(),
        estimate: difference.exp(),
        upper: (difference + (high - middle).hypot(other_middle - other_low)).exp(),
    }
}

impl Benefit {
    /// The interval, if there is one.
    pub const fn interval(self) -> Option<Interval> {
        match self {
            Self::Measured(interval) => Some(interval),
            Self::NoHoldout | Self::NotEnough { .. } => None,
        }
    }

    /// The result in a few words, for a cell of a table.
    pub fn short(self) -> String {
        match self {
            Self::NoHoldout => "no holdout".to_owned(),
            Self::NotEnough { assisted, holdout } => {
                format!("not enough sessions yet ({assisted} and {holdout} of {FEWEST_SESSIONS})")
            }
            Self::Measured(Interval { lower, estimate, upper }) => {
                let verdict = match () {
                    () if lower > 1.0 => "faster",
                    () if upper < 1.0 => "slower",
                    () => "no difference shown",
                };
                format!("{} ({} to {}), {verdict}", times(estimate), times(lower), times(upper))
            }
        }
    }
}

impl fmt::Display for Benefit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHoldout => formatter.write_str(
                "not measured: no client is left without assistance for comparison (setting holdout)",
            ),
            Self::NotEnough { .. } => formatter.write_str(&self.short()),
            Self::Measured(Interval { lower, estimate, upper }) => {
                let (estimate, lower, upper) = (times(*estimate), times(*lower), times(*upper));
                write!(
                    formatter,
                    "the median goodput of assisted sessions is {estimate} that of held-out ones \
                     (with 95 % confidence {lower} to {upper})"
                )
            }
        }
    }
}

/// Both medians in words, as far as they are known.
pub fn medians(comparison: &Comparison) -> String {
    let of = |arm: &Measurements| {
        let median = arm.median(Confidence::Usual).filter(|_| arm.count() >= FEWEST_SESSIONS);
        let median = median.map_or_else(|| "–".to_owned(), |median| bits(median.estimate));
        format!("{median} of {}", arm.count())
    };
    format!("{} assisted, {} held out", of(&comparison.assisted), of(&comparison.holdout))
}

#[cfg(test)]
mod tests;
