//! Live streams of one receiver: late datagrams are of no use, and a repair may come too late for
//! the receiver's buffer.
//!
//! - *Selective*: eACKs come only when a datagram is missing (Packrat26, section 5.2.3). Old bytes
//!   leave the cache unacknowledged (optimistic eviction), and a missing datagram need not have
//!   been overtaken: each that was forwarded clearly more than a round trip ago and is not in the
//!   set is missing as well.
//! - *Window*: a datagram is not repaired if it would arrive later than this behind its time.
//! - *Early copies*: if even the first repair comes later than the receiver's buffer tolerates, a
//!   thin stream gets a second copy of some of its datagrams at once, out of a budget of its own.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_assist_token::token_bucket::{Rate, TokenBucket};
use packrat_wire::estimate::{PathEstimate, Timestamp};
use packrat_wire::handshake::Live;

use crate::reconciliation::known_age;

/// Early copies are worth their bytes only above this loss.
const EARLY_LOSS: f64 = 0.02;
/// Streams above this rate of bytes get no early copies: there they would not be cheap.
const THIN_STREAM: Rate = Rate { per_second: 64_000.0, burst: 16_000.0 };
/// Time between a datagram and its early copy.
const EARLY_SPACING: Duration = Duration::from_millis(1);

/// Parameters of a live stream's receiver, and the early copies that it is owed.
#[derive(Debug)]
pub(crate) struct LiveStream {
    params: Live,
    /// Early copies, as a share of the forwarded bytes.
    share: f64,
    /// Bytes of early copies that the budget allows now.
    copies: TokenBucket,
    /// Bytes that the stream may still send now to count as thin.
    thin: TokenBucket,
    last: Option<Timestamp>,
    due: VecDeque<(Timestamp, u64)>,
}

impl LiveStream {
    pub(crate) fn new(params: Live) -> Self {
        Self {
            params,
            share: 0.0,
            copies: TokenBucket::new(0.0),
            thin: TokenBucket::new(THIN_STREAM.burst),
            last: None,
            due: VecDeque::new(),
        }
    }

    pub(crate) fn is_selective(&self) -> bool {
        self.params.selective
    }

    /// True if a datagram that was forwarded at this time would come too late now.
    pub(crate) fn is_late(&self, forwarded_at: Timestamp, now: Timestamp) -> bool {
        !self.params.window.is_zero() && now.saturating_since(forwarded_at) > self.params.window
    }

    /// The latest time of forwarding of which a selective client's eACK, received now, must have
    /// known.
    pub(crate) fn known_until(&self, path: &PathEstimate, now: Timestamp) -> Option<Timestamp> {
        let age = known_age(path.rtt()).filter(|_| self.params.selective)?;
        now.checked_sub(age)
    }

    /// Sets the share of the forwarded bytes that early copies may take; 0 at first.
    pub(crate) fn set_early_copies(&mut self, share: f64) {
        self.share = share;
    }

    /// Records a forwarded datagram, and plans an early copy of it if that helps.
    pub(crate) fn on_forward(
        &mut self,
        sequence: u64,
        length: usize,
        path: &PathEstimate,
        now: Timestamp,
    ) {
        let too_slow = !self.params.tolerance.is_zero()
            && path
                .minimum_round_trip()
                .is_some_and(|round_trip| round_trip > self.params.tolerance);
        if !too_slow || path.loss() < EARLY_LOSS {
            return;
        }
        let length = length as f64;
        let elapsed =
            self.last.replace(now).map_or(Duration::ZERO, |last| now.saturating_since(last));
        self.thin.earn(THIN_STREAM.earned(elapsed), THIN_STREAM.burst);
        self.copies.earn(length * self.share, 2.0 * length);
        if self.thin.try_take(length) && self.copies.try_take(length) {
            self.due.push_back((now + EARLY_SPACING, sequence));
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.due.front().map(|(at, _)| *at)
    }

    /// The next datagram whose early copy is due.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<u64> {
        let &(at, sequence) = self.due.front()?;
        if at > now {
            return None;
        }
        self.due.pop_front();
        Some(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn satellite() -> PathEstimate {
        let mut path = PathEstimate::new();
        for _ in 0..50 {
            path.on_round_trip(Duration::from_millis(60));
        }
        path.on_fate(1000, 100);
        path
    }

    fn params(tolerance: u64) -> Live {
        Live {
            selective: true,
            subscribe: false,
            window: Duration::from_millis(200),
            tolerance: Duration::from_millis(tolerance),
            symbols: false,
        }
    }

    /// Early copies of a stream of ten seconds with a datagram of `length` bytes each `every`
    /// milliseconds.
    fn copies(params: Live, path: &PathEstimate, length: usize, every: u64) -> usize {
        let mut stream = LiveStream::new(params);
        stream.set_early_copies(0.5);
        let mut copies = 0;
        for number in 0..10_000 / every {
            let now = Timestamp::from_millis(1000 + number * every);
            stream.on_forward(number, length, path, now);
            while stream.take_due(now + EARLY_SPACING).is_some() {
                copies += 1;
            }
        }
        copies
    }

    #[test]
    fn early_copies_are_for_thin_streams_with_late_repairs() {
        assert!(
            (248..=250).contains(&copies(params(20), &satellite(), 480, 20)),
            "every second one of 500"
        );
        assert_eq!(copies(params(80), &satellite(), 480, 20), 0, "a repair is in time");
        assert_eq!(copies(params(0), &satellite(), 480, 20), 0, "no client asked");
        assert_eq!(copies(params(20), &PathEstimate::new(), 480, 20), 0, "nothing is lost");
        let thick = copies(params(20), &satellite(), 1200, 1);
        assert!(thick < 600, "{thick} copies of 10,000 datagrams at 10 Mbit/s");
    }

    #[test]
    fn late_datagrams_get_no_repair_and_news_is_a_round_trip_old() {
        let stream = LiveStream::new(params(20));
        let at = Timestamp::from_millis;
        assert!(!stream.is_late(at(1000), at(1200)) && stream.is_late(at(1000), at(1201)));
        let known = stream.known_until(&satellite(), at(1000)).unwrap();
        assert!(known > at(930) && known < at(940), "{known:?}");
        assert_eq!(stream.known_until(&satellite(), at(10)), None);
        assert_eq!(stream.known_until(&PathEstimate::new(), at(1000)), None);
    }
}
