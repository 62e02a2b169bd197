//! Random early detection as Floyd and Jacobson published it (Floyd93), measured in bytes.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Queued;

/// Parameters of RED (Floyd93, section 4). Sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedConfig {
    /// Average from which datagrams are dropped at random.
    pub minimum: usize,
    /// Average from which all are dropped; at least twice the minimum, as the paper advises.
    pub maximum: usize,
    /// Probability just below the upper threshold (`max_p`), 0 to 1.
    pub probability: f64,
    /// Weight of the present queue in the average (`w_q`), 0 to 1.
    pub weight: f64,
    /// Bytes that fit.
    pub limit: usize,
    /// True if datagrams that are ECN-capable are marked, below the upper threshold.
    pub ecn: bool,
}

impl RedConfig {
    /// The paper's parameters for a queue that holds this many bytes: thresholds at a sixth and a
    /// half, so 5 and 15 packets of 30, w_q of 0.002, max_p of 1/50.
    pub fn new(limit: usize) -> Self {
        Self {
            minimum: limit / 6,
            maximum: limit / 2,
            probability: 0.02,
            weight: 0.002,
            limit,
            ecn: false,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Red {
    config: RedConfig,
    /// Nanoseconds that a typical datagram takes: the step of the average while the queue is empty.
    typical_transmission: f64,
    average: f64,
    /// Datagrams since the last drop (`count`).
    count: i64,
    /// The time since which the queue is empty (`q_time`), nanoseconds; `None` while it is not.
    empty_from: Option<u64>,
    random: ChaCha8Rng,
}

impl Red {
    /// Bytes of a datagram of full size.
    const FULL: f64 = 1200.0;

    pub(super) fn new(config: RedConfig, rate: u64, seed: u64) -> Self {
        Self {
            config,
            typical_transmission: Self::FULL * 8e9 / (rate as f64).max(1.0),
            average: 0.0,
            count: -1,
            empty_from: Some(0),
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.config.limit
    }

    /// The queue has been emptied.
    pub(super) fn is_empty_from(&mut self, now: u64) {
        self.empty_from = Some(now);
    }

    /// True if an arriving datagram is let in behind `backlog` bytes; it may be marked instead of
    /// dropped.
    pub(super) fn admits<D>(&mut self, datagram: &mut Queued<D>, now: u64, backlog: usize) -> bool {
        self.update_average(now, backlog);
        let RedConfig { minimum, maximum, probability, ecn, .. } = self.config;
        let (minimum, maximum) = (minimum as f64, maximum as f64);
        if self.average >= maximum {
            self.count = 0;
            return false;
        }
        if self.average < minimum {
            self.count = -1;
            return true;
        }
        self.count += 1;
        let base = probability * (self.average - minimum) / (maximum - minimum)
            * (datagram.length as f64 / Self::FULL);
        let spread = 1.0 - self.count as f64 * base;
        if spread > 0.0 && self.random.random::<f64>() >= base / spread {
            return true;
        }
        self.count = 0;
        datagram.marked = ecn && datagram.ecn_capable;
        datagram.marked
    }

    fn update_average(&mut self, now: u64, backlog: usize) {
        let weight = self.config.weight;
        match self.empty_from.take().filter(|_| backlog == 0) {
            Some(since) => {
                let idle = now.saturating_sub(since) as f64;
                self.average *= (1.0 - weight).powf(idle / self.typical_transmission);
            }
            None => self.average += weight * (backlog as f64 - self.average),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(length: usize, ecn_capable: bool) -> Queued<()> {
        Queued { datagram: (), length, flow: 0, ecn_capable, marked: false, arrived: 0 }
    }

    /// Numbers of arrivals from one drop to the next, with a backlog that stays.
    fn intervals(config: RedConfig, backlog: usize, count: usize) -> Vec<f64> {
        let mut red = Red::new(config, 10_000_000, 5);
        red.average = backlog as f64;
        let (mut found, mut since) = (Vec::new(), 0.0);
        while found.len() < count {
            since += 1.0;
            if !red.admits(&mut datagram(1200, false), 0, backlog) {
                found.push(since);
                since = 0.0;
            }
        }
        found
    }

    #[test]
    fn drops_are_spread_evenly_over_one_to_one_over_the_probability() {
        // Floyd93, section 7, method 2: the number of arrivals between drops is uniform over 1 to
        // 1/p_b, here with the average midway: p_b = 0.01, so a mean of 50.5 and never above 100.
        let config = RedConfig { ecn: false, ..RedConfig::new(36_000) };
        let found = intervals(config, 12_000, 20_000);
        let mean = found[1..].iter().sum::<f64>() / (found.len() - 1) as f64;
        // The count begins at -1 only after the average was below the threshold.
        assert!((mean - 50.5).abs() < 1.0, "{mean}");
        assert!(found[1..].iter().all(|&interval| interval <= 101.0));
        let tenth = found.iter().filter(|&&interval| interval <= 10.0).count() as f64 / 20_000.0;
        assert!((tenth - 0.1).abs() < 0.01, "{tenth} within the first tenth");
    }

    #[test]
    fn drops_begin_at_the_lower_limit_and_are_total_at_the_upper() {
        let config = RedConfig::new(60_000);
        for (average, admitted) in [(9_999, 1000), (30_000, 0)] {
            let mut red = Red::new(config, 10_000_000, 5);
            red.average = average as f64;
            let let_in =
                (0..1000).filter(|_| red.admits(&mut datagram(1200, false), 0, average)).count();
            assert_eq!(let_in, admitted, "average {average}");
        }
    }

    #[test]
    fn the_average_follows_slowly_and_decays_with_an_empty_queue() {
        let config = RedConfig { weight: 0.01, ..RedConfig::new(1_200_000) };
        let mut red = Red::new(config, 9_600_000, 0);
        // A burst of 50 full datagrams on an empty queue: Floyd93, equation 2.
        let weight = config.weight;
        for n in 0..50 {
            red.admits(&mut datagram(1200, false), 0, n * 1200);
        }
        let l = 49.0;
        let expected = 1200.0 * (l + 1.0 + ((1.0 - weight).powf(l + 1.0) - 1.0) / weight);
        assert!((red.average - expected).abs() < 1e-6, "{} not {expected}", red.average);
        let before = red.average;
        red.is_empty_from(1_000_000);
        // A datagram takes 1 ms; after 100 of them without one the average has decayed 100 times.
        red.admits(&mut datagram(1200, false), 101_000_000, 0);
        assert!((red.average / before - (1.0 - weight).powi(100)).abs() < 1e-9);
    }

    #[test]
    fn ecn_capable_datagrams_are_marked_only_below_the_upper_limit() {
        let config = RedConfig { ecn: true, probability: 1.0, ..RedConfig::new(36_000) };
        let mut red = Red::new(config, 10_000_000, 5);
        red.average = 17_000.0;
        let mut marked = 0;
        for _ in 0..100 {
            let mut datagram = datagram(1200, true);
            assert!(red.admits(&mut datagram, 0, 17_000));
            marked += u64::from(datagram.marked);
        }
        assert!(marked > 50, "{marked}");
        red.average = 18_000.0;
        assert!(!red.admits(&mut datagram(1200, true), 0, 18_000));
    }

    #[test]
    fn smaller_datagrams_are_dropped_less_often() {
        // Floyd93, section 4: in byte mode the probability grows with the size.
        let count = |length| {
            let mut red = Red::new(RedConfig::new(36_000), 10_000_000, 5);
            red.average = 12_000.0;
            (0..100_000).filter(|_| !red.admits(&mut datagram(length, false), 0, 12_000)).count()
        };
        let (full, small) = (count(1200), count(120));
        assert!((8..=12).contains(&(full / small)), "{full} full ones, {small} small ones");
    }
}
