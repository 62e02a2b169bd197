//! Datagrams of the base connection from addresses that are not known yet.
//!
//! When a NAT gives a client another port in the middle of a connection, datagrams of the base
//! connection and a sealed message arrive from the new address, in any order. A datagram that
//! opened a session of its own would reach the server from another port, and the server would see
//! its client migrate (RFC 9000, section 9). So a datagram that may belong to a client that
//! has moved waits a moment for the sealed message that says so.
//!
//! ```text
//!   unknown address --short header--> pending --sealed message is authentic--> claimed --challenge answered--> moved
//!                                       | 250 ms, or no room                     | a challenge's lifetime
//!                                       v                                        v
//!                                    a session of its own                     forgotten
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use packrat_engine::CHALLENGE_LIFETIME;
use packrat_wire::estimate::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use crate::session::{ClientPath, Session};
use crate::socket::{ClientAddress, Ecn, GsoBatch};

/// Longest time that a datagram waits. A client in a download seals a message every 15 ms, but only
/// as long as it receives something, which it does not from the moment on at which its address has
/// changed: when the one message that was due is lost, the next one is that with which
/// it asks whether the gateway is still there, after 150 ms.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// Addresses that wait or are claimed at once, per route.
const MOST_ADDRESSES: usize = 4096;
/// Datagrams of one address that wait: what such a client acknowledges meanwhile.
const MOST_DATAGRAMS: usize = 64;
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

#[derive(Debug)]
enum AddressState {
    Pending { path: ClientPath, until: Timestamp, datagrams: Vec<PendingDatagram> },
    Claimed { session: Arc<Session>, until: Timestamp },
}

/// The way on for datagrams of an address without a session.
#[derive(Debug)]
pub(crate) enum Disposition {
    /// Open a session for them.
    Open,
    /// They are kept. With a time: nothing of this address was kept before; call
    /// [`PendingDatagrams::expire`] then.
    Pending(Option<Timestamp>),
    /// Forward them through this session.
    Claimed(Arc<Session>),
}

/// The state of an address at the time it was to be looked at.
#[derive(Debug)]
pub(crate) enum Expired {
    /// Nothing is left of it.
    Gone,
    /// Look again then.
    Later(Timestamp),
    /// No session has claimed it: open one, and forward what [`PendingDatagrams::take`] returns.
    Unclaimed(ClientPath),
}

/// Treatment of datagrams from an address that has no session and no pending datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfUnknown {
    /// Keep them if there is room.
    Keep,
    /// Open a session.
    Open,
}

/// The pending datagrams of one route.
#[derive(Debug, Default)]
pub(crate) struct PendingDatagrams {
    addresses: Mutex<Addresses>,
    /// Addresses in it; read without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Addresses {
    by_address: HashMap<ClientAddress, AddressState>,
    bytes: usize,
}

/// True if a datagram looks like a QUIC packet with a short header (RFC 9000, section 17.3): only
/// these are sent by clients whose connection is older than the address. Everything else begins a
/// connection, or is no QUIC.
pub(crate) fn may_have_moved(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xc0 == 0x40)
}

impl PendingDatagrams {
    fn lock(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock()
    }

    /// True if nothing waits and nothing is claimed; free of locks.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Takes datagrams from an address without a session.
    pub(crate) fn add(
        &self,
        path: &ClientPath,
        batch: GsoBatch<'_>,
        if_unknown: IfUnknown,
        now: Timestamp,
    ) -> Disposition {
        let mut addresses = self.lock();
        let Addresses { by_address, bytes } = &mut *addresses;
        let full = by_address.len() >= MOST_ADDRESSES || *bytes + batch.data.len() > MOST_BYTES;
        let keep = || {
            batch.datagrams().map(|data| PendingDatagram { data: data.to_vec(), ecn: batch.ecn })
        };
        let added = batch.datagrams().count();
        let disposition = match by_address.entry(path.client) {
            Entry::Occupied(mut entry) => match entry.get_mut() {
                AddressState::Claimed { session, .. } => Disposition::Claimed(Arc::clone(session)),
                AddressState::Pending { datagrams, .. } => {
                    if datagrams.len() + added > MOST_DATAGRAMS
                        || *bytes + batch.data.len() > MOST_BYTES
                    {
                        Disposition::Open
                    } else {
                        datagrams.extend(keep());
                        *bytes += batch.data.len();
                        Disposition::Pending(None)
                    }
                }
            },
            Entry::Vacant(entry) => {
                if if_unknown == IfUnknown::Open || full || added > MOST_DATAGRAMS {
                    Disposition::Open
                } else {
                    let until = now + LONGEST_WAIT;
                    entry.insert(AddressState::Pending {
                        path: path.clone(),
                        until,
                        datagrams: keep().collect(),
                    });
                    *bytes += batch.data.len();
                    Disposition::Pending(Some(until))
                }
            }
        };
        self.count.store(by_address.len(), Ordering::Relaxed);
        disposition
    }

    /// Claims an address for `session`, of which an authentic message came from there: what waits
    /// belongs to it, and what follows, too. Returns what waited, and the time at which to call
    /// [`PendingDatagrams::expire`] if the address was not known here before.
    pub(crate) fn claim(
        &self,
        client: ClientAddress,
        session: &Arc<Session>,
        now: Timestamp,
    ) -> (Vec<PendingDatagram>, Option<Timestamp>) {
        let mut addresses = self.lock();
        let Addresses { by_address, bytes } = &mut *addresses;
        // As long as its challenge may be answered.
        let until = now + CHALLENGE_LIFETIME;
        let claimed = AddressState::Claimed { session: Arc::clone(session), until };
        let full = by_address.len() >= MOST_ADDRESSES;
        let result = match by_address.entry(client) {
            Entry::Occupied(mut entry) => match entry.insert(claimed) {
                AddressState::Pending { datagrams, .. } => {
                    *bytes -= size(&datagrams);
                    (datagrams, None)
                }
                AddressState::Claimed { .. } => (Vec::new(), None),
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
    pub(crate) fn expire(&self, client: ClientAddress, now: Timestamp) -> Expired {
        let mut addresses = self.lock();
        match addresses.by_address.get(&client) {
            None => Expired::Gone,
            Some(AddressState::Pending { until, .. } | AddressState::Claimed { until, .. })
                if *until > now =>
            {
                Expired::Later(*until)
            }
            Some(AddressState::Pending { path, .. }) => Expired::Unclaimed(path.clone()),
            Some(AddressState::Claimed { .. }) => {
                addresses.by_address.remove(&client);
                self.count.store(addresses.by_address.len(), Ordering::Relaxed);
                Expired::Gone
            }
        }
    }

    /// The address has a session now: forgets it, and returns what has waited.
    pub(crate) fn take(&self, client: ClientAddress) -> Vec<PendingDatagram> {
        let mut addresses = self.lock();
        let waited = match addresses.by_address.remove(&client) {
            Some(AddressState::Pending { datagrams, .. }) => {
                addresses.bytes -= size(&datagrams);
                datagrams
            }
            Some(AddressState::Claimed { .. }) | None => Vec::new(),
        };
        self.count.store(addresses.by_address.len(), Ordering::Relaxed);
        waited
    }
}

fn size(datagrams: &[PendingDatagram]) -> usize {
    datagrams.iter().map(|pending| pending.data.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{ListenerAddress, Slot};

    fn path(number: usize) -> ClientPath {
        let client = ([192, 0, 2, (number >> 14) as u8], 1000 + (number & 0x3fff) as u16).into();
        let listener = ListenerAddress::new("192.0.2.1:443".parse().unwrap());
        let slot = Arc::new(Slot::new(listener));
        ClientPath { client: ClientAddress::new(client), slot, local: None }
    }

    fn add(pending: &PendingDatagrams, number: usize, length: usize) -> Disposition {
        let data = vec![0x41; length];
        let batch = GsoBatch::single(&data, Ecn::NOT_CAPABLE);
        pending.add(&path(number), batch, IfUnknown::Keep, Timestamp::ZERO)
    }

    #[test]
    fn addresses_datagrams_and_bytes_are_limited_and_given_back() {
        let pending = PendingDatagrams::default();
        let kept =
            (0..100).filter(|_| matches!(add(&pending, 0, 100), Disposition::Pending(_))).count();
        assert_eq!(kept, MOST_DATAGRAMS);
        assert_eq!(pending.take(path(0).client).len(), MOST_DATAGRAMS);
        assert!(pending.is_empty());

        let kept = (0..10_000)
            .filter(|&number| matches!(add(&pending, number, 1), Disposition::Pending(_)))
            .count();
        assert_eq!(kept, MOST_ADDRESSES);
        for number in 0..5000 {
            pending.take(path(number).client);
        }
        let kept = (0..1000)
            .filter(|&number| matches!(add(&pending, number, 60_000), Disposition::Pending(_)));
        assert_eq!(kept.count(), MOST_BYTES / 60_000);
        for number in 0..1000 {
            pending.take(path(number).client);
        }
        assert!(pending.is_empty() && pending.lock().bytes == 0);
    }

    #[test]
    fn nobody_waits_longer_than_the_longest_wait() {
        let pending = PendingDatagrams::default();
        let client = path(7).client;
        let Disposition::Pending(Some(until)) = add(&pending, 7, 10) else { panic!("not kept") };
        assert_eq!(until, Timestamp::ZERO + LONGEST_WAIT);
        assert!(matches!(add(&pending, 7, 10), Disposition::Pending(None)));
        assert!(
            matches!(pending.expire(client, Timestamp::ZERO), Expired::Later(at) if at == until)
        );
        assert!(
            matches!(pending.expire(client, until), Expired::Unclaimed(path) if path.client == client)
        );
        assert_eq!(pending.take(client).len(), 2);
        assert!(matches!(pending.expire(client, until), Expired::Gone));
    }

    #[test]
    fn only_short_headers_may_wait() {
        assert!((0x40..=0x7f).all(|first| may_have_moved(&[first])));
        assert!((0x00..=0x3f).chain(0x80..=0xff).all(|first| !may_have_moved(&[first])));
        assert!(!may_have_moved(&[]));
    }
}
