//! CoDel (RFC 8289): drops by the time that datagrams have waited.

use std::time::Duration;

use super::{Fifo, Queued};

/// Bytes of a datagram of full size: as long as no more than one waits, nothing is dropped
/// (RFC 8289, section 4.3).
const MTU: usize = 1500;

/// Parameters of CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoDelConfig {
    /// Waiting time that is acceptable for longer than an interval (TARGET).
    pub target: Duration,
    /// Time within which senders can react (INTERVAL).
    pub interval: Duration,
    /// Bytes that fit; arrivals beyond that are dropped.
    pub limit: usize,
    /// True if datagrams that are ECN-capable are marked.
    pub ecn: bool,
}

impl CoDelConfig {
    /// The RFC's parameters: 5 ms and 100 ms.
    pub fn new(limit: usize) -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            limit,
            ecn: false,
        }
    }
}

/// The state of CoDel (RFC 8289, section 5.2); times are nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct CoDel {
    target: u64,
    interval: u64,
    ecn: bool,
    /// The time from which a wait that stays above the target is too long; `None` while it is not
    /// above.
    first_above: Option<u64>,
    drop_next: u64,
    /// Drops since dropping began, and that number when it began last.
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl CoDel {
    pub(super) fn new(config: CoDelConfig) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            target: nanos(config.target),
            interval: nanos(config.interval),
            ecn: config.ecn,
            first_above: None,
            drop_next: 0,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    /// The next datagram that leaves (RFC 8289, section 5.5).
    pub(super) fn dequeue<D>(
        &mut self,
        queue: &mut Fifo<D>,
        now: u64,
        dropped: &mut Vec<Queued<D>>,
    ) -> Option<Queued<D>> {
        let (mut next, mut too_long) = self.pop(queue, now);
        if self.dropping {
            self.dropping = too_long;
            // A drop may leave the next one due at once when the rate of drops is high.
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if self.mark(next.as_mut()) {
                    self.drop_next = self.control_law(self.drop_next);
                    return next;
                }
                dropped.extend(next);
                (next, too_long) = self.pop(queue, now);
                if too_long {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if too_long {
            if !self.mark(next.as_mut()) {
                dropped.extend(next);
                (next, _) = self.pop(queue, now);
            }
            self.dropping = true;
            // The rate of drops that controlled the queue a moment ago is a good one to begin with.
            let controlled = self.count - self.last_count;
            let recent = now.saturating_sub(self.drop_next) < 16 * self.interval;
            self.count = if controlled > 1 && recent { controlled } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
        next
    }

    /// The oldest datagram, and true if the waiting time has been too long for an interval
    /// (`dodequeue`).
    fn pop<D>(&mut self, queue: &mut Fifo<D>, now: u64) -> (Option<Queued<D>>, bool) {
        let Some(next) = queue.pop() else {
            self.first_above = None;
            return (None, false);
        };
        if now.saturating_sub(next.arrived) < self.target || queue.bytes() <= MTU {
            self.first_above = None;
            return (Some(next), false);
        }
        let first_above = *self.first_above.get_or_insert(now + self.interval);
        (Some(next), now >= first_above)
    }

    fn mark<D>(&self, datagram: Option<&mut Queued<D>>) -> bool {
        match datagram {
            Some(datagram) if self.ecn && datagram.ecn_capable => {
                datagram.marked = true;
                true
            }
            _ => false,
        }
    }

    /// The time of the next drop: the interval over the square root of the number of drops later.
    fn control_law(&self, at: u64) -> u64 {
        at + (self.interval as f64 / f64::from(self.count).sqrt()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn queued(arrived: u64, ecn_capable: bool) -> Queued<()> {
        Queued { datagram: (), length: 1200, flow: 0, ecn_capable, marked: false, arrived }
    }

    /// Takes a datagram each millisecond out of a queue that never empties, each of which has
    /// waited `wait` milliseconds; the milliseconds of the drops or marks.
    fn interventions(
        codel: &mut CoDel,
        milliseconds: std::ops::Range<u64>,
        wait: impl Fn(u64) -> u64,
        ecn_capable: bool,
    ) -> Vec<u64> {
        let mut found = Vec::new();
        for now in milliseconds {
            let mut queue = Fifo::default();
            let arrived = (now - wait(now)) * MILLISECOND;
            (0..10).for_each(|_| queue.push(queued(arrived, ecn_capable)));
            let mut dropped = Vec::new();
            let left = codel.dequeue(&mut queue, now * MILLISECOND, &mut dropped);
            let marked = left.iter().filter(|datagram| datagram.marked).count();
            found.extend(std::iter::repeat_n(now, dropped.len() + marked));
            assert!(dropped.is_empty() || marked == 0);
        }
        found
    }

    #[test]
    fn drop_intervals_shrink_with_the_square_root_of_their_number() {
        let mut codel = CoDel::new(CoDelConfig::new(usize::MAX));
        let found = interventions(&mut codel, 1000..2000, |_| 20, false);
        // The first after the wait was above the target for an interval; then after 100/sqrt(n) ms.
        let mut expected = vec![1100];
        let mut next = 1100.0;
        for n in 1..100 {
            next += 100.0 / f64::from(n).sqrt();
            expected.push(f64::ceil(next) as u64);
        }
        expected.retain(|at| *at < 2000);
        assert!(expected.len() > 20);
        assert!(found.iter().zip(&expected).all(|(one, other)| one.abs_diff(*other) <= 1));
        assert_eq!(found.len(), expected.len(), "{found:?}, not {expected:?}");
    }

    #[test]
    fn a_wait_below_the_target_within_an_interval_causes_no_drop() {
        let mut codel = CoDel::new(CoDelConfig::new(usize::MAX));
        // A burst of 99 ms above the target, once in 100 ms.
        let wait = |now| if now % 100 == 0 { 4 } else { 90 };
        assert!(interventions(&mut codel, 1000..5000, wait, false).is_empty());
    }

    #[test]
    fn dropping_ends_below_the_target_and_resumes_at_its_rate() {
        let mut codel = CoDel::new(CoDelConfig::new(usize::MAX));
        let first = interventions(&mut codel, 1000..1600, |_| 20, false);
        assert!(interventions(&mut codel, 1600..1650, |_| 1, false).is_empty());
        // Within 16 intervals: count continues from the drops since dropping began.
        let controlled = (first.len() - 1) as f64;
        let again = interventions(&mut codel, 1650..1900, |_| 20, false);
        assert_eq!(again[0], 1750);
        let gap = (again[1] - again[0]) as f64;
        assert!((gap - 100.0 / controlled.sqrt()).abs() <= 1.0, "{gap} after {controlled} drops");
        // Much later: from 1.
        assert!(interventions(&mut codel, 1900..4000, |_| 1, false).is_empty());
        let fresh = interventions(&mut codel, 4000..4300, |_| 20, false);
        assert_eq!(fresh[..2], [4100, 4200]);
    }

    #[test]
    fn ecn_capable_datagrams_are_marked_by_the_same_schedule() {
        let config = CoDelConfig { ecn: true, ..CoDelConfig::new(usize::MAX) };
        let marks = interventions(&mut CoDel::new(config), 1000..2000, |_| 20, true);
        let drops = interventions(&mut CoDel::new(config), 1000..2000, |_| 20, false);
        assert_eq!(marks, drops);
    }

    #[test]
    fn the_last_full_datagram_is_not_dropped() {
        let mut codel = CoDel::new(CoDelConfig::new(usize::MAX));
        for now in 0..1000 {
            let mut queue = Fifo::default();
            queue.push(queued(0, false));
            queue.push(queued(0, false));
            let mut dropped = Vec::new();
            assert!(codel.dequeue(&mut queue, now * MILLISECOND, &mut dropped).is_some());
            assert!(dropped.is_empty(), "{now}");
        }
    }
}
