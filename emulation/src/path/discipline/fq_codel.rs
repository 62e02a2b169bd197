//! FQ-CoDel (RFC 8290): a queue per flow, each with CoDel, served by deficit round robin; flows that
//! do not build a queue go first.

use std::collections::VecDeque;
use std::time::Duration;

use super::codel::{CoDel, CoDelConfig};
use super::{Fifo, Queued};

/// Maximum number of datagrams that a full queue drops at once (RFC 8290, section 4.1.2).
const DROP_BATCH: usize = 64;

/// Parameters of FQ-CoDel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FqCoDelConfig {
    /// Target delay, as in [`CoDelConfig`].
    pub target: Duration,
    /// Interval, as in [`CoDelConfig`].
    pub interval: Duration,
    /// Datagrams that fit, of all flows.
    pub limit: usize,
    /// Number of queues that flows are hashed to.
    pub queues: usize,
    /// Bytes that a flow may send in its turn.
    pub quantum: usize,
    /// True if datagrams that are ECN-capable are marked.
    pub ecn: bool,
}

impl Default for FqCoDelConfig {
    /// The RFC's parameters (section 5.2); marking is on.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            limit: 10_240,
            queues: 1024,
            quantum: 1514,
            ecn: true,
        }
    }
}

/// The list that a flow's queue is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    None,
    New,
    Old,
}

#[derive(Debug, Clone)]
struct FlowQueue<D> {
    fifo: Fifo<D>,
    codel: CoDel,
    credits: i64,
    list: List,
}

#[derive(Debug, Clone)]
pub(super) struct FlowQueues<D> {
    config: FqCoDelConfig,
    /// Added to the flow's number before hashing.
    perturbation: u64,
    queues: Vec<FlowQueue<D>>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    datagrams: usize,
    bytes: usize,
}

impl<D> FlowQueues<D> {
    pub(super) fn new(config: FqCoDelConfig, seed: u64) -> Self {
        let FqCoDelConfig { target, interval, ecn, .. } = config;
        let codel = CoDelConfig { target, interval, limit: usize::MAX, ecn };
        let queue = || FlowQueue {
            fifo: Fifo::default(),
            codel: CoDel::new(codel),
            credits: 0,
            list: List::None,
        };
        Self {
            config,
            perturbation: seed,
            queues: (0..config.queues.max(1)).map(|_| queue()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            datagrams: 0,
            bytes: 0,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.datagrams
    }

    /// A datagram arrives (RFC 8290, section 4.1).
    pub(super) fn enqueue(&mut self, datagram: Queued<D>, dropped: &mut Vec<Queued<D>>) {
        let index = self.index(datagram.flow);
        self.datagrams += 1;
        self.bytes += datagram.length;
        let queue = &mut self.queues[index];
        queue.fifo.push(datagram);
        if queue.list == List::None {
            queue.list = List::New;
            queue.credits = self.config.quantum as i64;
            self.new.push_back(index);
        }
        if self.datagrams > self.config.limit {
            self.drop_from_fattest(dropped);
        }
    }

    /// The next datagram that leaves (RFC 8290, section 4.2).
    pub(super) fn dequeue(&mut self, now: u64, dropped: &mut Vec<Queued<D>>) -> Option<Queued<D>> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let index = *list.front()?;
            let queue = &mut self.queues[index];
            if queue.credits <= 0 {
                queue.credits += self.config.quantum as i64;
                list.pop_front();
                queue.list = List::Old;
                self.old.push_back(index);
                continue;
            }
            let before = dropped.len();
            let next = queue.codel.dequeue(&mut queue.fifo, now, dropped);
            let gone = dropped[before..].iter().chain(&next);
            for datagram in gone {
                self.datagrams -= 1;
                self.bytes -= datagram.length;
            }
            if let Some(next) = next {
                queue.credits -= next.length as i64;
                return Some(next);
            }
            list.pop_front();
            if is_new {
                // Behind the old ones once: a flow that is new again and again would starve them.
                queue.list = List::Old;
                self.old.push_back(index);
            } else {
                queue.list = List::None;
            }
        }
    }

    /// Half of the datagrams of the flow with the most bytes, the oldest ones first.
    fn drop_from_fattest(&mut self, dropped: &mut Vec<Queued<D>>) {
        let Some(fattest) = self.queues.iter_mut().max_by_key(|queue| queue.fifo.bytes()) else {
            return;
        };
        let count = fattest.fifo.len().div_ceil(2).min(DROP_BATCH);
        for datagram in (0..count).map_while(|_| fattest.fifo.pop()) {
            self.datagrams -= 1;
            self.bytes -= datagram.length;
            dropped.push(datagram);
        }
    }

    /// The queue of a flow (SplitMix64's finalizer).
    fn index(&self, flow: u64) -> usize {
        let mut hash = flow.wrapping_add(self.perturbation).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((hash ^ (hash >> 31)) % self.queues.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn queued(flow: u64, length: usize, arrived: u64) -> Queued<u64> {
        Queued { datagram: flow, length, flow, ecn_capable: false, marked: false, arrived }
    }

    fn flows(config: FqCoDelConfig) -> FlowQueues<u64> {
        FlowQueues::new(config, 0)
    }

    #[test]
    fn flows_get_equal_bytes_with_datagrams_of_any_size() {
        let mut queues = flows(FqCoDelConfig::default());
        let mut dropped = Vec::new();
        for _ in 0..1000 {
            queues.enqueue(queued(1, 1200, 0), &mut dropped);
            (0..4).for_each(|_| queues.enqueue(queued(2, 300, 0), &mut dropped));
        }
        let mut bytes = [0; 3];
        for _ in 0..2000 {
            let next = queues.dequeue(0, &mut dropped).unwrap();
            bytes[next.flow as usize] += next.length;
        }
        assert!(bytes[1].abs_diff(bytes[2]) <= 2 * 1514, "{bytes:?}");
        assert!(dropped.is_empty());
    }

    #[test]
    fn a_sparse_flow_goes_first_but_not_a_flow_that_is_new_twice() {
        let mut queues = flows(FqCoDelConfig::default());
        let mut dropped = Vec::new();
        (0..100).for_each(|_| queues.enqueue(queued(1, 300, 0), &mut dropped));
        // The bulk flow uses up its quantum, and becomes an old one.
        (0..7).for_each(|_| assert_eq!(queues.dequeue(0, &mut dropped).unwrap().flow, 1));
        queues.enqueue(queued(2, 100, 0), &mut dropped);
        assert_eq!(queues.dequeue(0, &mut dropped).unwrap().flow, 2);
        // The flow's queue is empty now, and is an old one; the flow's next datagram is queued
        // there.
        assert_eq!(queues.dequeue(0, &mut dropped).unwrap().flow, 1);
        queues.enqueue(queued(2, 100, 0), &mut dropped);
        assert_eq!(queues.dequeue(0, &mut dropped).unwrap().flow, 1);
    }

    /// A full queue drops half of the fattest flow from its head, at most a batch.
    #[test]
    fn a_full_queue_drops_a_batch_from_the_head_of_the_fattest_flow() {
        let mut queues = flows(FqCoDelConfig { limit: 100, ..FqCoDelConfig::default() });
        let mut dropped = Vec::new();
        (0..20).for_each(|n| queues.enqueue(queued(1, 100, n), &mut dropped));
        (0..81).for_each(|n| queues.enqueue(queued(2, 1200, n), &mut dropped));
        assert_eq!(dropped.len(), 41);
        assert!(dropped.iter().all(|datagram| datagram.flow == 2));
        assert_eq!(dropped.iter().map(|datagram| datagram.arrived).max(), Some(40));
        assert_eq!((queues.len(), queues.bytes()), (60, 20 * 100 + 40 * 1200));
        let mut queues = flows(FqCoDelConfig { limit: 1000, ..FqCoDelConfig::default() });
        dropped.clear();
        (0..1001).for_each(|n| queues.enqueue(queued(1, 100, n), &mut dropped));
        assert_eq!(dropped.len(), 64);
    }

    #[test]
    fn codel_works_on_each_flow_alone() {
        let mut queues = flows(FqCoDelConfig { ecn: false, ..FqCoDelConfig::default() });
        let (mut dropped, mut left) = (Vec::new(), [0; 3]);
        // Flow 1 keeps a queue of 50 ms, flow 2 sends one datagram in ten milliseconds.
        for now in 0..2000u64 {
            for _ in 0..2 {
                queues.enqueue(queued(1, 1200, now * MILLISECOND), &mut dropped);
            }
            if now % 10 == 0 {
                queues.enqueue(queued(2, 1200, now * MILLISECOND), &mut dropped);
            }
            if let Some(next) = queues.dequeue(now * MILLISECOND, &mut dropped) {
                left[next.flow as usize] += 1;
            }
        }
        assert_eq!(left[2], 200);
        assert!(dropped.len() > 10 && dropped.iter().all(|datagram| datagram.flow == 1));
    }
}
