//! The first window of the sender: is it larger than one of a loss-based sender?
//!
//! A loss-based sender begins with ten datagrams (RFC 9002, section 7.2), or some tens, and sends
//! at most two for each acknowledged one. A datagram's sender can have had acknowledgements only of
//! datagrams that had arrived a round trip earlier. A sender that has sent more probably tolerates
//! losses, and the client waits for no hole until the gateway has decided: a Report that comes
//! through the queue of such a window is late.

use core::time::Duration;

use packrat_wire::estimate::{Timestamp, is_large_window};

/// Acknowledged datagrams after which the first window has passed.
const PASSED_DATAGRAMS: usize = 64;

/// The first arrivals of a connection, and whether they are of a large window.
#[derive(Debug, Default)]
pub(crate) enum FirstWindow {
    #[default]
    Unopened,
    Open(Box<Arrivals>),
    /// The window has been large since then, and the gateway's verdict has not arrived.
    Large(Timestamp),
    Closed,
}

/// Times of the first arrivals, and the number of all.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    times: Vec<Timestamp>,
    arrived: usize,
}

impl FirstWindow {
    /// A datagram of the peer arrives. `round_trip`: of the last mile, which is the shortest in which
    /// one can be acknowledged. True once, if no loss-based sender sends as much.
    #[inline]
    pub(crate) fn on_received(&mut self, round_trip: Option<Duration>, now: Timestamp) -> bool {
        match self {
            Self::Large(_) | Self::Closed => false,
            Self::Unopened | Self::Open(_) => self.follow(round_trip, now),
        }
    }

    fn follow(&mut self, round_trip: Option<Duration>, now: Timestamp) -> bool {
        if let Self::Unopened = self {
            *self = Self::Open(Box::default());
        }
        let Self::Open(arrivals) = self else { return false };
        let Arrivals { times, arrived } = &mut **arrivals;
        *arrived += 1;
        if times.len() < PASSED_DATAGRAMS {
            times.push(now);
        }
        let Some(round_trip) = round_trip else { return false };
        let acknowledged = times.partition_point(|at| *at + round_trip <= now);
        if acknowledged >= PASSED_DATAGRAMS {
            *self = Self::Closed;
            return false;
        }
        let is_large = is_large_window(*arrived as u64, acknowledged as u64);
        if is_large {
            *self = Self::Large(now);
        }
        is_large
    }

    /// True after a large window, until the gateway's verdict arrives.
    pub(crate) fn is_large(&self) -> bool {
        matches!(self, Self::Large(_))
    }

    /// Called when the gateway has answered an eACK sent at that time.
    pub(crate) fn on_answer(&mut self, asked: Timestamp) {
        if let Self::Large(since) = self
            && asked >= *since
        {
            *self = Self::Closed;
        }
    }
}

#[cfg(test)]
mod tests {
    use packrat_wire::estimate::LARGE_WINDOW;

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(40);

    fn at(micros: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_micros(micros)
    }

    /// Number of datagrams after which a sender is found whose window begins with this size and
    /// doubles, and whose datagrams come 200 us apart.
    fn found(window: u64, round_trip: Option<Duration>) -> Option<u64> {
        let (mut first, mut arrived) = (FirstWindow::default(), 0);
        for round in 0..8 {
            for datagram in 0..window << round {
                arrived += 1;
                let now = at(round * 41_000 + (datagram * 200).min(40_000));
                if first.on_received(round_trip, now) {
                    return Some(arrived);
                }
            }
        }
        None
    }

    #[test]
    fn a_large_window_is_found_before_it_has_passed() {
        assert_eq!(found(200, Some(ROUND_TRIP)), Some(LARGE_WINDOW + 1));
        for window in [4, 10, 32, LARGE_WINDOW] {
            assert_eq!(found(window, Some(ROUND_TRIP)), None, "{window}");
        }
        assert_eq!(found(200, None), None, "the last mile is not known");
    }

    #[test]
    fn the_gateways_word_about_it_counts() {
        let mut first = FirstWindow::default();
        for _ in 0..LARGE_WINDOW {
            assert!(!first.on_received(Some(ROUND_TRIP), at(500)));
        }
        assert!(first.on_received(Some(ROUND_TRIP), at(600)) && first.is_large());
        first.on_answer(at(500));
        assert!(first.is_large(), "it was asked before");
        first.on_answer(at(600));
        assert!(!first.is_large());
        assert!(!first.on_received(Some(ROUND_TRIP), at(700)), "it is found once");
    }
}
