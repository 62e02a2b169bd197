//! Handshakes that wait until a thread has forwarded what there is.
//!
//! A handshake takes a thread the time of a hundred datagrams. When many come at once, the thread
//! answers as many as take a millisecond, and the others between the datagrams that it forwards.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use packrat_engine::HANDSHAKE_PAUSE;
use packrat_wire::estimate::Timestamp;

use crate::route::Route;
use crate::session::ClientPath;

/// Handshakes that wait, per thread: at the rate at which they are answered, 80 ms.
const WAITING_HANDSHAKES: usize = 256;
/// Longest wait: after it the client has asked again.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// A handshake datagram of a client that has proven its address.
#[derive(Debug)]
pub(crate) struct PutOff {
    pub(crate) route: Arc<Route>,
    pub(crate) path: ClientPath,
    pub(crate) datagram: Box<[u8]>,
    pub(crate) since: Timestamp,
}

impl PutOff {
    fn network(&self) -> u64 {
        self.route.context.engine.hash_of_network(self.path.client.get().ip())
    }

    fn has_time(&self, now: Timestamp) -> bool {
        self.route.context.engine.has_time_for_handshake(self.path.client.get().ip(), now)
    }

    fn is_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.route, &other.route) && self.path.network() == other.path.network()
    }
}

/// The handshakes that wait on one thread, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct PutOffHandshakes {
    waiting: VecDeque<(u64, PutOff)>,
    /// Time at which the next handshake may have its turn.
    next: Timestamp,
}

impl PutOffHandshakes {
    /// Keeps a handshake. One that its client has repeated replaces the former in its place. A
    /// network takes another place only while it leaves as many free as it has (dynamic thresholds
    /// of Choudhury98): half of all at most. A client for which there is no place asks again.
    pub(crate) fn add(&mut self, handshake: PutOff) {
        if let Some((_, known)) = self.waiting.iter_mut().find(|(_, known)| known.is_of(&handshake))
        {
            known.datagram = handshake.datagram;
            return;
        }
        let network = handshake.network();
        let of_network = self.waiting.iter().filter(|(other, _)| *other == network).count();
        if of_network >= WAITING_HANDSHAKES - self.waiting.len() {
            return;
        }
        if self.waiting.is_empty() {
            self.next = handshake.since + HANDSHAKE_PAUSE;
        }
        self.waiting.push_back((network, handshake));
    }

    /// The time at which to look again.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        (!self.waiting.is_empty()).then_some(self.next)
    }

    /// The oldest handshake for which there is time now, on the thread that calls.
    pub(crate) fn due(&mut self, now: Timestamp) -> Option<PutOff> {
        if self.waiting.is_empty() || self.next > now {
            return None;
        }
        self.waiting.retain(|(_, waiting)| now.saturating_since(waiting.since) < LONGEST_WAIT);
        let position = self.waiting.iter().position(|(_, waiting)| waiting.has_time(now));
        if position.is_none() {
            self.next = now + HANDSHAKE_PAUSE;
        }
        self.waiting.remove(position?).map(|(_, handshake)| handshake)
    }
}
