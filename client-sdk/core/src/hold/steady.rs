//! When what has arrived is revealed at the soonest, so that a sender in slow start does not take
//! the hold for a queue.
//!
//! A sender that measures growing round trips leaves slow start (HyStart, RFC 9406: when the
//! shortest of a round's first eight samples is an eighth of the round trip, at most 16 ms, longer
//! than in the round before). Where nearly every moment has an open hole, the hold makes
//! the samples of one round longer than those of the one before by a whole round trip of the last
//! mile: the sender stops growing long before it fills the path. So, from the first repair on,
//! nothing is revealed sooner than a time after its arrival that rises towards the time that holes
//! take, more slowly than the sender minds. After the first seconds it falls again.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_wire::estimate::Timestamp;

/// For how long after the first repair senders may be in slow start.
const SLOW_START: Duration = Duration::from_secs(4);
/// The least share of packets that were repaired for the delay to be of any use: with fewer, most
/// moments have no hole.
const DENSE: u64 = 50;
/// The delay rises to this share of the time that holes take: what waits for a hole may wait for
/// less than all of that time.
const SHARE: f64 = 0.6;
/// The delay changes by at most this share of the time that passes...
const STEEPEST: f64 = 0.1;
/// ...and by less than what a sender minds in a round trip, of which this much is not the last
/// mile's.
const MINDED: Duration = Duration::from_millis(14);
const OTHER_ROUND_TRIP: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Steady {
    /// Packets that were the newest when they arrived and that it is too early to reveal.
    waiting: VecDeque<(Timestamp, u64)>,
    delay: Duration,
    /// True if there is a delay, or will be.
    delays: bool,
    changed: Option<Timestamp>,
    /// Smoothed time until holes are filled, and when the first one was filled.
    typical: Option<(Duration, Timestamp)>,
    arrived: u64,
    filled: u64,
}

impl Steady {
    /// A packet has arrived that is newer than all others.
    pub(super) fn on_newest(&mut self, number: u64, now: Timestamp) {
        self.arrived += 1;
        if self.delays {
            self.waiting.push_back((now, number));
        }
    }

    /// A hole was filled in time.
    pub(super) fn on_filled(&mut self, held: Duration, now: Timestamp) {
        self.filled += 1;
        self.typical = Some(match self.typical {
            None => (held, now),
            Some((typical, since)) => ((typical * 7 + held) / 8, since),
        });
    }

    /// Moves the delay on. `round_trip`: of the last mile.
    fn advance(&mut self, round_trip: Duration, now: Timestamp) {
        let passed = now.saturating_since(self.changed.replace(now).unwrap_or(now));
        let target = match self.typical {
            Some((typical, since))
                if now.saturating_since(since) < SLOW_START
                    && self.filled * DENSE >= self.arrived =>
            {
                typical.mul_f64(SHARE)
            }
            _ => Duration::ZERO,
        };
        let slope =
            (MINDED.as_secs_f64() / (OTHER_ROUND_TRIP + round_trip).as_secs_f64()).min(STEEPEST);
        let step = passed.mul_f64(slope);
        self.delay = if self.delay < target {
            (self.delay + step).min(target)
        } else {
            self.delay.saturating_sub(step).max(target)
        };
        self.delays = !(self.delay.is_zero() && target.is_zero());
    }

    /// The highest packet number that it is not too early to reveal.
    pub(super) fn limit(&self) -> u64 {
        self.waiting.front().map_or(u64::MAX, |&(_, number)| number.saturating_sub(1))
    }

    /// Lets time pass; true when the last packet that waited does not wait any more.
    pub(super) fn pass(&mut self, round_trip: Duration, now: Timestamp) -> bool {
        self.advance(round_trip, now);
        let waited = !self.waiting.is_empty();
        while self.waiting.front().is_some_and(|&(at, _)| now >= at + self.delay) {
            self.waiting.pop_front();
        }
        waited && self.waiting.is_empty()
    }

    /// Nothing waits any more.
    pub(super) fn give_up(&mut self) {
        *self = Self { arrived: self.arrived, filled: self.filled, ..Self::default() };
    }

    /// When the last packet that waits does not wait any more.
    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        self.waiting.back().map(|&(at, _)| at + self.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(60);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A packet each millisecond, each `every`-th filling a hole after 60 ms; the longest time that
    /// any was kept, by second.
    fn longest(every: u64, seconds: u64) -> Vec<u64> {
        let mut steady = Steady::default();
        let mut longest = vec![0; seconds as usize];
        for time in 0..seconds * 1000 {
            steady.on_newest(time, at(time));
            if time % every == 0 {
                steady.on_filled(Duration::from_millis(60), at(time));
            }
            steady.pass(ROUND_TRIP, at(time));
            let waits = time + 1 - steady.limit().saturating_add(1).min(time + 1);
            let second = &mut longest[(time / 1000) as usize];
            *second = waits.max(*second);
        }
        longest
    }

    #[test]
    fn the_delay_rises_slowly_stays_and_falls_again() {
        let longest = longest(10, 6);
        assert!(longest[..4].iter().all(|&longest| (34..=36).contains(&longest)), "{longest:?}");
        assert_eq!(longest[5], 0, "{longest:?}");
        let mut steady = Steady::default();
        steady.on_filled(Duration::from_millis(60), at(0));
        steady.pass(ROUND_TRIP, at(0));
        // Within a round trip of 160 ms by less than 16 ms.
        steady.pass(ROUND_TRIP, at(160));
        assert!(
            steady.delay > Duration::from_millis(12) && steady.delay < Duration::from_millis(16)
        );
    }

    #[test]
    fn nothing_waits_where_little_is_lost() {
        let longest = longest(200, 5);
        // One of the first few is much; one of 200 is not.
        assert!(longest[0] <= 5 && longest[1..] == [0; 4], "{longest:?}");
    }

    #[test]
    fn the_last_packet_is_revealed_when_its_time_has_come() {
        let mut steady = Steady::default();
        steady.on_filled(Duration::from_millis(60), at(0));
        steady.pass(ROUND_TRIP, at(0));
        steady.pass(ROUND_TRIP, at(1000));
        steady.on_newest(7, at(1000));
        assert_eq!((steady.limit(), steady.next_timeout()), (6, Some(at(1036))));
        assert!(!steady.pass(ROUND_TRIP, at(1035)));
        assert!(steady.pass(ROUND_TRIP, at(1036)));
        assert_eq!((steady.limit(), steady.next_timeout()), (u64::MAX, None));
        steady.on_newest(8, at(1040));
        steady.give_up();
        assert_eq!((steady.limit(), steady.next_timeout()), (u64::MAX, None));
    }
}
