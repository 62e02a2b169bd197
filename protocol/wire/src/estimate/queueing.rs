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
use crate::estimate::base::Base;

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
    base: Base,
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
        Self { last: [NEVER; SAMPLES], recent: VecDeque::new(), base: Base::new(), arrivals: None }
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
        let burst = self.burst();
        let each = self.arrivals.as_ref().and_then(|arrivals| arrivals.of_link());
        let least_step = each.map(|each| each * BURST);
        self.base.on_sample(sample, |base| threshold(burst, base), least_step, now);
    }

    /// The fate of `sent` datagrams is known: of them some were lost on the segment, in so many runs.
    /// Losses tell a queue that never empties from a longer path ([`Self::base`]).
    pub fn on_fate(&mut self, sent: u64, runs: u64) {
        let Some(last) = self.latest() else { return };
        let burst = self.burst();
        self.base.on_fate(sent, runs, last, |base| threshold(burst, base));
    }

    /// The datagram with this place in the flow arrived.
    pub fn on_arrival(&mut self, place: u64, at: Timestamp) {
        let round_trip = || self.base.get().unwrap_or(INTERVAL);
        self.arrivals.get_or_insert_default().on_arrival(place, round_trip, at);
    }

    /// Queueing delay from which on what is lost is the sender's to see: [`STANDING_QUEUE`], or the
    /// time in which a slow link carries a burst, unless the flow fills that link.
    pub fn threshold(&self) -> Duration {
        self.base().map_or(STANDING_QUEUE, |base| threshold(self.burst(), base))
    }

    /// The time that a link takes for a burst of a flow that does not fill it.
    fn burst(&self) -> Option<Duration> {
        let each = self.arrivals.as_ref().and_then(|arrivals| arrivals.of_unfilled_link());
        each.map(|each| each * BURST)
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

    /// The round trip without a queue: the least one of the last half minute or more; of ten minutes,
    /// where the shortest since then is that of a queue.
    pub fn base(&self) -> Option<Duration> {
        self.base.get()
    }

    /// The other end of the segment, which sees more of it, says that there is no queue at this round
    /// trip.
    pub fn set_base(&mut self, base: Duration, now: Timestamp) {
        self.base.set(base, now);
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

/// The threshold above a round trip without a queue, where a burst takes that long.
fn threshold(burst: Option<Duration>, base: Duration) -> Duration {
    STANDING_QUEUE.max(burst.unwrap_or_default().min(base / ROUND_TRIP_SHARE))
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

    /// Samples and fates each 15 ms, between two times in seconds; of a datagram in twelve the fate is as this
    /// says.
    fn feed(
        queueing: &mut Queueing,
        seconds: core::ops::Range<u64>,
        round_trip: impl Fn(u64) -> u64,
        lost: impl Fn(u64) -> bool,
    ) {
        for time in (seconds.start * 1000..seconds.end * 1000).step_by(15) {
            queueing.on_round_trip(Duration::from_millis(round_trip(time)), at(time));
            queueing.on_fate(12, u64::from(lost(time / 15)));
            for place in 0..12 {
                queueing.on_arrival(time / 15 * 12 + place, at(time + place));
            }
        }
    }

    /// 86 ms, and from the second second on a queue of 300 to 360 ms above, at whose end one of three eACKs
    /// tells of losses.
    fn always_full(until: u64) -> Queueing {
        let mut queueing = Queueing::new();
        feed(&mut queueing, 0..1, |_| 86, |_| false);
        feed(&mut queueing, 1..2, |time| 86 + (time - 1000) * 3 / 10, |_| false);
        feed(&mut queueing, 2..until, |time| 386 + time / 15 % 60, |step| step % 3 == 0);
        queueing
    }

    #[test]
    fn a_queue_that_is_always_full_stands_for_ten_minutes() {
        for minutes in [2, 5, 9] {
            let queueing = always_full(minutes * 60);
            let standing = queueing.standing(at(minutes * 60_000));
            // A part of what it was while it grew, and lost nothing, is taken for the path.
            assert!(standing >= Duration::from_millis(190), "{minutes} minutes: {standing:?}");
        }
        let queueing = always_full(12 * 60);
        assert!(queueing.standing(at(12 * 60_000)) < Duration::from_millis(60));
    }

    #[test]
    fn a_queue_that_is_always_there_and_loses_nothing_is_the_path() {
        let mut queueing = Queueing::new();
        feed(&mut queueing, 0..1, |_| 86, |_| false);
        feed(&mut queueing, 1..2, |time| 86 + (time - 1000) / 10, |_| false);
        feed(&mut queueing, 2..70, |_| 186, |_| false);
        assert_eq!(queueing.base(), Some(Duration::from_millis(186)));
    }

    /// A handover to a path that takes 40 ms more; before it one of so many eACKs tells of a loss, and
    /// after it one of so many.
    fn handover(before: u64, after: u64, until: u64) -> Queueing {
        let mut queueing = Queueing::new();
        feed(&mut queueing, 0..20, |time| 4 + time / 15 % 4, |step| step % before == 0);
        // What was on its way then has gone one way on the old path.
        let round_trip = |time: u64| if time < 20_020 { 24 } else { 44 + time / 15 % 4 };
        feed(&mut queueing, 20..until, round_trip, |step| step % after == 0);
        queueing
    }

    #[test]
    fn a_handover_is_learnt_within_two_seconds() {
        let queueing = handover(20, 20, 21);
        assert!(queueing.standing(at(21_000)) >= Duration::from_millis(40), "not yet");
        for (before, after) in [(1 << 40, 1 << 40), (20, 20), (3, 3), (3, 1 << 40), (20, 16)] {
            let queueing = handover(before, after, 22);
            let base = queueing.base();
            assert_eq!(base, Some(Duration::from_millis(44)), "one of {before}, then of {after}");
            assert!(queueing.standing(at(22_000)) < STANDING_QUEUE);
        }
    }

    #[test]
    fn a_handover_to_a_worse_path_is_learnt_within_six_seconds() {
        assert_eq!(handover(1 << 40, 10, 24).base(), Some(Duration::from_millis(4)), "not yet");
        for after in [2, 5, 10, 16] {
            let base = handover(1 << 40, after, 26).base();
            assert_eq!(base, Some(Duration::from_millis(44)), "one of {after}");
        }
    }

    /// 20 s on an empty path; then others fill its queue at once, to between 250 and `most` milliseconds above,
    /// and one of three eACKs tells of losses.
    fn crowd(most: u64, until: u64) -> Queueing {
        let mut queueing = Queueing::new();
        feed(&mut queueing, 0..20, |time| 86 + time / 15 % 4, |_| false);
        let round_trip = |time: u64| 336 + time / 15 * 7 % (most - 250);
        feed(&mut queueing, 20..until, round_trip, |step| step % 3 == 0);
        queueing
    }

    #[test]
    fn a_crowd_that_comes_at_once_is_no_handover() {
        for seconds in [22, 26, 60, 300] {
            let queueing = crowd(300, seconds);
            let standing = queueing.standing(at(seconds * 1000));
            assert!(standing >= Duration::from_millis(240), "{seconds} s: {standing:?}");
        }
    }

    #[test]
    fn what_is_lost_behind_a_step_says_nothing_to_a_flow_that_knows_little() {
        let mut queueing = Queueing::new();
        feed(&mut queueing, 0..1, |time| 4 + time / 15 % 4, |_| false);
        feed(&mut queueing, 1..60, |time| 44 + time / 15 % 4, |step| step % 10 == 0);
        assert_eq!(queueing.base(), Some(Duration::from_millis(4)));
    }

    #[test]
    fn a_shorter_path_is_learnt_at_once() {
        let mut queueing = Queueing::new();
        feed(&mut queueing, 0..20, |_| 80, |_| false);
        feed(&mut queueing, 20..21, |_| 30, |_| false);
        assert_eq!(queueing.base(), Some(Duration::from_millis(30)));
    }

    #[test]
    fn what_grows_or_goes_again_is_no_handover() {
        // A sender that sends a tenth more than the link carries.
        let mut queueing = Queueing::new();
        feed(&mut queueing, 0..5, |_| 40, |_| false);
        feed(&mut queueing, 5..10, |time| 40 + (time - 5000).min(2000) / 10, |_| false);
        assert_eq!(queueing.base(), Some(Duration::from_millis(40)));
        // A radio that stops for a while, ten times.
        let mut queueing = Queueing::new();
        feed(&mut queueing, 0..20, |time| if time % 2000 < 900 { 140 } else { 40 }, |_| false);
        assert_eq!(queueing.base(), Some(Duration::from_millis(40)));
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
        let grows = |time: u64| 4 + time.saturating_sub(10_000).min(56);
        assert_eq!(fed(100_000, grows).standing(at(100_000)), Duration::ZERO);
        assert_eq!(fed(20_000, grows).standing(at(20_000)), Duration::from_millis(56));
    }
}
