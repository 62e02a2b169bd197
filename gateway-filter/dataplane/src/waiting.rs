//! Datagrams of the base connection from addresses that are not known yet.
//!
//! When a NAT gives a client another port in the middle of a connection, datagrams of the base connection and a sealed message
//! arrive from the new address, in any order. A datagram that opened a session of its own would reach the server from another
//! port, and the server would see its client migrate (RFC 9000, section 9). So a datagram that may belong to a client that
//! has moved waits a moment for the sealed message that says so.
//!
//! ```text
//!   unknown address --short header--> parked --sealed message is authentic--> claimed --challenge answered--> moved
//!                                       | 250 ms, or no room                     | a challenge's lifetime
//!                                       v                                        v
//!                                    a session of its own                     forgotten
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use packrat_estimate::Timestamp;

use crate::session::{ClientPath, Session};
use crate::socket::{Ecn, Piece};

/// Longest time that a datagram waits. A client in a download seals a message every 15 ms, but only as long as it receives something, which it does not
/// from the moment on at which its address has changed: when the one message that was due is lost, the next one is that with which
/// it asks whether the gateway is still there, after 150 ms.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// How long an address belongs to the session that it has named: as long as its challenge may be answered.
const CLAIM_LIFETIME: Duration = Duration::from_secs(3);
/// Addresses that wait or are claimed at once, per route.
const MOST_ADDRESSES: usize = 4096;
/// Datagrams of one address that wait: what such a client acknowledges meanwhile.
const MOST_DATAGRAMS: usize = 64;
/// Bytes that wait, per route.
const MOST_BYTES: usize = 4 << 20;

/// A datagram that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    data: Vec<u8>,
    ecn: Ecn,
}

impl Parked {
    pub(crate) fn piece(&self) -> Piece<'_> {
        Piece::single(&self.data, self.ecn)
    }
}

#[derive(Debug)]
enum Guest {
    Waiting { path: ClientPath, until: Timestamp, datagrams: Vec<Parked> },
    Claimed { session: Arc<Session>, until: Timestamp },
}

/// What to do with a datagram of an address without a session.
#[derive(Debug)]
pub(crate) enum Offered {
    /// Open a session for it.
    Open,
    /// It is kept. With a time: nothing of this address was kept before; call [`WaitingRoom::expire`] then.
    Kept(Option<Timestamp>),
    /// Forward it through this session.
    Claimed(Arc<Session>),
}

/// What has become of an address at the time it was to be looked at.
#[derive(Debug)]
pub(crate) enum Expired {
    /// Nothing is left of it.
    Gone,
    /// Look again then.
    Later(Timestamp),
    /// Nobody has claimed it: open a session, and forward what [`WaitingRoom::leave`] returns.
    Unclaimed(ClientPath),
}

/// The waiting room of one route.
#[derive(Debug, Default)]
pub(crate) struct WaitingRoom {
    guests: Mutex<Guests>,
    /// Addresses in it; read without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Guests {
    by_address: HashMap<SocketAddr, Guest>,
    bytes: usize,
}

/// Whether a datagram looks like a QUIC packet with a short header (RFC 9000, section 17.3): only these are sent by clients
/// whose connection is older than the address. Everything else begins a connection, or is no QUIC.
pub(crate) fn may_have_moved(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xc0 == 0x40)
}

impl WaitingRoom {
    fn lock(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody waits and nothing is claimed; free of locks.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Datagrams from an address without a session. `may_wait`: keep them if there is room.
    pub(crate) fn offer(
        &self,
        path: &ClientPath,
        piece: Piece<'_>,
        may_wait: bool,
        now: Timestamp,
    ) -> Offered {
        let mut guests = self.lock();
        let Guests { by_address, bytes } = &mut *guests;
        let full = by_address.len() >= MOST_ADDRESSES || *bytes + piece.data.len() > MOST_BYTES;
        let keep = || piece.datagrams().map(|data| Parked { data: data.to_vec(), ecn: piece.ecn });
        let added = piece.datagrams().count();
        let offered = match by_address.entry(path.client) {
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Guest::Claimed { session, .. } => Offered::Claimed(Arc::clone(session)),
                Guest::Waiting { datagrams, .. } => {
                    if datagrams.len() + added > MOST_DATAGRAMS || *bytes + piece.data.len() > MOST_BYTES {
                        Offered::Open
                    } else {
                        datagrams.extend(keep());
                        *bytes += piece.data.len();
                        Offered::Kept(None)
                    }
                }
            },
            Entry::Vacant(entry) => {
                if !may_wait || full || added > MOST_DATAGRAMS {
                    Offered::Open
                } else {
                    let until = now + LONGEST_WAIT;
                    entry.insert(Guest::Waiting { path: path.clone(), until, datagrams: keep().collect() });
                    *bytes += piece.data.len();
                    Offered::Kept(Some(until))
                }
            }
        };
        self.count.store(by_address.len(), Ordering::Relaxed);
        offered
    }

    /// An authentic message of `session` came from `client`: what waits there belongs to it, and what follows, too. Returns
    /// what waited, and when [`WaitingRoom::expire`] is to be called if the address was not known here before.
    pub(crate) fn claim(
        &self,
        client: SocketAddr,
        session: &Arc<Session>,
        now: Timestamp,
    ) -> (Vec<Parked>, Option<Timestamp>) {
        let mut guests = self.lock();
        let Guests { by_address, bytes } = &mut *guests;
        let until = now + CLAIM_LIFETIME;
        let claimed = Guest::Claimed { session: Arc::clone(session), until };
        let full = by_address.len() >= MOST_ADDRESSES;
        let result = match by_address.entry(client) {
            Entry::Occupied(mut entry) => match entry.insert(claimed) {
                Guest::Waiting { datagrams, .. } => {
                    *bytes -= size(&datagrams);
                    (datagrams, None)
                }
                Guest::Claimed { .. } => (Vec::new(), None),
            },
            // No harm: its datagrams open a session as if nothing had been said.
            Entry::Vacant(_) if full => (Vec::new(), None),
            Entry::Vacant(entry) => {
                entry.insert(claimed);
                (Vec::new(), Some(until))
            }
        };
        self.count.store(by_address.len(), Ordering::Relaxed);
        result
    }

    /// Looks at an address whose time may be over.
    pub(crate) fn expire(&self, client: SocketAddr, now: Timestamp) -> Expired {
        let mut guests = self.lock();
        match guests.by_address.get(&client) {
            None => Expired::Gone,
            Some(Guest::Waiting { until, .. } | Guest::Claimed { until, .. }) if *until > now => {
                Expired::Later(*until)
            }
            Some(Guest::Waiting { path, .. }) => Expired::Unclaimed(path.clone()),
            Some(Guest::Claimed { .. }) => {
                guests.by_address.remove(&client);
                self.count.store(guests.by_address.len(), Ordering::Relaxed);
                Expired::Gone
            }
        }
    }

    /// The address has a session now: forgets it, and returns what has waited.
    pub(crate) fn leave(&self, client: SocketAddr) -> Vec<Parked> {
        let mut guests = self.lock();
        let waited = match guests.by_address.remove(&client) {
            Some(Guest::Waiting { datagrams, .. }) => {
                guests.bytes -= size(&datagrams);
                datagrams
            }
            Some(Guest::Claimed { .. }) | None => Vec::new(),
        };
        self.count.store(guests.by_address.len(), Ordering::Relaxed);
        waited
    }
}

fn size(datagrams: &[Parked]) -> usize {
    datagrams.iter().map(|parked| parked.data.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::downstream::Slot;

    fn path(number: usize) -> ClientPath {
        ClientPath {
            client: ([192, 0, 2, (number >> 14) as u8], 1000 + (number & 0x3fff) as u16).into(),
            slot: Arc::new(Slot::new("192.0.2.1:443".parse().unwrap())),
            local: None,
        }
    }

    fn offer(room: &WaitingRoom, number: usize, length: usize) -> Offered {
        let data = vec![0x41; length];
        room.offer(&path(number), Piece::single(&data, Ecn::NOT_CAPABLE), true, Timestamp::ZERO)
    }

    #[test]
    fn addresses_datagrams_and_bytes_are_limited_and_given_back() {
        let room = WaitingRoom::default();
        let kept = (0..100).filter(|_| matches!(offer(&room, 0, 100), Offered::Kept(_))).count();
        assert_eq!(kept, MOST_DATAGRAMS);
        assert_eq!(room.leave(path(0).client).len(), MOST_DATAGRAMS);
        assert!(room.is_empty());

        let kept = (0..10_000).filter(|&number| matches!(offer(&room, number, 1), Offered::Kept(_))).count();
        assert_eq!(kept, MOST_ADDRESSES);
        for number in 0..5000 {
            room.leave(path(number).client);
        }
        let kept = (0..1000).filter(|&number| matches!(offer(&room, number, 60_000), Offered::Kept(_)));
        assert_eq!(kept.count(), MOST_BYTES / 60_000);
        for number in 0..1000 {
            room.leave(path(number).client);
        }
        assert!(room.is_empty() && room.lock().bytes == 0);
    }

    #[test]
    fn nobody_waits_longer_than_the_longest_wait() {
        let room = WaitingRoom::default();
        let client = path(7).client;
        let Offered::Kept(Some(until)) = offer(&room, 7, 10) else { panic!("not kept") };
        assert_eq!(until, Timestamp::ZERO + LONGEST_WAIT);
        assert!(matches!(offer(&room, 7, 10), Offered::Kept(None)));
        assert!(matches!(room.expire(client, Timestamp::ZERO), Expired::Later(at) if at == until));
        assert!(matches!(room.expire(client, until), Expired::Unclaimed(path) if path.client == client));
        assert_eq!(room.leave(client).len(), 2);
        assert!(matches!(room.expire(client, until), Expired::Gone));
    }

    #[test]
    fn only_short_headers_may_wait() {
        assert!((0x40..=0x7f).all(|first| may_have_moved(&[first])));
        assert!((0x00..=0x3f).chain(0x80..=0xff).all(|first| !may_have_moved(&[first])));
        assert!(!may_have_moved(&[]));
    }
}
