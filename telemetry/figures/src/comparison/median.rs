//! A set of measurements, their median, and the interval that the median is in.

use std::collections::BTreeMap;

/// Buckets for each doubling of the value: each is 3.5 % wide.
pub(super) const BUCKETS_PER_DOUBLING: f64 = 20.0;
/// The lower end of the first bucket.
const FIRST_BUCKET: f64 = 1000.0;

/// An estimate, and the interval that holds the true value with the confidence that was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub lower: f64,
    /// The most likely value.
    pub estimate: f64,
    /// The upper end.
    pub upper: f64,
}

/// The probability that an interval contains the true value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confidence {
    /// 95 of 100, for people.
    Usual,
    /// 99 of 100, for decisions, which are made again and again.
    High,
}

impl Confidence {
    /// The probability that the true value is outside, and the normal quantile of its half.
    const fn outside(self) -> (f64, f64) {
        match self {
            Self::Usual => (0.05, 1.959_964),
            Self::High => (0.01, 2.575_829),
        }
    }

    /// The rank from either end, from 1, of the measurements between which the median is: the largest
    /// one at which a fair coin falls so rarely on one side in `count` throws (binomial distribution).
    /// `None` when even the two at the ends are not sure enough.
    pub(super) fn rank(self, count: u64) -> Option<u64> {
        let (outside, quantile) = self.outside();
        let exact = 2000;
        if count > exact {
            let count = count as f64;
            return Some(((count + 1.0) / 2.0 - quantile * count.sqrt() / 2.0).floor() as u64);
        }
        let heads = count as f64;
        // The probability of no head at all, and then of one more each, as logarithms: 2^-2000 is no
        // number that f64 has.
        let mut probability = -heads * std::f64::consts::LN_2;
        let (mut below, mut rank) = (0.0, None);
        for heads_now in 0..count {
            below += probability.exp();
            if below > outside / 2.0 {
                break;
            }
            rank = Some(heads_now + 1);
            probability += ((heads - heads_now as f64) / (heads_now as f64 + 1.0)).ln();
        }
        rank
    }
}

/// Measurements, each as the bucket that it is in. Several gateways' measurements can be put
/// together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Measurements {
    /// The number of measurements, by bucket: bucket `i` begins at 1000 · 2^(i/20).
    buckets: BTreeMap<u16, u64>,
    count: u64,
}

impl Measurements {
    /// The measurements that [`Self::buckets`] of others has counted.
    pub fn from_buckets(buckets: &BTreeMap<u16, u64>) -> Self {
        let buckets: BTreeMap<_, _> =
            buckets.iter().filter(|(_, count)| **count > 0).map(|(at, n)| (*at, *n)).collect();
        let count = buckets.values().fold(0u64, |sum, count| sum.saturating_add(*count));
        Self { buckets, count }
    }

    /// The number of measurements, by bucket: bucket `i` begins at 1000 · 2^(i/20).
    pub const fn buckets(&self) -> &BTreeMap<u16, u64> {
        &self.buckets
    }

    /// Adds a measurement.
    pub fn add(&mut self, value: f64) {
        let doublings = (value.max(FIRST_BUCKET) / FIRST_BUCKET).log2();
        // As many as a u16 has doublings are more than any measurement has.
        let bucket = (doublings * BUCKETS_PER_DOUBLING).floor().clamp(0.0, f64::from(u16::MAX));
        *self.buckets.entry(bucket as u16).or_default() += 1;
        self.count += 1;
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            let sum = self.buckets.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.count = self.count.saturating_add(other.count);
    }

    /// The number of measurements.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The bucket of the measurement with this rank, from 1.
    fn ranked(&self, rank: u64) -> Option<u16> {
        let mut seen = 0u64;
        self.buckets.iter().find_map(|(bucket, count)| {
            seen = seen.saturating_add(*count);
            (seen >= rank).then_some(*bucket)
        })
    }

    /// The median with its interval, from the order of the measurements alone: no distribution is
    /// assumed, but that they do not depend on each other. The ends are rounded outwards to
    /// buckets. `None` when there are too few for this confidence.
    pub fn median(&self, confidence: Confidence) -> Option<Interval> {
        let rank = confidence.rank(self.count)?;
        let middle = |bucket: u16| begin(f64::from(bucket) + 0.5);
        let (low, high) = (self.ranked(self.count.div_ceil(2))?, self.ranked(self.count / 2 + 1)?);
        Some(Interval {
            lower: begin(f64::from(self.ranked(rank)?)),
            estimate: (middle(low) * middle(high)).sqrt(),
            upper: begin(f64::from(self.ranked(self.count + 1 - rank)?) + 1.0),
        })
    }
}

/// The value at which a bucket begins.
fn begin(bucket: f64) -> f64 {
    FIRST_BUCKET * (bucket / BUCKETS_PER_DOUBLING).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_tables() {
        // Conover, Practical Nonparametric Statistics, table A3: the ranks of the sign test.
        for (count, usual, high) in [
            (5, None, None),
            (6, Some(1), None),
            (10, Some(2), Some(1)),
            (20, Some(6), Some(4)),
            (30, Some(10), Some(8)),
            (50, Some(18), Some(16)),
            (100, Some(40), Some(37)),
        ] {
            assert_eq!(Confidence::Usual.rank(count), usual, "{count}");
            assert_eq!(Confidence::High.rank(count), high, "{count}");
        }
        // The normal approximation continues from the end of the exact one.
        for confidence in [Confidence::Usual, Confidence::High] {
            let (last, first) = (confidence.rank(2000).unwrap(), confidence.rank(2001).unwrap());
            assert!(first.abs_diff(last) <= 1, "{last} {first}");
        }
    }

    #[test]
    fn a_median_is_known_to_a_bucket() {
        let mut all = Measurements::default();
        for value in 1..=101 {
            all.add(f64::from(value) * 1e6);
        }
        let Interval { lower, estimate, upper } = all.median(Confidence::Usual).unwrap();
        assert!((estimate / 51e6 - 1.0).abs() < 0.04, "{estimate}");
        assert!((0.96..=1.0).contains(&(lower / 41e6)), "{lower}");
        assert!((1.0..=1.04).contains(&(upper / 61e6)), "{upper}");
    }

    #[test]
    fn values_out_of_every_range_stay_in_the_last_buckets() {
        let mut all = Measurements::default();
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX] {
            all.add(value);
        }
        assert_eq!(all.count(), 5);
        assert_eq!(all.buckets().values().sum::<u64>(), 5);
    }
}
