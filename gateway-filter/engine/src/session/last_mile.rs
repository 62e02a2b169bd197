//! The path from gateway to client, as a session's eACKs show it.

use core::time::Duration;

use packrat_wire::estimate::{Least, PathEstimate};
use packrat_wire::message::SATURATED_AGE;

use super::Turn;
use crate::history::History;
use crate::lazy_box::LazyBox;
use crate::sample::Sample;

/// The base round trip and the latest.
#[derive(Default)]
pub(crate) struct Timing {
    base: Least,
    latest: Option<Duration>,
}

impl Timing {
    pub(crate) const fn new() -> Self {
        Self { base: Least::new(), latest: None }
    }
}

/// Round trip and loss of the last mile.
pub(crate) struct LastMile {
    pub(crate) path: LazyBox<PathEstimate>,
    timing: LazyBox<Timing>,
    /// Sequence number of the newest datagram whose round trip was measured.
    measured: Option<u64>,
}

impl LastMile {
    pub(crate) const fn new() -> Self {
        Self { path: LazyBox::new(), timing: LazyBox::new(), measured: None }
    }

    /// Measures the round trip of `newest`, which an eACK names; it arrived `age` before the eACK
    /// was sent, and a saturated age is no sample. Returns the round trip, if it is measured.
    pub(crate) fn measure(
        &mut self,
        newest: u64,
        age: Duration,
        history: &History,
        turn: &mut Turn<'_>,
    ) -> Option<Duration> {
        if age >= SATURATED_AGE || self.measured.is_some_and(|measured| newest <= measured) {
            return None;
        }
        let entry = history.get(newest).filter(|entry| !entry.resent)?;
        let sample = turn.now.saturating_since(entry.forwarded_at).saturating_sub(age);
        self.path.on_round_trip(sample);
        self.timing.base.on_sample(sample, turn.now);
        self.timing.latest = Some(sample);
        turn.out.sample(Sample::LastMileRoundTrip(sample));
        self.measured = Some(newest);
        Some(sample)
    }

    /// Seconds by which the last round trip was longer than the base: the backlog that a client's
    /// datagram may have met. The timed datagrams are the server's answers, which do not show how
    /// fast the way up is.
    pub(crate) fn delay_above_base(&self) -> f64 {
        let last = self.timing.latest.zip(self.base());
        last.map_or(0.0, |(last, base)| last.saturating_sub(base).as_secs_f64())
    }

    /// Time within which an overtaken datagram of the client arrives: half the base round trip.
    pub(crate) fn overtaking(&self) -> Duration {
        self.base().unwrap_or_default() / 2
    }

    /// The round trip without a queue.
    pub(crate) fn base(&self) -> Option<Duration> {
        self.timing.base.get()
    }

    /// Forgets the old path's round trip; the old path's loss is the best guess.
    pub(crate) fn move_to_new_path(&mut self) {
        self.path.forget_round_trip();
        (self.timing, self.measured) = (LazyBox::new(), None);
    }
}

#[cfg(test)]
mod tests {
    use packrat_eack::Identifier;
    use packrat_wire::estimate::Timestamp;

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
            // Named again, it is no new sample.
            last_mile.measure(sequence, Duration::ZERO, &history, &mut turn);
        }
        (last_mile, out.samples().len())
    }

    #[test]
    fn each_datagram_is_one_sample_and_a_new_path_begins_anew() {
        let (mut last_mile, samples) = measured(|_| 20);
        assert_eq!(samples, 100);
        assert_eq!(last_mile.path.round_trip(), Some(Duration::from_millis(20)));
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
}
