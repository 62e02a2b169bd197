//! Traffic of others, which shares a link's queue.

use std::time::Duration;

use packrat_wire::estimate::Timestamp;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// UDP payload of a datagram of cross traffic, bytes.
const DATAGRAM_BYTES: usize = 1200;

/// Traffic that answers to nothing: independent datagrams (a Poisson process), which pause and go
/// on at random times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossTrafficConfig {
    /// Mean rate while it is on, Mbit/s of UDP payload.
    pub rate_mbps: f64,
    /// Mean time that it is on, milliseconds (exponential).
    #[serde(default)]
    pub on_ms: f64,
    /// Mean time that it is off, milliseconds (exponential); 0: never.
    #[serde(default)]
    pub off_ms: f64,
    /// Flows like this one, which pause independently; 0 is 1.
    #[serde(default)]
    pub flows: u64,
}

/// A [`CrossTrafficConfig`] at work: schedules its datagrams.
#[derive(Debug, Clone)]
pub struct CrossTraffic(Vec<Flow>);

#[derive(Debug, Clone)]
struct Flow {
    config: CrossTrafficConfig,
    random: ChaCha8Rng,
    /// Seconds: of the next datagram, and when the present period of sending ends.
    next: f64,
    off_at: f64,
}

impl CrossTraffic {
    /// Traffic that begins at time zero; the same seed gives the same traffic.
    pub fn new(config: CrossTrafficConfig, seed: u64) -> Self {
        Self((0..config.flows.max(1)).map(|flow| Flow::new(config, seed ^ flow << 32)).collect())
    }

    /// The time of the next datagram.
    pub fn next_at(&self) -> Timestamp {
        let next = self.0.iter().map(|flow| flow.next).fold(f64::INFINITY, f64::min);
        Timestamp::ZERO + Duration::from_secs_f64(next)
    }

    /// Takes that datagram; its bytes of UDP payload.
    pub fn take(&mut self) -> usize {
        if let Some(first) = self.0.iter_mut().min_by(|one, two| one.next.total_cmp(&two.next)) {
            first.advance();
        }
        DATAGRAM_BYTES
    }
}

impl Flow {
    fn new(config: CrossTrafficConfig, seed: u64) -> Self {
        let mut flow = Self {
            config,
            random: ChaCha8Rng::seed_from_u64(seed),
            next: 0.0,
            off_at: f64::INFINITY,
        };
        if config.off_ms > 0.0 {
            flow.off_at = flow.exponential(config.on_ms * 1e-3);
        }
        flow.advance();
        flow
    }

    fn advance(&mut self) {
        let mean = DATAGRAM_BYTES as f64 * 8.0 / (self.config.rate_mbps * 1e6);
        self.next += self.exponential(mean);
        while self.next > self.off_at {
            // Without memory: the rest of the interval after the pause is distributed as a whole
            // one.
            let pause = self.exponential(self.config.off_ms * 1e-3);
            let begin = self.off_at + pause;
            self.off_at = begin + self.exponential(self.config.on_ms * 1e-3);
            self.next = begin + self.exponential(mean);
        }
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        let uniform: f64 = self.random.random();
        -mean * (1.0 - uniform).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate_mbps(config: CrossTrafficConfig, seconds: u64) -> f64 {
        let mut traffic = CrossTraffic::new(config, 3);
        let mut bytes = 0;
        while traffic.next_at() < Timestamp::from_micros(seconds * 1_000_000) {
            bytes += traffic.take();
        }
        bytes as f64 * 8e-6 / seconds as f64
    }

    #[test]
    fn it_has_the_mean_rate_it_was_given() {
        let steady = CrossTrafficConfig { rate_mbps: 4.0, on_ms: 0.0, off_ms: 0.0, flows: 0 };
        let rate = rate_mbps(steady, 60);
        assert!((rate - 4.0).abs() < 0.2, "{rate}");
        let pausing = CrossTrafficConfig { on_ms: 300.0, off_ms: 100.0, ..steady };
        let rate = rate_mbps(pausing, 200);
        assert!((rate - 3.0).abs() < 0.3, "{rate}");
        let five = CrossTrafficConfig { rate_mbps: 0.8, flows: 5, ..pausing };
        let rate = rate_mbps(five, 200);
        assert!((rate - 3.0).abs() < 0.2, "{rate}");
    }

    #[test]
    fn the_seed_decides() {
        let config = CrossTrafficConfig { rate_mbps: 1.0, on_ms: 10.0, off_ms: 10.0, flows: 2 };
        let times = |seed| {
            let mut traffic = CrossTraffic::new(config, seed);
            (0..100).map(|_| (traffic.take(), traffic.next_at())).collect::<Vec<_>>()
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }
}
