//! The code rate that follows the loss which coding leaves.

/// Number of measured periods whose mean counts.
const AVERAGED_PERIODS: usize = 3;

/// Adapts the code rate `Q`, source datagrams per symbol, to the residual loss: algorithm 1 of
/// rQUIC23, section 3.4.2.
///
/// ```text
///   if mean residual loss of the last 3 periods > 0.01:  Q <- Q * (1 - 0.33)
///   else:                                                Q <- Q * (1 + 0.33)
/// ```
///
/// A period is three round trips. The residual loss is the number of datagrams lost for good,
/// divided by the number delivered. The text leaves open whether `Q` changes after each period or
/// after three; here it changes after each, with the mean of the last three, as soon as there are
/// three. `Q` stays below the congestion window, in datagrams, and at least 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaptiveCodeRate {
    code_rate: f64,
    periods: [f64; AVERAGED_PERIODS],
    measured: usize,
}

impl AdaptiveCodeRate {
    /// The residual loss above which symbols become more frequent.
    pub const THRESHOLD: f64 = 0.01;
    /// The part by which the code rate changes.
    pub const STEP: f64 = 0.33;
    /// Round trips in a period.
    pub const ROUND_TRIPS: u32 = 3;
    /// The largest generation.
    pub const LARGEST_GENERATION: u8 = 63;

    /// Begins with a code rate.
    pub fn new(code_rate: f64) -> Self {
        Self { code_rate: code_rate.max(1.0), periods: [0.0; AVERAGED_PERIODS], measured: 0 }
    }

    /// Ends a period, with the numbers of datagrams lost for good and delivered.
    /// `congestion_window`: in datagrams.
    pub fn on_period(&mut self, lost: u64, delivered: u64, congestion_window: f64) {
        self.periods.rotate_left(1);
        self.periods[AVERAGED_PERIODS - 1] = lost as f64 / delivered.max(1) as f64;
        self.measured += 1;
        if self.measured >= AVERAGED_PERIODS {
            let residual = self.periods.iter().sum::<f64>() / AVERAGED_PERIODS as f64;
            let step = if residual > Self::THRESHOLD { -Self::STEP } else { Self::STEP };
            self.code_rate *= 1.0 + step;
        }
        self.code_rate = self.code_rate.min(congestion_window).max(1.0);
    }

    /// Source datagrams per symbol.
    pub fn code_rate(&self) -> f64 {
        self.code_rate
    }

    /// True if a generation of this number of datagrams is complete (equation 3.6, with one symbol
    /// per generation and no overlap): its parity is due.
    pub fn is_complete(&self, generation: u8) -> bool {
        f64::from(generation) + 1.0 > self.code_rate || generation >= Self::LARGEST_GENERATION
    }

    /// Symbols in all that is sent (equation 3.12).
    pub fn overhead(&self) -> f64 {
        1.0 / (self.code_rate + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_residual_loss() {
        let mut rate = AdaptiveCodeRate::new(10.0);
        rate.on_period(0, 100, 1000.0);
        rate.on_period(0, 100, 1000.0);
        assert_eq!(rate.code_rate(), 10.0, "not yet three periods");
        rate.on_period(0, 100, 1000.0);
        assert!((rate.code_rate() - 13.3).abs() < 1e-9);
        rate.on_period(3, 100, 1000.0);
        assert!((rate.code_rate() - 13.3 * 1.33).abs() < 1e-9, "1 % is not above 1 %");
        rate.on_period(1, 100, 1000.0);
        assert!((rate.code_rate() - 13.3 * 1.33 * 0.67).abs() < 1e-9);
        for _ in 0..100 {
            rate.on_period(1, 10, 1000.0);
        }
        assert_eq!(rate.code_rate(), 1.0);
        for _ in 0..100 {
            rate.on_period(0, 10, 40.0);
        }
        assert_eq!(rate.code_rate(), 40.0, "the congestion window");
        rate.on_period(0, 0, 0.0);
        assert_eq!(rate.code_rate(), 1.0);
    }

    /// Section 3.6.2: overheads of 20 and 25 % are average code rates of 4 and 3.
    #[test]
    fn overheads_are_those_of_the_thesis() {
        assert_eq!(AdaptiveCodeRate::new(4.0).overhead(), 0.2);
        assert_eq!(AdaptiveCodeRate::new(3.0).overhead(), 0.25);
    }

    #[test]
    fn a_generation_is_complete_at_the_code_rate_or_at_63() {
        let rate = AdaptiveCodeRate::new(4.0);
        assert!(!rate.is_complete(3) && rate.is_complete(4));
        let seldom = AdaptiveCodeRate::new(1000.0);
        assert!(!seldom.is_complete(62) && seldom.is_complete(63));
    }
}
