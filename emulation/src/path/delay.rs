//! Propagation delay over time: steps, recordings, jitter.

use std::f64::consts::E;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::nanos;
use super::recording::{ProbeRecording, Replay};

/// Delay on top of the base delay, drawn again at regular times.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter {
    /// Distribution of the jitter.
    pub model: JitterModel,
    /// The interval at which the delay is drawn again; within one it stays, as a medium that is
    /// busy for one datagram is busy for the next one.
    pub every: Duration,
}

/// A distribution of jitter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum JitterModel {
    /// Exponential.
    Exponential {
        /// Mean.
        mean: Duration,
    },
    /// A wireless LAN: one or two milliseconds of contention, and for a share of the time a wait of
    /// a number of slots of 7.5 ms (Huitema's model of measured delays).
    Wifi {
        /// Share of the time with such a wait, 0 to 1.
        late_share: f64,
    },
}

impl JitterModel {
    /// Mean number of slots waited, and their length in seconds.
    const SLOTS: f64 = 12.0;
    const SLOT: f64 = 7.5e-3;

    fn draw(self, random: &mut ChaCha8Rng) -> f64 {
        match self {
            Self::Exponential { mean } => {
                let uniform: f64 = random.random();
                -mean.as_secs_f64() * (1.0 - uniform).ln()
            }
            Self::Wifi { late_share } => {
                let contention = poisson(random, 1.0);
                let part: f64 = random.random();
                let contention = if contention >= 1.0 { contention - part } else { 0.0 };
                let late = random.random::<f64>() < late_share;
                let slots = if late { poisson(random, Self::SLOTS) } else { 0.0 };
                contention * 1e-3 + slots * Self::SLOT
            }
        }
    }
}

/// A draw from the Poisson distribution (Knuth's product of uniform numbers).
fn poisson(random: &mut ChaCha8Rng, mean: f64) -> f64 {
    let limit = E.powf(-mean);
    let mut product: f64 = random.random();
    let mut count = 0.0;
    while product > limit {
        product *= random.random::<f64>();
        count += 1.0;
    }
    count
}

/// The propagation delay of one direction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DelayModel {
    /// Delay from the beginning.
    pub base: Duration,
    /// Base delays from later times on, ascending.
    pub steps: Vec<(Duration, Duration)>,
    /// The delays of a recording instead.
    pub recording: Option<Replay<ProbeRecording>>,
    /// Jitter on top of either.
    pub jitter: Option<Jitter>,
    /// True if a datagram with a shorter delay overtakes those before it; otherwise it waits.
    pub reorders: bool,
}

/// A [`DelayModel`] at work.
#[derive(Debug, Clone)]
pub(crate) struct DelayProcess {
    model: DelayModel,
    seed: u64,
    /// The interval of the jitter drawn last, and that jitter.
    drawn: Option<(u64, u64)>,
    /// The latest arrival, nanoseconds.
    latest: u64,
}

impl DelayProcess {
    /// Starts the process; the same seed gives the same delays.
    pub(crate) fn new(model: DelayModel, seed: u64) -> Self {
        Self { model, seed, drawn: None, latest: 0 }
    }

    /// The arrival of a datagram whose transmission ended at `sent`, both in nanoseconds.
    pub(crate) fn arrival(&mut self, sent: u64) -> u64 {
        let at = sent + self.base(sent) + self.jitter(sent);
        if self.model.reorders {
            return at;
        }
        self.latest = self.latest.max(at);
        self.latest
    }

    fn base(&self, sent: u64) -> u64 {
        if let Some(recording) = &self.model.recording {
            return recording.delay(sent) * 1000;
        }
        let steps = &self.model.steps;
        let after = steps.partition_point(|(at, _)| nanos(*at) <= sent);
        nanos(if after == 0 { self.model.base } else { steps[after - 1].1 })
    }

    /// Jitter at a time. Each interval has a generator of its own, so that the jitter does not
    /// depend on the traffic.
    fn jitter(&mut self, sent: u64) -> u64 {
        let Some(jitter) = self.model.jitter else { return 0 };
        let interval = sent / nanos(jitter.every).max(1);
        if let Some((of, drawn)) = self.drawn
            && of == interval
        {
            return drawn;
        }
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(interval);
        let drawn = (jitter.model.draw(&mut random) * 1e9) as u64;
        self.drawn = Some((interval, drawn));
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const MILLISECOND: u64 = 1_000_000;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn steps_change_the_base_delay_at_their_time_and_keep_the_order() {
        let model = DelayModel {
            base: millis(20),
            steps: vec![(millis(100), millis(50)), (millis(200), millis(10))],
            ..DelayModel::default()
        };
        let mut process = DelayProcess::new(model.clone(), 0);
        let arrivals: Vec<u64> = [0, 99, 100, 199, 200, 220, 260]
            .map(|at| process.arrival(at * MILLISECOND) / MILLISECOND)
            .to_vec();
        // Datagrams sent after the step down wait for datagrams sent before it.
        assert_eq!(arrivals, [20, 119, 150, 249, 249, 249, 270]);
        let mut process = DelayProcess::new(DelayModel { reorders: true, ..model }, 0);
        let arrivals: Vec<u64> =
            [199, 200].map(|at| process.arrival(at * MILLISECOND) / MILLISECOND).to_vec();
        assert_eq!(arrivals, [249, 210], "overtakes");
    }

    #[test]
    fn jitter_has_its_mean_and_does_not_depend_on_the_traffic() {
        let draws = |model, step: u64| -> Vec<f64> {
            let jitter = Some(Jitter { model, every: millis(20) });
            let model = DelayModel { jitter, reorders: true, ..DelayModel::default() };
            let mut process = DelayProcess::new(model, 3);
            (0..40_000)
                .map(|n| n * step * 20 * MILLISECOND)
                .map(|sent| (process.arrival(sent) - sent) as f64 * 1e-6)
                .collect()
        };
        let mean = |draws: &[f64]| draws.iter().sum::<f64>() / draws.len() as f64;
        let exponential = draws(JitterModel::Exponential { mean: millis(5) }, 1);
        assert!((mean(&exponential) - 5.0).abs() < 0.1, "{}", mean(&exponential));
        // 0.15 of 12 slots of 7.5 ms, and the contention: 1 less half of 1 - 1/e.
        let wifi = draws(JitterModel::Wifi { late_share: 0.15 }, 1);
        assert!((mean(&wifi) - (13.5 + 0.684)).abs() < 0.4, "{}", mean(&wifi));
        let every_third = draws(JitterModel::Wifi { late_share: 0.15 }, 3);
        assert_eq!(wifi[..].iter().step_by(3).count(), 13_334);
        assert!(wifi.iter().step_by(3).zip(&every_third).all(|(one, other)| one == other));
    }

    #[test]
    fn a_recording_replaces_the_base() {
        let recording = ProbeRecording::parse("p", "0 12000\n10 40000\n20 12000\n").unwrap();
        let model = DelayModel {
            base: millis(100),
            recording: Some(Replay { recording: Arc::new(recording), from: Duration::ZERO }),
            ..DelayModel::default()
        };
        let mut process = DelayProcess::new(model, 0);
        let arrivals = [0, 10, 20].map(|at| process.arrival(at * MILLISECOND) / MILLISECOND);
        assert_eq!(arrivals, [12, 50, 50]);
    }
}
