//! Loss of the medium, without the losses of queues.

/// Number of datagrams over which the loss is remembered.
const HORIZON_DATAGRAMS: f64 = 2048.0;
/// Datagrams without loss that count as seen before the first one: one loss among the first few is
/// no rate.
const PRIOR_DATAGRAMS: f64 = 64.0;
/// Datagrams with one run of losses that count as seen before the first one.
const RUNS_PRIOR: f64 = 16.0;
/// Datagrams after which losses may be called rare.
const RARE_AFTER_DATAGRAMS: f64 = 128.0;
/// Datagrams for each run of losses, at least, if losses are rare.
const RARE_RUN_DATAGRAMS: f64 = 1024.0;

/// Share of datagrams that the medium loses, measured while no queue stands: the corruption of
/// CETEN04 (docs/REFERENCES.md), as its receiver can see it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MediumLoss {
    sent: f64,
    lost: f64,
    bursts: f64,
}

impl MediumLoss {
    /// Takes in the fate of `sent` datagrams that met no queue: `lost` of them did not arrive, in
    /// `bursts` runs of neighbours.
    pub fn on_fate(&mut self, sent: u64, lost: u64, bursts: u64) {
        self.sent += sent as f64;
        self.lost += lost as f64;
        self.bursts += bursts.min(lost) as f64;
        if self.sent > HORIZON_DATAGRAMS {
            let keep = HORIZON_DATAGRAMS / self.sent;
            self.sent *= keep;
            self.lost *= keep;
            self.bursts *= keep;
        }
    }

    /// Number of datagrams from which the share was computed.
    pub(super) fn sent(&self) -> f64 {
        self.sent
    }

    /// The share, 0 to 1.
    pub fn loss(&self) -> f64 {
        (self.lost / (self.sent + PRIOR_DATAGRAMS)).clamp(0.0, 1.0)
    }

    /// Upper bound of the medium's runs of losses per datagram: two standard deviations above the mean, with
    /// one run in [`RUNS_PRIOR`] datagrams before the first.
    pub fn most_runs(&self) -> f64 {
        let runs = self.bursts + 1.0;
        (runs + 2.0 * runs.sqrt()) / (self.sent + RUNS_PRIOR)
    }

    /// True if there is at most one run of losses in [`RARE_RUN_DATAGRAMS`], as far as is known.
    pub fn is_rare(&self) -> bool {
        self.sent >= RARE_AFTER_DATAGRAMS && self.bursts * RARE_RUN_DATAGRAMS <= self.sent
    }

    /// Mean length of a burst in datagrams, at least 1.
    pub fn burst(&self) -> f64 {
        if self.bursts > 0.0 { (self.lost / self.bursts).max(1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_last_datagrams() {
        let mut medium = MediumLoss::default();
        assert_eq!((medium.loss(), medium.burst()), (0.0, 1.0));
        medium.on_fate(10, 1, 1);
        assert!(medium.loss() < 0.02, "one of ten is no rate: {}", medium.loss());
        for _ in 0..100 {
            medium.on_fate(100, 6, 2);
        }
        assert!((medium.loss() - 0.058).abs() < 0.002, "{}", medium.loss());
        assert!((medium.burst() - 3.0).abs() < 0.05, "{}", medium.burst());
        for _ in 0..100 {
            medium.on_fate(100, 0, 0);
        }
        assert!(medium.loss() < 0.001, "{}", medium.loss());
    }
}
