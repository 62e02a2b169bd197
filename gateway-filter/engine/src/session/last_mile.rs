//! The path from gateway to client, as a session's eACKs show it.

use core::time::Duration;

use packrat_wire::estimate::{PathEstimate, Queueing, STANDING_QUEUE, Timestamp};
use packrat_wire::message::SATURATED_AGE;

use super::Turn;
use crate::history::History;
use crate::lazy_box::LazyBox;
use crate::sample::Sample;

/// Round trip, loss and standing queue of the last mile.
pub(crate) struct LastMile {
    pub(crate) path: LazyBox<PathEstimate>,
    queueing: LazyBox<Queueing>,
    /// Sequence number of the newest datagram whose round trip was measured.
    measured: Option<u64>,
}

impl LastMile {
    pub(crate) const fn new() -> Self {
        Self { path: LazyBox::new(), queueing: LazyBox::new(), measured: None }
    }

    /// An eACK names `newest`, which arrived `age` before it was sent; a saturated age is no sample.
    pub(crate) fn measure(
        &mut self,
        newest: u64,
        age: Duration,
        history: &History,
        turn: &mut Turn<'_>,
    ) {
        if age >= SATURATED_AGE || self.measured.is_some_and(|measured| newest <= measured) {
            return;
        }
        if let Some(entry) = history.get(newest)
            && !entry.resent
        {
            let sample = turn.now.saturating_since(entry.forwarded_at).saturating_sub(age);
            self.path.on_round_trip(sample);
            turn.out.sample(Sample::LastMileRoundTrip(sample));
            self.queueing.on_round_trip(sample, turn.now);
            // On this clock it is late by the way back, each time.
            self.queueing.on_arrival(newest, entry.forwarded_at + sample);
            self.measured = Some(newest);
        }
    }

    /// An eACK has shown the fate of `sent` datagrams, of which some were lost, in so many runs.
    pub(crate) fn on_fate(&mut self, sent: u64, runs: u64) {
        if self.queueing.latest().is_some() {
            self.queueing.on_fate(sent, runs);
        }
    }

    /// The delay of the queue that stands now, if it is so long that what is lost now was lost in
    /// it, most likely.
    pub(crate) fn standing_queue(&self, now: Timestamp) -> Option<Duration> {
        Some(self.queueing.standing(now)).filter(|standing| *standing >= self.queueing.threshold())
    }

    /// True if a queue stands, or seems to begin: what is lost now need not be the medium's.
    pub(crate) fn may_be_queued(&self, now: Timestamp) -> bool {
        self.standing_queue(now).is_some() || self.has_grown()
    }

    /// True if the smoothed round trip, and the last one, are longer than the shortest by what counts
    /// as a queue: one that drains is seen at once.
    pub(crate) fn has_grown(&self) -> bool {
        let now = self.path.round_trip().zip(self.queueing.latest());
        now.zip(self.queueing.base()).is_some_and(|((smoothed, latest), base)| {
            smoothed.min(latest).saturating_sub(base) >= self.queueing.threshold()
        })
    }

    /// True if the last round trip alone was as long as with a standing queue: what a client sends and
    /// is lost now need not be the medium's. The datagrams that were timed are the server's answers, which
    /// say nothing about how fast the way up is.
    pub(crate) fn is_perhaps_queued_upward(&self) -> bool {
        let last = self.queueing.latest().zip(self.queueing.base());
        last.is_some_and(|(last, base)| last.saturating_sub(base) >= STANDING_QUEUE)
    }

    /// The round trip without a queue.
    pub(crate) fn base(&self) -> Option<Duration> {
        self.queueing.base()
    }

    /// Nothing passes: what says nothing about a queue any more is forgotten.
    pub(crate) fn forget_old(&mut self, now: Timestamp) {
        if self.queueing.latest().is_some() {
            self.queueing.forget_old(now);
        }
    }

    /// Another path has another round trip; what is known of the old one's loss is the best guess.
    pub(crate) fn move_to_new_path(&mut self) {
        self.path.forget_round_trip();
        self.queueing = LazyBox::new();
        self.measured = None;
    }
}

#[cfg(test)]
mod tests {
    use packrat_eack::Identifier;

    use super::*;
    use crate::counters::FlowCounters;
    use crate::history::{MAXIMUM_ENTRIES, identifier};
    use crate::outbox::Outbox;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A datagram each millisecond from 1 on; an eACK names each of them after `round_trip`.
    fn measured(round_trip: impl Fn(u64) -> u64) -> (LastMile, usize) {
        let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
        for number in 1..=100u64 {
            history.push(identifier(number), &[], at(number));
        }
        let (mut last_mile, mut counters) = (LastMile::new(), FlowCounters::default());
        let mut out = Outbox::new();
        for sequence in 0..100 {
            let now = at(sequence + 1 + round_trip(sequence) + 5);
            let mut turn = Turn::new(now, &mut counters, &mut out);
            let age = Duration::from_millis(5);
            last_mile.measure(sequence, age, &history, &mut turn);
            // Named again, it says nothing new.
            last_mile.measure(sequence, Duration::ZERO, &history, &mut turn);
        }
        (last_mile, out.samples().len())
    }

    #[test]
    fn each_datagram_is_one_sample_and_a_new_path_begins_anew() {
        let (mut last_mile, samples) = measured(|_| 20);
        assert_eq!(samples, 100);
        assert_eq!(last_mile.path.round_trip(), Some(Duration::from_millis(20)));
        assert_eq!(last_mile.standing_queue(at(125)), None);
        last_mile.path.on_fate(100, 10);
        last_mile.move_to_new_path();
        assert_eq!(last_mile.path.round_trip(), None);
        assert!((last_mile.path.loss() - 0.1).abs() < 1e-9, "the best guess");
    }

    #[test]
    fn a_saturated_age_is_no_sample() {
        let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
        history.push(Identifier::from_hash(1 << 40), &[], at(1));
        let (mut last_mile, mut counters) = (LastMile::new(), FlowCounters::default());
        let mut out = Outbox::new();
        let mut turn = Turn::new(at(60_000), &mut counters, &mut out);
        last_mile.measure(0, SATURATED_AGE, &history, &mut turn);
        drop(turn);
        assert_eq!(last_mile.path.round_trip(), None);
        let mut turn = Turn::new(at(60_000), &mut counters, &mut out);
        last_mile.measure(0, SATURATED_AGE - Duration::from_micros(16), &history, &mut turn);
        drop(turn);
        assert!(last_mile.path.round_trip().is_some());
    }

    #[test]
    fn bursts_on_a_slow_link_are_no_queue() {
        let standing = |each: u64, pause: u64| {
            let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
            let (mut last_mile, mut counters) = (LastMile::new(), FlowCounters::default());
            let mut out = Outbox::new();
            for sequence in 0..500u64 {
                let sent = sequence / 10 * pause + 1;
                history.push(identifier(sequence + 1), &[], at(sent));
                let heard = sent + 200 + sequence % 10 * each;
                let mut turn = Turn::new(at(heard), &mut counters, &mut out);
                last_mile.measure(sequence, Duration::ZERO, &history, &mut turn);
            }
            // What the last burst's end has met.
            last_mile.standing_queue(at(49 * pause + 1 + 200 + 9 * each + 20))
        };
        assert_eq!(standing(6, 200), None, "30 to 54 ms: eight datagrams take 48, a quarter is 50");
        assert!(standing(6, 70).is_some(), "the link is filled");
        assert!(standing(2, 200).is_none(), "within CoDel's interval it was short");
    }

    #[test]
    fn a_queue_that_grows_stands() {
        let (last_mile, _) = measured(|sequence| 20 + sequence);
        let standing = last_mile.standing_queue(at(225)).unwrap();
        assert!(standing > Duration::from_millis(60), "{standing:?}");
    }
}
