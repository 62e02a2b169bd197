//! Spread and uncertainty of measurements.

use super::{quantile, sorted};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Serialize;

/// Draws of a bootstrap.
const BOOTSTRAP_DRAWS: usize = 2000;
/// Share of the draws that an interval covers.
const COVERED_SHARE: f64 = 0.95;
/// Draws where each sorts thousands of values.
const POOLED_DRAWS: usize = 200;

/// A value in an interval that covers 95 % of the bootstrap's draws.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The value of all seeds.
    pub value: f64,
    /// The upper end.
    pub high: f64,
}

/// The ratio of a statistic with assistance to the same without, by a paired bootstrap: seeds are
/// drawn, each with all its measurements in both arms, as values of one trial depend on each other.
/// `None` if there is no pair to compare.
pub fn paired_ratio(
    seeds: &[(Vec<f64>, Vec<f64>)],
    statistic: impl Fn(&[f64]) -> f64,
) -> Option<Interval> {
    let ratio = |chosen: &[usize]| {
        let (of, to): (Vec<_>, Vec<_>) =
            chosen.iter().map(|&n| (seeds[n].0.as_slice(), seeds[n].1.as_slice())).unzip();
        let pool = |side: Vec<&[f64]>| statistic(&sorted(side.into_iter().flatten().copied()));
        pool(of) / pool(to)
    };
    let value = ratio(&(0..seeds.len()).collect::<Vec<_>>());
    if !value.is_finite() {
        return None;
    }
    // Always the same draws: an interval is as reproducible as the trials.
    let mut random = ChaCha8Rng::seed_from_u64(seeds.len() as u64);
    let draws = sorted((0..BOOTSTRAP_DRAWS).map(|_| {
        let chosen: Vec<usize> =
            seeds.iter().map(|_| (random.next_u64() % seeds.len() as u64) as usize).collect();
        ratio(&chosen)
    }));
    let [low, high] = [(1.0 - COVERED_SHARE) / 2.0, (1.0 + COVERED_SHARE) / 2.0]
        .map(|share| quantile(&draws, share));
    Some(Interval { low, value, high })
}

/// A quantile of all values of all seeds together, by a bootstrap that draws seeds, each with all its
/// values. `None` of no value.
pub fn pooled_quantile(seeds: &[Vec<f64>], share: f64) -> Option<Interval> {
    let of = |chosen: &mut dyn Iterator<Item = usize>| {
        quantile(&sorted(chosen.flat_map(|n| seeds[n].iter().copied())), share)
    };
    if seeds.iter().all(Vec::is_empty) {
        return None;
    }
    let value = of(&mut (0..seeds.len()));
    let mut random = ChaCha8Rng::seed_from_u64(seeds.len() as u64);
    let draws = sorted((0..POOLED_DRAWS).map(|_| {
        of(&mut (0..seeds.len()).map(|_| (random.next_u64() % seeds.len() as u64) as usize))
    }));
    let [low, high] = [(1.0 - COVERED_SHARE) / 2.0, (1.0 + COVERED_SHARE) / 2.0]
        .map(|share| quantile(&draws, share));
    Some(Interval { low, value, high })
}

/// The 10th percentile, the median and the 90th percentile.
pub fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let values = sorted(values);
    [0.1, 0.5, 0.9].map(|share| quantile(&values, share))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(sorted: &[f64]) -> f64 {
        quantile(sorted, 0.5)
    }

    #[test]
    fn pairs_with_the_same_ratio_leave_no_doubt() {
        let seeds: Vec<_> =
            (1..=5).map(|seed| (vec![f64::from(seed)], vec![f64::from(seed) * 2.0])).collect();
        let interval = paired_ratio(&seeds, median).unwrap();
        assert_eq!(interval.value, 0.5);
        assert!((interval.low - 0.5).abs() < 1e-9 && (interval.high - 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_interval_reflects_the_seeds_spread_deterministically() {
        let seeds = |wobble: f64| -> Vec<(Vec<f64>, Vec<f64>)> {
            (0..9).map(|n| (vec![1.0 + wobble * f64::from(n % 3)], vec![1.0])).collect()
        };
        let width = |wobble| {
            let interval = paired_ratio(&seeds(wobble), median).unwrap();
            assert!(interval.low <= interval.value && interval.value <= interval.high);
            interval.high - interval.low
        };
        assert!(width(0.2) > 2.0 * width(0.05), "{} {}", width(0.2), width(0.05));
        assert_eq!(paired_ratio(&seeds(0.3), median), paired_ratio(&seeds(0.3), median));
    }

    #[test]
    fn a_pooled_quantile_is_a_measured_latency_and_not_a_mean() {
        // The 99th percentile of two streams is 100, of three 300: the mean of them would be 220.
        let stream = |late: usize| {
            let mut values = vec![100.0; 1000 - late];
            values.extend(vec![300.0; late]);
            values
        };
        let seeds = [stream(5), stream(5), stream(15), stream(15), stream(15)];
        let interval = pooled_quantile(&seeds, 0.99).unwrap();
        assert_eq!((interval.low, interval.value, interval.high), (100.0, 300.0, 300.0));
        assert_eq!(pooled_quantile(&[vec![], vec![]], 0.99), None);
    }

    #[test]
    fn nothing_to_compare_is_no_interval() {
        assert_eq!(paired_ratio(&[(vec![1.0], vec![])], median), None);
    }

    #[test]
    fn a_spread_pools_all_values() {
        let values = (0..=100).map(f64::from);
        assert_eq!(spread(values), [10.0, 50.0, 90.0]);
    }
}
