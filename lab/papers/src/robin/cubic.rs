//! CUBIC (RFC 9438), and PACUBIC (Sidekick24, section 4.3.2): CUBIC with a reduction and a
//! recovery, after a loss on the near segment, in proportion to the packets in flight there.

use packrat_wire::estimate::Timestamp;
use std::time::Duration;

/// Share of the window that is left after a congestion event.
const BETA: f64 = 0.7;
/// Growth of the cubic function, packets per second³ (`C_CUBIC` in RFC 9438).
const C_CUBIC: f64 = 0.4;
/// Window at the beginning, packets.
const INITIAL_WINDOW: f64 = 10.0;
/// Smallest window, packets.
const LEAST_WINDOW: f64 = 2.0;

/// The segment on which a loss was, as far as the sender knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Segment {
    /// Between sender and proxy, according to a quACK. This share of the round trip is spent there.
    Near(f64),
    /// Anywhere, according to an acknowledgement.
    Path,
}

impl Segment {
    /// Factor of the window after a loss, and scale of its growth.
    fn constants(self) -> (f64, f64) {
        match self {
            Self::Path => (BETA, C_CUBIC),
            Self::Near(share) => (1.0 - share * (1.0 - BETA), C_CUBIC / share.powi(3)),
        }
    }
}

/// A congestion window, in packets.
#[derive(Debug, Clone)]
pub(super) struct Cubic {
    window: f64,
    threshold: f64,
    /// As of the last reduction.
    before: f64,
    since: Option<Timestamp>,
    segment: Segment,
    /// The window that Reno would have (RFC 9438, section 4.3).
    friendly: f64,
    /// Losses of packets that were sent earlier belong to the last reduction.
    recovery_from: Option<Timestamp>,
}

impl Cubic {
    pub(super) fn new() -> Self {
        Self {
            window: INITIAL_WINDOW,
            threshold: f64::INFINITY,
            before: 0.0,
            since: None,
            segment: Segment::Path,
            friendly: 0.0,
            recovery_from: None,
        }
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// A packet of this window that was sent at this time has arrived.
    pub(super) fn on_arrived(&mut self, sent_at: Timestamp, round_trip: Duration, now: Timestamp) {
        // Packets sent before a reduction do not reflect the window after it (RFC 9002, section
        // 7.3.2).
        if self.recovery_from.is_some_and(|from| sent_at <= from) {
            return;
        }
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let (beta, scale) = self.segment.constants();
        let since = *self.since.get_or_insert(now);
        let inflection = (self.before * (1.0 - beta) / scale).cbrt();
        let elapsed = (now.saturating_since(since) + round_trip).as_secs_f64();
        let target = scale * (elapsed - inflection).powi(3) + self.before;
        let target = target.clamp(self.window, 1.5 * self.window);
        let additive = 3.0 * (1.0 - beta) / (1.0 + beta);
        self.friendly += additive / self.window;
        self.window += (target - self.window) / self.window;
        self.window = self.window.max(self.friendly);
    }

    /// A packet that was sent at this time is lost. True if that reduces the window.
    pub(super) fn on_lost(&mut self, sent_at: Timestamp, segment: Segment, now: Timestamp) -> bool {
        if self.recovery_from.is_some_and(|from| sent_at <= from) {
            return false;
        }
        let (beta, _) = segment.constants();
        // Fast convergence (RFC 9438, section 4.7).
        self.before =
            if self.window < self.before { self.window * (1.0 + beta) / 2.0 } else { self.window };
        self.window = (self.window * beta).max(LEAST_WINDOW);
        (self.threshold, self.friendly, self.segment) = (self.window, self.window, segment);
        (self.since, self.recovery_from) = (None, Some(now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A window of a hundred packets that has just lost one.
    fn reduced(segment: Segment) -> Cubic {
        let mut cubic = Cubic::new();
        for _ in 0..90 {
            cubic.on_arrived(at(0), Duration::from_millis(50), at(0));
        }
        assert!((cubic.window() - 100.0).abs() < 1e-9);
        assert!(cubic.on_lost(at(1), segment, at(50)));
        cubic
    }

    /// The time at which the window has recovered.
    fn recovered_after(mut cubic: Cubic) -> u64 {
        (50..100_000)
            .skip(1)
            .find(|&millis| {
                // A window in each 50 ms.
                for _ in 0..(cubic.window() / 50.0).ceil() as u64 {
                    cubic.on_arrived(at(millis), Duration::ZERO, at(millis));
                }
                cubic.window() >= 99.0
            })
            .unwrap()
            - 50
    }

    #[test]
    fn a_loss_anywhere_is_cubics() {
        let cubic = reduced(Segment::Path);
        assert!((cubic.window() - 70.0).abs() < 1e-9);
        // K is the cube root of 100 x 0.3 / 0.4.
        let after = recovered_after(cubic);
        assert!((2000..4300).contains(&after), "{after} ms");
    }

    #[test]
    fn a_loss_nearby_costs_in_proportion_and_is_soon_made_up() {
        let cubic = reduced(Segment::Near(0.1));
        assert!((cubic.window() - 97.0).abs() < 1e-9);
        // The inflection comes the share to the power of 4/3 as late (appendix A).
        let after = recovered_after(cubic);
        assert!(after < 300, "{after} ms");
        assert!((reduced(Segment::Near(1.0)).window() - 70.0).abs() < 1e-9, "all of the path");
    }

    #[test]
    fn losses_of_one_flight_reduce_the_window_once() {
        let mut cubic = reduced(Segment::Path);
        assert!(!cubic.on_lost(at(50), Segment::Path, at(60)));
        assert!(cubic.on_lost(at(51), Segment::Path, at(110)));
    }
}
