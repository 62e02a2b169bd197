//! Timers of a session: copies of repairs, memory that is given back, the tail probe, datagrams
//! that wait for the server.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::coding::Coding;
use super::thin::Thin;
use super::{Session, Turn};
use crate::history::{Fate, QUIET_ENTRIES};
use crate::live::LiveStream;
use crate::sequence::Sequence;
use crate::session_event::{GiveUpReason, SessionEvent};

/// Time without a datagram after which earlier datagrams are not worth repairing, unless the client
/// has not reported all of them.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// Bytes are kept no longer than this: the longest hold of any client, and the outages that are
/// bridged, are over long before.
const MAXIMUM_AGE: Duration = Duration::from_secs(10);
/// Interval of giving back unused memory.
pub(super) const SHRINK_INTERVAL: Duration = Duration::from_secs(1);
/// Time of a timer that is not planned.
pub(super) const NEVER_DUE: Timestamp = Timestamp::from_micros(u64::MAX);

/// Kinds of timers, in the order in which they are handled.
#[derive(Debug, Clone, Copy)]
enum Timer {
    /// A symbol over the newest datagrams.
    Symbol,
    /// A spaced copy of a repair.
    RepairCopy,
    /// The second copy of a live stream's datagram.
    LiveCopy,
    /// The copy of a rare datagram on a last mile that loses some.
    ThinCopy,
    /// Unused memory is given back.
    Shrink,
    /// The newest datagram is sent again.
    TailProbe,
    /// Release of datagrams that wait for the server, and the next message about missing ones.
    Upward,
}

impl Session {
    /// All timers, each with the time at which it is due. Each machine keeps its own timer.
    fn timers(&self) -> [(Timer, Option<Timestamp>); 7] {
        [
            (Timer::Symbol, self.coding.as_deref().and_then(Coding::next_timeout)),
            (Timer::RepairCopy, self.repairs.next_timeout()),
            (Timer::LiveCopy, self.live.as_deref().and_then(LiveStream::next_timeout)),
            (Timer::ThinCopy, self.thin.as_deref().and_then(Thin::next_timeout)),
            (Timer::Shrink, Some(self.shrink_at).filter(|at| *at < NEVER_DUE)),
            (Timer::TailProbe, self.probe.next_timeout(&self.last_mile.path)),
            (Timer::Upward, self.upward_timeout()),
        ]
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        self.timers().into_iter().filter_map(|(_, at)| at).min()
    }

    pub(crate) fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        self.repairs.earn();
        for (timer, at) in self.timers() {
            if at.is_none_or(|at| at > turn.now) {
                continue;
            }
            match timer {
                Timer::RepairCopy => {
                    while let Some(sequence) = self.repairs.take_due_copy(turn.now) {
                        if self.may_repeat(sequence) {
                            self.send_repair(sequence, turn);
                        }
                    }
                }
                Timer::Symbol => self.send_symbols(turn),
                Timer::LiveCopy => self.send_live_copies(turn),
                Timer::ThinCopy => self.send_thin_copies(turn),
                Timer::Shrink => self.shrink(turn),
                Timer::TailProbe => self.send_probe(turn),
                Timer::Upward => self.on_upward_timeout(turn),
            }
        }
    }

    /// Sends the second copies of a live stream that are due, unless the client has reported the
    /// datagram meanwhile.
    fn send_live_copies(&mut self, turn: &mut Turn<'_>) {
        let Some(live) = &mut self.live else { return };
        let paused = self.breaker.is_open(turn.now);
        while let Some(sequence) = live.take_due(turn.now) {
            let unknown = !paused
                && self.history.get(sequence).is_some_and(|entry| entry.fate == Fate::Unknown);
            if let Some((first, second)) = self.history.bytes(sequence).filter(|_| unknown) {
                turn.out.repeat(self.history.is_congested(sequence), |bytes| {
                    bytes.extend_from_slice(first);
                    bytes.extend_from_slice(second);
                });
                turn.counters.early_copies += 1;
                turn.counters.early_copy_bytes += (first.len() + second.len()) as u64;
            }
        }
    }

    /// Gives memory back, all of the cache when the flow is quiet.
    fn shrink(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let silence = self.probe.silence(now);
        if silence >= MAXIMUM_AGE || (silence >= QUIET_TIME && !self.is_tail_open()) {
            self.forget_bytes(turn);
            self.trim(QUIET_ENTRIES);
        }
        // A flow that trickles keeps no cache that others need.
        if let Some(before) = now.checked_sub(MAXIMUM_AGE) {
            self.history.free_before(before);
        }
        self.follow_config(turn.counters);
        if self.permit.is_too_much_held() {
            let half = self.history.cache().capacity() / 2;
            turn.counters.evictions_full += self.history.shrink_to(half);
        }
        self.history.shrink();
        if self.is_quiet() {
            self.backlog = None;
            if let Some(uploads) = &mut self.uploads {
                uploads.trim();
            }
        }
        self.permit.hold(self.memory());
        self.shrink_at = if self.is_quiet() { NEVER_DUE } else { now + SHRINK_INTERVAL };
    }

    /// Empties the cache: the flow has been quiet for so long that no client waits for a repair.
    fn forget_bytes(&mut self, turn: &mut Turn<'_>) {
        let missing: Vec<u64> = self.repairs.sequences().collect();
        for sequence in missing {
            self.give_up(sequence, GiveUpReason::Quiet, turn);
        }
        self.repairs.forget_copies();
        while self.history.cache().len() > 0 {
            self.history.free_oldest();
        }
    }

    /// Sends the newest datagram again, and plans the next probe.
    fn send_probe(&mut self, turn: &mut Turn<'_>) {
        let last = self.history.next().checked_sub(1);
        if self.epoch.was_acknowledged()
            && let Some(last) = last
            && self.may_repeat(last)
            && self.send_repair(last, turn)
        {
            turn.counters.tail_probes += 1;
            turn.tell(|| SessionEvent::TailProbeSent { datagram: Sequence::new(last) });
        }
        self.probe.count(turn.now);
        self.schedule_probe(turn.now);
    }
}
