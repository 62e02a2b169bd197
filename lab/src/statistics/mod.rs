//! Medians and quantiles of measurements, and how sure they are.

mod intervals;

pub use intervals::{Interval, paired_ratio, pooled_quantile, spread};

/// The middle value, or the mean of the two in the middle; 0 for an empty list.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// The values, ascending.
pub fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value below which this share of the sorted values lies, interpolated between two of them if
/// necessary; 0 for an empty list.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = share.clamp(0.0, 1.0) * last as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    below + (above - below) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn quantiles_lie_between_the_values() {
        let values = sorted([5.0, 1.0, 3.0].into_iter());
        assert_eq!(
            [0.0, 0.25, 0.5, 1.0].map(|share| quantile(&values, share)),
            [1.0, 2.0, 3.0, 5.0]
        );
    }
}
