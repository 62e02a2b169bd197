//! Lateness of the datagrams that left the path, measured.

use std::time::Duration;

use serde::Serialize;

/// Resolution of the histogram.
const HISTOGRAM_STEP: Duration = Duration::from_micros(10);
/// Number of buckets: up to 50 ms, all later ones in the last.
const BUCKET_COUNT: usize = 5_000;
/// One of this many datagrams may be late on a path that is on time.
const LATE_SHARE: u64 = 100;

/// Distribution of the time between the due time of a datagram and its release, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Lateness {
    /// Half of all datagrams were at most this late.
    pub p50_micros: u64,
    /// 99 % of all datagrams were at most this late.
    pub p99_micros: u64,
    /// The latest one.
    pub max_micros: u64,
    /// Datagrams that were later than [`PRECISION`](Self::PRECISION).
    pub late: u64,
    /// All datagrams.
    pub total: u64,
}

impl Lateness {
    /// Lateness that counts as none: half of the delay of the shortest last mile that comes along.
    pub const PRECISION: Duration = Duration::from_millis(1);

    /// True if no more than one of a hundred datagrams was late: measurements then describe the
    /// path and not the machine.
    pub fn is_on_time(&self) -> bool {
        self.late * LATE_SHARE <= self.total
    }
}

#[derive(Debug)]
pub(crate) struct LatenessHistogram {
    buckets: Vec<u64>,
    late: u64,
    total: u64,
    max: Duration,
}

impl LatenessHistogram {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; BUCKET_COUNT], late: 0, total: 0, max: Duration::ZERO }
    }

    pub(crate) fn record(&mut self, late: Duration) {
        let bucket = (late.as_micros() / HISTOGRAM_STEP.as_micros()) as usize;
        if let Some(count) = self.buckets.get_mut(bucket.min(BUCKET_COUNT - 1)) {
            *count += 1;
        }
        self.late += u64::from(late > Lateness::PRECISION);
        self.total += 1;
        self.max = self.max.max(late);
    }

    pub(crate) fn summary(&self) -> Lateness {
        Lateness {
            p50_micros: self.percentile(0.50),
            p99_micros: self.percentile(0.99),
            max_micros: self.max.as_micros() as u64,
            late: self.late,
            total: self.total,
        }
    }

    /// Upper edge of the bucket in which the share is reached, but never more than the maximum.
    fn percentile(&self, share: f64) -> u64 {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        let edge = HISTOGRAM_STEP * (bucket.unwrap_or(0) as u32 + 1);
        edge.min(self.max).as_micros() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_maximum() {
        let mut histogram = LatenessHistogram::new();
        for micros in 0..1000 {
            histogram.record(Duration::from_micros(micros));
        }
        histogram.record(Duration::from_secs(1));
        let summary = histogram.summary();
        assert!((490..=520).contains(&summary.p50_micros), "{summary:?}");
        assert!((980..=1000).contains(&summary.p99_micros), "{summary:?}");
        assert_eq!(summary.max_micros, 1_000_000);
    }

    #[test]
    fn one_of_a_hundred_may_be_late() {
        let mut histogram = LatenessHistogram::new();
        let mut record = |count, micros| {
            (0..count).for_each(|_| histogram.record(Duration::from_micros(micros)));
            histogram.summary()
        };
        record(99, 1000);
        let one = record(1, 50_000);
        assert_eq!((one.late, one.total, one.is_on_time()), (1, 100, true));
        let two = record(1, 1001);
        assert_eq!((two.late, two.total, two.is_on_time()), (2, 101, false));
    }

    #[test]
    fn nothing_recorded_is_zero() {
        assert_eq!(LatenessHistogram::new().summary(), Lateness::default());
    }
}
