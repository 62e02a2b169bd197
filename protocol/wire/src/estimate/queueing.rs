//! Standing queue of a path segment.
//!
//! A medium loses datagrams at any rate; a full queue loses them because the sender is too fast,
//! and then the sender must know. The delay tells them apart: a queue that stands makes *every*
//! round trip of a while longer, whereas one slow moment of a host or of a radio link leaves some
//! of them short. That is CoDel's measure (RFC 8289): the least delay within an interval.

use core::time::Duration;
use std::collections::VecDeque;

use crate::estimate::Timestamp;
use crate::estimate::arrivals::Arrivals;
use crate::estimate::least::Least;

/// Losses that come with a queue that makes datagrams wait for this long are not repaired: they are
/// the sender's to see. On a slow link it is longer ([`Queueing::threshold`]).
pub const STANDING_QUEUE: Duration = Duration::from_millis(10);
/// A queue stands when there was one for this long (CoDel: a round trip).
const INTERVAL: Duration = Duration::from_millis(50);
/// Fewer round trips within the interval say nothing.
const SAMPLES: usize = 3;
/// Of a link that the flow does not fill, a burst of so many datagrams is no standing queue...
const BURST: u32 = 8;
/// ...but this share of the round trip without a queue is one, always: what a queue has room for is
/// often one round trip.
const ROUND_TRIP_SHARE: u32 = 4;

/// The time of a sample that there is not.
const NEVER: Timestamp = Timestamp::from_micros(u64::MAX);

/// The least queueing delay of a while. Fed with round trips, sample by sample.
#[derive(Debug, Clone)]
pub struct Queueing {
    /// Times of the last round trips.
    last: [Timestamp; SAMPLES],
    /// Times and round trips within the interval: those that no later one is less than. The least
    /// of them, and of any later part of them, is the first.
    recent: VecDeque<(Timestamp, Duration)>,
    /// The round trip without a queue.
    least: Least,
    /// `None` until something has come: clients are many, and most are idle.
    arrivals: Option<Box<Arrivals>>,
}

impl Default for Queueing {
    fn default() -> Self {
        Self::new()
    }
}

impl Queueing {
    /// One that knows nothing yet.
    pub const fn new() -> Self {
        Self {
            last: [NEVER; SAMPLES],
            recent: VecDeque::new(),
            least: Least::new(),
            arrivals: None,
        }
    }

    /// Takes in one round-trip sample.
    pub fn on_round_trip(&mut self, sample: Duration, now: Timestamp) {
        self.last.rotate_left(1);
        self.last[SAMPLES - 1] = now;
        while self.recent.back().is_some_and(|&(_, later)| later >= sample) {
            self.recent.pop_back();
        }
        self.recent.push_back((now, sample));
        while self.recent.front().is_some_and(|&(at, _)| now.saturating_since(at) > INTERVAL) {
            self.recent.pop_front();
        }
        self.least.on_sample(sample, now);
    }

    /// The datagram with this place in the flow arrived.
    pub fn on_arrival(&mut self, place: u64, at: Timestamp) {
        let round_trip = || self.least.get().unwrap_or(INTERVAL);
        self.arrivals.get_or_insert_default().on_arrival(place, round_trip, at);
    }

    /// Queueing delay from which on what is lost is the sender's to see: [`STANDING_QUEUE`], or the
    /// time in which a slow link carries a burst, unless the flow fills that link.
    pub fn threshold(&self) -> Duration {
        let each = self.arrivals.as_ref().and_then(|arrivals| arrivals.of_unfilled_link());
        let burst = each.map(|each| each * BURST);
        match burst.zip(self.base()) {
            Some((burst, base)) => STANDING_QUEUE.max(burst.min(base / ROUND_TRIP_SHARE)),
            None => STANDING_QUEUE,
        }
    }

    /// Gives back the memory of samples that say nothing about a queue any more.
    pub fn forget_old(&mut self, now: Timestamp) {
        let old = |at: Timestamp| now.saturating_since(at) > INTERVAL;
        // The last one is kept: it is asked for.
        while self.recent.len() > 1 && self.recent.front().is_some_and(|&(at, _)| old(at)) {
            self.recent.pop_front();
        }
        self.recent.shrink_to_fit();
    }

    /// The round trip without a queue: the least one of the last half minute or more.
    pub fn base(&self) -> Option<Duration> {
        self.least.get()
    }

    /// The last round trip.
    pub fn latest(&self) -> Option<Duration> {
        self.recent.back().map(|&(_, sample)| sample)
    }

    /// Time that datagrams have waited at least in the queue that stands now; zero when there is
    /// none, or nothing is known.
    pub fn standing(&self, now: Timestamp) -> Duration {
        let is_recent = |at: Timestamp| now.saturating_since(at) <= INTERVAL;
        let enough = self.last[0] != NEVER && is_recent(self.last[0]);
        let shortest = self.recent.iter().find(|(at, _)| is_recent(*at));
        match (shortest, self.base()) {
            (Some((_, shortest)), Some(base)) if enough => shortest.saturating_sub(base),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a model that keeps every sample.
        #[test]
        fn the_least_round_trip_of_the_interval_counts(
            steps in prop::collection::vec((0u64..30, 1u64..100), 1..200),
            later in 0u64..80,
        ) {
            let (mut queueing, mut all, mut time) = (Queueing::new(), Vec::new(), 0);
            for (pause, sample) in steps {
                time += pause;
                if sample % 8 == 0 {
                    queueing.forget_old(at(time));
                }
                queueing.on_round_trip(Duration::from_millis(sample), at(time));
                all.push((time, sample));
                let now = time + later;
                let recent = all.iter().filter(|(at, _)| now - at <= 50).map(|(_, sample)| *sample);
                let base = all.iter().map(|(_, sample)| *sample).min().unwrap();
                let enough = recent.clone().count() >= SAMPLES;
                let standing = if enough { recent.min().unwrap() - base } else { 0 };
                prop_assert_eq!(queueing.standing(at(now)), Duration::from_millis(standing));
            }
        }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A sample each five milliseconds, as this function of the time says, in milliseconds.
    fn fed(until: u64, round_trip: impl Fn(u64) -> u64) -> Queueing {
        let mut queueing = Queueing::new();
        for time in (0..until).step_by(5) {
            queueing.on_round_trip(Duration::from_millis(round_trip(time)), at(time));
        }
        queueing
    }

    #[test]
    fn a_queue_that_grows_stands() {
        let queueing = fed(1000, |time| 4 + time / 20);
        let standing = queueing.standing(at(1000));
        assert!(
            standing > Duration::from_millis(44) && standing < Duration::from_millis(50),
            "{standing:?}"
        );
    }

    /// A link that takes `each` milliseconds for a datagram carries bursts of ten, one in `round_trip`.
    fn bursts(each: u64, round_trip: u64) -> Queueing {
        let mut queueing = Queueing::new();
        for place in 0..500 {
            let (burst, within) = (place / 10, place % 10 * each);
            queueing
                .on_round_trip(Duration::from_millis(round_trip + within), at(burst * round_trip));
            queueing.on_arrival(place, at(burst * round_trip + within));
        }
        queueing
    }

    #[test]
    fn what_counts_as_a_queue_is_a_burst_on_a_slow_link_that_is_not_filled() {
        let threshold = |each, round_trip| bursts(each, round_trip).threshold();
        assert_eq!(threshold(2, 92), Duration::from_millis(16));
        assert_eq!(threshold(8, 400), Duration::from_millis(64));
        assert_eq!(threshold(8, 200), Duration::from_millis(50), "a quarter of the round trip");
        assert_eq!(threshold(1, 92), STANDING_QUEUE, "a fast link");
        assert_eq!(threshold(8, 92), STANDING_QUEUE, "it is filled");
        assert_eq!(Queueing::new().threshold(), STANDING_QUEUE);
    }

    #[test]
    fn slow_moments_are_no_queue() {
        // Every twentieth sample is short: the others waited for a host or a radio.
        let queueing = fed(1000, |time| if time % 40 == 0 { 4 } else { 60 });
        assert_eq!(queueing.standing(at(1000)), Duration::ZERO);
    }

    #[test]
    fn the_base_is_the_least_round_trip_of_a_while() {
        assert_eq!(Queueing::new().base(), None);
        assert_eq!(fed(1000, |time| 30 + time / 20).base(), Some(Duration::from_millis(30)));
    }

    #[test]
    fn old_evidence_and_little_evidence_say_nothing() {
        let queueing = fed(1000, |time| 4 + time / 20);
        assert_eq!(queueing.standing(at(1100)), Duration::ZERO);
        let mut few = Queueing::new();
        few.on_round_trip(Duration::from_millis(4), at(0));
        few.on_round_trip(Duration::from_millis(90), at(500));
        assert_eq!(few.standing(at(500)), Duration::ZERO);
    }

    #[test]
    fn a_longer_path_is_no_queue_for_ever() {
        let queueing = fed(100_000, |time| if time < 10_000 { 4 } else { 60 });
        assert_eq!(queueing.standing(at(100_000)), Duration::ZERO);
        let queueing = fed(20_000, |time| if time < 10_000 { 4 } else { 60 });
        assert_eq!(queueing.standing(at(20_000)), Duration::from_millis(56));
    }
}
