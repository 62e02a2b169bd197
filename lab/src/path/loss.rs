//! Loss on the medium: independent, or in bursts.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// How a medium loses datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "kebab-case", tag = "model")]
pub enum LossModel {
    /// Nothing is lost.
    #[default]
    None,
    /// Each datagram is lost independently of all others.
    Independent {
        /// Probability of loss, 0 to 1.
        rate: f64,
    },
    /// Two states, good and bad; everything sent in the bad state is lost (Gilbert 1960, Elliott 1963 with error
    /// probabilities 0 and 1). Bursts have a geometric length.
    GilbertElliott {
        /// Share of datagrams lost in the long run, 0 to 1.
        rate: f64,
        /// Mean number of datagrams lost in a row, at least 1.
        mean_burst: f64,
    },
}

impl LossModel {
    /// The model for a mean loss `rate` (0 to 1) and a mean burst length: bursts of 1 or less mean independent loss.
    pub fn new(rate: f64, mean_burst: f64) -> Self {
        if rate <= 0.0 {
            Self::None
        } else if mean_burst <= 1.0 {
            Self::Independent { rate }
        } else {
            Self::GilbertElliott { rate, mean_burst }
        }
    }

    /// Mean share of datagrams lost, 0 to 1.
    pub fn rate(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Independent { rate } | Self::GilbertElliott { rate, .. } => rate,
        }
    }
}

/// A [`LossModel`] at work: says of one datagram after the other whether it is lost.
#[derive(Debug, Clone)]
pub struct LossProcess {
    model: LossModel,
    random: ChaCha8Rng,
    bad: bool,
}

impl LossProcess {
    /// A process in its long-run state; the same seed gives the same fates.
    pub fn new(model: LossModel, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let bad = matches!(model, LossModel::GilbertElliott { rate, .. } if random.random::<f64>() < rate.clamp(0.0, 1.0));
        Self { model, random, bad }
    }

    /// The fate of the next datagram: true when it is lost.
    pub fn next_is_lost(&mut self) -> bool {
        match self.model {
            LossModel::None => false,
            LossModel::Independent { rate } => self.random.random::<f64>() < rate,
            LossModel::GilbertElliott { rate, mean_burst } => {
                let lost = self.bad;
                let leave_bad = 1.0 / mean_burst.max(1.0);
                // The share of time in the bad state is enter/(enter+leave): solve it for the wanted rate.
                let enter_bad = if rate >= 1.0 { 1.0 } else { (leave_bad * rate / (1.0 - rate)).min(1.0) };
                let draw: f64 = self.random.random();
                self.bad = if lost { rate >= 1.0 || draw >= leave_bad } else { draw < enter_bad };
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAMS: usize = 400_000;

    fn fates(model: LossModel, seed: u64) -> Vec<bool> {
        let mut process = LossProcess::new(model, seed);
        (0..DATAGRAMS).map(|_| process.next_is_lost()).collect()
    }

    fn rate(fates: &[bool]) -> f64 {
        fates.iter().filter(|lost| **lost).count() as f64 / fates.len() as f64
    }

    fn mean_burst(fates: &[bool]) -> f64 {
        let bursts = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        fates.iter().filter(|lost| **lost).count() as f64 / bursts as f64
    }

    #[test]
    fn independent_loss_has_the_rate_it_was_given() {
        for wanted in [0.01, 0.04, 0.1, 0.5] {
            let fates = fates(LossModel::Independent { rate: wanted }, 1);
            assert!((rate(&fates) - wanted).abs() < 0.003, "{} for {wanted}", rate(&fates));
            // Independent losses still come in runs: of mean length 1/(1-p).
            assert!((mean_burst(&fates) - 1.0 / (1.0 - wanted)).abs() < 0.03);
        }
    }

    #[test]
    fn bursty_loss_has_the_rate_and_the_burst_length_it_was_given() {
        for (wanted, burst) in [(0.04, 2.0), (0.1, 5.0), (0.1, 10.0), (0.3, 3.0)] {
            let fates = fates(LossModel::GilbertElliott { rate: wanted, mean_burst: burst }, 7);
            assert!((rate(&fates) / wanted - 1.0).abs() < 0.08, "rate {} for {wanted}", rate(&fates));
            assert!((mean_burst(&fates) / burst - 1.0).abs() < 0.06, "{} for {burst}", mean_burst(&fates));
        }
    }

    #[test]
    fn the_ends_of_the_scale_are_all_and_nothing() {
        assert_eq!(rate(&fates(LossModel::new(0.0, 5.0), 3)), 0.0);
        assert_eq!(rate(&fates(LossModel::new(1.0, 1.0), 3)), 1.0);
        assert_eq!(rate(&fates(LossModel::new(1.0, 5.0), 3)), 1.0);
    }

    #[test]
    fn the_seed_decides() {
        let model = LossModel::new(0.1, 3.0);
        assert_eq!(fates(model, 5), fates(model, 5));
        assert_ne!(fates(model, 5), fates(model, 6));
    }
}
