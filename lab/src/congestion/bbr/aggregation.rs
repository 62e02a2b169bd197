//! The aggregation of acknowledgements: bytes that come at once because the path collects them.

use std::collections::VecDeque;
use std::time::Instant;

/// Rounds over which the aggregation of acknowledgements is remembered.
const AGGREGATION_ROUNDS: u64 = 10;

/// The bytes that acknowledgements bring beyond the bandwidth.
#[derive(Debug, Clone, Default)]
pub(super) struct Aggregation {
    begun: Option<Instant>,
    delivered: u64,
    /// Round, and bytes that the bandwidth does not explain.
    extra: VecDeque<(u64, u64)>,
}

impl Aggregation {
    /// A batch acknowledges bytes, in this round, at this bandwidth and with at most this window.
    pub(super) fn update(
        &mut self,
        now: Instant,
        acknowledged: u64,
        round: u64,
        bandwidth: f64,
        window: u64,
    ) {
        let begun = *self.begun.get_or_insert(now);
        let mut expected = bandwidth * now.saturating_duration_since(begun).as_secs_f64();
        if self.delivered as f64 <= expected {
            (self.begun, self.delivered) = (Some(now), 0);
            expected = 0.0;
        }
        self.delivered += acknowledged;
        let extra = (self.delivered as f64 - expected).clamp(0.0, window as f64) as u64;
        while self.extra.back().is_some_and(|(_, smaller)| *smaller <= extra) {
            self.extra.pop_back();
        }
        self.extra.push_back((round, extra));
        while self.extra.front().is_some_and(|(old, _)| old + AGGREGATION_ROUNDS < round) {
            self.extra.pop_front();
        }
    }

    /// The most bytes beyond the bandwidth in the remembered rounds.
    pub(super) fn extra(&self) -> u64 {
        self.extra.front().map_or(0, |(_, extra)| *extra)
    }
}
