//! Outages: times in which a medium loses everything.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::nanos;
use super::recording::{ProbeRecording, Replay};

/// The times at which a medium loses everything that is on it. A datagram is lost when any part of
/// its transmission falls into an outage.
#[derive(Debug, Clone, PartialEq)]
pub enum OutageModel {
    /// Outages at regular times.
    Scheduled {
        /// The beginning of the first one.
        first: Duration,
        /// Time between the beginnings of two outages, longer than an outage.
        every: Duration,
        /// Length.
        length: Duration,
    },
    /// A two-state Markov process in time: both periods are exponential (CETEN04, appendix A).
    Markov {
        /// Mean length of an outage.
        off: Duration,
        /// Mean time between two of them.
        on: Duration,
    },
    /// The outages of a recording.
    Recorded(Replay<ProbeRecording>),
}

impl OutageModel {
    /// Outages of mean length `off` which lose the share `loss` of a saturated link's datagrams,
    /// each of which takes `transmission`: a datagram of which an outage takes a part is lost as a
    /// whole (CETEN04, appendix A: Y = (X + f)·(1 − R)/R).
    pub fn markov(loss: f64, off: Duration, transmission: Duration) -> Self {
        let on = (off + transmission).mul_f64((1.0 - loss) / loss);
        Self::Markov { off, on }
    }
}

/// An [`OutageModel`] at work.
#[derive(Debug, Clone)]
pub(crate) struct OutageProcess {
    model: OutageModel,
    random: ChaCha8Rng,
    /// The outage that is not over at the time asked for last, nanoseconds; only of `Markov`.
    current: (u64, u64),
}

impl OutageProcess {
    /// A process that begins without an outage; the same seed gives the same times.
    pub(crate) fn new(model: OutageModel, seed: u64) -> Self {
        let mut process = Self { model, random: ChaCha8Rng::seed_from_u64(seed), current: (0, 0) };
        process.advance();
        process
    }

    /// True if an outage overlaps the time between two instants, nanoseconds; `from` does not
    /// decrease from call to call.
    pub(crate) fn is_out(&mut self, from: u64, to: u64) -> bool {
        match &self.model {
            OutageModel::Scheduled { first, every, length } => {
                let [first, every, length] = [first, every, length].map(|time| nanos(*time));
                let Some(since) = to.checked_sub(first) else { return false };
                // An earlier one ends before this one begins.
                let begin = to - since % every.max(1);
                begin + length > from
            }
            OutageModel::Markov { .. } => {
                while self.current.1 <= from {
                    self.advance();
                }
                self.current.0 <= to
            }
            OutageModel::Recorded(recording) => recording.is_out(from, to),
        }
    }

    fn advance(&mut self) {
        let OutageModel::Markov { off, on } = self.model else { return };
        let begin = self.current.1 + self.exponential(on);
        self.current = (begin, begin + self.exponential(off).max(1));
    }

    fn exponential(&mut self, mean: Duration) -> u64 {
        let uniform: f64 = self.random.random();
        (-(nanos(mean) as f64) * (1.0 - uniform).ln()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn scheduled_outages_come_at_their_times() {
        let model =
            OutageModel::Scheduled { first: millis(100), every: millis(1000), length: millis(50) };
        let mut process = OutageProcess::new(model, 0);
        let mut out = |from, to| process.is_out(from * MILLISECOND, to * MILLISECOND);
        assert!(!out(0, 99));
        assert!(out(90, 101), "its end falls into the outage");
        assert!(out(149, 160), "its beginning does");
        assert!(!out(150, 200));
        assert!(out(160, 1140), "the next outage lies within it");
        assert!(out(1120, 1121));
        assert!(!out(1150, 2099));
    }

    #[test]
    fn markov_outages_lose_the_share_that_ceten_derives_them_from() {
        // The paper's link: 5 Mbit/s and 1500 bytes, so 2.4 ms each; on periods of 1, 4, 8 and 16.
        let transmission = Duration::from_micros(2400);
        for segments in [1, 4, 8, 16] {
            for loss in [0.01, 0.05, 0.1] {
                let model = OutageModel::markov(loss, transmission * segments, transmission);
                let (mut lost, mut sent) = (0, 0);
                for seed in 0..20 {
                    let mut process = OutageProcess::new(model.clone(), seed);
                    let step = transmission.as_nanos() as u64;
                    for n in 0..100_000 {
                        sent += 1;
                        lost += u64::from(process.is_out(n * step, (n + 1) * step));
                    }
                }
                let share = lost as f64 / f64::from(sent);
                // "within 10 % of the desired corruption rate"
                assert!((share / loss - 1.0).abs() < 0.1, "{share} for {loss}, {segments}");
            }
        }
    }

    #[test]
    fn the_seed_decides() {
        let times = |seed| {
            let model = OutageModel::Markov { off: millis(10), on: millis(90) };
            let mut process = OutageProcess::new(model, seed);
            (0..5000)
                .map(|n| process.is_out(n * MILLISECOND, n * MILLISECOND))
                .collect::<Vec<bool>>()
        };
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }
}
