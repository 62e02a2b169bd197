//! The times at which an I/O thread looks at its sessions: one entry for each of them, however
//! often its deadline changes.

use std::collections::BTreeSet;

use packrat_wire::estimate::Timestamp;

use super::flow_id::FlowId;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The deadline of one session, in microseconds. Its I/O thread alone changes it; others read it to
/// see whether they have to ask for an earlier one.
#[derive(Debug)]
pub(crate) struct Armed(AtomicU64);

/// No deadline is planned.
const NONE: u64 = u64::MAX;

impl Default for Armed {
    fn default() -> Self {
        Self(AtomicU64::new(NONE))
    }
}

impl Armed {
    /// True if the I/O thread will look later than at `deadline`, or not at all.
    pub(crate) fn is_later_than(&self, deadline: Timestamp) -> bool {
        self.0.load(Ordering::Relaxed) > deadline.as_micros()
    }
}

/// The deadlines of all sessions of one I/O thread, by time.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    by_time: BTreeSet<(Timestamp, FlowId)>,
}

impl Deadlines {
    /// Plans to look at a session at `deadline`, instead of the time planned before when that is
    /// later.
    pub(crate) fn plan(&mut self, id: FlowId, armed: &Armed, deadline: Timestamp) {
        if armed.is_later_than(deadline) {
            self.forget(id, armed);
            armed.0.store(deadline.as_micros(), Ordering::Relaxed);
            self.by_time.insert((deadline, id));
        }
    }

    /// Nothing is planned for the session any more.
    pub(crate) fn forget(&mut self, id: FlowId, armed: &Armed) {
        let planned = armed.0.swap(NONE, Ordering::Relaxed);
        if planned != NONE {
            self.by_time.remove(&(Timestamp::from_micros(planned), id));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(deadline, _)| *deadline)
    }

    /// The session whose deadline is the earliest that is over; it stays planned.
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
    use std::time::Duration;

    const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

    #[test]
    fn sessions_that_become_quiet_and_busy_again_have_one_deadline_each() {
        let mut deadlines = Deadlines::default();
        let sessions: Vec<Armed> = std::iter::repeat_with(Armed::default).take(10).collect();
        let mut now = Timestamp::ZERO;
        for _ in 0..10_000 {
            for (id, armed) in (0..).map(FlowId::new).zip(&sessions) {
                // Quiet: only the end of an idle session. Busy: the engine's timer, which is
                // served.
                deadlines.plan(id, armed, now + IDLE_TIMEOUT);
                deadlines.plan(id, armed, now + Duration::from_millis(1));
                deadlines.plan(id, armed, now + Duration::from_millis(2));
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
            deadlines.plan(id, armed, now + IDLE_TIMEOUT);
        }
        assert_eq!(deadlines.next(), Some(now + IDLE_TIMEOUT));
    }

    #[test]
    fn only_an_earlier_deadline_replaces_another() {
        let mut deadlines = Deadlines::default();
        let armed = Armed::default();
        let id = FlowId::new(7);
        let at = Timestamp::from_micros;
        assert!(armed.is_later_than(at(1_000_000_000)));
        deadlines.plan(id, &armed, at(100));
        deadlines.plan(id, &armed, at(200));
        assert_eq!(deadlines.next(), Some(at(100)));
        assert!(!armed.is_later_than(at(100)) && armed.is_later_than(at(99)));
        deadlines.plan(id, &armed, at(50));
        assert_eq!((deadlines.due(at(49)), deadlines.due(at(50))), (None, Some((at(50), id))));
        deadlines.discard((at(50), id));
        assert_eq!(deadlines.len(), 0);
    }
}
