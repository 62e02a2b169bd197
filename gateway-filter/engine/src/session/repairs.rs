//! What is missing: sent again while that is worth it, else given up.

use packrat_estimate::Timestamp;

use super::Session;
use crate::counters::FlowCounters;
use crate::history::Fate;
use crate::outbox::Outbox;
use crate::repair::{Decision, copies, is_crowded, patience};
use crate::sample::Sample;

impl Session {
    pub(super) fn give_up(&mut self, sequence: u64) {
        self.missing.remove(&sequence);
        self.totals.unrepairable += 1;
        let Some(entry) = self.history.get_mut(sequence) else { return };
        entry.fate = Fate::GivenUp;
        if entry.in_sketch {
            entry.in_sketch = false;
            let identifier = entry.identifier;
            self.fold_out(identifier);
        }
    }

    /// Sends what is missing and worth sending.
    pub(super) fn repair(
        &mut self,
        newest: Option<u64>,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        if self.missing.is_empty() {
            return;
        }
        let target = self.share.gateway().config.residual_loss_target;
        let congested = self.queue_stands(now);
        let patience = patience(&self.path, self.live.is_some(), self.maximum_hold);
        let mut sequences = core::mem::take(&mut self.scratch().sequences);
        sequences.clear();
        sequences.extend(self.missing.keys());
        for &sequence in &sequences {
            let Some(repair) = self.missing.get(&sequence) else { continue };
            // Lost in a queue that stands, most likely: its sender must know, or it takes what belongs to others.
            if congested && repair.is_new(now) {
                counters.losses_shown += 1;
                self.give_up(sequence);
                continue;
            }
            if self.history.cached_length(sequence).is_none() {
                counters.repairs_evicted += 1;
                self.give_up(sequence);
                continue;
            }
            let late = match (&self.live, self.history.get(sequence)) {
                (Some(live), Some(entry)) => live.is_late(entry.forwarded_at, now),
                _ => false,
            };
            let decision = repair.decide(newest, self.arrived_transmission, &self.path, patience, now);
            match if late { Decision::GiveUp } else { decision } {
                Decision::Wait => {}
                Decision::GiveUp => {
                    counters.repairs_late += 1;
                    self.give_up(sequence);
                }
                Decision::Send => {
                    let behind = self.history.next().saturating_sub(sequence);
                    let forwarded = self.history.get(sequence).map_or(now, |entry| entry.forwarded_at);
                    let crowded = is_crowded(behind, now.saturating_since(forwarded));
                    let (copies, spacing) = copies(repair, &self.path, patience, target, crowded, now);
                    if self.send_repair(sequence, now, counters, out) {
                        for copy in 1..copies {
                            self.copies.push_back((now + spacing * copy, sequence));
                        }
                    }
                }
            }
        }
        self.scratch().sequences = sequences;
        if !self.copies.is_empty() {
            self.copies.make_contiguous().sort_unstable();
        }
    }

    /// Sends one datagram again, if the budget allows.
    pub(super) fn send_repair(
        &mut self,
        sequence: u64,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) -> bool {
        let Some((first, second)) = self.history.bytes(sequence) else { return false };
        let length = first.len() + second.len();
        self.budget.earn(core::mem::take(&mut self.unearned));
        if !self.share.take_repair(&mut self.budget, length, self.live.is_some()) {
            counters.budget_refusals += 1;
            return false;
        }
        out.send(|bytes| {
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(second);
        });
        counters.repair_bytes += length as u64;
        self.totals.repair_transmissions += 1;
        let forwarded = self.history.get_mut(sequence).map(|entry| {
            entry.resent = true;
            entry.forwarded_at
        });
        self.transmissions += 1;
        let next = self.history.next();
        if let Some(repair) = self.missing.get_mut(&sequence) {
            if repair.transmissions() == 0 {
                counters.repairs += 1;
                if let Some(forwarded) = forwarded {
                    out.sample(Sample::RepairSent(now.saturating_since(forwarded)));
                }
                self.totals.repaired += 1;
            } else {
                counters.repair_copies += 1;
            }
            repair.sent(next, self.transmissions, now);
        }
        true
    }
}
