//! One call into a session.

use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;

use crate::counters::FlowCounters;
use crate::event::Event;
use crate::outbox::Outbox;
use crate::scratch::Scratch;
use crate::session_event::SessionEvent;

/// Arguments of a call into a session: the time, its counters and its outbox. Borrows the thread's
/// working memory when it is needed, and gives it back in the end.
pub(crate) struct Turn<'a> {
    pub(crate) now: Timestamp,
    pub(crate) counters: &'a mut FlowCounters,
    pub(crate) out: &'a mut Outbox,
    /// Work that the session's permit is to be charged for, in the end or before it is asked again.
    pub(crate) unpaid_work: u64,
    /// The session whose events are wanted.
    observed: Option<SessionId>,
    scratch: Option<Box<Scratch>>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(now: Timestamp, counters: &'a mut FlowCounters, out: &'a mut Outbox) -> Self {
        Self { now, counters, out, unpaid_work: 0, observed: None, scratch: None }
    }

    /// Reports the events of the session if `observed`.
    pub(crate) fn observing(self, observed: bool, session: SessionId) -> Self {
        let mut turn = self;
        turn.observed = observed.then_some(session);
        turn
    }

    /// Reports an event, if the session is observed.
    #[inline]
    pub(crate) fn tell(&mut self, event: impl FnOnce() -> SessionEvent) {
        if let Some(session) = self.observed {
            self.out.event(Event::Session { session, event: event() });
        }
    }

    /// Working memory.
    pub(crate) fn scratch(&mut self) -> &mut Scratch {
        self.scratch.get_or_insert_with(|| Scratch::borrow().unwrap_or_default())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.scratch.is_some() {
            Scratch::give_back(self.scratch.take());
        }
    }
}
