//! The epoch of a session: both ends' sets, and how far the client has spoken of them.
//!
//! ```text
//!                       eACK with an anchor                   eACK decoded
//!   Entered (sets empty) ------------------> Anchored <---------------------+
//!        ^                                    |    |                        |
//!        |                                    |    +------------------------+
//!        | eACK of a newer epoch,             | failed, longest prefix, twice
//!        | or the client's Reset              v
//!        +---------------------------- Resetting (Reset repeated until it is answered)
//! ```
//!
//! Sequence numbers in an epoch:
//!
//! ```text
//!   history.first()      considered            horizon            history.next()
//!        |--- fate known ----|--- in the sketch ---|--- not yet ---|
//! ```

use core::cell::Cell;
use core::time::Duration;

use packrat_eack::{
    Decoder, EncodedPrefix, Encoding, Identifier, MAX_EXPECTED_DIFFERENCE, Sketch, SketchKey,
    SketchLimits,
};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::GatewayParams;
use packrat_wire::message::Eack;
use packrat_wire::{Epoch, MessageCounter};

use super::outage::Outage;
use crate::history::{Entry, Fate, History};
use crate::reconciliation::{
    AfterFailure, EpochOf, after_failure, decode_assuming, epoch_of, epoch_start, is_stale,
};
use crate::scratch::Scratch;

/// A Reset is repeated at most this often.
const RESET_INTERVAL: Duration = Duration::from_millis(10);
/// Datagrams among which one is looked for that the client has.
const SETTLED_SEARCH: usize = 512;

/// Datagrams that are assumed missing at once, at most: there are more only when a client was silent
/// for seconds.
const MAXIMUM_ASSUMED: usize = 8192;
/// Datagrams that one eACK has inserted into the sketch, at most: a fifth of a millisecond. Only a client
/// that was silent while more were forwarded is told of fewer.
const MAXIMUM_INSERTED: u64 = 4096;
/// Work per datagram that may be missing, before anything is decoded.
const CANDIDATE_WORK: u64 = 4;
/// Work per entry of the history when an epoch begins.
const ANCHOR_WORK: u64 = 8;

/// The gateway's half of an epoch.
pub(crate) struct EpochState {
    number: Epoch,
    key: SketchKey,
    limits: SketchLimits,
    /// Made when something is in it.
    sketch: Option<Box<Sketch>>,
    /// True if it is known where the client's set begins.
    anchored: bool,
    /// Everything before this sequence number has been considered for the sketch.
    horizon: u64,
    /// Of everything before this sequence number the client has spoken, in an eACK that was
    /// decoded.
    considered: u64,
    /// The client may not have had the session's parameters before the datagram with this sequence number:
    /// it asked for them again. Zero once an eACK says which datagrams it has.
    joined: u64,
    /// Counter of the newest eACK decoded.
    newest_eack: Option<MessageCounter>,
    /// Failed decodes of the longest prefix since one succeeded.
    failures: u8,
    /// The client may come from an outage.
    outage: Option<Box<Outage>>,
    /// When a Reset was last sent that the client has not answered yet.
    reset_sent: Option<Timestamp>,
    decode_failures: u32,
    resets: u32,
}

impl core::fmt::Debug for EpochState {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("EpochState")
            .field("number", &self.number)
            .field("considered", &self.considered)
            .field("horizon", &self.horizon)
            .finish_non_exhaustive()
    }
}

/// Buffers for the outcome of a decode, and its working memory.
struct Found<'a> {
    only_here: &'a mut Vec<Identifier>,
    only_there: &'a mut Vec<Identifier>,
    decoder: &'a mut Decoder,
}

impl EpochState {
    pub(crate) fn new(params: &GatewayParams) -> Self {
        Self {
            number: Epoch::FIRST,
            key: params.sketch_key(),
            limits: params.limits,
            sketch: None,
            anchored: false,
            horizon: 0,
            considered: 0,
            joined: 0,
            newest_eack: None,
            failures: 0,
            outage: None,
            reset_sent: None,
            decode_failures: 0,
            resets: 0,
        }
    }

    pub(crate) fn number(&self) -> Epoch {
        self.number
    }

    /// True if the client has not spoken of all that was forwarded, although it could have.
    pub(crate) fn is_tail_open(&self, history: &History) -> bool {
        self.horizon < history.next()
    }

    /// The client may not have had the session's parameters before the datagram with this sequence number.
    pub(crate) fn join(&mut self, next: u64) {
        self.joined = next;
    }

    /// Sequence number of the first datagram that a client can have recorded, by its first decoded eACK:
    /// those in front of it, all of which are `only_here`, passed while the answer to it was lost. Zero
    /// afterwards, and if the client has asked once only.
    pub(crate) fn take_joined(&mut self, only_here: &[Identifier], history: &History) -> u64 {
        let joined = core::mem::take(&mut self.joined);
        let first = history.first();
        if joined <= first {
            return 0;
        }
        let mut absent: Vec<_> =
            only_here.iter().filter_map(|&it| history.sequence_of(it)).collect();
        absent.sort_unstable();
        let run =
            absent.iter().zip(first..joined).take_while(|(absent, expected)| **absent == *expected);
        first + run.count() as u64
    }

    pub(crate) fn is_anchored(&self) -> bool {
        self.anchored
    }

    pub(crate) fn horizon(&self) -> u64 {
        self.horizon
    }

    /// True if an eACK of this epoch was decoded.
    pub(crate) fn was_acknowledged(&self) -> bool {
        self.newest_eack.is_some()
    }

    /// See [`epoch_of`].
    pub(crate) fn compare(&self, epoch: Epoch) -> EpochOf {
        epoch_of(epoch, self.number, self.reset_sent.is_some())
    }

    /// Begins an epoch with empty sets, to be anchored by the client's first eACK of it.
    pub(crate) fn enter(&mut self, epoch: Epoch) {
        self.number = epoch;
        self.reset_sent = None;
        self.anchored = false;
        self.joined = 0;
        self.newest_eack = None;
        self.failures = 0;
        self.outage = None;
        self.sketch = None;
    }

    /// See [`is_stale`].
    pub(crate) fn is_stale(&self, counter: MessageCounter) -> bool {
        is_stale(counter, self.newest_eack)
    }

    /// Finds where the client's set begins, unless that is known: behind its anchor. Everything up
    /// to there is settled, one way or the other. Returns the work, also of the insertions to
    /// follow, if it was not known before.
    pub(crate) fn anchor(&mut self, eack: &Eack<'_>, history: &mut History) -> Option<u64> {
        if self.anchored {
            return None;
        }
        let start = epoch_start(eack, self.number, 0, history);
        for sequence in history.first()..history.next() {
            if let Some(entry) = history.get_mut(sequence) {
                entry.in_sketch = false;
                if sequence < start && entry.fate != Fate::Received {
                    entry.fate = Fate::GivenUp;
                } else if sequence >= start {
                    entry.fate = Fate::Unknown;
                }
            }
        }
        self.horizon = start;
        self.considered = start;
        self.anchored = true;
        history.release_settled();
        let behind = usize::try_from(history.next().saturating_sub(start)).unwrap_or(usize::MAX);
        let scanned = history.next() - history.first();
        Some(ANCHOR_WORK * scanned + self.limits.work_of(behind))
    }

    /// Inserts everything up to the client's newest datagram into the sketch. Idempotent, so that a
    /// failed decode does no harm. False if that is so much that the next eACK has to go on: this one
    /// can't be decoded.
    pub(crate) fn advance_horizon(&mut self, newest: Option<u64>, history: &mut History) -> bool {
        let Some(newest) = newest else { return true };
        if self.outage.is_none() {
            self.outage = Outage::of(newest, self.horizon);
        }
        let first = self.horizon.max(history.first());
        let end = (newest + 1).min(first + MAXIMUM_INSERTED);
        for entry in history.range_mut(first..end) {
            if !entry.in_sketch {
                entry.in_sketch = true;
                self.sketch().insert(entry.identifier);
            }
        }
        self.horizon = self.horizon.max(end);
        end > newest
    }

    /// True if a client that comes from an outage sends this encoding because it has not heard yet that the
    /// longest is wanted.
    pub(crate) fn awaits_longer(
        &self,
        encoding: Encoding,
        round_trip: Duration,
        now: Timestamp,
    ) -> bool {
        self.outage.as_ref().is_some_and(|outage| outage.awaits_longest(round_trip, now))
            && self.longest().is_some_and(|longest| encoding.decodable() < longest.decodable())
    }

    fn longest(&self) -> Option<Encoding> {
        self.limits.encoding_for(MAX_EXPECTED_DIFFERENCE)
    }

    #[inline]
    fn sketch(&mut self) -> &mut Sketch {
        let Self { sketch, key, limits, .. } = self;
        sketch.get_or_insert_with(|| Box::new(Sketch::new(key.clone(), *limits)))
    }

    /// Decodes the difference into `only_here` and `only_there` of the working memory; `None` when
    /// that fails. Changes nothing else.
    ///
    /// First as it is: what is missing is only here. Then under assumptions (see
    /// [`decode_assuming`]): that of the datagrams forwarded since the last eACK all are missing (a
    /// long burst), of those that were `missing` before (a long repair), or of both; and of those that
    /// passed before the client had asked for the last time. Last, of an outage's, that it began at one
    /// of some places. `spend` is
    /// told the work after each attempt and whether it failed, and then decides whether there may be
    /// another one.
    pub(crate) fn decode(
        &self,
        eack: &Eack<'_>,
        missing: impl ExactSizeIterator<Item = u64> + Clone,
        history: &History,
        mut spend: impl FnMut(u64, bool) -> bool,
        scratch: &mut Scratch,
    ) -> Option<()> {
        let prefix = EncodedPrefix::new(eack.encoding, eack.prefix).ok()?;
        let empty;
        let own = match &self.sketch {
            Some(sketch) => &**sketch,
            None => {
                empty = Sketch::new(self.key.clone(), self.limits);
                &empty
            }
        };
        let Scratch { candidates, only_here, only_there, decoder, .. } = scratch;
        let decoder = decoder.get_or_insert_default();
        let mut found = Found { only_here, only_there, decoder };
        let search = CANDIDATE_WORK * (missing.len() as u64 + self.horizon - self.considered);
        let known = missing.filter_map(|sequence| history.get(sequence));
        let unknown = history.range(self.considered..self.horizon);
        let unknown = unknown.filter(|entry| entry.fate == Fate::Unknown);
        let (known, unknown) =
            (known.map(|entry| entry.identifier), unknown.map(|entry| entry.identifier));
        // Few differences are found without candidates: these are collected when that has failed.
        let likely = known.clone().chain(unknown.clone());
        let (decoded, work) = self.decode_under(&[], likely, own, prefix, history, &mut found);
        let mut may_go_on = spend(search + work, !decoded);
        if decoded || !may_go_on {
            return decoded.then_some(());
        }
        candidates.clear();
        candidates.extend(known);
        let known = candidates.len();
        candidates.extend(unknown);
        let all = &**candidates;
        let (known, new) = all.split_at(known);
        let unheard =
            history.range(self.considered..self.joined.min(self.horizon).max(self.considered));
        let unheard = unheard.filter(|entry| entry.fate == Fate::Unknown).count();
        let unheard = new.get(..unheard).unwrap_or_default();
        let assumptions: [(&[_], &[_]); 5] =
            [(all, &[]), (all, unheard), (known, new), (new, known), (&[], all)];
        let assumed = assumptions.map(|(_, assumed)| assumed);
        let decoded = decode_assuming(&assumed, |attempt, assumed| {
            // The first attempt was the one before.
            if attempt == 0 || !may_go_on || assumed.len() > MAXIMUM_ASSUMED {
                return None;
            }
            let mut reduced = own.clone();
            reduced.remove_all(assumed);
            let likely = assumptions[attempt].0.iter().copied();
            let (decoded, work) =
                self.decode_under(assumed, likely, &reduced, prefix, history, &mut found);
            may_go_on = spend(search + self.limits.work_of(assumed.len()) + work, !decoded);
            decoded.then_some(())
        });
        let outage = self.outage.as_ref().filter(|_| self.longest() == Some(eack.encoding));
        let Some(outage) = outage.filter(|_| decoded.is_none() && may_go_on) else {
            return decoded;
        };
        let before = history.range(self.considered..outage.end().min(self.horizon));
        let end = before.filter(|entry| entry.fate == Fate::Unknown).count();
        Outage::beginnings(end, eack.encoding.decodable()).find_map(|begin| {
            let lost = new.get(begin..end).filter(|lost| lost.len() <= MAXIMUM_ASSUMED)?;
            if !may_go_on {
                return None;
            }
            let mut reduced = own.clone();
            reduced.remove_all(lost);
            let likely = known.iter().chain(&new[..begin]).chain(&new[end..]).copied();
            let (decoded, work) =
                self.decode_under(lost, likely, &reduced, prefix, history, &mut found);
            may_go_on = spend(search + self.limits.work_of(lost.len()) + work, !decoded);
            decoded.then_some(())
        })
    }

    /// Decodes the difference to a sketch without the datagrams that are `assumed` to be missing.
    /// True if that succeeds, and the work.
    fn decode_under(
        &self,
        assumed: &[Identifier],
        likely: impl Iterator<Item = Identifier>,
        sketch: &Sketch,
        prefix: EncodedPrefix<'_>,
        history: &History,
        found: &mut Found<'_>,
    ) -> (bool, u64) {
        let Found { only_here, only_there, decoder } = found;
        let looked_at = Cell::new(0);
        let others = assumed.iter().copied().chain(self.outside(history, &looked_at));
        let difference = sketch.decode_among(prefix, likely, others, decoder);
        if let Ok(difference) = difference {
            let arrived =
                |identifier: &Identifier| difference.only_there.binary_search(identifier).is_ok();
            let (mut late, lost): (Vec<_>, Vec<_>) =
                assumed.iter().copied().partition(|identifier| arrived(identifier));
            late.sort_unstable();
            only_here.clear();
            only_here.extend_from_slice(difference.only_here);
            only_here.extend(lost);
            only_there.clear();
            only_there.extend(
                difference
                    .only_there
                    .iter()
                    .filter(|identifier| late.binary_search(identifier).is_err()),
            );
        }
        let decoded = difference.is_ok();
        (decoded, decoder.take_work() + looked_at.get())
    }

    /// Identifiers that are not in the sketch, but may be in the client's set: forwarded beyond the
    /// horizon, or given up. Counts how many entries were looked at.
    fn outside<'a>(
        &self,
        history: &'a History,
        looked_at: &'a Cell<u64>,
    ) -> impl Iterator<Item = Identifier> + use<'a> {
        let beyond = self.horizon..history.next();
        let before = (history.first()..self.horizon).rev();
        let entries = beyond.chain(before).filter_map(|sequence| {
            looked_at.set(looked_at.get() + 1);
            history.get(sequence)
        });
        entries.filter(|entry| !entry.in_sketch).map(|entry| entry.identifier)
    }

    /// An eACK with this counter was decoded.
    pub(crate) fn on_decoded(&mut self, counter: MessageCounter) {
        self.newest_eack = Some(counter);
        self.failures = 0;
        self.outage = None;
    }

    /// An eACK could not be decoded: what follows. After [`AfterFailure::Reset`] a Reset is to be
    /// sent.
    pub(crate) fn on_failed(&mut self, encoding: Encoding, now: Timestamp) -> AfterFailure {
        self.decode_failures += 1;
        if let Some(longest) = self.longest().filter(|longest| *longest != encoding)
            && let Some(outage) = &mut self.outage
        {
            outage.ask(now);
            return AfterFailure::Ask(longest);
        }
        let after = after_failure(encoding, &self.limits, &mut self.failures);
        if after == AfterFailure::Reset {
            self.resets += 1;
            self.reset_sent = Some(now);
        }
        after
    }

    /// The epoch that a Reset names.
    pub(crate) fn next_number(&self) -> Epoch {
        self.number.next()
    }

    /// The client has asked for a Reset.
    pub(crate) fn count_reset(&mut self) {
        self.resets += 1;
    }

    /// Failed decodes and Resets of either side.
    pub(crate) fn totals(&self) -> (u32, u32) {
        (self.decode_failures, self.resets)
    }

    /// True if the Reset that the client has not answered is to be sent again now.
    pub(crate) fn repeats_reset(&mut self, now: Timestamp) -> bool {
        let due = self.reset_sent.is_some_and(|sent| now.saturating_since(sent) >= RESET_INTERVAL);
        if due {
            self.reset_sent = Some(now);
        }
        due
    }

    /// The client has a datagram that is not in the sketch: folds it in. False if it was never
    /// forwarded.
    pub(crate) fn fold_in(&mut self, identifier: Identifier, history: &mut History) -> bool {
        self.sketch().insert(identifier);
        let sequence = history.sequence_of(identifier);
        let Some(entry) = sequence.and_then(|sequence| history.get_mut(sequence)) else {
            return false;
        };
        entry.in_sketch = true;
        entry.fate = Fate::Received;
        true
    }

    /// The client will never get this datagram: folds it out.
    pub(crate) fn fold_out(&mut self, identifier: Identifier) {
        self.sketch().remove(identifier);
    }

    /// The client does not have this datagram and will not get it from here.
    pub(crate) fn give_up(&mut self, sequence: u64, history: &mut History) {
        let Some(entry) = history.get_mut(sequence) else { return };
        entry.fate = Fate::GivenUp;
        if entry.in_sketch {
            entry.in_sketch = false;
            let identifier = entry.identifier;
            self.fold_out(identifier);
        }
    }

    /// Settles everything up to the horizon: it has arrived, unless it is missing. Returns the number
    /// of datagrams of which the client has spoken for the first time.
    pub(crate) fn consider(&mut self, history: &mut History) -> u64 {
        for entry in history.range_mut(self.considered..self.horizon) {
            if entry.fate == Fate::Unknown {
                entry.fate = Fate::Received;
            }
        }
        let covered = self.horizon - self.considered;
        self.considered = self.horizon;
        covered
    }

    /// The last datagram that the client has before the first that is being repaired.
    pub(crate) fn settled(
        &self,
        first_missing: Option<u64>,
        history: &History,
    ) -> Option<Identifier> {
        let end = first_missing.unwrap_or(self.horizon);
        let sequences = (history.first()..end).rev().take(SETTLED_SEARCH);
        sequences
            .filter_map(|sequence| history.get(sequence))
            .find(|entry| entry.fate == Fate::Received)
            .map(|entry| entry.identifier)
    }

    /// The history forgets an entry. What was never considered for the sketch is considered now, so
    /// that the horizon stays inside the history.
    #[inline]
    pub(crate) fn forget(&mut self, sequence: u64, entry: &Entry) {
        self.considered = self.considered.max(sequence + 1);
        if sequence >= self.horizon {
            self.horizon = sequence + 1;
            if self.anchored && !entry.in_sketch {
                self.sketch().insert(entry.identifier);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use packrat_wire::SessionId;
    use packrat_wire::identifier::IdentifierScheme;

    use super::*;
    use crate::history::MAXIMUM_ENTRIES;

    /// A gateway that has forwarded some datagrams, and a client that has received some of them.
    struct Ends {
        epoch: EpochState,
        history: History,
        received: Sketch,
        encoding: Encoding,
    }

    fn identifier(number: u64) -> Identifier {
        Identifier::from_hash((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    impl Ends {
        fn new(forwarded: u64) -> Self {
            let limits = SketchLimits { coded_symbols: 0, power_sums: 20 };
            let params = GatewayParams {
                session: SessionId::new(1),
                scheme: IdentifierScheme::default(),
                limits,
                cache_bytes: 0,
                secret: [7; 32].into(),
                stream: None,
                symbols: None,
                numbered: None,
                hint: Default::default(),
                ticket: None,
                bundles: false,
            };
            let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
            for number in 0..forwarded {
                history.make_room(10, |_| true);
                history.push(identifier(number), &[0; 10], Timestamp::ZERO);
            }
            let received = Sketch::new(params.sketch_key(), limits);
            let encoding = Encoding::PowerSums { count: 5 };
            Self { epoch: EpochState::new(&params), history, received, encoding }
        }

        fn receive(&mut self, numbers: impl IntoIterator<Item = u64>) {
            numbers.into_iter().for_each(|number| self.received.insert(identifier(number)));
        }

        /// Processes an eACK whose newest datagram is `newest`: what is only here and only there.
        fn eack(
            &mut self,
            newest: u64,
            missing: &[u64],
            allows_costly: bool,
        ) -> Option<(Vec<Identifier>, Vec<Identifier>)> {
            let mut prefix = Vec::new();
            self.received.write_prefix(self.encoding, &mut prefix).unwrap();
            let eack = Eack {
                epoch: self.epoch.number(),
                newest: Some(identifier(newest)),
                newest_age: Duration::ZERO,
                holes: 0,
                echo: false,
                anchor: None,
                encoding: self.encoding,
                prefix: &prefix,
            };
            let Self { epoch, history, .. } = self;
            epoch.anchor(&eack, history);
            if !epoch.advance_horizon(Some(newest), history) {
                return None;
            }
            let (missing, mut scratch) = (missing.iter().copied(), Scratch::default());
            epoch.decode(&eack, missing, history, |_, _| allows_costly, &mut scratch)?;
            Some((scratch.only_here, scratch.only_there))
        }
    }

    #[test]
    fn what_is_missing_is_only_here_and_what_came_after_all_only_there() {
        let mut ends = Ends::new(10);
        ends.receive([0, 1, 2, 4, 5, 7]);
        let (only_here, only_there) = ends.eack(5, &[], false).unwrap();
        assert_eq!((only_here, only_there), (vec![identifier(3)], vec![identifier(7)]));
        assert!(ends.epoch.fold_in(identifier(7), &mut ends.history));
        assert!(!ends.epoch.fold_in(identifier(99), &mut ends.history), "never forwarded");
        ends.epoch.fold_out(identifier(99));
        ends.epoch.give_up(3, &mut ends.history);
        assert_eq!(ends.epoch.consider(&mut ends.history), 6);
        assert_eq!(ends.eack(7, &[], false), Some((vec![identifier(6)], vec![])));
        assert!(ends.epoch.is_tail_open(&ends.history));
        assert_eq!(ends.epoch.settled(Some(6), &ends.history), Some(identifier(5)));
    }

    #[test]
    fn a_long_burst_is_decoded_under_the_assumption_that_all_of_it_is_missing() {
        let mut ends = Ends::new(100);
        ends.receive([0, 1, 40, 99]);
        assert_eq!(ends.eack(99, &[], false), None, "nothing may be assumed");
        let (mut only_here, only_there) = ends.eack(99, &[], true).unwrap();
        only_here.sort_unstable();
        let mut lost: Vec<_> = (2..99).filter(|number| *number != 40).map(identifier).collect();
        lost.sort_unstable();
        assert_eq!((only_here, only_there), (lost, vec![]));
    }

    #[test]
    fn a_client_that_was_silent_for_long_is_understood_in_several_eacks_each_of_which_costs_little()
    {
        let forwarded = 2 * MAXIMUM_INSERTED + 100;
        let mut ends = Ends::new(forwarded);
        ends.receive((0..forwarded).filter(|number| *number != 3));
        for eack in 1..=2 {
            assert_eq!(ends.eack(forwarded - 1, &[], true), None);
            assert_eq!(ends.epoch.horizon(), eack * MAXIMUM_INSERTED);
        }
        let only_here = vec![identifier(3)];
        assert_eq!(ends.eack(forwarded - 1, &[], false), Some((only_here, vec![])));
    }

    #[test]
    fn failures_lead_to_a_reset_which_is_repeated_until_it_is_answered() {
        let mut epoch = Ends::new(0).epoch;
        let (longest, now) = (Encoding::PowerSums { count: 20 }, Timestamp::from_millis(1000));
        assert_eq!(epoch.on_failed(longest, now), AfterFailure::Ask(longest));
        epoch.on_decoded(MessageCounter::new(7));
        assert!(epoch.is_stale(MessageCounter::new(7)) && !epoch.is_stale(MessageCounter::new(8)));
        assert_eq!(epoch.on_failed(longest, now), AfterFailure::Ask(longest));
        assert_eq!(epoch.on_failed(longest, now), AfterFailure::Reset);
        assert_eq!(epoch.compare(Epoch::FIRST), EpochOf::Other);
        assert!(!epoch.repeats_reset(now + Duration::from_millis(9)));
        assert!(epoch.repeats_reset(now + RESET_INTERVAL));
        assert!(!epoch.repeats_reset(now + RESET_INTERVAL));
        epoch.enter(epoch.next_number());
        assert_eq!(epoch.compare(Epoch::FIRST.next()), EpochOf::Current);
        assert!(
            !epoch.is_anchored()
                && !epoch.was_acknowledged()
                && !epoch.is_stale(MessageCounter::FIRST)
        );
        assert_eq!(epoch.totals(), (3, 1));
    }
}
