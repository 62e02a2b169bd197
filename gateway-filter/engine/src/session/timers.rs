//! What time brings: tail probes, copies of repairs, memory that is given back.

use core::time::Duration;

use packrat_estimate::Timestamp;

use super::{LONGEST_PROBE_DELAY, MAXIMUM_PROBES, MINIMUM_PROBE_DELAY, QUIET, SHRINK_INTERVAL, Session};
use crate::counters::FlowCounters;
use crate::history::{Fate, QUIET_ENTRIES};
use crate::lazily::Lazily;
use crate::live::LiveStream;
use crate::outbox::Outbox;

impl Session {
    fn probe_delay(&self) -> Duration {
        let round_trip = self.path.round_trip().unwrap_or(MINIMUM_PROBE_DELAY);
        let first = (round_trip * 2 + self.path.round_trip_variation() * 4).max(MINIMUM_PROBE_DELAY);
        (first * (1 << self.probes.min(8))).min(first.max(LONGEST_PROBE_DELAY))
    }

    /// When the next tail probe is due.
    fn probe_at(&self) -> Option<Timestamp> {
        if self.probe_follows { Some(self.last_forward + self.probe_delay()) } else { self.probe_at }
    }

    pub(super) fn schedule_probe(&mut self, now: Timestamp) {
        // A selective client is silent as long as it misses nothing: its silence says nothing.
        let silent = !self.live.as_deref().is_some_and(LiveStream::is_selective);
        let unspoken = silent && self.horizon < self.history.next();
        let tail = self.anchored && (unspoken || !self.missing.is_empty());
        self.probe_follows = false;
        self.probe_at = (tail && self.probes < MAXIMUM_PROBES)
            .then(|| (self.last_forward + self.probe_delay()).max(now + MINIMUM_PROBE_DELAY / 2));
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        let copy = self.copies.front().map(|(at, _)| *at);
        let early = self.live.as_deref().and_then(LiveStream::next_timeout);
        [copy, early, self.probe_at(), self.shrink_at].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, counters: &mut FlowCounters, out: &mut Outbox) {
        self.budget.earn(core::mem::take(&mut self.unearned));
        while let Some(&(at, sequence)) = self.copies.front() {
            if at > now {
                break;
            }
            self.copies.pop_front();
            if self.missing.contains_key(&sequence) && self.budget.is_ample() {
                self.send_repair(sequence, now, counters, out);
            }
        }
        self.send_early_copies(now, counters, out);
        if self.shrink_at.is_some_and(|at| at <= now) {
            if now.saturating_since(self.last_forward) >= QUIET {
                self.forget_bytes();
                self.trim(QUIET_ENTRIES);
            }
            self.history.shrink();
            self.share.hold(self.history.memory());
            self.shrink_at = (self.history.cache().capacity() > 0).then_some(now + SHRINK_INTERVAL);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.probe(now, counters, out);
        }
    }

    /// Sends the second copies of a thin stream that are due, unless the client has spoken meanwhile.
    fn send_early_copies(&mut self, now: Timestamp, counters: &mut FlowCounters, out: &mut Outbox) {
        let Some(live) = &mut self.live else { return };
        while let Some(sequence) = live.take_due(now) {
            let unknown = self.history.get(sequence).is_some_and(|entry| entry.fate == Fate::Unknown);
            if let Some((first, second)) = self.history.bytes(sequence).filter(|_| unknown) {
                out.send(|bytes| {
                    bytes.extend_from_slice(first);
                    bytes.extend_from_slice(second);
                });
                counters.early_copies += 1;
                counters.early_copy_bytes += (first.len() + second.len()) as u64;
            }
        }
    }

    /// The flow is quiet for so long that no client waits for a repair of what it was sent: the cache is empty from here on.
    fn forget_bytes(&mut self) {
        let missing: Vec<u64> = self.missing.keys().copied().collect();
        for sequence in missing {
            self.give_up(sequence);
        }
        self.copies = Lazily::new();
        while self.history.cache().len() > 0 {
            self.history.free_oldest();
        }
    }

    /// The flow went quiet and its tail is unacknowledged: the last datagram, sent again, makes the client speak (as TCP's tail loss
    /// probe, RFC 8985 section 7, with the difference that a duplicate is harmless to the base connection).
    fn probe(&mut self, now: Timestamp, counters: &mut FlowCounters, out: &mut Outbox) {
        let last = self.history.next().checked_sub(1);
        if self.newest_eack.is_some()
            && let Some(last) = last
            && self.send_repair(last, now, counters, out)
        {
            counters.tail_probes += 1;
        }
        self.probes += 1;
        self.schedule_probe(now);
    }
}
