//! Processing of a subscriber's eACKs.

use core::time::Duration;
use std::sync::Arc;

use packrat_eack::{EncodedPrefix, Encoding, Identifier};
use packrat_wire::MessageCounter;
use packrat_wire::estimate::Timestamp;
use packrat_wire::message::{Eack, Message, ResetReason, SATURATED_AGE};

use super::subscriber::{Outstanding, Subscriber};
use super::sums::{SUM_COUNT, Sums};
use super::{
    CHECKPOINT_PACKETS, Changes, INSERTION_WORK, Stream, StreamOutbox, enter_epoch, limits,
};
use crate::admission::WorkKind;
use crate::eack_credit::SUBSCRIBER_TARIFF;
use crate::event::Side;
use crate::reconciliation::{
    AfterFailure, EpochOf, after_failure, decode_assuming, epoch_of, epoch_start, is_stale,
};
use crate::sequence::Sequence;
use crate::session_event::{EackIgnoredReason, SessionEvent};

impl Stream {
    pub(super) fn on_eack(
        &mut self,
        subscriber: &mut Subscriber,
        counter: MessageCounter,
        eack: &Eack<'_>,
        now: Timestamp,
        out: &mut StreamOutbox,
    ) {
        if let Some(reason) = self.ignores(subscriber, counter, eack, out) {
            out.tell(subscriber, || SessionEvent::EackIgnored { eack: counter, reason });
            return;
        }
        if !subscriber.anchored {
            self.anchor(subscriber, eack);
            let (epoch, first) = (subscriber.epoch, Sequence::new(subscriber.horizon));
            out.tell(subscriber, || SessionEvent::EpochAnchored { epoch, first });
        }
        let newest = eack.newest.and_then(|identifier| self.history.sequence_of(identifier));
        if let Some(entry) = newest.and_then(|newest| self.history.get(newest))
            && newest.is_some_and(|newest| newest >= subscriber.horizon)
            && eack.newest_age < SATURATED_AGE
        {
            let sample = now.saturating_since(entry.forwarded_at).saturating_sub(eack.newest_age);
            subscriber.round_trip.on_sample(sample);
        }
        self.advance(subscriber, newest, now);
        let mut work = 0;
        match self.reconcile_beyond(subscriber, eack, now, &mut work) {
            Some(changes) => {
                subscriber.eacks.charge(work as f64);
                subscriber.newest_eack = counter;
                subscriber.failures = 0;
                self.settle(subscriber, &changes, now, out);
                out.tell(subscriber, || SessionEvent::EackDecoded {
                    eack: counter,
                    recorded: self.history.next(),
                    newest: newest.map(Sequence::new),
                    newly_missing: changes.missing.len() as u64,
                    missing: subscriber.outstanding().len() as u64,
                });
                self.offer(subscriber, now, out);
                if eack.echo || usize::from(eack.holes) > subscriber.outstanding().len() {
                    self.report(subscriber, counter, None, out);
                }
            }
            None => self.on_failed_decode(subscriber, counter, eack, work, out),
        }
    }

    /// The reason for ignoring an eACK. Enters its epoch if it is a newer one.
    fn ignores(
        &mut self,
        subscriber: &mut Subscriber,
        counter: MessageCounter,
        eack: &Eack<'_>,
        out: &mut StreamOutbox,
    ) -> Option<EackIgnoredReason> {
        // A subscriber that has reset its set indicates the beginning of the new one.
        if subscriber.is_offered(eack.epoch) && eack.anchor.is_none() {
            subscriber.take_offer();
        } else {
            match epoch_of(eack.epoch, subscriber.epoch, subscriber.reset_pending) {
                EpochOf::Current => {}
                EpochOf::Newer => enter_epoch(subscriber, eack.epoch),
                EpochOf::Other => {
                    self.send_reset(subscriber, out);
                    return Some(EackIgnoredReason::OtherEpoch);
                }
            }
        }
        is_stale(counter, subscriber.anchored.then_some(subscriber.newest_eack))
            .then_some(EackIgnoredReason::Stale)
    }

    /// The packets whose fates an eACK changes; `None`: it decodes not, or names too many packets
    /// that are not the stream's. Packets beyond the horizon may have arrived.
    fn reconcile_beyond(
        &mut self,
        subscriber: &mut Subscriber,
        eack: &Eack<'_>,
        now: Timestamp,
        work: &mut u64,
    ) -> Option<Changes> {
        let mut decoded = self.reconcile(subscriber, eack, now, work);
        // A packet beyond the horizon has arrived: packets were reordered, or the sender's order is
        // another one.
        let beyond = decoded.as_ref().and_then(|changes| {
            changes
                .arrived
                .iter()
                .filter_map(|identifier| self.history.sequence_of(*identifier))
                .max()
        });
        if let Some(beyond) = beyond.filter(|beyond| *beyond >= subscriber.horizon) {
            subscriber.horizon = beyond + 1;
            decoded = self.reconcile(subscriber, eack, now, work);
        }
        decoded.filter(|changes| {
            let foreign = self.foreign(subscriber, changes);
            SUBSCRIBER_TARIFF.take_foreign(&mut subscriber.eacks, foreign)
        })
    }

    /// Moves the horizon behind the newest packet that the subscriber names, and behind all packets
    /// that its eACK must know of by their age.
    fn advance(&self, subscriber: &mut Subscriber, newest: Option<u64>, now: Timestamp) {
        if let Some(newest) = newest {
            subscriber.horizon = subscriber.horizon.max(newest + 1);
        }
        let Some(age) = subscriber.known_age() else { return };
        subscriber.horizon = subscriber.horizon.max(self.history.first());
        let until = now.checked_sub(age + Duration::from_micros(1));
        let overdue = until.and_then(|until| self.history.newest_until(until));
        if let Some(overdue) = overdue {
            subscriber.horizon = subscriber.horizon.max(overdue + 1);
        }
    }

    /// Charges a subscriber for work that one of its messages made necessary.
    pub(super) fn charge(&self, subscriber: &mut Subscriber, work: u64, now: Timestamp) {
        subscriber.eacks.charge(work as f64);
        let source = Some(&*subscriber.source);
        self.gateway.admission.work.charge(WorkKind::Message, source, work, now);
    }

    /// Number of the subscriber's identifiers that the stream never had or has forgotten.
    fn foreign(&self, subscriber: &Subscriber, changes: &Changes) -> usize {
        let is_known = |identifier: &Identifier| {
            self.history.sequence_of(*identifier).is_some()
                || subscriber.outstanding().iter().any(|one| one.identifier == *identifier)
        };
        changes.arrived.iter().filter(|identifier| !is_known(identifier)).count()
    }

    /// Sets the beginning of the subscriber's set of this epoch, and its base.
    fn anchor(&mut self, subscriber: &mut Subscriber, eack: &Eack<'_>) {
        let start = epoch_start(eack, subscriber.epoch, subscriber.horizon, &self.history);
        subscriber.horizon = start;
        subscriber.set_base(self.sums_before(start));
        subscriber.set_outstanding(Vec::new());
        subscriber.anchored = true;
    }

    /// The sums of all packets before packet `sequence`.
    fn sums_before(&self, sequence: u64) -> Sums {
        let checkpoint = self.checkpoints.iter().rev().find(|(at, _)| *at <= sequence);
        let (from, mut sums) = checkpoint.copied().unwrap_or((0, Sums::ZERO));
        for sequence in from..sequence {
            if let Some(entry) = self.history.get(sequence) {
                sums.insert(entry.identifier);
            }
        }
        sums
    }

    /// Decodes the changes since the last eACK; `None` if decoding fails. Does not change the
    /// subscriber.
    ///
    /// The prefix is as long as the holes that the subscriber knows require, and the packets that
    /// have arrived since its last eACK. So the first assumption is that, of the packets under
    /// repair, only the ones without time to arrive are missing; the second that all have arrived;
    /// the third that all are missing. Adds up the work, which the subscriber's source has been
    /// charged for.
    fn reconcile(
        &mut self,
        subscriber: &Subscriber,
        eack: &Eack<'_>,
        now: Timestamp,
        work: &mut u64,
    ) -> Option<Changes> {
        let age = subscriber.known_age().unwrap_or_default();
        let had_time = |one: &Outstanding| one.transmissions() > 0 && one.sent_since(now) >= age;
        let outstanding = subscriber.outstanding();
        let identifiers = |is_missing: &dyn Fn(&Outstanding) -> bool| -> Vec<Identifier> {
            let missing = outstanding.iter().filter(|one| is_missing(one));
            missing.map(|one| one.identifier).collect()
        };
        let (without_time, all) = (identifiers(&|one| !had_time(one)), identifiers(&|_| true));
        decode_assuming(&[&without_time[..], &[], &all[..]], |attempt, assumed| {
            let (gateway, source) = (Arc::clone(&self.gateway), Some(&*subscriber.source));
            let budget = &gateway.admission.work;
            let strain = SUBSCRIBER_TARIFF.strain(&subscriber.eacks);
            if attempt > 0 && !budget.admits(WorkKind::Message, source, strain, now) {
                return None;
            }
            let decoded = self.decode(subscriber, eack, assumed);
            let inserted = (CHECKPOINT_PACKETS as usize + assumed.len()) * SUM_COUNT;
            let compared = all.len() * (assumed.len() + SUM_COUNT) / 4;
            let spent =
                INSERTION_WORK * inserted as u64 + compared as u64 + self.decoder.take_work();
            budget.charge(WorkKind::Message, source, spent, now);
            *work += spent;
            let (only_here, only_there) = decoded?;
            let mut others = all.clone();
            others.retain(|identifier| !assumed.contains(identifier));
            let missing = only_here.iter().filter(|identifier| !others.contains(identifier));
            let arrived =
                others.iter().filter(|identifier| only_here.binary_search(identifier).is_err());
            Some(Changes {
                missing: missing.copied().collect(),
                arrived: arrived.chain(&only_there).copied().collect(),
            })
        })
    }

    /// Decodes the difference between the gateway's set and an eACK's, beside the base, with
    /// `assumed` in neither.
    fn decode(
        &mut self,
        subscriber: &Subscriber,
        eack: &Eack<'_>,
        assumed: &[Identifier],
    ) -> Option<(Vec<Identifier>, Vec<Identifier>)> {
        let Encoding::PowerSums { count } = eack.encoding else { return None };
        // Packets under way are in the head, so they are added to the subscriber's sums.
        let mut shift = Sums::of(&self.head)?;
        shift.subtract(&self.sums_before(subscriber.horizon));
        shift.add(&subscriber.base());
        for identifier in assumed {
            shift.insert(*identifier);
        }
        let theirs = shift.shift(count, eack.prefix)?;
        let theirs = EncodedPrefix::new(eack.encoding, &theirs).ok()?;
        let history = &self.history;
        let recent = subscriber.horizon.saturating_sub(CHECKPOINT_PACKETS * 4).max(history.first());
        let candidates = (recent..subscriber.horizon)
            .filter_map(|sequence| history.get(sequence).map(|entry| entry.identifier));
        let difference = self.head.decode(theirs, candidates, &mut self.decoder).ok()?;
        Some((difference.only_here.to_vec(), difference.only_there.to_vec()))
    }

    /// Asks the subscriber to count packets that it will never get as received, so that the gateway
    /// need not keep them.
    fn offer(&mut self, subscriber: &mut Subscriber, now: Timestamp, out: &mut StreamOutbox) {
        let Some(sums) = subscriber.offer(now) else { return };
        let mut set = core::mem::take(&mut self.set);
        sums.write(&mut set);
        let epoch = subscriber.epoch.next();
        let encoding = Encoding::PowerSums { count: SUM_COUNT as u8 };
        self.send(subscriber, &Message::Baseline { epoch, encoding, set: &set }, out);
        self.set = set;
    }

    fn on_failed_decode(
        &mut self,
        subscriber: &mut Subscriber,
        counter: MessageCounter,
        eack: &Eack<'_>,
        work: u64,
        out: &mut StreamOutbox,
    ) {
        self.counters.stream_eacks_failed += 1;
        SUBSCRIBER_TARIFF.charge_failure(&mut subscriber.eacks, work);
        let after = after_failure(eack.encoding, &limits(), &mut subscriber.failures);
        out.tell(subscriber, || SessionEvent::EackFailed {
            eack: counter,
            symbols: eack.encoding.count(),
            resets: after == AfterFailure::Reset,
        });
        match after {
            AfterFailure::Ask(wanted) => self.report(subscriber, counter, Some(wanted), out),
            AfterFailure::Reset => {
                self.counters.stream_resets += 1;
                // The subscriber may be in the offered epoch already.
                if subscriber.is_offered(subscriber.epoch.next()) {
                    subscriber.take_offer();
                }
                subscriber.reset_pending = true;
                out.tell(subscriber, || SessionEvent::Reset {
                    epoch: subscriber.epoch.next(),
                    side: Side::Gateway,
                    reason: ResetReason::DecodeFailed,
                });
                self.send_reset(subscriber, out);
            }
        }
    }
}
