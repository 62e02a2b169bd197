//! The times at which an I/O thread looks at its sessions: one entry for each of them, however
//! often its deadline changes.
//!
//! Waking up costs as much as twenty datagrams, and few deadlines are worth one: memory that is given
//! back after a second may as well be given back a moment later. As in a timer wheel, times are
//! therefore the coarser, the farther they are ahead: a session is looked at at its deadline at the
//! earliest, and later by a sixteenth of the time until then at the latest. Sessions whose deadlines
//! are near each other are looked at together.

use std::collections::BTreeSet;
use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::flow_id::FlowId;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Divisor of the time until a session's deadline: it may be looked at later by this part of the
/// time.
const LATENESS_DIVISOR: u32 = 16;
/// Times that are apart by less are not made equal: a session that is due soon is due on time.
const SMALLEST_STEP: Duration = Duration::from_micros(64);
/// Longest time by which a session is looked at too late, however far its deadline is ahead.
const LARGEST_STEP: Duration = Duration::from_micros(1 << 16);

/// Time at which a session with this deadline is looked at.
pub(crate) fn look_at(deadline: Timestamp, now: Timestamp) -> Timestamp {
    let lateness = deadline.saturating_since(now) / LATENESS_DIVISOR;
    if lateness < SMALLEST_STEP {
        return deadline;
    }
    // Not zero, so it has a logarithm; steps divide each other, so that near ones meet far ones.
    let step = 1 << lateness.min(LARGEST_STEP).as_micros().ilog2();
    deadline.as_micros().checked_next_multiple_of(step).map_or(deadline, Timestamp::from_micros)
}

/// The deadline of one session, in microseconds. Its I/O thread alone changes it; others read it to
/// see whether they have to ask for an earlier one.
#[derive(Debug)]
pub(crate) struct Armed(AtomicU64);

/// Microseconds in the place of a deadline that is not planned.
const NO_DEADLINE: u64 = u64::MAX;

impl Default for Armed {
    fn default() -> Self {
        Self(AtomicU64::new(NO_DEADLINE))
    }
}

impl Armed {
    /// True if the I/O thread will look later than at `time`, or not at all.
    pub(crate) fn is_later_than(&self, time: Timestamp) -> bool {
        self.0.load(Ordering::Relaxed) > time.as_micros()
    }
}

/// The deadlines of all sessions of one I/O thread, by time.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    by_time: BTreeSet<(Timestamp, FlowId)>,
}

impl Deadlines {
    /// Plans to look at a session at its deadline or a little later ([`look_at`]), instead of the time
    /// planned before when that is later.
    pub(crate) fn plan(&mut self, id: FlowId, armed: &Armed, deadline: Timestamp, now: Timestamp) {
        let at = look_at(deadline, now);
        if armed.is_later_than(at) {
            self.forget(id, armed);
            armed.0.store(at.as_micros(), Ordering::Relaxed);
            self.by_time.insert((at, id));
        }
    }

    /// Forgets all deadlines of the session.
    pub(crate) fn forget(&mut self, id: FlowId, armed: &Armed) {
        let planned = armed.0.swap(NO_DEADLINE, Ordering::Relaxed);
        if planned != NO_DEADLINE {
            self.by_time.remove(&(Timestamp::from_micros(planned), id));
        }
    }

    /// The earliest time at which a session is looked at.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(deadline, _)| *deadline)
    }

    /// The session that is to be looked at first, if it is time; it stays planned.
    pub(crate) fn due(&self, now: Timestamp) -> Option<(Timestamp, FlowId)> {
        self.by_time.first().copied().filter(|(deadline, _)| *deadline <= now)
    }

    /// Takes out an entry whose session is gone.
    pub(crate) fn discard(&mut self, entry: (Timestamp, FlowId)) {
        self.by_time.remove(&entry);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_time.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn alternately_quiet_and_busy_sessions_have_one_deadline_each() {
        let mut deadlines = Deadlines::default();
        let sessions: Vec<Armed> = std::iter::repeat_with(Armed::default).take(10).collect();
        let mut now = Timestamp::ZERO;
        for _ in 0..10_000 {
            for (id, armed) in (0..).map(FlowId::new).zip(&sessions) {
                // Quiet: only the end of an idle session. Busy: the engine's timer, which is
                // served.
                deadlines.plan(id, armed, now + IDLE_TIMEOUT, now);
                deadlines.plan(id, armed, now + Duration::from_millis(1), now);
                deadlines.plan(id, armed, now + Duration::from_millis(2), now);
            }
            assert_eq!(deadlines.len(), sessions.len());
            assert_eq!(deadlines.due(now), None);
            now = now + Duration::from_millis(1);
            for (id, armed) in (0..).map(FlowId::new).zip(&sessions) {
                assert_eq!(deadlines.due(now), Some((now, id)));
                deadlines.forget(id, armed);
            }
            assert_eq!(deadlines.len(), 0);
        }
        for (id, armed) in (0..).map(FlowId::new).zip(&sessions) {
            deadlines.plan(id, armed, now + IDLE_TIMEOUT, now);
        }
        assert_eq!(deadlines.next(), Some(look_at(now + IDLE_TIMEOUT, now)));
    }

    proptest! {
        /// Against deadlines that are kept to the microsecond.
        #[test]
        fn no_session_is_looked_at_too_early_or_much_too_late(
            waits in proptest::collection::vec(1u64..3_000_000, 1..200),
            begin in 0u64..10_000_000,
        ) {
            let begin = Timestamp::from_micros(begin);
            let (mut deadlines, mut exact) = (Deadlines::default(), Vec::new());
            let armed: Vec<Armed> = waits.iter().map(|_| Armed::default()).collect();
            for ((id, wait), armed) in (0..).map(FlowId::new).zip(&waits).zip(&armed) {
                let wait = Duration::from_micros(*wait);
                deadlines.plan(id, armed, begin + wait, begin);
                exact.push((begin + wait, wait, id));
            }
            while let Some(at) = deadlines.next() {
                while let Some(entry) = deadlines.due(at) {
                    let of_it = exact.iter().position(|(.., id)| *id == entry.1);
                    let (deadline, wait, _) = exact.swap_remove(of_it.unwrap());
                    prop_assert!(deadline <= at && at <= deadline + wait / LATENESS_DIVISOR);
                    prop_assert!(at <= deadline + LARGEST_STEP);
                    deadlines.discard(entry);
                }
            }
            prop_assert!(exact.is_empty());
        }
    }

    #[test]
    fn many_sessions_are_looked_at_together() {
        let mut deadlines = Deadlines::default();
        let begin = Timestamp::from_millis(5000);
        // As after bursts for one session after the other: the tail is looked at after 25 ms, and memory
        // is given back after a second.
        let sessions: Vec<Armed> = std::iter::repeat_with(Armed::default).take(10_000).collect();
        for wait in [25_000, 1_000_000] {
            for (number, armed) in (0..).zip(&sessions) {
                let now = begin + Duration::from_micros(number * 100);
                let deadline = now + Duration::from_micros(wait);
                deadlines.plan(FlowId::new(number), armed, deadline, now);
            }
            let mut looks = 0;
            while let Some(at) = deadlines.next() {
                looks += 1;
                while let Some((_, id)) = deadlines.due(at) {
                    deadlines.forget(id, &sessions[id.get() as usize]);
                }
            }
            // In the second that the bursts take.
            assert!(looks <= 1_000_000 / (wait / 32), "{looks} for {wait}");
        }
    }

    #[test]
    fn only_an_earlier_deadline_replaces_another() {
        let mut deadlines = Deadlines::default();
        let armed = Armed::default();
        let id = FlowId::new(7);
        let (at, now) = (Timestamp::from_micros, Timestamp::ZERO);
        assert!(armed.is_later_than(at(1_000_000_000)));
        deadlines.plan(id, &armed, at(100), now);
        deadlines.plan(id, &armed, at(200), now);
        assert_eq!(deadlines.next(), Some(at(100)));
        assert!(!armed.is_later_than(at(100)) && armed.is_later_than(at(99)));
        deadlines.plan(id, &armed, at(50), now);
        assert_eq!((deadlines.due(at(49)), deadlines.due(at(50))), (None, Some((at(50), id))));
        deadlines.discard((at(50), id));
        assert_eq!(deadlines.len(), 0);
    }
}
