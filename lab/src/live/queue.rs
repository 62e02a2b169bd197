//! The queue of planned events: by time, then in the order in which they were planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use packrat_wire::estimate::Timestamp;

struct Planned<E> {
    at: Timestamp,
    order: u64,
    event: E,
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl<E> Eq for Planned<E> {}
impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Planned events.
pub(crate) struct Queue<E> {
    planned: BinaryHeap<Reverse<Planned<E>>>,
    order: u64,
}

impl<E> Queue<E> {
    pub(crate) fn new() -> Self {
        Self { planned: BinaryHeap::new(), order: 0 }
    }

    pub(crate) fn plan(&mut self, at: Timestamp, event: E) {
        self.order += 1;
        self.planned.push(Reverse(Planned { at, order: self.order, event }));
    }

    pub(crate) fn next_at(&self) -> Option<Timestamp> {
        self.planned.peek().map(|Reverse(planned)| planned.at)
    }

    /// The next event, when its time has come.
    pub(crate) fn take(&mut self, now: Timestamp) -> Option<E> {
        self.next_at().filter(|at| *at <= now)?;
        self.planned.pop().map(|Reverse(planned)| planned.event)
    }
}
