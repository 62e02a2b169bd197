//! Loss on the medium: independent, or in bursts.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// The pattern of a medium's losses.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
#[serde(rename_all = "kebab-case", tag = "model")]
pub enum LossModel {
    /// No loss.
    #[default]
    None,
    /// Independent loss of each datagram.
    Independent {
        /// Probability of loss, 0 to 1.
        rate: f64,
    },
    /// Two states, good and bad, each with its own loss (Gilbert60, Elliott63); the state may
    /// change with each datagram, as in netem. Both states have a geometric length.
    GilbertElliott {
        /// Share of datagrams lost in the long run, 0 to 1.
        rate: f64,
        /// Mean length of the bad state in datagrams, at least 1.
        mean_burst: f64,
        /// Loss in the good state, and in the bad one.
        states: StateLoss,
    },
}

/// Shares of datagrams lost in the two states of a [`LossModel::GilbertElliott`], 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StateLoss {
    /// Loss in the good state.
    pub good: f64,
    /// Loss in the bad state.
    pub bad: f64,
}

impl Default for StateLoss {
    /// No loss in the good state, complete loss in the bad one.
    fn default() -> Self {
        Self { good: 0.0, bad: 1.0 }
    }
}

impl StateLoss {
    /// The share of datagrams that are sent in the bad state when this share is lost in the long
    /// run.
    fn share_of_bad(self, rate: f64) -> f64 {
        ((rate - self.good) / (self.bad - self.good)).clamp(0.0, 1.0)
    }
}

impl LossModel {
    /// The model for a mean loss `rate` (0 to 1) and a mean burst length: bursts of 1 or less mean
    /// independent loss.
    pub fn new(rate: f64, mean_burst: f64) -> Self {
        if rate <= 0.0 {
            Self::None
        } else if mean_burst <= 1.0 {
            Self::Independent { rate }
        } else {
            Self::GilbertElliott { rate, mean_burst, states: StateLoss::default() }
        }
    }

    /// Replaces the losses in the two states, and keeps the bursts; the mean stays, within the
    /// bounds of these states.
    #[must_use]
    pub fn with_states(self, states: StateLoss) -> Self {
        match self {
            Self::GilbertElliott { rate, mean_burst, .. } => {
                Self::GilbertElliott { rate, mean_burst, states }
            }
            other => other,
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

/// A [`LossModel`] at work: decides for each datagram in turn whether it is lost.
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
        let bad = matches!(model, LossModel::GilbertElliott { rate, states, .. } if random.random::<f64>() < states.share_of_bad(rate));
        Self { model, random, bad }
    }

    /// The fate of the next datagram: true when it is lost.
    pub fn next_is_lost(&mut self) -> bool {
        match self.model {
            LossModel::None => false,
            LossModel::Independent { rate } => self.random.random::<f64>() < rate,
            LossModel::GilbertElliott { rate, mean_burst, states } => {
                let lost = match if self.bad { states.bad } else { states.good } {
                    0.0 => false,
                    1.0 => true,
                    share => self.random.random::<f64>() < share,
                };
                let leave_bad = 1.0 / mean_burst.max(1.0);
                // The share of time in the bad state is enter/(enter+leave): solve it for the
                // wanted rate.
                let share = states.share_of_bad(rate);
                let enter_bad =
                    if share >= 1.0 { 1.0 } else { (leave_bad * share / (1.0 - share)).min(1.0) };
                let draw: f64 = self.random.random();
                self.bad =
                    if self.bad { share >= 1.0 || draw >= leave_bad } else { draw < enter_bad };
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
            let fates = fates(LossModel::new(wanted, burst), 7);
            assert!(
                (rate(&fates) / wanted - 1.0).abs() < 0.08,
                "rate {} for {wanted}",
                rate(&fates)
            );
            assert!(
                (mean_burst(&fates) / burst - 1.0).abs() < 0.06,
                "{} for {burst}",
                mean_burst(&fates)
            );
        }
    }

    #[test]
    fn the_states_have_the_loss_that_they_were_given() {
        let states = StateLoss { good: 0.02, bad: 0.8 };
        let fates = fates(LossModel::new(0.1, 56.0).with_states(states), 7);
        assert!((rate(&fates) / 0.1 - 1.0).abs() < 0.1, "rate {}", rate(&fates));
        // After two losses in a row most are lost, otherwise few are.
        let after = |lost: [bool; 2]| {
            let next: Vec<bool> =
                fates.windows(3).filter(|three| three[..2] == lost).map(|three| three[2]).collect();
            rate(&next)
        };
        assert!(after([true, true]) > 0.7, "{}", after([true, true]));
        assert!(after([false, false]) < 0.04, "{}", after([false, false]));
        assert_eq!(
            LossModel::new(0.1, 1.0).with_states(states),
            LossModel::Independent { rate: 0.1 }
        );
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
