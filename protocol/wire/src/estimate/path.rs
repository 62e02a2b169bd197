//! Round trip and loss of the last mile.

use core::time::Duration;

use super::RoundTrip;

/// Number of datagrams over which the loss rate is remembered: old evidence fades with this
/// horizon.
const LOSS_HORIZON: f64 = 1024.0;

/// Time that a download waits for a repair beside round trips: bursts of loss outlast some of them,
/// and a sender's probe timeout, which does no harm, comes later.
pub const PATIENCE_MARGIN: Duration = Duration::from_millis(100);
/// Time that a live stream waits for a repair beside round trips: its receiver can still ask its
/// sender.
pub const LIVE_PATIENCE_MARGIN: Duration = Duration::from_millis(30);

/// Time to wait for a repair beside round trips; `live`: for a live stream.
pub const fn patience_margin(live: bool) -> Duration {
    if live { LIVE_PATIENCE_MARGIN } else { PATIENCE_MARGIN }
}

/// Estimate of a path segment: round trip and loss rate.
///
/// Fed by the end that sees the evidence (the gateway from eACKs, the client from echoes), read by
/// every policy.
#[derive(Debug, Clone, Default)]
pub struct PathEstimate {
    round_trip: RoundTrip,
    sent: f64,
    lost: f64,
}

impl PathEstimate {
    /// An estimate without samples.
    pub const fn new() -> Self {
        Self { round_trip: RoundTrip::new(), sent: 0.0, lost: 0.0 }
    }

    /// Takes in one round-trip sample.
    pub fn on_round_trip(&mut self, sample: Duration) {
        self.round_trip.on_sample(sample);
    }

    /// The segment was exchanged for another: round trips start anew.
    pub fn forget_round_trip(&mut self) {
        self.round_trip = RoundTrip::new();
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

    /// The estimator of the round trip.
    pub fn rtt(&self) -> &RoundTrip {
        &self.round_trip
    }

    /// Smoothed round trip, once a sample has come in.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip.smoothed()
    }

    /// Smallest round trip seen.
    pub fn minimum_round_trip(&self) -> Option<Duration> {
        self.round_trip.minimum()
    }

    /// Smoothed deviation of the round trip (RFC 6298's RTTVAR).
    pub fn round_trip_variation(&self) -> Duration {
        self.round_trip.variation()
    }

    /// Time for which a repair is worth waiting for: three round trips with their variation and
    /// `margin` (see [`patience_margin`]), at most `maximum`. Datagrams wait at the client for this
    /// long, and the gateway plans its repairs within it.
    pub fn patience(&self, margin: Duration, maximum: Duration) -> Duration {
        self.round_trip.patience(margin).min(maximum)
    }

    /// Share of datagrams lost on the segment, 0 to 1, weighted towards the last [`LOSS_HORIZON`]
    /// of them.
    pub fn loss(&self) -> f64 {
        if self.sent < 1.0 { 0.0 } else { (self.lost / self.sent).clamp(0.0, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_follows_the_round_trip_below_its_maximum() {
        let maximum = Duration::from_millis(200);
        let mut path = PathEstimate::new();
        assert_eq!(path.patience(PATIENCE_MARGIN, maximum), maximum);
        let unmeasured = Duration::from_millis(250);
        assert_eq!(path.patience(PATIENCE_MARGIN, Duration::from_secs(9)), unmeasured);
        for _ in 0..100 {
            path.on_round_trip(Duration::from_millis(4));
        }
        let patience = path.patience(PATIENCE_MARGIN, maximum);
        assert!(
            patience > Duration::from_millis(110) && patience < Duration::from_millis(120),
            "{patience:?}"
        );
        assert_eq!(
            patience - path.patience(LIVE_PATIENCE_MARGIN, maximum),
            Duration::from_millis(70)
        );
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
