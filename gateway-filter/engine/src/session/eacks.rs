//! Processing of eACKs: they are decoded against the forwarded datagrams, and fates follow; then
//! repairs ([`super::judging`]) and findings about the sender ([`super::sender`]).

use core::time::Duration;

use packrat_eack::{Encoding, Identifier};
use packrat_wire::estimate::{STANDING_QUEUE, Timestamp};
use packrat_wire::message::{Eack, Message, Report, ResetReason};
use packrat_wire::{Epoch, MessageCounter};

use super::outage::OUTAGE_DATAGRAMS;
use super::queue_losses::Low;
use super::{Session, Turn};
use crate::event::{Event, Side};
use crate::history::{Fate, SETTLED_ENTRIES};
use crate::live::LiveStream;
use crate::reconciliation::{AfterFailure, EpochOf};
use crate::repair::ASSUMED_ROUND_TRIP;
use crate::sample::Sample;
use crate::sequence::Sequence;
use crate::session_event::{EackIgnoredReason, GiveUpReason, SessionEvent};

/// Reports that an eACK is ignored.
fn ignore(eack: MessageCounter, reason: EackIgnoredReason, turn: &mut Turn<'_>) {
    turn.tell(|| SessionEvent::EackIgnored { eack, reason });
}

impl Session {
    /// `admitted`: there is credit and time for it.
    pub(super) fn on_eack(
        &mut self,
        counter: MessageCounter,
        eack: &Eack<'_>,
        admitted: bool,
        turn: &mut Turn<'_>,
    ) {
        turn.counters.eacks_received += 1;
        turn.counters.eack_prefix_bytes += eack.prefix.len() as u64;
        turn.out.sample(Sample::EackSymbols(eack.encoding.count()));
        if !self.accept_epoch(eack.epoch, turn) {
            ignore(counter, EackIgnoredReason::OtherEpoch, turn);
            return;
        }
        if !admitted {
            turn.counters.eacks_limited += 1;
            ignore(counter, EackIgnoredReason::Limited, turn);
            return;
        }
        if self.epoch.is_stale(counter) {
            turn.counters.eacks_stale += 1;
            ignore(counter, EackIgnoredReason::Stale, turn);
            return;
        }
        self.repairs.share_earnings(&self.permit);
        if let Some(work) = self.epoch.anchor(eack, &mut self.history) {
            self.charge(work, turn);
            let (epoch, first) = (self.epoch.number(), self.epoch.set.horizon());
            turn.tell(|| SessionEvent::EpochAnchored { epoch, first: Sequence::new(first) });
        }
        let newest = eack.newest.and_then(|identifier| self.history.sequence_of(identifier));
        let mut measured = None;
        if let Some(newest) = newest {
            measured = self.last_mile.measure(newest, eack.newest_age, &self.history, turn);
            self.note_arrived(newest);
        }
        let spoken_of = newest.max(self.known_by_time(turn.now));
        if !self.epoch.advance_horizon(spoken_of, &mut self.history) {
            turn.counters.eacks_limited += 1;
            ignore(counter, EackIgnoredReason::Limited, turn);
            return;
        }
        let round_trip = self.last_mile.path.round_trip().unwrap_or(ASSUMED_ROUND_TRIP);
        if self.epoch.awaits_longer(eack.encoding, round_trip, turn.now) {
            turn.counters.eacks_limited += 1;
            ignore(counter, EackIgnoredReason::Limited, turn);
            return;
        }
        let (accepted, work) = self.decode(eack, turn);
        if accepted {
            self.eack_credit.charge(work);
            self.on_decoded(counter, eack, newest, measured, turn);
        } else {
            self.on_failed_decode(counter, eack.encoding, work, turn);
        }
        self.trim(SETTLED_ENTRIES);
        self.schedule_probe(turn.now);
    }

    /// Decodes the difference of an eACK's set and the gateway's into the scratch. Returns whether
    /// that succeeds within the client's credit, and its work.
    fn decode(&mut self, eack: &Eack<'_>, turn: &mut Turn<'_>) -> (bool, u64) {
        let (now, mut work, mut unpaid) = (turn.now, 0, turn.unpaid_work);
        let Self { permit, eack_credit, .. } = self;
        let spend = |spent: u64, failed: bool| {
            work += spent;
            unpaid += spent;
            failed && eack_credit.covers(work) && {
                permit.charge_work(core::mem::take(&mut unpaid), now);
                permit.admits_work(eack_credit.strain(), now)
            }
        };
        let missing = self.repairs.sequences();
        let decoded = self.epoch.decode(eack, missing, &self.history, spend, turn.scratch());
        turn.unpaid_work = unpaid;
        let accepted = decoded.is_some() && {
            let only_there = turn.scratch().only_there.iter();
            let is_foreign =
                |identifier: &&Identifier| self.history.sequence_of(**identifier).is_none();
            self.eack_credit.take_foreign(only_there.filter(is_foreign).count())
        };
        (accepted, work)
    }

    /// Notes that the client has a datagram: if it was sent once, the path carries its length.
    fn note_arrived(&mut self, sequence: u64) {
        if let Some(numbering) = &mut self.numbering
            && self.history.get(sequence).is_some_and(|entry| !entry.resent)
            && let Some(length) = self.history.cached_length(sequence)
        {
            numbering.on_arrived(sequence, length);
        }
    }

    /// True if an eACK of this epoch is to be processed. Enters the epoch if it is a newer one, and
    /// repeats a Reset that the client has not answered.
    fn accept_epoch(&mut self, epoch: Epoch, turn: &mut Turn<'_>) -> bool {
        match self.epoch.compare(epoch) {
            EpochOf::Current => true,
            EpochOf::Newer => {
                self.enter_epoch(epoch);
                true
            }
            EpochOf::Other => {
                turn.counters.eacks_other_epoch += 1;
                // Otherwise the client asked for the Reset, and sent this eACK in the epoch before.
                if self.epoch.repeats_reset(turn.now) {
                    self.send_reset(turn);
                }
                false
            }
        }
    }

    fn enter_epoch(&mut self, epoch: Epoch) {
        self.eack_credit.charge_epoch();
        self.epoch.enter(epoch);
        self.repairs.clear();
    }

    /// The newest datagram of which a selective client's eACK that arrives now must have known.
    fn known_by_time(&self, now: Timestamp) -> Option<u64> {
        let until = self.live.as_ref()?.known_until(&self.last_mile.path, now)?;
        self.history.newest_until(until).filter(|sequence| *sequence >= self.epoch.set.horizon())
    }

    fn on_decoded(
        &mut self,
        counter: MessageCounter,
        eack: &Eack<'_>,
        newest: Option<u64>,
        round_trip: Option<Duration>,
        turn: &mut Turn<'_>,
    ) {
        turn.counters.eacks_decoded += 1;
        self.epoch.on_decoded(counter);
        let newly_missing = self.settle(newest.zip(round_trip), turn);
        self.follow_first_window(newest);
        self.follow_sender(newest, newly_missing, turn);
        self.follow_breaker(turn);
        self.follow_coding(turn.now);
        self.follow_thin(turn.now);
        turn.tell(|| SessionEvent::EackDecoded {
            eack: counter,
            recorded: self.history.next(),
            newest: newest.map(Sequence::new),
            newly_missing,
            missing: self.repairs.len() as u64,
        });
        self.repair(newest, turn);
        self.history.release_settled();
        // The client need not wait for holes that are not missing here; the Report indicates them.
        let in_vain = usize::from(eack.holes) > self.repairs.len();
        let settled = if in_vain || eack.echo { self.settled() } else { None };
        let is_news = in_vain
            && settled
                .is_some_and(|settled| self.reported.settled.replace(settled) != Some(settled));
        // Losses of a full queue are for the sender to see, at once: the client must not even begin
        // to wait.
        let turned = self.shows_losses(turn.now) != self.reported.queue;
        if eack.echo || is_news || turned {
            self.report(counter, None, settled, turn);
        }
    }

    /// Applies the fates that a decoded eACK shows. `measured`: its newest datagram, and the round
    /// trip. Returns the number of datagrams that it shows missing for the first time.
    fn settle(&mut self, measured: Option<(u64, Duration)>, turn: &mut Turn<'_>) -> u64 {
        let Self { epoch, history, .. } = self;
        let only_there = core::mem::take(&mut turn.scratch().only_there);
        for &identifier in &only_there {
            let was_forwarded = epoch.set.fold_in(identifier, history);
            turn.counters.identifiers_foreign += u64::from(!was_forwarded);
        }
        turn.scratch().only_there = only_there;
        let newly_missing = self.find_missing(turn);
        turn.counters.datagrams_missing += newly_missing;
        if newly_missing > 0 {
            turn.out.sample(Sample::EackMissing(newly_missing));
        }
        let arrived_unrepaired = self.settle_repairs(turn);
        let low = self.blame_queue(measured, turn);
        self.learn_loss(newly_missing, low, arrived_unrepaired, turn);
        newly_missing
    }

    /// Marks the datagrams that only the gateway has as missing, and leaves their sequence numbers
    /// in the scratch: all of them, and the newly found. Returns the number of the latter.
    fn find_missing(&mut self, turn: &mut Turn<'_>) -> u64 {
        let Self { epoch, repairs, history, .. } = self;
        let only_here = core::mem::take(&mut turn.scratch().only_here);
        let mut still_missing = core::mem::take(&mut turn.scratch().still_missing);
        still_missing.clear();
        let mut found = core::mem::take(&mut turn.scratch().found);
        found.clear();
        let joined = epoch.take_joined(&only_here, history);
        for &identifier in &only_here {
            let sequence = history.sequence_of(identifier);
            if let Some(unheard) = sequence.filter(|sequence| *sequence < joined) {
                epoch.set.give_up(unheard, history);
                continue;
            }
            let Some(sequence) = sequence else {
                epoch.set.fold_out(identifier);
                turn.tell(|| SessionEvent::GivenUp {
                    datagram: None,
                    transmissions: 0,
                    reason: GiveUpReason::Forgotten,
                });
                continue;
            };
            still_missing.push(sequence);
            if repairs.find(sequence, turn.now)
                && let Some(entry) = history.get_mut(sequence)
            {
                entry.fate = Fate::Missing;
                found.push(sequence);
                let age = turn.now.saturating_since(entry.forwarded_at);
                let datagram = Sequence::new(sequence);
                turn.tell(|| SessionEvent::DatagramMissing { datagram, age });
            }
        }
        still_missing.sort_unstable();
        let newly_missing = found.len() as u64;
        let scratch = turn.scratch();
        (scratch.only_here, scratch.still_missing, scratch.found) =
            (only_here, still_missing, found);
        newly_missing
    }

    /// Settles the repairs of datagrams that are not missing any more. Returns the number of missing
    /// datagrams that arrived without a repair.
    fn settle_repairs(&mut self, turn: &mut Turn<'_>) -> u32 {
        let Self { repairs, history, last_mile, breaker, numbering, .. } = self;
        let now = turn.now;
        // The shortest time from a repair to an eACK that shows its arrival: a datagram that
        // arrives sooner has not come from the repair.
        let least = last_mile.base().unwrap_or_default();
        let mut recovered = 0;
        let still_missing = core::mem::take(&mut turn.scratch().still_missing);
        let unrepaired =
            repairs.settle(&still_missing, history, turn, |sequence, repair, length| {
                recovered += u32::from(now.saturating_since(repair.last_sent_at()) < least);
                breaker.on_delivered(now);
                if let (Some(numbering), Some(length)) = (numbering.as_mut(), length) {
                    numbering.on_repaired(sequence, length);
                }
            });
        turn.scratch().still_missing = still_missing;
        unrepaired + recovered
    }

    /// Decides which losses are the queue's. Returns the medium's; `None`: nothing tells them apart.
    fn blame_queue(
        &mut self,
        measured: Option<(u64, Duration)>,
        turn: &mut Turn<'_>,
    ) -> Option<Low> {
        let queues_lose = self.agreed.queues_lose && self.live.is_none();
        let Self { repairs, history, backlog, .. } = self;
        if queues_lose && measured.is_some() {
            backlog.get_or_insert_default();
        }
        let backlog = backlog.as_mut()?;
        let now = turn.now;
        if let Some((newest, round_trip)) = measured {
            let on_queues = |sequence| repairs.blame_queue(sequence);
            let told = &mut turn.scratch().told;
            backlog.on_eack(history, newest, round_trip, now, told, on_queues);
        }
        if backlog.losses.is_over() {
            turn.scratch().found.iter().for_each(|sequence| repairs.blame_queue(*sequence));
        }
        Some(backlog.losses.take_low())
    }

    /// Learns the medium's loss: `low`, or all losses.
    fn learn_loss(
        &mut self,
        newly_missing: u64,
        low: Option<Low>,
        arrived_unrepaired: u32,
        turn: &mut Turn<'_>,
    ) {
        let Self { epoch, repairs, history, last_mile, permit, coding, backlog, .. } = self;
        let covered = epoch.set.consider(history);
        // The mean length of all missing runs stands for the mean length of the new ones.
        let still_missing = &turn.scratch().still_missing;
        let runs = still_missing.chunk_by(|before, after| before + 1 == *after).count() as u64;
        let bursts = newly_missing * runs / (still_missing.len() as u64).max(1);
        if newly_missing > OUTAGE_DATAGRAMS as u64 {
            if let Some(backlog) = backlog {
                backlog.losses.on_outage();
            }
        } else {
            let all = Low { sent: covered, lost: newly_missing, runs: bursts };
            let Low { sent, lost, runs } = low.unwrap_or(all);
            if sent > 0 {
                last_mile.path.on_fate(sent, lost.min(sent));
            }
            if let Some(coding) = coding {
                coding.on_arrived_unrepaired(arrived_unrepaired);
                coding.on_fate(sent, lost, runs);
            }
        }
        repairs.follow_loss(last_mile.path.loss(), permit.gateway().config().repair_budget);
    }

    /// The last datagram that the client has before the first that is being repaired.
    fn settled(&self) -> Option<Identifier> {
        self.epoch.set.settled(self.repairs.sequences().next(), &self.history)
    }

    fn on_failed_decode(
        &mut self,
        counter: MessageCounter,
        encoding: Encoding,
        work: u64,
        turn: &mut Turn<'_>,
    ) {
        turn.counters.eacks_failed += 1;
        self.eack_credit.charge_failure(work);
        let after = self.epoch.on_failed(encoding, turn.now);
        turn.tell(|| SessionEvent::EackFailed {
            eack: counter,
            symbols: encoding.count(),
            resets: after == AfterFailure::Reset,
        });
        match after {
            AfterFailure::Ask(wanted) => self.report(counter, Some(wanted), self.settled(), turn),
            AfterFailure::Reset => {
                turn.counters.resets_gateway += 1;
                self.send_reset(turn);
                self.log_reset(
                    Side::Gateway,
                    self.epoch.next_number(),
                    ResetReason::DecodeFailed,
                    turn,
                );
            }
        }
    }

    fn send_reset(&mut self, turn: &mut Turn<'_>) {
        let epoch = self.epoch.next_number();
        self.channel.send(&Message::Reset { epoch, reason: ResetReason::DecodeFailed }, turn);
    }

    pub(super) fn on_client_reset(
        &mut self,
        epoch: Epoch,
        reason: ResetReason,
        turn: &mut Turn<'_>,
    ) {
        if self.epoch.compare(epoch) != EpochOf::Newer || !self.eack_credit.covers_epoch() {
            turn.counters.eacks_other_epoch += 1;
            return;
        }
        turn.counters.resets_client += 1;
        self.epoch.count_reset();
        self.enter_epoch(epoch);
        self.log_reset(Side::Client, epoch, reason, turn);
    }

    fn log_reset(&self, side: Side, epoch: Epoch, reason: ResetReason, turn: &mut Turn<'_>) {
        turn.tell(|| SessionEvent::Reset { epoch, side, reason });
        turn.out.event(Event::Reset { session: self.id(), side, reason, epoch });
    }

    /// Plans the next tail probe.
    pub(super) fn schedule_probe(&mut self, now: Timestamp) {
        let open = self.is_tail_open();
        self.probe.schedule(open, &self.last_mile.path, now);
    }

    /// Plans a tail probe when the client is heard again after an outage.
    pub(super) fn on_return(&mut self, now: Timestamp) {
        let open = self.is_tail_open();
        self.probe.on_return(open, &self.last_mile.path, now);
    }

    /// True if eACKs do not cover all forwarded datagrams, or some are missing.
    pub(super) fn is_tail_open(&self) -> bool {
        // A selective client is silent as long as it misses no datagram: silence is normal.
        let speaks = !self.live.as_deref().is_some_and(LiveStream::is_selective);
        let unspoken = speaks && self.epoch.set.is_tail_open(&self.history);
        self.epoch.set.is_anchored() && (unspoken || !self.repairs.is_empty())
    }

    /// Sends the client a Report about an eACK, with the state of the path.
    fn report(
        &mut self,
        echo: MessageCounter,
        wanted: Option<Encoding>,
        settled: Option<Identifier>,
        turn: &mut Turn<'_>,
    ) {
        turn.counters.reports_sent += 1;
        let queue_stands = self.shows_losses(turn.now);
        self.reported.queue = queue_stands;
        let path = &self.last_mile.path;
        let report = Report {
            epoch: self.epoch.number(),
            echo,
            // Reports are sent while the eACK is processed.
            echo_age: Duration::ZERO,
            missing: u16::try_from(self.repairs.len()).unwrap_or(u16::MAX),
            settled,
            wanted,
            round_trip: path.round_trip().unwrap_or_default(),
            loss: (path.loss() * 65536.0).min(65535.0) as u16,
            queueing: if queue_stands { STANDING_QUEUE } else { Duration::ZERO },
            totals: self.totals(),
        };
        turn.tell(|| SessionEvent::ReportSent {
            eack: echo,
            settled: settled
                .and_then(|settled| self.history.sequence_of(settled))
                .map(Sequence::new),
            wanted_symbols: wanted.map(Encoding::count),
            queue_stands,
        });
        self.channel.send(&Message::Report(report), turn);
        self.channel.send_grease(turn);
    }
}
