//! The queue in front of a transmitter: drop-tail, adaptive RED, or none behind a policer.

use std::time::Duration;

use packrat_wire::estimate::Timestamp;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Interval at which adaptive RED adjusts its drop probability (`interval` in Floyd01).
const ADAPT_EVERY: Duration = Duration::from_millis(500);
/// Factor of the multiplicative decrease of the maximum drop probability (`beta` in Floyd01).
const DECREASE_FACTOR: f64 = 0.9;
/// Bounds of the maximum drop probability, as in Floyd01.
const DROP_PROBABILITY: (f64, f64) = (0.01, 0.5);

/// Bytes in flight that fill a path of `rate` bits per second with round trip `round_trip`.
pub fn bandwidth_delay_product(rate: u64, round_trip: Duration) -> usize {
    (rate as f64 / 8.0 * round_trip.as_secs_f64()) as usize
}

/// The choice of the datagrams to drop when the transmitter cannot keep up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "discipline")]
pub enum QueueDiscipline {
    /// A datagram that does not fit is dropped.
    DropTail {
        /// Bytes that fit.
        limit: usize,
    },
    /// Random early detection with a self-adjusting drop probability, in byte mode and gentle
    /// (Floyd01). Thresholds are a quarter and three
    /// quarters of the limit.
    AdaptiveRed {
        /// Bytes that fit; a datagram beyond is dropped regardless of the average.
        limit: usize,
    },
    /// A token bucket that drops datagrams above its rate instead of delaying them (RFC 2475,
    /// section 2.3.3.3).
    Policer {
        /// Bits per second of UDP payload, below the transmitter's rate.
        rate: u64,
        /// Bytes that may exceed it at once.
        burst: usize,
    },
}

impl QueueDiscipline {
    /// Bytes that fit: of a policer, as many as it lets pass at once.
    pub fn limit(&self) -> usize {
        match *self {
            Self::DropTail { limit } | Self::AdaptiveRed { limit } => limit,
            Self::Policer { burst, .. } => burst,
        }
    }
}

/// A [`QueueDiscipline`] at work. It holds no datagrams: the link knows its backlog.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    limit: usize,
    red: Option<Red>,
    policer: Option<Policer>,
}

impl Queue {
    /// `rate` is the transmitter's, in bits per second; `seed` decides RED's random drops.
    pub(crate) fn new(discipline: QueueDiscipline, rate: u64, seed: u64) -> Self {
        let limit = discipline.limit();
        let red = matches!(discipline, QueueDiscipline::AdaptiveRed { .. })
            .then(|| Red::new(limit, rate, seed));
        let policer = match discipline {
            QueueDiscipline::Policer { rate, burst } => Some(Policer::new(rate, burst)),
            QueueDiscipline::DropTail { .. } | QueueDiscipline::AdaptiveRed { .. } => None,
        };
        Self { limit, red, policer }
    }

    /// True if a datagram of `length` bytes is let in behind `backlog` bytes.
    ///
    /// An empty queue takes a datagram of any size, as the transmitter takes it over at once.
    pub(crate) fn admits(&mut self, now: Timestamp, backlog: usize, length: usize) -> bool {
        if let Some(policer) = &mut self.policer {
            return policer.admits(now, length);
        }
        let early_drop = self.red.as_mut().is_some_and(|red| red.drops(now, backlog, length));
        backlog == 0 || (!early_drop && backlog + length <= self.limit)
    }
}

/// A token bucket, full at first.
#[derive(Debug, Clone)]
struct Policer {
    bytes_per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Timestamp,
}

impl Policer {
    fn new(rate: u64, burst: usize) -> Self {
        let (bytes_per_second, burst) = (rate as f64 / 8.0, burst as f64);
        Self { bytes_per_second, burst, tokens: burst, filled: Timestamp::ZERO }
    }

    fn admits(&mut self, now: Timestamp, length: usize) -> bool {
        let earned = now.saturating_since(self.filled).as_secs_f64() * self.bytes_per_second;
        self.tokens = (self.tokens + earned).min(self.burst);
        self.filled = self.filled.max(now);
        let conforms = self.tokens >= length as f64;
        if conforms {
            self.tokens -= length as f64;
        }
        conforms
    }
}

#[derive(Debug, Clone)]
struct Red {
    lower: f64,
    upper: f64,
    weight: f64,
    /// Time to transmit a typical datagram: the step by which the average decays over an idle
    /// time.
    typical_transmission: f64,
    average: f64,
    last_arrival: Timestamp,
    last_adapted: Timestamp,
    drop_probability: f64,
    since_last_drop: f64,
    random: ChaCha8Rng,
}

impl Red {
    const TYPICAL_DATAGRAM: f64 = 1200.0;

    fn new(limit: usize, rate: u64, seed: u64) -> Self {
        let datagrams_per_second = (rate as f64 / 8.0 / Self::TYPICAL_DATAGRAM).max(1.0);
        Self {
            lower: limit as f64 / 4.0,
            upper: limit as f64 * 3.0 / 4.0,
            // The automatic setting of Floyd01: a time constant of ten round trips of 100 ms, so
            // of one second.
            weight: 1.0 - (-1.0 / datagrams_per_second).exp(),
            typical_transmission: 1.0 / datagrams_per_second,
            average: 0.0,
            last_arrival: Timestamp::ZERO,
            last_adapted: Timestamp::ZERO,
            drop_probability: DROP_PROBABILITY.0,
            since_last_drop: 0.0,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    fn drops(&mut self, now: Timestamp, backlog: usize, length: usize) -> bool {
        self.update_average(now, backlog);
        self.adapt(now);
        let probability = self.marking_probability(length);
        if probability <= 0.0 {
            self.since_last_drop = 0.0;
            return false;
        }
        self.since_last_drop += length as f64 / Self::TYPICAL_DATAGRAM;
        // RED spreads its drops evenly: the probability grows with the datagrams let through since
        // the last drop.
        let spread = 1.0 - self.since_last_drop * probability;
        let drop = spread <= 0.0 || self.random.random::<f64>() < probability / spread;
        if drop {
            self.since_last_drop = 0.0;
        }
        drop
    }

    fn update_average(&mut self, now: Timestamp, backlog: usize) {
        if backlog == 0 {
            let idle = now.saturating_since(self.last_arrival).as_secs_f64();
            self.average *= (1.0 - self.weight).powf(idle / self.typical_transmission);
        }
        self.average += self.weight * (backlog as f64 - self.average);
        self.last_arrival = now;
    }

    fn adapt(&mut self, now: Timestamp) {
        if now.saturating_since(self.last_adapted) < ADAPT_EVERY {
            return;
        }
        self.last_adapted = now;
        let span = self.upper - self.lower;
        if self.average > self.lower + 0.6 * span {
            self.drop_probability += (self.drop_probability / 4.0).min(0.01);
        } else if self.average < self.lower + 0.4 * span {
            self.drop_probability *= DECREASE_FACTOR;
        }
        self.drop_probability = self.drop_probability.clamp(DROP_PROBABILITY.0, DROP_PROBABILITY.1);
    }

    fn marking_probability(&self, length: usize) -> f64 {
        let base = if self.average < self.lower {
            0.0
        } else if self.average < self.upper {
            self.drop_probability * (self.average - self.lower) / (self.upper - self.lower)
        } else {
            // Gentle: from the maximum at the upper threshold up to 1 at twice the upper threshold.
            let beyond = ((self.average - self.upper) / self.upper).min(1.0);
            self.drop_probability + (1.0 - self.drop_probability) * beyond
        };
        (base * length as f64 / Self::TYPICAL_DATAGRAM).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_tail_admits_up_to_its_limit_and_an_empty_queue_anything() {
        let mut queue = Queue::new(QueueDiscipline::DropTail { limit: 10_000 }, 1_000_000, 0);
        assert!(queue.admits(Timestamp::ZERO, 8_800, 1_200));
        assert!(!queue.admits(Timestamp::ZERO, 8_801, 1_200));
        assert!(queue.admits(Timestamp::ZERO, 0, 65_507));
    }

    #[test]
    fn a_policer_lets_its_rate_and_a_burst_pass_and_drops_the_rest() {
        let policer = QueueDiscipline::Policer { rate: 8_000_000, burst: 50_000 };
        let mut queue = Queue::new(policer, 100_000_000, 0);
        let mut passed = |millis: core::ops::Range<u64>| {
            // 2 MB/s, whatever the backlog.
            let offers = millis.flat_map(|milli| [Timestamp::from_millis(milli); 2]);
            offers.filter(|at| queue.admits(*at, 0, 1000)).count()
        };
        assert_eq!(passed(0..50), 99, "the burst, and what is earned meanwhile");
        assert_eq!(passed(50..1050), 1000, "then its rate");
        assert_eq!(passed(9000..9010), 20, "and a burst again");
    }

    #[test]
    fn bandwidth_delay_product_is_in_bytes() {
        assert_eq!(bandwidth_delay_product(20_000_000, Duration::from_millis(60)), 150_000);
    }
}
