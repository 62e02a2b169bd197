//! Datagrams of the base connection from addresses that are not known yet.
//!
//! When a NAT gives a client another port in the middle of a connection, datagrams of the base
//! connection and a sealed message arrive from the new address, in any order. A datagram that
//! opened a session of its own would reach the server from another port, and the server would see
//! its client migrate (RFC 9000, section 9). So a datagram that may belong to a client that has
//! moved waits a moment for the sealed message that proves it.
//!
//! ```text
//!                --short header--> pending --authentic sealed message--> challenged --PathResponse--> forwarded
//!   unknown path                      | 250 ms, or no room                   | 1 s                    through the
//!                                     v                                      v                        session that
//!                --anything else--> a session of its own <-------------------+                        has moved
//! ```
//!
//! A client of another gateway is notified that its session is not known here, and answers with a
//! question and its ticket: then the session is opened with the server of the ticket.
//!
//! A sealed message does not release datagrams: its sender may have forged the source, and would
//! receive the traffic of the client at that path. It only makes datagrams wait for the answer to
//! the challenge, once and for a second at most.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use packrat_engine::NetworkPath;
use packrat_wire::estimate::Timestamp;
use packrat_wire::scone;

use crate::session::ClientPath;
use crate::socket::{Ecn, GsoBatch};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Longest time that a datagram waits for a sealed message. A client in a download seals a message
/// every 15 ms, but only as long as it receives something, which it does not from the moment on at
/// which its address has changed: when the one message that was due is lost, the next one is that
/// with which it asks whether the gateway is still there, after 150 ms.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// Longest time that a datagram waits for the answer to a challenge: a round trip of the last mile,
/// and one more challenge.
const CHALLENGED_WAIT: Duration = Duration::from_secs(1);
/// Time for which clients of other gateways are expected after one has come, and after the route
/// has begun: a gateway that has just started gets the clients that move then.
const ARRIVALS_TIME: Duration = Duration::from_secs(600);
/// Paths that wait or are challenged at once, per route.
const MOST_PATHS: usize = 4096;
/// Datagrams of one path that wait: as many as such a client acknowledges in that time.
const MOST_DATAGRAMS: u64 = 64;
/// Bytes that wait, per route.
const MOST_BYTES: usize = 4 << 20;

/// A datagram that waits.
#[derive(Debug)]
pub(crate) struct PendingDatagram {
    data: Vec<u8>,
    ecn: Ecn,
}

impl PendingDatagram {
    pub(crate) fn batch(&self) -> GsoBatch<'_> {
        GsoBatch::single(&self.data, self.ecn)
    }
}

/// A path without a session.
#[derive(Debug)]
struct Unknown {
    path: ClientPath,
    until: Timestamp,
    /// A session's authentic message came from there, or one of a session that is not known.
    is_challenged: bool,
    datagrams: Vec<PendingDatagram>,
}

/// The way on for datagrams of a path without a session.
#[derive(Debug)]
pub(crate) enum Disposition {
    /// Open a session for them.
    Open,
    /// The datagrams are kept. With a time, the path had no entry before; call
    /// [`PendingDatagrams::expire`] then.
    Pending(Option<Timestamp>),
}

/// The state of a path at the time it was to be looked at.
#[derive(Debug)]
pub(crate) enum Expired {
    /// The entry is gone.
    Gone,
    /// Look again then.
    Later(Timestamp),
    /// No session has moved there: open one, and forward what [`PendingDatagrams::take`] returns.
    Unclaimed(ClientPath),
}

/// The pending datagrams of one route.
#[derive(Debug, Default)]
pub(crate) struct PendingDatagrams {
    paths: Mutex<Paths>,
    /// Paths in it; read without the lock.
    count: AtomicUsize,
    /// The time until which clients of other gateways are expected, in microseconds.
    arrivals_until: AtomicU64,
}

#[derive(Debug, Default)]
struct Paths {
    unknown: HashMap<NetworkPath, Unknown>,
    bytes: usize,
}

/// True if a datagram looks like a QUIC packet with a short header (RFC 9000, section 17.3), at
/// first or behind a SCONE packet: only these are sent by clients whose connection is older than the address. Everything else begins a
/// connection, or is no QUIC.
pub(crate) fn may_have_moved(datagram: &[u8]) -> bool {
    scone::behind(datagram).first().is_some_and(|first| first & 0xc0 == 0x40)
}

impl PendingDatagrams {
    fn lock(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock()
    }

    /// Bytes that wait.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// True if there are no pending datagrams and no challenged paths; free of locks.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Takes datagrams that may belong to a client that has moved: all of them, or none.
    pub(crate) fn add(
        &self,
        path: &ClientPath,
        batches: &[GsoBatch<'_>],
        now: Timestamp,
    ) -> Disposition {
        let mut paths = self.lock();
        let Paths { unknown, bytes } = &mut *paths;
        let known = unknown.get(&path.network()).map(|unknown| unknown.datagrams.len());
        let length = batches.iter().map(|batch| batch.data.len()).sum::<usize>();
        if known.unwrap_or_default() as u64 + GsoBatch::count(batches) > MOST_DATAGRAMS
            || *bytes + length > MOST_BYTES
            || (known.is_none() && unknown.len() >= MOST_PATHS)
        {
            return Disposition::Open;
        }
        let until = now + LONGEST_WAIT;
        let entry = unknown.entry(path.network()).or_insert_with(|| Unknown {
            path: path.clone(),
            until,
            is_challenged: false,
            datagrams: Vec::new(),
        });
        for batch in batches {
            let one = |data: &[u8]| PendingDatagram { data: data.to_vec(), ecn: batch.ecn };
            entry.datagrams.extend(batch.datagrams().map(one));
        }
        *bytes += length;
        self.count.store(unknown.len(), Ordering::Relaxed);
        Disposition::Pending(known.is_none().then_some(until))
    }

    /// Notes that an authentic message of a session came from a path without one, and was answered
    /// with a challenge: datagrams that wait there, wait for the answer. Returns the time at which
    /// to call [`PendingDatagrams::expire`] if the path had no entry before.
    pub(crate) fn note_challenged(&self, path: &ClientPath, now: Timestamp) -> Option<Timestamp> {
        let mut paths = self.lock();
        let Paths { unknown, .. } = &mut *paths;
        let until = now + CHALLENGED_WAIT;
        let full = unknown.len() >= MOST_PATHS;
        let begun = match unknown.entry(path.network()) {
            // Once: who can send such messages must not hold up the client there for longer.
            Entry::Occupied(mut entry) => {
                let unknown = entry.get_mut();
                if !unknown.is_challenged {
                    unknown.is_challenged = true;
                    unknown.until = until;
                }
                None
            }
            // No harm: datagrams from there wait, or open a session, as without the message.
            Entry::Vacant(_) if full => None,
            Entry::Vacant(entry) => {
                let (path, datagrams) = (path.clone(), Vec::new());
                entry.insert(Unknown { path, until, is_challenged: true, datagrams });
                Some(until)
            }
        };
        self.count.store(unknown.len(), Ordering::Relaxed);
        begun
    }

    /// Clients may come from other gateways with the same key from now on, for a while.
    pub(crate) fn expect_arrivals(&self, now: Timestamp) {
        self.arrivals_until.fetch_max((now + ARRIVALS_TIME).as_micros(), Ordering::Relaxed);
    }

    /// True if clients may come from other gateways.
    pub(crate) fn expects_arrivals(&self, now: Timestamp) -> bool {
        now.as_micros() < self.arrivals_until.load(Ordering::Relaxed)
    }

    /// Notes that a message of an unknown session came from a path, and that its sender was
    /// notified. The sender may be a client of another gateway: datagrams that wait there, wait
    /// once more until the client has named its server. Anyone can write such a message, so it
    /// takes no memory.
    pub(crate) fn note_stranger(&self, network: NetworkPath, now: Timestamp) {
        let mut paths = self.lock();
        if let Some(unknown) = paths.unknown.get_mut(&network)
            && !unknown.is_challenged
        {
            unknown.is_challenged = true;
            unknown.until = now + CHALLENGED_WAIT;
        }
    }

    /// Looks at a path whose time may be over.
    pub(crate) fn expire(&self, path: NetworkPath, now: Timestamp) -> Expired {
        let mut paths = self.lock();
        let Some(unknown) = paths.unknown.get(&path) else { return Expired::Gone };
        if unknown.until > now {
            return Expired::Later(unknown.until);
        }
        if !unknown.datagrams.is_empty() {
            return Expired::Unclaimed(unknown.path.clone());
        }
        paths.unknown.remove(&path);
        self.count.store(paths.unknown.len(), Ordering::Relaxed);
        Expired::Gone
    }

    /// The first datagram that waits at a path.
    pub(crate) fn first(&self, path: NetworkPath) -> Option<Vec<u8>> {
        let paths = self.lock();
        Some(paths.unknown.get(&path)?.datagrams.first()?.data.clone())
    }

    /// Forgets the path, as it has a session now, and returns the datagrams that have waited.
    pub(crate) fn take(&self, path: NetworkPath) -> Vec<PendingDatagram> {
        let mut paths = self.lock();
        let waited = paths.unknown.remove(&path).map(|unknown| unknown.datagrams);
        let waited = waited.unwrap_or_default();
        paths.bytes -= waited.iter().map(|pending| pending.data.len()).sum::<usize>();
        self.count.store(paths.unknown.len(), Ordering::Relaxed);
        waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{ClientAddress, ListenerAddress, Slot};
    use std::sync::Arc;

    fn path(number: usize) -> ClientPath {
        let client = ([192, 0, 2, (number >> 14) as u8], 1000 + (number & 0x3fff) as u16).into();
        let listener = ListenerAddress::new("192.0.2.1:443".parse().unwrap());
        let slot = Arc::new(Slot::new(listener));
        ClientPath { client: ClientAddress::new(client), slot, local: None }
    }

    fn add(pending: &PendingDatagrams, number: usize, length: usize) -> Disposition {
        let data = vec![0x41; length];
        let batch = GsoBatch::single(&data, Ecn::NOT_CAPABLE);
        pending.add(&path(number), &[batch], Timestamp::ZERO)
    }

    #[test]
    fn addresses_datagrams_and_bytes_are_limited_and_given_back() {
        let pending = PendingDatagrams::default();
        let kept =
            (0..100).filter(|_| matches!(add(&pending, 0, 100), Disposition::Pending(_))).count();
        assert_eq!(kept as u64, MOST_DATAGRAMS);
        assert_eq!(pending.take(path(0).network()).len(), kept);
        assert!(pending.is_empty());

        let kept = (0..10_000)
            .filter(|&number| matches!(add(&pending, number, 1), Disposition::Pending(_)))
            .count();
        assert_eq!(kept, MOST_PATHS);
        for number in 0..5000 {
            pending.take(path(number).network());
        }
        let kept = (0..1000)
            .filter(|&number| matches!(add(&pending, number, 60_000), Disposition::Pending(_)));
        assert_eq!(kept.count(), MOST_BYTES / 60_000);
        for number in 0..1000 {
            pending.take(path(number).network());
        }
        assert!(pending.is_empty() && pending.lock().bytes == 0);
    }

    #[test]
    fn nobody_waits_longer_than_the_longest_wait() {
        let pending = PendingDatagrams::default();
        let network = path(7).network();
        let Disposition::Pending(Some(until)) = add(&pending, 7, 10) else { panic!("not kept") };
        assert_eq!(until, Timestamp::ZERO + LONGEST_WAIT);
        assert!(matches!(add(&pending, 7, 10), Disposition::Pending(None)));
        assert!(
            matches!(pending.expire(network, Timestamp::ZERO), Expired::Later(at) if at == until)
        );
        assert!(
            matches!(pending.expire(network, until), Expired::Unclaimed(path) if path.network() == network)
        );
        assert_eq!(pending.take(network).len(), 2);
        assert!(matches!(pending.expire(network, until), Expired::Gone));
    }

    #[test]
    fn a_challenge_delays_datagrams_once_for_at_most_a_second() {
        let pending = PendingDatagrams::default();
        let network = path(7).network();
        let at = Timestamp::from_millis;
        assert!(matches!(add(&pending, 7, 10), Disposition::Pending(Some(_))));
        assert_eq!(pending.note_challenged(&path(7), at(200)), None);
        // Others cannot prolong it.
        for milliseconds in 201..1200 {
            assert_eq!(pending.note_challenged(&path(7), at(milliseconds)), None);
        }
        assert!(matches!(add(&pending, 7, 10), Disposition::Pending(None)));
        assert!(matches!(pending.expire(network, at(250)), Expired::Later(_)));
        assert!(matches!(pending.expire(network, at(1199)), Expired::Later(_)));
        assert!(matches!(pending.expire(network, at(1200)), Expired::Unclaimed(_)));
        assert_eq!(pending.take(network).len(), 2);
        // The challenge comes before the first datagram.
        assert_eq!(pending.note_challenged(&path(8), at(0)), Some(at(1000)));
        assert!(matches!(add(&pending, 8, 10), Disposition::Pending(None)));
        assert!(matches!(pending.expire(path(8).network(), at(1000)), Expired::Unclaimed(_)));
        assert_eq!(pending.take(path(8).network()).len(), 1);
        // No datagram comes after the challenge.
        assert_eq!(pending.note_challenged(&path(9), at(0)), Some(at(1000)));
        assert!(matches!(pending.expire(path(9).network(), at(1000)), Expired::Gone));
        assert!(pending.is_empty() && pending.lock().bytes == 0);
    }

    #[test]
    fn unknown_sessions_messages_extend_a_wait_once_and_begin_none() {
        let pending = PendingDatagrams::default();
        let network = path(7).network();
        let at = Timestamp::from_millis;
        pending.note_stranger(network, at(0));
        assert!(pending.is_empty() && matches!(pending.expire(network, at(1)), Expired::Gone));
        assert!(matches!(add(&pending, 7, 10), Disposition::Pending(Some(_))));
        for milliseconds in 100..1000 {
            pending.note_stranger(network, at(milliseconds));
        }
        assert!(
            matches!(pending.expire(network, at(250)), Expired::Later(until) if until == at(1100))
        );
        assert!(matches!(pending.expire(network, at(1100)), Expired::Unclaimed(_)));
    }

    #[test]
    fn only_short_headers_may_wait() {
        assert!((0x40..=0x7f).all(|first| may_have_moved(&[first])));
        assert!((0x00..=0x3f).chain(0x80..=0xff).all(|first| !may_have_moved(&[first])));
        assert!(!may_have_moved(&[]));
        let scone = |packet: &[u8]| [b"\xc5\x6f\x7d\xc0\xfd\x01i\0", packet].concat();
        assert!(may_have_moved(&scone(&[0x41])));
        assert!(!may_have_moved(&scone(&[0xc1])) && !may_have_moved(&scone(&[])));
    }
}
