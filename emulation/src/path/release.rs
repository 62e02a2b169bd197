//! Holding datagrams back until they are due.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use packrat_wire::estimate::Timestamp;

use super::lateness::{Lateness, LatenessHistogram};
use super::link::{Link, LinkConfig, LinkCounters, Verdict};
use super::loss::LossModel;

/// Datagrams that are taken out at once when many are due.
const BATCH_DATAGRAMS: usize = 64;

/// A datagram on its way.
#[derive(Debug)]
pub struct InFlight<D> {
    due: Timestamp,
    /// Bytes of the datagram.
    pub payload: Vec<u8>,
    /// Destination that the datagram was offered with.
    pub destination: D,
}

/// One direction of a running path: the link model, and the datagrams that are on their way through
/// it.
///
/// Receiving threads [`offer`](Self::offer), one thread [`release`](Self::release)s.
pub struct Direction<D> {
    origin: Instant,
    state: Mutex<State<D>>,
    arrival: Condvar,
}

struct State<D> {
    link: Link,
    /// The arrival of the datagram before.
    last_arrival: Timestamp,
    in_flight: VecDeque<InFlight<D>>,
    lateness: LatenessHistogram,
    stopped: bool,
}

impl<D> Direction<D> {
    /// An idle direction; `origin` is the link's time 0.
    pub fn new(config: LinkConfig, origin: Instant) -> Arc<Self> {
        Arc::new(Self {
            origin,
            state: Mutex::new(State {
                link: Link::new(config),
                last_arrival: Timestamp::ZERO,
                in_flight: VecDeque::new(),
                lateness: LatenessHistogram::new(),
                stopped: false,
            }),
            arrival: Condvar::new(),
        })
    }

    /// Takes in a datagram that arrived just now.
    pub fn offer(&self, payload: &[u8], destination: D) {
        self.offer_belated(payload, destination, Duration::ZERO);
    }

    /// Takes in a datagram that arrived `waited` ago, and has waited for its thread since: the wait
    /// is part of its delay, or of its lateness.
    pub(crate) fn offer_belated(&self, payload: &[u8], destination: D, waited: Duration) {
        let mut state = self.lock();
        // The clock is read under the lock: several receiving threads share a link, whose time must
        // not run backwards.
        let arrival = state.last_arrival.max(self.now() - waited);
        state.last_arrival = arrival;
        let verdict = state.link.offer(arrival, payload.len());
        if let Verdict::Deliver { at } = verdict {
            let was_idle = state.in_flight.is_empty();
            state.in_flight.push_back(InFlight { due: at, payload: payload.to_vec(), destination });
            drop(state);
            // A link does not reorder, so only the first datagram in flight can change when to wake
            // up.
            if was_idle {
                self.arrival.notify_one();
            }
        }
    }

    /// Hands each datagram to `send` when it is due, until [`stop`](Self::stop).
    pub fn release(&self, mut send: impl FnMut(InFlight<D>)) {
        let mut batch = Vec::with_capacity(BATCH_DATAGRAMS);
        while self.wait_for_due(&mut batch) {
            batch.drain(..).for_each(&mut send);
        }
    }

    /// Ends [`release`](Self::release); datagrams on their way are dropped.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.arrival.notify_all();
    }

    /// Another loss on the medium from now on; everything else stays as it is.
    pub fn set_loss(&self, loss: LossModel, seed: u64) {
        self.lock().link.set_loss(loss, seed);
    }

    /// The link's counters, the lateness of the datagrams released, and the number of those on
    /// their way.
    pub fn counters(&self) -> (LinkCounters, Lateness, usize) {
        let state = self.lock();
        (state.link.counters(), state.lateness.summary(), state.in_flight.len())
    }

    /// Fills `batch` with the datagrams that are due, waiting for them; false once stopped.
    fn wait_for_due(&self, batch: &mut Vec<InFlight<D>>) -> bool {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return false;
            }
            let Some(due) = state.in_flight.front().map(|first| first.due) else {
                state = self.arrival.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let wait = due.saturating_since(self.now());
            // Sleeping to the due time is late by the timer's slack, some 80 microseconds. Spinning
            // through the last stretch would save them, but take the processor from the
            // applications whose traffic this is.
            if !wait.is_zero() {
                let (guard, _) =
                    self.arrival.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
                state = guard;
                continue;
            }
            let now = self.now();
            while batch.len() < BATCH_DATAGRAMS
                && state.in_flight.front().is_some_and(|first| first.due <= now)
            {
                let Some(datagram) = state.in_flight.pop_front() else { break };
                state.lateness.record(now.saturating_since(datagram.due));
                batch.push(datagram);
            }
            return true;
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.origin.elapsed().as_micros() as u64)
    }

    /// No code under this lock can leave the state half-changed, so a poisoned lock is used as it
    /// is.
    fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
