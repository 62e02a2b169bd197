//! Queues that hold the datagrams waiting for a transmitter, and choose which to drop or mark
//! (active queue management, RFC 7567).

mod codel;
mod fq_codel;
mod red;

use std::collections::VecDeque;

use super::queue::{Queue, QueueDiscipline};
use codel::CoDel;
use fq_codel::FlowQueues;
use red::Red;

pub use codel::CoDelConfig;
pub use fq_codel::FqCoDelConfig;
pub use red::RedConfig;

/// The choice of the datagrams that a full transmitter's queue drops or marks. Sizes are bytes of
/// UDP payload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueueManagement {
    /// The choice is made when a datagram arrives: drop-tail, adaptive RED.
    Arrival(QueueDiscipline),
    /// Drops the datagrams that have waited longest to make room for new ones.
    DropFront {
        /// Bytes that fit.
        limit: usize,
    },
    /// Random early detection (Floyd93).
    Red(RedConfig),
    /// CoDel (RFC 8289).
    CoDel(CoDelConfig),
    /// FQ-CoDel (RFC 8290).
    FqCoDel(FqCoDelConfig),
}

/// A datagram that waits.
#[derive(Debug, Clone)]
pub(crate) struct Queued<D> {
    pub(crate) datagram: D,
    /// Bytes of UDP payload.
    pub(crate) length: usize,
    /// Datagrams of the same flow have the same number.
    pub(crate) flow: u64,
    /// True if the sender understands a mark instead of a drop (RFC 3168: ECT).
    pub(crate) ecn_capable: bool,
    pub(crate) marked: bool,
    /// Nanoseconds.
    pub(crate) arrived: u64,
}

/// Datagrams in the order of their arrival.
#[derive(Debug, Clone)]
pub(crate) struct Fifo<D> {
    datagrams: VecDeque<Queued<D>>,
    bytes: usize,
}

impl<D> Default for Fifo<D> {
    fn default() -> Self {
        Self { datagrams: VecDeque::new(), bytes: 0 }
    }
}

impl<D> Fifo<D> {
    pub(crate) fn push(&mut self, datagram: Queued<D>) {
        self.bytes += datagram.length;
        self.datagrams.push_back(datagram);
    }

    pub(crate) fn pop(&mut self) -> Option<Queued<D>> {
        let datagram = self.datagrams.pop_front()?;
        self.bytes -= datagram.length;
        Some(datagram)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.datagrams.len()
    }
}

/// A [`QueueManagement`] at work, with the datagrams that wait.
#[derive(Debug, Clone)]
pub(crate) struct Waiting<D> {
    fifo: Fifo<D>,
    manager: Manager<D>,
    dropped: Vec<Queued<D>>,
}

#[derive(Debug, Clone)]
enum Manager<D> {
    Arrival(Queue),
    DropFront { limit: usize },
    Red(Red),
    CoDel(CoDel, usize),
    FqCoDel(FlowQueues<D>),
}

impl<D> Waiting<D> {
    /// An empty queue in front of a transmitter of `rate` bits per second; `seed` decides its
    /// random choices.
    pub(crate) fn new(management: QueueManagement, rate: u64, seed: u64) -> Self {
        let manager = match management {
            QueueManagement::Arrival(discipline) => {
                Manager::Arrival(Queue::new(discipline, rate, seed))
            }
            QueueManagement::DropFront { limit } => Manager::DropFront { limit },
            QueueManagement::Red(config) => Manager::Red(Red::new(config, rate, seed)),
            QueueManagement::CoDel(config) => Manager::CoDel(CoDel::new(config), config.limit),
            QueueManagement::FqCoDel(config) => Manager::FqCoDel(FlowQueues::new(config, seed)),
        };
        Self { fifo: Fifo::default(), manager, dropped: Vec::new() }
    }

    /// A datagram arrives at `now`, nanoseconds, while the transmitter has `untransmitted` bytes
    /// left of the one that it works on.
    pub(crate) fn enqueue(&mut self, mut datagram: Queued<D>, now: u64, untransmitted: usize) {
        let length = datagram.length;
        let backlog = self.bytes() + untransmitted;
        // An empty queue takes a datagram of any size, as the transmitter takes it over at once.
        let fits = |limit| backlog == 0 || backlog + length <= limit;
        let admitted = match &mut self.manager {
            Manager::Arrival(queue) => queue.admits(
                packrat_wire::estimate::Timestamp::from_micros(now / 1000),
                backlog,
                length,
            ),
            Manager::DropFront { limit } => {
                let limit = *limit;
                while self.fifo.bytes() + untransmitted + length > limit {
                    let Some(oldest) = self.fifo.pop() else { break };
                    self.dropped.push(oldest);
                }
                self.fifo.bytes() + untransmitted == 0
                    || self.fifo.bytes() + untransmitted + length <= limit
            }
            Manager::Red(red) => {
                let fits = fits(red.limit());
                fits && red.admits(&mut datagram, now, backlog)
            }
            Manager::CoDel(_, limit) => fits(*limit),
            Manager::FqCoDel(queues) => {
                queues.enqueue(datagram, &mut self.dropped);
                return;
            }
        };
        if admitted { self.fifo.push(datagram) } else { self.dropped.push(datagram) }
    }

    /// The transmitter takes the next datagram at `now`, nanoseconds.
    pub(crate) fn dequeue(&mut self, now: u64) -> Option<Queued<D>> {
        match &mut self.manager {
            Manager::CoDel(codel, _) => codel.dequeue(&mut self.fifo, now, &mut self.dropped),
            Manager::FqCoDel(queues) => queues.dequeue(now, &mut self.dropped),
            Manager::Red(red) => {
                let datagram = self.fifo.pop();
                if self.fifo.bytes() == 0 {
                    red.is_empty_from(now);
                }
                datagram
            }
            Manager::Arrival(_) | Manager::DropFront { .. } => self.fifo.pop(),
        }
    }

    /// The datagrams that were dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> Vec<Queued<D>> {
        std::mem::take(&mut self.dropped)
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        match &self.manager {
            Manager::FqCoDel(queues) => queues.bytes(),
            _ => self.fifo.bytes(),
        }
    }

    /// True if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.manager {
            Manager::FqCoDel(queues) => queues.len() == 0,
            _ => self.fifo.len() == 0,
        }
    }
}
