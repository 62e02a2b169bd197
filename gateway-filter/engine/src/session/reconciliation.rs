//! What the client has: its eACKs, decoded against what was forwarded, and the epochs in which that is possible.

use core::time::Duration;

use packrat_eack::{EncodedPrefix, Identifier, Sketch};
use packrat_estimate::Timestamp;
use packrat_wire::message::{Eack, Message, ResetReason, is_newer_epoch};

use super::{
    EACK_BURST, EACKS_PER_SECOND, EPOCH_COST, FAILED_EACK_COST, FAILURES_BEFORE_RESET, RESET_INTERVAL,
    SETTLED_SEARCH, Session, made,
};
use crate::counters::FlowCounters;
use crate::event::{Event, Side};
use crate::history::{Fate, SETTLED_ENTRIES};
use crate::lazily::Lazily;
use crate::outbox::Outbox;
use crate::repair::Repair;
use crate::sample::Sample;
use crate::scratch::Scratch;

impl Session {
    pub(super) fn on_eack(
        &mut self,
        counter: u32,
        eack: &Eack<'_>,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        counters.eacks_received += 1;
        counters.eack_prefix_bytes += eack.prefix.len() as u64;
        out.sample(Sample::EackSymbols(eack.encoding.count()));
        if !self.accept_epoch(eack, now, counters, out) {
            return;
        }
        self.eack_credit = (self.eack_credit
            + now.saturating_since(self.eack_credited).as_secs_f64() * EACKS_PER_SECOND)
            .min(EACK_BURST);
        self.eack_credited = now;
        if self.eack_credit < 1.0 {
            counters.eacks_limited += 1;
            return;
        }
        self.eack_credit -= 1.0;
        // Sets only grow: what an older eACK says is known, or was wrong.
        if self.newest_eack.is_some_and(|newest| counter <= newest) {
            counters.eacks_stale += 1;
            return;
        }
        let forwarded = core::mem::take(&mut self.forwarded_since_eack);
        self.share.earn(forwarded, self.budget.share());
        if !self.anchored {
            self.begin_epoch(eack);
        }
        let newest = eack.newest.and_then(|identifier| self.history.sequence_of(identifier));
        if let Some(newest) = newest {
            self.measure(newest, eack.newest_age, now, out);
        }
        self.advance_horizon(newest.max(self.known_by_time(now)));
        match self.decode(eack, now) {
            Some(()) => {
                self.newest_eack = Some(counter);
                self.failures = 0;
                counters.eacks_decoded += 1;
                self.settle(now, counters, out);
                self.repair(newest, now, counters, out);
                self.history.release_settled();
                // Holes that are not missing here are not worth waiting for; the client is told which.
                let in_vain = usize::from(eack.holes) > self.missing.len();
                let settled = if in_vain || eack.echo { self.settled() } else { None };
                let news =
                    in_vain && settled.is_some_and(|settled| self.told.replace(settled) != Some(settled));
                // What a full queue loses is the sender's to see, at once: the client does not even begin to wait.
                let turned = self.queue_stands(now) != self.told_queue;
                if eack.echo || news || turned {
                    self.report(counter, None, settled, now, counters, out);
                }
            }
            None => self.on_failed_decode(counter, eack, now, counters, out),
        }
        self.trim(SETTLED_ENTRIES);
        self.schedule_probe(now);
    }

    /// Whether an eACK belongs to this epoch; may begin a new one.
    fn accept_epoch(
        &mut self,
        eack: &Eack<'_>,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) -> bool {
        if eack.epoch == self.epoch && self.pending_reset.is_none() {
            return true;
        }
        if is_newer_epoch(eack.epoch, self.epoch) {
            self.enter_epoch(eack.epoch);
            return true;
        }
        counters.eacks_other_epoch += 1;
        match self.pending_reset {
            Some((epoch, reason, sent_at)) if now.saturating_since(sent_at) >= RESET_INTERVAL => {
                self.pending_reset = Some((epoch, reason, now));
                self.send(&Message::Reset { epoch, reason }, out);
            }
            // The client has not heard of the Reset that it asked for itself, or its eACK was overtaken: nothing to do.
            _ => {}
        }
        false
    }

    fn enter_epoch(&mut self, epoch: u16) {
        self.eack_credit -= EPOCH_COST;
        self.epoch = epoch;
        self.pending_reset = None;
        self.anchored = false;
        self.newest_eack = None;
        self.failures = 0;
        self.missing.clear();
        self.copies = Lazily::new();
        self.sketch = None;
    }

    /// Finds where the client's set begins: behind its anchor. Everything up to there is settled, one way or the other.
    fn begin_epoch(&mut self, eack: &Eack<'_>) {
        let anchor = eack.anchor.and_then(|identifier| self.history.sequence_of(identifier));
        let start = match anchor {
            Some(anchor) => anchor + 1,
            // Nothing received before, or before this gateway remembers: the session's first epoch begins with its first datagram,
            // a later one with the client's newest.
            None if self.epoch == 0 => self.history.first(),
            None => eack
                .newest
                .and_then(|identifier| self.history.sequence_of(identifier))
                .unwrap_or(self.history.next()),
        };
        for sequence in self.history.first()..self.history.next() {
            if let Some(entry) = self.history.get_mut(sequence) {
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
        self.history.release_settled();
    }

    fn measure(&mut self, newest: u64, age: Duration, now: Timestamp, out: &mut Outbox) {
        if self.measured.is_some_and(|measured| newest <= measured) {
            return;
        }
        if let Some(entry) = self.history.get(newest)
            && !entry.resent
        {
            let sample = now.saturating_since(entry.forwarded_at).saturating_sub(age);
            self.path.on_round_trip(sample);
            out.sample(Sample::LastMileRoundTrip(sample));
            self.queueing.on_round_trip(sample, now);
            self.measured = Some(newest);
        }
    }

    /// The newest datagram of which a selective client's eACK that arrives now must have known.
    fn known_by_time(&self, now: Timestamp) -> Option<u64> {
        let until = self.live.as_ref()?.known_until(&self.path, now)?;
        let after =
            |sequence: &u64| self.history.get(*sequence).is_some_and(|entry| entry.forwarded_at > until);
        (self.horizon..self.history.next()).rev().find(|sequence| !after(sequence))
    }

    /// Inserts everything up to the client's newest datagram into the sketch. Idempotent, so that a failed decode does no harm.
    fn advance_horizon(&mut self, newest: Option<u64>) {
        let Some(newest) = newest else { return };
        for sequence in self.horizon..=newest {
            let Some(entry) = self.history.get_mut(sequence) else { continue };
            if !entry.in_sketch {
                entry.in_sketch = true;
                made(&mut self.sketch, &self.terms).insert(entry.identifier);
            }
        }
        self.horizon = self.horizon.max(newest + 1);
    }

    /// Decodes the difference into `only_here` and `only_there`; `None` when that fails. Changes nothing else.
    ///
    /// First as it is: what is missing is only here. When more is missing than a sketch decodes, little of it has arrived, and *that* can
    /// be decoded: of the datagrams forwarded since the last eACK (a long burst), of those that were missing before (a long repair), or of
    /// both. Assumed missing and taken out of the sketch, those of them that have arrived come out as only there.
    fn decode(&mut self, eack: &Eack<'_>, now: Timestamp) -> Option<()> {
        let prefix = EncodedPrefix::new(eack.encoding, eack.prefix).ok()?;
        let empty;
        let own = match &self.sketch {
            Some(sketch) => &**sketch,
            None => {
                empty = Sketch::new(self.terms.sketch_key(), self.terms.limits);
                &empty
            }
        };
        let history = &self.history;
        let identifier = |sequence| history.get(sequence).map(|entry| entry.identifier);
        let Scratch { candidates, only_here, only_there, decoder, .. } =
            &mut **self.scratch.get_or_insert_default();
        let decoder = decoder.get_or_insert_default();
        candidates.clear();
        candidates.extend(self.missing.keys().copied().filter_map(identifier));
        let known = candidates.len();
        let unknown =
            |sequence: &u64| history.get(*sequence).is_some_and(|entry| entry.fate == Fate::Unknown);
        candidates.extend((self.considered..self.horizon).filter(unknown).filter_map(identifier));
        let (all, end) = (&*candidates, candidates.len());
        for (attempt, assumed) in [0..0, known..end, 0..known, 0..end].into_iter().enumerate() {
            // The first assumes nothing; the last only differs from the others when both of them assume something.
            let pointless = assumed.is_empty() || (attempt == 3 && (known == 0 || known == end));
            if attempt > 0 && (pointless || !self.share.gateway().allows_costly_decode(now)) {
                continue;
            }
            let candidates = all[..assumed.start].iter().chain(&all[assumed.end..]).copied();
            let assumed = &all[assumed];
            let reduced;
            let sketch = if assumed.is_empty() {
                own
            } else {
                reduced = assumed.iter().fold(own.clone(), |mut sketch, identifier| {
                    sketch.remove(*identifier);
                    sketch
                });
                &reduced
            };
            let Ok(difference) = sketch.decode(prefix, candidates, decoder) else { continue };
            let arrived = |identifier: &Identifier| difference.only_there.binary_search(identifier).is_ok();
            only_here.clear();
            only_here.extend_from_slice(difference.only_here);
            only_here.extend(assumed.iter().filter(|identifier| !arrived(identifier)));
            only_there.clear();
            only_there
                .extend(difference.only_there.iter().filter(|identifier| !assumed.contains(identifier)));
            return Some(());
        }
        None
    }

    /// Takes in what a decoded eACK says.
    fn settle(&mut self, now: Timestamp, counters: &mut FlowCounters, out: &mut Outbox) {
        let only_there = core::mem::take(&mut self.scratch().only_there);
        for &identifier in &only_there {
            made(&mut self.sketch, &self.terms).insert(identifier);
            match self.history.sequence_of(identifier).and_then(|sequence| self.history.get_mut(sequence)) {
                Some(entry) => {
                    entry.in_sketch = true;
                    entry.fate = Fate::Received;
                }
                None => counters.identifiers_foreign += 1,
            }
        }
        self.scratch().only_there = only_there;

        let only_here = core::mem::take(&mut self.scratch().only_here);
        let mut still_missing = core::mem::take(&mut self.scratch().still_missing);
        still_missing.clear();
        let mut newly_missing = 0u64;
        for &identifier in &only_here {
            let Some(sequence) = self.history.sequence_of(identifier) else {
                self.fold_out(identifier);
                continue;
            };
            still_missing.push(sequence);
            if let std::collections::btree_map::Entry::Vacant(place) = self.missing.entry(sequence) {
                place.insert(Repair::new(now));
                newly_missing += 1;
                if let Some(entry) = self.history.get_mut(sequence) {
                    entry.fate = Fate::Missing;
                }
            }
        }
        self.scratch().only_here = only_here;
        still_missing.sort_unstable();

        let Self { missing, history, arrived_transmission, .. } = self;
        missing.retain(|sequence, repair| {
            let keep = still_missing.binary_search(sequence).is_ok();
            if !keep {
                counters.repairs_arrived += u64::from(repair.transmissions() > 0);
                *arrived_transmission = (*arrived_transmission).max(repair.first_transmission());
                if let Some(entry) = history.get_mut(*sequence) {
                    entry.fate = Fate::Received;
                    if repair.transmissions() > 0 {
                        out.sample(Sample::RepairArrived(now.saturating_since(entry.forwarded_at)));
                    }
                }
            }
            keep
        });
        self.scratch().still_missing = still_missing;
        for sequence in self.considered..self.horizon {
            if let Some(entry) = self.history.get_mut(sequence)
                && entry.fate == Fate::Unknown
            {
                entry.fate = Fate::Received;
            }
        }
        counters.datagrams_missing += newly_missing;
        if newly_missing > 0 {
            out.sample(Sample::EackMissing(newly_missing));
        }
        let covered = self.horizon - self.considered;
        if covered > 0 {
            self.path.on_fate(covered, newly_missing.min(covered));
        }
        self.budget.earn(core::mem::take(&mut self.unearned));
        self.budget.follow(self.path.loss());
        self.considered = self.horizon;
    }

    pub(super) fn fold_out(&mut self, identifier: Identifier) {
        made(&mut self.sketch, &self.terms).remove(identifier);
    }

    /// The last datagram that the client has before the first that is being repaired.
    fn settled(&self) -> Option<Identifier> {
        let end = self.missing.keys().next().copied().unwrap_or(self.horizon);
        let sequences = (self.history.first()..end).rev().take(SETTLED_SEARCH);
        sequences
            .filter_map(|sequence| self.history.get(sequence))
            .find(|entry| entry.fate == Fate::Received)
            .map(|entry| entry.identifier)
    }

    fn on_failed_decode(
        &mut self,
        counter: u32,
        eack: &Eack<'_>,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        counters.eacks_failed += 1;
        self.eack_credit -= FAILED_EACK_COST * f64::from(self.share.failure_factor(now));
        self.totals.decode_failures += 1;
        // Several eACKs may be under way when the first of them fails: only those that could not have been longer count.
        let longer = self.terms.limits.longer(eack.encoding);
        self.failures += u32::from(longer.is_none());
        let wanted = longer.unwrap_or(eack.encoding);
        match Some(wanted).filter(|_| self.failures < FAILURES_BEFORE_RESET) {
            Some(wanted) => {
                let settled = self.settled();
                self.report(counter, Some(wanted), settled, now, counters, out);
            }
            None => {
                let (epoch, reason) = (self.epoch.wrapping_add(1), ResetReason::DecodeFailed);
                counters.resets_gateway += 1;
                self.totals.resets += 1;
                self.pending_reset = Some((epoch, reason, now));
                self.send(&Message::Reset { epoch, reason }, out);
                out.event(Event::Reset { session: self.name(), side: Side::Gateway, reason, epoch });
            }
        }
    }

    pub(super) fn on_client_reset(
        &mut self,
        epoch: u16,
        reason: ResetReason,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        if !is_newer_epoch(epoch, self.epoch) || self.eack_credit < EPOCH_COST {
            counters.eacks_other_epoch += 1;
            return;
        }
        counters.resets_client += 1;
        self.totals.resets += 1;
        self.enter_epoch(epoch);
        out.event(Event::Reset { session: self.name(), side: Side::Client, reason, epoch });
    }
}
