//! Repairs in flight: the missing datagrams, the times of their repairs, and the budget.
//!
//! ```text
//!                       eACK: only here           sent           a later eACK: not missing
//!   (not in the map) -----------------> Found ----------> Sent ---------------------------> Arrived
//!                                         |             ^  | |
//!                                         |   again or  |  | |
//!                                         |   a copy    +--+ |
//!                                         +------------------+----> given up, forgotten
//! ```
//!
//! [`crate::repair`] decides when and how often a datagram is repaired.

use core::time::Duration;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use packrat_wire::estimate::Timestamp;

use super::Turn;
use super::numbering::Numbering;
use crate::admission::SessionPermit;
use crate::budget::FlowBudget;
use crate::history::{Fate, History};
use crate::lazy_box::{LazyBox, Timed};
use crate::repair::Repair;
use crate::sample::Sample;
use crate::sequence::Sequence;
use crate::session_event::{RepairRefusedReason, SessionEvent};

/// Missing datagrams of a session, and the budget of their repairs.
pub(crate) struct Repairs {
    missing: BTreeMap<u64, Repair>,
    /// Transmissions are numbered in the order of sending.
    transmissions: u64,
    /// Number of the newest transmission known to have arrived.
    arrived: u64,
    /// Spaced copies that are still to be sent, by time.
    copies: LazyBox<Timed>,
    budget: FlowBudget,
    /// Forwarded bytes that the flow's budget has not counted yet: it is updated seldom.
    unearned: usize,
    /// Forwarded bytes that the shared budgets have not counted yet.
    unshared: u64,
    /// Datagrams repaired, and given up.
    repaired: u32,
    unrepairable: u32,
}

/// Means of a transmission, beside the repairs.
pub(crate) struct Means<'a> {
    pub(crate) history: &'a mut History,
    pub(crate) permit: &'a SessionPermit,
    /// True for a live stream, which may take the last of the shared budget.
    pub(crate) live: bool,
    /// `Some` if datagrams are numbered.
    pub(crate) numbering: Option<&'a Numbering>,
}

impl core::fmt::Debug for Repairs {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.missing.fmt(formatter)
    }
}

impl Repairs {
    /// `budget`: repairs as a share of the forwarded bytes.
    pub(crate) fn new(budget: f64) -> Self {
        Self {
            missing: BTreeMap::new(),
            transmissions: 0,
            arrived: 0,
            copies: LazyBox::new(),
            budget: FlowBudget::new(budget),
            unearned: 0,
            unshared: 0,
            repaired: 0,
            unrepairable: 0,
        }
    }

    /// Records a forwarded datagram: its bytes earn repairs.
    #[inline]
    pub(crate) fn on_forward(&mut self, length: usize) {
        self.unearned += length;
        self.unshared += length as u64;
    }

    /// Credits the flow's budget for forwarded bytes.
    pub(crate) fn earn(&mut self) {
        self.budget.earn(core::mem::take(&mut self.unearned));
    }

    /// Credits the source's and the gateway's budgets for forwarded bytes.
    pub(crate) fn share_earnings(&mut self, permit: &SessionPermit) {
        permit.earn(core::mem::take(&mut self.unshared), self.budget.share());
    }

    /// Adjusts the budget to the share of datagrams that are lost, and the share of the bytes that
    /// is configured for repairs.
    pub(crate) fn follow_loss(&mut self, loss: f64, configured: f64) {
        self.earn();
        self.budget.follow(loss, configured);
    }

    /// Datagrams missing.
    pub(crate) fn len(&self) -> usize {
        self.missing.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }

    pub(crate) fn sequences(&self) -> impl ExactSizeIterator<Item = u64> + Clone + '_ {
        self.missing.keys().copied()
    }

    pub(crate) fn get(&self, sequence: u64) -> Option<&Repair> {
        self.missing.get(&sequence)
    }

    /// Number of the newest transmission known to have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Datagrams repaired, transmissions, and datagrams given up.
    pub(crate) fn totals(&self) -> (u32, u32, u32) {
        let transmissions = u32::try_from(self.transmissions).unwrap_or(u32::MAX);
        (self.repaired, transmissions, self.unrepairable)
    }

    /// Records a missing datagram. True if it was not known to be missing.
    pub(crate) fn find(&mut self, sequence: u64, now: Timestamp) -> bool {
        match self.missing.entry(sequence) {
            Entry::Vacant(place) => {
                place.insert(Repair::new(now));
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Records that the queue has lost a missing datagram.
    pub(crate) fn blame_queue(&mut self, sequence: u64) {
        if let Some(repair) = self.missing.get_mut(&sequence) {
            repair.blame_queue();
        }
    }

    /// Settles the datagrams that are not among `still_missing` (ascending): they have arrived.
    /// Calls `on_repaired` for each that was sent again, with its length if its bytes are still
    /// cached. Returns the number of datagrams that were not sent again.
    pub(crate) fn settle(
        &mut self,
        still_missing: &[u64],
        history: &mut History,
        turn: &mut Turn<'_>,
        mut on_repaired: impl FnMut(u64, &Repair, Option<usize>),
    ) -> u32 {
        let (mut repaired, mut unrepaired) = (0, 0);
        let arrived = &mut self.arrived;
        self.missing.retain(|sequence, repair| {
            let keep = still_missing.binary_search(sequence).is_ok();
            if !keep {
                if repair.transmissions() > 0 {
                    repaired += 1;
                    on_repaired(*sequence, repair, history.cached_length(*sequence));
                } else {
                    unrepaired += 1;
                }
                *arrived = (*arrived).max(repair.first_transmission());
                if let Some(entry) = history.get_mut(*sequence) {
                    entry.fate = Fate::Received;
                    let age = turn.now.saturating_since(entry.forwarded_at);
                    turn.tell(|| SessionEvent::MissingArrived {
                        datagram: Sequence::new(*sequence),
                        transmissions: repair.transmissions(),
                        age,
                    });
                    if repair.transmissions() > 0 {
                        turn.out.sample(Sample::RepairArrived(age));
                    }
                }
            }
            keep
        });
        turn.counters.repairs_arrived += repaired;
        unrepaired
    }

    /// Gives up a datagram. Returns the number of its repairs.
    pub(crate) fn give_up(&mut self, sequence: u64) -> u32 {
        self.unrepairable += 1;
        self.missing.remove(&sequence).map_or(0, |repair| repair.transmissions())
    }

    /// Forgets a datagram that the history has forgotten.
    pub(crate) fn forget(&mut self, sequence: u64) {
        self.missing.remove(&sequence);
    }

    /// Forgets all missing datagrams, as a new epoch begins.
    pub(crate) fn clear(&mut self) {
        self.missing.clear();
        self.forget_copies();
    }

    pub(crate) fn forget_copies(&mut self) {
        self.copies = LazyBox::new();
    }

    /// Takes `bytes` from the budgets, if they allow.
    pub(crate) fn afford(&mut self, bytes: usize, permit: &SessionPermit, live: bool) -> bool {
        self.earn();
        permit.take_repair(&mut self.budget, bytes, live)
    }

    /// True if the budget allows more than the repairs of known losses.
    pub(crate) fn is_ample(&mut self) -> bool {
        self.earn();
        self.budget.is_ample()
    }

    /// Sends a datagram again, if the budgets allow.
    pub(crate) fn send(&mut self, sequence: u64, means: Means<'_>, turn: &mut Turn<'_>) -> bool {
        let Means { history, permit, live, numbering } = means;
        let Some((first, second)) = history.bytes(sequence) else {
            refuse(sequence, RepairRefusedReason::BytesGone, turn);
            return false;
        };
        let length = first.len() + second.len();
        let number = numbering.and_then(|numbering| {
            numbering.again(sequence, history.get(sequence)?.identifier, length)
        });
        let length = length + number.map_or(0, |number| number.len());
        if !self.afford(length, permit, live) {
            turn.counters.budget_refusals += 1;
            refuse(sequence, RepairRefusedReason::BudgetEmpty, turn);
            return false;
        }
        turn.out.repeat(history.is_congested(sequence), |bytes| {
            bytes.extend(number.into_iter().flatten());
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(second);
        });
        turn.counters.repair_bytes += length as u64;
        self.transmissions += 1;
        let next = history.next();
        let now = turn.now;
        let forwarded = history.get_mut(sequence).map(|entry| {
            entry.resent = true;
            entry.forwarded_at
        });
        if let Some(repair) = self.missing.get_mut(&sequence) {
            if repair.transmissions() == 0 {
                turn.counters.repairs += 1;
                if let Some(forwarded) = forwarded {
                    turn.out.sample(Sample::RepairSent(turn.now.saturating_since(forwarded)));
                }
                self.repaired += 1;
            } else {
                turn.counters.repair_copies += 1;
            }
            repair.sent(next, self.transmissions, turn.now);
            turn.tell(|| SessionEvent::RepairSent {
                datagram: Sequence::new(sequence),
                transmission: repair.transmissions(),
                age: forwarded.map_or(Duration::ZERO, |at| now.saturating_since(at)),
            });
        }
        true
    }

    /// Plans the copies of a repair beyond the first transmission. [`Self::sort_copies`] follows.
    pub(crate) fn plan_copies(
        &mut self,
        sequence: u64,
        copies: u32,
        spacing: Duration,
        now: Timestamp,
    ) {
        for copy in 1..copies {
            self.copies.push_back((now + spacing * copy, sequence));
        }
    }

    /// Puts the planned copies in order of time.
    pub(crate) fn sort_copies(&mut self) {
        if !self.copies.is_empty() {
            self.copies.make_contiguous().sort_unstable();
        }
    }

    /// When the next copy is due.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.copies.front().map(|(at, _)| *at)
    }

    /// The next copy that is due and still of use.
    pub(crate) fn take_due_copy(&mut self, now: Timestamp) -> Option<u64> {
        while let Some(&(at, sequence)) = self.copies.front()
            && at <= now
        {
            self.copies.pop_front();
            if self.missing.contains_key(&sequence) && self.budget.is_ample() {
                return Some(sequence);
            }
        }
        None
    }
}

/// Reports that a repair is not sent.
pub(crate) fn refuse(sequence: u64, reason: RepairRefusedReason, turn: &mut Turn<'_>) {
    let datagram = Sequence::new(sequence);
    turn.tell(|| SessionEvent::RepairRefused { datagram, reason });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayConfig;
    use crate::counters::FlowCounters;
    use crate::gateway::Gateway;
    use crate::history::{MAXIMUM_ENTRIES, identifier};
    use crate::outbox::Outbox;

    struct Bench {
        repairs: Repairs,
        history: History,
        permit: SessionPermit,
        counters: FlowCounters,
        out: Outbox,
    }

    impl Bench {
        /// Ten datagrams of 100 bytes, forwarded a millisecond after each other.
        fn new() -> Self {
            let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
            let source = [192, 0, 2, 1].into();
            let permit = SessionPermit::new(&gateway, source, Timestamp::ZERO).unwrap();
            let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
            for number in 1..=10u64 {
                history.make_room(100, |_| true);
                history.push(
                    identifier(number),
                    &[number as u8; 100],
                    Timestamp::from_millis(number),
                );
            }
            let repairs = Repairs::new(0.25);
            Self { repairs, history, permit, counters: FlowCounters::default(), out: Outbox::new() }
        }

        fn send(&mut self, sequence: u64, now: Timestamp) -> bool {
            let Self { repairs, history, permit, counters, out } = self;
            let means = Means { history, permit, live: false, numbering: None };
            repairs.send(sequence, means, &mut Turn::new(now, counters, out))
        }

        fn settle(&mut self, still_missing: &[u64], now: Timestamp) {
            let Self { repairs, history, counters, out, .. } = self;
            let mut turn = Turn::new(now, counters, out);
            repairs.settle(still_missing, history, &mut turn, |_, _, _| ());
        }
    }

    #[test]
    fn what_is_missing_is_sent_and_arrives() {
        let (mut bench, now) = (Bench::new(), Timestamp::from_millis(20));
        assert!(bench.repairs.find(3, now) && !bench.repairs.find(3, now));
        assert!(bench.send(3, now));
        assert_eq!(bench.out.datagrams().collect::<Vec<_>>(), [[4; 100]]);
        assert_eq!(bench.out.samples(), [Sample::RepairSent(Duration::from_millis(16))]);
        bench.out.clear();
        bench.settle(&[3], now);
        assert_eq!((bench.repairs.len(), bench.repairs.arrived()), (1, 0));
        bench.settle(&[], now + Duration::from_millis(5));
        assert_eq!((bench.repairs.len(), bench.repairs.arrived()), (0, 1));
        assert_eq!(bench.out.samples(), [Sample::RepairArrived(Duration::from_millis(21))]);
        assert_eq!(bench.history.get(3).unwrap().fate, Fate::Received);
        assert_eq!((bench.counters.repairs, bench.counters.repairs_arrived), (1, 1));
        assert_eq!(bench.repairs.totals(), (1, 1, 0));
    }

    #[test]
    fn copies_are_due_in_order_while_the_datagram_is_missing() {
        let (mut bench, now) = (Bench::new(), Timestamp::from_millis(20));
        let millis = Duration::from_millis;
        for sequence in [3, 5] {
            bench.repairs.find(sequence, now);
        }
        bench.repairs.plan_copies(5, 3, millis(4), now);
        bench.repairs.plan_copies(3, 2, millis(6), now);
        bench.repairs.sort_copies();
        assert_eq!(bench.repairs.next_timeout(), Some(now + millis(4)));
        assert_eq!(bench.repairs.take_due_copy(now), None);
        assert_eq!(bench.repairs.take_due_copy(now + millis(4)), Some(5));
        bench.settle(&[5], now + millis(5));
        assert_eq!(bench.repairs.take_due_copy(now + millis(9)), Some(5), "3 has arrived");
        assert_eq!(bench.repairs.next_timeout(), None);
    }

    #[test]
    fn a_used_up_budget_sends_nothing() {
        let (mut bench, now) = (Bench::new(), Timestamp::from_millis(20));
        bench.repairs.find(3, now);
        let sent = (0..1000).filter(|_| bench.send(3, now)).count();
        assert!(sent < 1000 && bench.counters.budget_refusals == 1000 - sent as u64);
        bench.repairs.give_up(3);
        assert_eq!(bench.repairs.totals(), (1, sent as u32, 1));
    }
}
