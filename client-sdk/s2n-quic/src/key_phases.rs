//! Keeps s2n-quic at the newest keys of a connection (RFC 9001, section 6) when a late packet of the
//! old ones arrives.
//!
//! ```text
//!              a packet of new keys, the highest so far
//!   old keys ------------------------------------------> new keys
//!      ^                                                  |   ^
//!      |       a late packet of the old keys              |   | the packet with the highest number,
//!      |<-------------------------------------------------+   | once more: a duplicate, which s2n-quic
//!      +------------------------------------------------------+ decrypts before it drops it
//! ```
//!
//! Within a probe timeout of an update, s2n-quic (0.91, `KeySet::decrypt_packet`) goes back to the
//! old keys with such a packet, and seals its next acknowledgement with them. Acknowledging packets
//! of the new keys this way is a protocol violation (section 6.2), for which quic-go closes the
//! connection. On paths with repaired losses, late packets are common. s2n-quic sends no packet
//! between two datagrams that are passed to it together. Passing the packet with the highest number
//! again, which has the newest keys, therefore restores them.

use std::collections::HashMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The key phases of an endpoint's connections, by s2n-quic's internal identifiers of these.
#[derive(Debug, Default)]
pub(crate) struct KeyPhases(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    connections: HashMap<u64, Newest>,
    /// The datagram that s2n-quic is looking at, as it was before.
    current: Vec<u8>,
    /// The connection whose highest packet number is in it.
    newest_of: Option<u64>,
    /// The connection that it has taken back to old keys.
    taken_back: Option<u64>,
}

/// The packet with the highest number of one connection.
#[derive(Debug, Default)]
struct Newest {
    number: Option<u64>,
    datagram: Vec<u8>,
    /// Set if s2n-quic has changed its keys for the packet of the next event.
    has_changed: bool,
}

impl KeyPhases {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called before s2n-quic processes this datagram, which it decrypts in place.
    pub(crate) fn on_pass(&self, datagram: &[u8]) {
        let state = &mut *self.lock();
        state.current.clear();
        state.current.extend_from_slice(datagram);
        (state.newest_of, state.taken_back) = (None, None);
    }

    /// Called when s2n-quic uses other keys.
    pub(crate) fn on_key_update(&self, connection: u64) {
        self.lock().connections.entry(connection).or_default().has_changed = true;
    }

    /// Called when s2n-quic has decrypted a 1-RTT packet, new or a duplicate.
    pub(crate) fn on_packet(&self, connection: u64, number: u64) {
        let state = &mut *self.lock();
        let newest = state.connections.entry(connection).or_default();
        let has_changed = mem::take(&mut newest.has_changed);
        if newest.number.is_none_or(|highest| number > highest) {
            newest.number = Some(number);
            state.newest_of = Some(connection);
        } else if has_changed && newest.number > Some(number) {
            state.taken_back = Some(connection);
        }
    }

    /// Called when s2n-quic has processed the datagram. Returns another datagram for s2n-quic to
    /// process before it sends a packet.
    pub(crate) fn after_pass(&self) -> Option<Vec<u8>> {
        let state = &mut *self.lock();
        if let Some(newest) = state.newest_of.and_then(|id| state.connections.get_mut(&id)) {
            mem::swap(&mut newest.datagram, &mut state.current);
        }
        let newest = state.connections.get(&state.taken_back.take()?)?;
        Some(newest.datagram.clone()).filter(|datagram| !datagram.is_empty())
    }

    /// A connection does not exist any more.
    pub(crate) fn on_gone(&self, connection: u64) {
        self.lock().connections.remove(&connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes s2n-quic process a datagram of one connection with one packet.
    fn pass(phases: &KeyPhases, datagram: &[u8], number: u64, changes: bool) -> Option<Vec<u8>> {
        phases.on_pass(datagram);
        if changes {
            phases.on_key_update(7);
        }
        phases.on_packet(7, number);
        phases.after_pass()
    }

    #[test]
    fn the_newest_packet_follows_one_that_takes_the_connection_back() {
        let phases = KeyPhases::default();
        assert_eq!(pass(&phases, b"three", 3, false), None);
        assert_eq!(pass(&phases, b"five", 5, true), None, "an update");
        assert_eq!(pass(&phases, b"six", 6, false), None);
        assert_eq!(pass(&phases, b"four", 4, true), Some(b"six".to_vec()));
        assert_eq!(pass(&phases, b"six", 6, true), None, "it is back");
        assert_eq!(pass(&phases, b"two", 2, false), None, "late, and of no matter");
        assert_eq!(pass(&phases, b"nine", 9, true), None, "the next update");
        phases.on_gone(7);
        assert!(phases.lock().connections.is_empty());
    }
}
