//! Planned events in virtual time: the earliest comes first, and of several at one time the one that was
//! planned first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use packrat_wire::estimate::Timestamp;

#[derive(Debug)]
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
#[derive(Debug)]
pub struct Schedule<E> {
    planned: BinaryHeap<Reverse<Planned<E>>>,
    order: u64,
}

impl<E> Default for Schedule<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> Schedule<E> {
    /// A schedule without events.
    pub const fn new() -> Self {
        Self { planned: BinaryHeap::new(), order: 0 }
    }

    /// Plans an event.
    pub fn plan(&mut self, at: Timestamp, event: E) {
        self.order += 1;
        self.planned.push(Reverse(Planned { at, order: self.order, event }));
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.planned.peek().map(|Reverse(planned)| planned.at)
    }

    /// The next event and its time, which may be to come.
    pub fn pop(&mut self) -> Option<(Timestamp, E)> {
        self.planned.pop().map(|Reverse(planned)| (planned.at, planned.event))
    }

    /// The next event, when its time has come.
    pub fn take(&mut self, now: Timestamp) -> Option<E> {
        self.next_at().filter(|at| *at <= now)?;
        self.pop().map(|(_, event)| event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_they_were_planned() {
        let at = Timestamp::from_millis;
        let mut schedule = Schedule::new();
        for (time, event) in [(3, 'd'), (1, 'a'), (2, 'b'), (2, 'c')] {
            schedule.plan(at(time), event);
        }
        assert_eq!(schedule.next_at(), Some(at(1)));
        assert_eq!(schedule.take(at(0)), None);
        assert_eq!(schedule.take(at(1)), Some('a'));
        assert_eq!(schedule.pop(), Some((at(2), 'b')));
        let rest = std::iter::from_fn(|| schedule.take(at(9)));
        assert_eq!(rest.collect::<String>(), "cd");
    }
}
