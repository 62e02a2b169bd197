//! Decisions about missing datagrams: repaired, shown to the sender, or given up.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::breaker::Change;
use super::outage::OUTAGE_DATAGRAMS;
use super::repairs::Repairs;
use super::{Session, Turn};
use crate::repair::{Decision, MAXIMUM_TRANSMISSIONS, copies, decide, is_crowded, patience};
use crate::sequence::Sequence;
use crate::session_event::{GiveUpReason, SessionEvent};

/// Work of deciding about a missing datagram.
const REPAIR_WORK: u64 = 80;

/// Verdict on a missing datagram.
enum Verdict {
    Wait,
    /// Number of copies, and the time between them.
    Send(u32, Duration),
    GiveUp(GiveUpReason),
}

impl Session {
    /// Sends the missing datagrams that are worth a repair.
    pub(super) fn repair(&mut self, newest: Option<u64>, turn: &mut Turn<'_>) {
        if self.repairs.is_empty() {
            return;
        }
        self.charge(REPAIR_WORK * self.repairs.len() as u64, turn);
        let tolerated = self.is_tolerated();
        let patience =
            patience(&self.last_mile.path, self.live.is_some(), self.agreed.maximum_hold);
        let mut sequences = core::mem::take(&mut turn.scratch().sequences);
        sequences.clear();
        sequences.extend(self.repairs.sequences());
        let now = turn.now;
        let is_new = |repairs: &Repairs, sequence| {
            repairs.get(sequence).is_some_and(|repair| repair.is_new(now))
        };
        let mut too_many = 0;
        if sequences.len() > OUTAGE_DATAGRAMS {
            let found = sequences.iter().filter(|sequence| is_new(&self.repairs, **sequence));
            too_many = found.count().saturating_sub(OUTAGE_DATAGRAMS);
        }
        for &sequence in &sequences {
            if too_many > 0 && is_new(&self.repairs, sequence) {
                too_many -= 1;
                turn.counters.repairs_late += 1;
                self.give_up(sequence, GiveUpReason::TooManyMissing, turn);
                continue;
            }
            let verdict = self.judge(sequence, newest, tolerated, patience, turn.now);
            self.note_in_vain(sequence, &verdict, turn.now);
            match verdict {
                Verdict::Wait => {}
                Verdict::GiveUp(reason) => {
                    match reason {
                        GiveUpReason::QueueStands => {
                            turn.counters.losses_shown += 1;
                            self.note_shown(sequence, true, turn.now);
                        }
                        GiveUpReason::Tolerated => {
                            turn.counters.losses_tolerated += 1;
                            self.note_shown(sequence, false, turn.now);
                        }
                        GiveUpReason::RepairsPaused => turn.counters.repairs_paused += 1,
                        GiveUpReason::BytesGone => turn.counters.repairs_evicted += 1,
                        _ => turn.counters.repairs_late += 1,
                    }
                    self.give_up(sequence, reason, turn);
                }
                Verdict::Send(copies, spacing) => {
                    if self.send_repair(sequence, turn) {
                        self.repairs.plan_copies(sequence, copies, spacing, turn.now);
                    }
                }
            }
        }
        turn.scratch().sequences = sequences;
        self.repairs.sort_copies();
    }

    /// Reports to the breaker that a repaired datagram is given up.
    fn note_in_vain(&mut self, sequence: u64, verdict: &Verdict, now: Timestamp) {
        let was_sent = self.repairs.get(sequence).is_some_and(|repair| repair.transmissions() > 0);
        let is_over =
            matches!(verdict, Verdict::GiveUp(GiveUpReason::TooOld | GiveUpReason::TooManyRepairs));
        if was_sent && is_over {
            self.breaker.on_in_vain(now);
        }
    }

    /// Checks whether repairs help, and pauses them if not.
    pub(super) fn follow_breaker(&mut self, turn: &mut Turn<'_>) {
        if self.repairs.totals().1 == 0 {
            return;
        }
        match self.breaker.on_repairs(turn.now) {
            Some(Change::Paused(pause)) => {
                turn.counters.repair_pauses += 1;
                turn.tell(|| SessionEvent::RepairsPaused { pause });
                self.repairs.forget_copies();
            }
            Some(Change::Resumed) => turn.tell(|| SessionEvent::RepairsResumed),
            None => {}
        }
    }

    /// Decides about a missing datagram.
    fn judge(
        &self,
        sequence: u64,
        newest: Option<u64>,
        tolerated: bool,
        patience: Duration,
        now: Timestamp,
    ) -> Verdict {
        let Some(repair) = self.repairs.get(sequence) else { return Verdict::Wait };
        if self.breaker.is_open(now) {
            return Verdict::GiveUp(GiveUpReason::RepairsPaused);
        }
        if repair.is_new(now) && repair.is_queues() {
            // The sender must see this loss, or it takes more than its share of the queue.
            return Verdict::GiveUp(GiveUpReason::QueueStands);
        }
        if repair.is_new(now) && tolerated {
            return Verdict::GiveUp(GiveUpReason::Tolerated);
        }
        if self.history.cached_length(sequence).is_none() {
            return Verdict::GiveUp(GiveUpReason::BytesGone);
        }
        let forwarded = self.history.get(sequence).map_or(now, |entry| entry.forwarded_at);
        if self.live.as_ref().is_some_and(|live| live.is_late(forwarded, now)) {
            return Verdict::GiveUp(GiveUpReason::WindowOver);
        }
        let path = &self.last_mile.path;
        let progress = repair.progress(newest, self.repairs.arrived(), now);
        match decide(&progress, path.rtt(), Some(patience), MAXIMUM_TRANSMISSIONS) {
            Decision::Wait => Verdict::Wait,
            Decision::GiveUp(reason) => Verdict::GiveUp(reason),
            Decision::Send => {
                let behind = self.history.next().saturating_sub(sequence);
                let crowded = is_crowded(behind, now.saturating_since(forwarded));
                let target = self.permit.gateway().config().residual_loss_target;
                let (copies, spacing) = copies(repair, path, patience, target, crowded, now);
                Verdict::Send(copies, spacing)
            }
        }
    }

    pub(super) fn give_up(&mut self, sequence: u64, reason: GiveUpReason, turn: &mut Turn<'_>) {
        let transmissions = self.repairs.give_up(sequence);
        let datagram = Some(Sequence::new(sequence));
        turn.tell(|| SessionEvent::GivenUp { datagram, transmissions, reason });
        self.epoch.set.give_up(sequence, &mut self.history);
    }
}
