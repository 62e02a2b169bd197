//! Latencies of packets, counted by millisecond.

use super::result::LatencyQuantiles;

/// Latencies from this on count as this: milliseconds.
const LONGEST_LATENCY: usize = 10_000;

/// Milliseconds from the forwarding of packets until receivers have them: how often each occurs.
#[derive(Debug, Default)]
pub(super) struct Latencies(Vec<u64>);

impl Latencies {
    pub(super) fn add(&mut self, millis: u64) {
        let at = usize::try_from(millis).unwrap_or(usize::MAX).min(LONGEST_LATENCY);
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] += 1;
    }

    /// The quantiles of a result.
    pub(super) fn quantiles(&self) -> LatencyQuantiles {
        LatencyQuantiles {
            latency_p50_ms: self.quantile(0.5),
            latency_p99_ms: self.quantile(0.99),
            latency_p999_ms: self.quantile(0.999),
        }
    }

    /// The least that this share of all does not exceed.
    fn quantile(&self, share: f64) -> u64 {
        let all: u64 = self.0.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut below = 0;
        let found = self.0.iter().position(|count| {
            below += count;
            below >= wanted
        });
        found.unwrap_or_default() as u64
    }
}
