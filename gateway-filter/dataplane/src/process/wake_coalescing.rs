//! Wake-up coalescing: servers' datagrams are read at once, or, while many come in, a moment later
//! and then together.
//!
//! Waking up for a datagram costs more than forwarding it. A thread whose upstream sockets have
//! messages at a high rate ([`MessageRate`]) therefore lets [`LOOK_INTERVAL`] pass between two looks at
//! its sockets: single datagrams of one session then leave with one call, and many sessions share a
//! wake-up. Clients' datagrams do not switch it on: a flood of clients must not delay servers'
//! datagrams, and is left to [`crate::listener::ReadCoalescing`].

use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use crate::listener::MessageRate;

/// Shortest time between two looks while much comes in.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_micros(40);
/// Messages in a window below which looks are not coalesced any more.
const FEW_MESSAGES: u64 = 10;

/// The state of one thread.
#[derive(Debug, Default)]
pub(super) struct WakeCoalescing {
    rate: MessageRate<FEW_MESSAGES>,
    /// The last look.
    looked: Timestamp,
}

impl WakeCoalescing {
    /// Notes that the thread looked at the sockets and found this number of messages of servers.
    pub(super) fn note(&mut self, messages: usize, now: Timestamp) {
        self.looked = now;
        self.rate.note(messages, now);
    }

    /// The time for which the thread lets messages gather before it looks again.
    pub(super) fn pause(&self, now: Timestamp) -> Option<Duration> {
        let passed = now.saturating_since(self.looked);
        self.rate
            .is_high()
            .then(|| LOOK_INTERVAL.saturating_sub(passed))
            .filter(|pause| !pause.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A thread that reads messages in the order of their arrival, at these distances in microseconds.
    /// Returns the looks that it took, and the longest time that a message has waited.
    fn run(gaps: impl IntoIterator<Item = u64>) -> (usize, Duration) {
        let mut coalescing = WakeCoalescing::default();
        let mut arrivals = Vec::new();
        let mut at = Timestamp::from_millis(5);
        for gap in gaps {
            at = at + Duration::from_micros(gap);
            arrivals.push(at);
        }
        let mut arrivals = arrivals.into_iter().peekable();
        let (mut now, mut looks, mut longest) = (Timestamp::ZERO, 0, Duration::ZERO);
        while let Some(first) = arrivals.peek().copied() {
            if let Some(pause) = coalescing.pause(now) {
                now = now + pause;
            }
            // Then it sleeps until there is something.
            now = now.max(first);
            let mut messages = 0;
            while let Some(arrival) = arrivals.next_if(|arrival| *arrival <= now) {
                longest = longest.max(now.saturating_since(arrival));
                messages += 1;
            }
            coalescing.note(messages, now);
            looks += 1;
        }
        (looks, longest)
    }

    proptest! {
        #[test]
        fn rare_messages_do_not_wait_and_many_wait_a_little(
            gaps in proptest::collection::vec(1u64..300, 1..2000),
        ) {
            prop_assert!(run(gaps.clone()).1 <= LOOK_INTERVAL);
            prop_assert_eq!(run(gaps.iter().map(|gap| gap + 65)).1, Duration::ZERO);
        }
    }

    #[test]
    fn many_messages_share_a_wake_up() {
        let (looks, _) = run([10; 20_000]);
        assert!(looks < 20_000 / 3, "{looks}");
    }

    #[test]
    fn a_pause_ends_it() {
        let mut coalescing = WakeCoalescing::default();
        let mut now = Timestamp::from_millis(5);
        for _ in 0..1000 {
            now = now + Duration::from_micros(10);
            coalescing.note(1, now);
        }
        assert_eq!(coalescing.pause(now), Some(LOOK_INTERVAL));
        assert_eq!(coalescing.pause(now + LOOK_INTERVAL), None);
        now = now + Duration::from_millis(50);
        coalescing.note(1, now);
        assert_eq!(coalescing.pause(now), None);
    }
}
