//! Read coalescing: a listener's socket is read at once, or, while much comes in, a moment later
//! and then all together.
//!
//! Waking up costs as much as twenty datagrams. A listener that would wake its thread very often is
//! therefore taken out of the poller, and read when the thread is awake for another reason, but
//! after [`LONGEST_DELAY`] at the latest; the datagrams received by then leave with few system
//! calls. When less comes in, every datagram wakes the thread again.

use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::message_rate::MessageRate;

/// Longest time that a datagram waits to be read.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_micros(80);
/// Shortest time between two reads of a listener whose reads are coalesced.
const SHORTEST_DELAY: Duration = Duration::from_micros(20);
/// Messages in a window below which reads are not coalesced any more.
const FEW_MESSAGES: u64 = 8;

/// The state of one listener.
#[derive(Debug, Default)]
pub(crate) struct ReadCoalescing {
    rate: MessageRate<FEW_MESSAGES>,
    /// Last time that it was read.
    read: Timestamp,
    /// True if there may be more datagrams than were read.
    has_more: bool,
}

impl ReadCoalescing {
    /// True if the thread is not to be woken for this listener.
    pub(crate) const fn is_on(&self) -> bool {
        self.rate.is_high()
    }

    /// Notes that the listener was read: the number of messages, and whether more may be there.
    /// True if [`Self::is_on`] has changed.
    pub(crate) fn note(&mut self, messages: usize, has_more: bool, now: Timestamp) -> bool {
        self.read = now;
        self.has_more = has_more;
        self.rate.note(messages, now)
    }

    /// The latest time at which it has to be read, if the thread is not woken for it.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let delay = if self.has_more { Duration::ZERO } else { LONGEST_DELAY };
        self.is_on().then(|| self.read + delay)
    }

    /// True if it is to be read, now that the thread is awake.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.is_on() && (self.has_more || now.saturating_since(self.read) >= SHORTEST_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::super::message_rate::COUNTING_WINDOW;
    use super::*;
    use proptest::prelude::*;

    /// A thread that reads a socket in which datagrams arrive, and is woken by something else in
    /// between.
    struct Model {
        coalescing: ReadCoalescing,
        now: Timestamp,
        arrivals: Vec<Timestamp>,
        reads: usize,
    }

    impl Model {
        fn new(gaps: &[u64]) -> Self {
            let mut at = Timestamp::from_millis(5);
            let arrivals = gaps.iter().map(|gap| {
                at = at + Duration::from_micros(*gap);
                at
            });
            let mut arrivals: Vec<_> = arrivals.collect();
            arrivals.reverse();
            Self { coalescing: ReadCoalescing::default(), now: Timestamp::ZERO, arrivals, reads: 0 }
        }

        /// Reads everything; `pause` returns the time until something else wakes the thread.
        /// Returns the longest wait.
        fn run(&mut self, mut pause: impl FnMut() -> u64) -> Duration {
            let mut longest = Duration::ZERO;
            let mut other = self.now + Duration::from_micros(pause());
            while let Some(first) = self.arrivals.last().copied() {
                let own = self.coalescing.deadline().unwrap_or(first);
                self.now = self.now.max(own.min(other));
                if other <= self.now {
                    other = self.now + Duration::from_micros(pause());
                }
                let is_read = if self.coalescing.is_on() {
                    self.coalescing.is_due(self.now)
                } else {
                    first <= self.now
                };
                if !is_read {
                    continue;
                }
                let mut messages = 0;
                while let Some(arrival) = self.arrivals.pop_if(|arrival| *arrival <= self.now) {
                    longest = longest.max(self.now.saturating_since(arrival));
                    messages += 1;
                }
                self.coalescing.note(messages, false, self.now);
                self.reads += 1;
            }
            longest
        }
    }

    proptest! {
        #[test]
        fn rare_datagrams_do_not_wait_and_many_wait_a_little(
            gaps in proptest::collection::vec(1u64..400, 1..2000),
            pauses in proptest::collection::vec(1u64..400, 1..50),
        ) {
            let mut pauses = pauses.iter().cycle();
            prop_assert!(Model::new(&gaps).run(|| *pauses.next().unwrap()) <= LONGEST_DELAY);
            prop_assert!(Model::new(&gaps).run(|| 1_000_000_000) <= LONGEST_DELAY);
            let rare: Vec<u64> = gaps.iter().map(|gap| gap + 70).collect();
            prop_assert_eq!(Model::new(&rare).run(|| *pauses.next().unwrap()), Duration::ZERO);
        }
    }

    #[test]
    fn reads_are_saved_where_much_comes_in_and_a_pause_ends_it() {
        let mut flood = Model::new(&[5; 20_000]);
        flood.run(|| 1_000_000_000);
        assert!(flood.reads < 20_000 / 8, "{}", flood.reads);
        // Remaining datagrams are read at once.
        flood.coalescing.note(1, true, flood.now);
        assert!(flood.coalescing.is_due(flood.now));
        assert_eq!(flood.coalescing.deadline(), Some(flood.now));
        let mut now = flood.now;
        while let Some(deadline) = flood.coalescing.deadline() {
            now = deadline;
            flood.coalescing.note(0, false, now);
        }
        assert!(now.saturating_since(flood.now) <= COUNTING_WINDOW * 2 + LONGEST_DELAY);
    }
}
