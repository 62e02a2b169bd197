//! Round trip and loss of the last mile.

use core::time::Duration;

/// Number of datagrams over which the loss rate is remembered: old evidence fades with this horizon.
const LOSS_HORIZON: f64 = 1024.0;

/// How long a repair is worth waiting for as long as no round trip was measured.
const UNMEASURED_PATIENCE: Duration = Duration::from_millis(250);
/// What a download waits for a repair beside round trips: bursts of loss outlast some of them, and a sender's probe timeout, which does no harm,
/// comes later.
pub const PATIENCE_MARGIN: Duration = Duration::from_millis(100);
/// The same for a live stream, whose receiver can still ask its sender.
pub const LIVE_PATIENCE_MARGIN: Duration = Duration::from_millis(30);

/// What is waited for a repair beside round trips; `live`: for that of a live stream.
pub const fn patience_margin(live: bool) -> Duration {
    if live { LIVE_PATIENCE_MARGIN } else { PATIENCE_MARGIN }
}

/// What is known about a path segment: smoothed round trip (RFC 6298's filter) and loss rate.
///
/// Fed by whoever sees the evidence (the gateway from eACKs, the client from echoes), read by every policy.
#[derive(Debug, Clone, Default)]
pub struct PathEstimate {
    smoothed: Option<Duration>,
    variation: Duration,
    minimum: Option<Duration>,
    sent: f64,
    lost: f64,
}

impl PathEstimate {
    /// An estimate that knows nothing yet.
    pub const fn new() -> Self {
        Self { smoothed: None, variation: Duration::ZERO, minimum: None, sent: 0.0, lost: 0.0 }
    }

    /// Takes in one round-trip sample.
    pub fn on_round_trip(&mut self, sample: Duration) {
        self.minimum = Some(self.minimum.map_or(sample, |minimum| minimum.min(sample)));
        match self.smoothed {
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
                self.smoothed = Some((smoothed * 7 + sample) / 8);
            }
        }
    }

    /// The segment was exchanged for another: round trips start anew.
    pub fn forget_round_trip(&mut self) {
        *self = Self { sent: self.sent, lost: self.lost, ..Self::default() };
    }

    /// Takes in the fate of `sent` datagrams, `lost` of which did not arrive.
    pub fn on_fate(&mut self, sent: u64, lost: u64) {
        self.sent += sent as f64;
        self.lost += lost as f64;
        if self.sent > LOSS_HORIZON {
            let keep = LOSS_HORIZON / self.sent;
            self.sent *= keep;
            self.lost *= keep;
        }
    }

    /// Smoothed round trip, once a sample has come in.
    pub fn round_trip(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Smallest round trip seen.
    pub fn minimum_round_trip(&self) -> Option<Duration> {
        self.minimum
    }

    /// Smoothed deviation of the round trip (RFC 6298's RTTVAR).
    pub fn round_trip_variation(&self) -> Duration {
        self.variation
    }

    /// How long a repair is worth waiting for: three round trips with their variation and `margin` (see
    /// [`patience_margin`]), at most `maximum`. The client withholds acknowledgements for this long, the gateway plans its repairs within it.
    pub fn patience(&self, margin: Duration, maximum: Duration) -> Duration {
        match self.smoothed {
            None => UNMEASURED_PATIENCE.min(maximum),
            Some(smoothed) => (smoothed * 3 + self.variation * 4 + margin).min(maximum),
        }
    }

    /// Share of datagrams lost on the segment, 0 to 1, weighted towards the last [`LOSS_HORIZON`] of them.
    pub fn loss(&self) -> f64 {
        if self.sent < 1.0 { 0.0 } else { (self.lost / self.sent).clamp(0.0, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_converges_and_keeps_its_minimum() {
        let mut path = PathEstimate::new();
        assert_eq!(path.round_trip(), None);
        path.on_round_trip(Duration::from_millis(40));
        for _ in 0..100 {
            path.on_round_trip(Duration::from_millis(4));
        }
        let smoothed = path.round_trip().unwrap();
        assert!(smoothed < Duration::from_micros(4100), "{smoothed:?}");
        assert_eq!(path.minimum_round_trip(), Some(Duration::from_millis(4)));
    }

    #[test]
    fn patience_follows_the_round_trip_below_its_maximum() {
        let maximum = Duration::from_millis(200);
        let mut path = PathEstimate::new();
        assert_eq!(path.patience(PATIENCE_MARGIN, maximum), maximum);
        assert_eq!(path.patience(PATIENCE_MARGIN, Duration::from_secs(9)), UNMEASURED_PATIENCE);
        for _ in 0..100 {
            path.on_round_trip(Duration::from_millis(4));
        }
        let patience = path.patience(PATIENCE_MARGIN, maximum);
        assert!(
            patience > Duration::from_millis(110) && patience < Duration::from_millis(120),
            "{patience:?}"
        );
        assert_eq!(patience - path.patience(LIVE_PATIENCE_MARGIN, maximum), Duration::from_millis(70));
    }

    #[test]
    fn loss_forgets_old_evidence() {
        let mut path = PathEstimate::new();
        path.on_fate(10_000, 1_000);
        assert!((path.loss() - 0.1).abs() < 1e-9);
        for _ in 0..100 {
            path.on_fate(100, 0);
        }
        assert!(path.loss() < 0.001, "{}", path.loss());
    }
}
