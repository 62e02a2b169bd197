//! Memory of last miles, as earlier connections have seen them: for the first datagrams of later ones,
//! which are over before anything can be measured.

use core::time::Duration;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use packrat_wire::estimate::{MediumLoss, Timestamp};
use packrat_wire::handshake::LossClass;

/// Number of peers to remember, the latest.
const REMEMBERED_PEERS: usize = 256;
/// Time for which a peer's loss is remembered.
const LOSS_MEMORY: Duration = Duration::from_secs(3600);

/// Expectations of a last mile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remembered {
    /// Loss class of the last mile.
    pub loss: LossClass,
    /// Shortest round trip.
    pub round_trip: Option<Duration>,
}

/// Observations of a last mile by one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Experience {
    /// Datagrams.
    pub sent: u64,
    /// Missing datagrams that the medium has lost.
    pub lost: u64,
    /// The shortest round trip.
    pub round_trip: Option<Duration>,
}

/// The last miles of one client, by the peer's address or another key of the shell. A shell reads
/// it when a connection begins ([`crate::Shim::remember`]), and updates it with the connection's
/// measurements from time to time ([`crate::Shim::experience`]).
#[derive(Debug)]
pub struct LossMemory<P = IpAddr> {
    peers: Mutex<HashMap<P, Known>>,
}

impl<P> Default for LossMemory<P> {
    fn default() -> Self {
        Self { peers: Mutex::default() }
    }
}

#[derive(Debug, Clone, Copy)]
struct Known {
    medium: MediumLoss,
    round_trip: Option<Duration>,
    at: Timestamp,
}

impl<P: Copy + Eq + Hash> LossMemory<P> {
    /// Expectations of a connection to this peer.
    pub fn recall(&self, peer: P, now: Timestamp) -> Remembered {
        let peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.get(&peer).filter(|known| known.is_young(now)).map_or_else(
            Remembered::default,
            |known| Remembered {
                loss: LossClass::of(known.medium.loss()),
                round_trip: known.round_trip,
            },
        )
    }

    /// Adds the measurements of a connection to this peer since the last call.
    pub fn note(&self, peer: P, seen: Experience, now: Timestamp) {
        if seen.sent == 0 {
            return;
        }
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if !peers.contains_key(&peer) && peers.len() >= REMEMBERED_PEERS {
            let oldest = peers.iter().min_by_key(|(_, known)| known.at);
            if let Some(oldest) = oldest.map(|(peer, _)| *peer) {
                peers.remove(&oldest);
            }
        }
        let fresh = Known { medium: MediumLoss::default(), round_trip: None, at: now };
        let known = peers.entry(peer).or_insert(fresh);
        if !known.is_young(now) {
            *known = fresh;
        }
        known.medium.on_fate(seen.sent, seen.lost, seen.lost);
        known.round_trip = seen.round_trip.or(known.round_trip);
        known.at = now;
    }
}

impl Known {
    fn is_young(&self, now: Timestamp) -> bool {
        now.saturating_since(self.at) < LOSS_MEMORY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn peer(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn short_connections_add_up_and_old_ones_are_forgotten() {
        let memory = LossMemory::<IpAddr>::default();
        let round_trip = Some(Duration::from_millis(30));
        let short = Experience { sent: 20, lost: 2, round_trip };
        assert_eq!(memory.recall(peer(1), at(0)), Remembered::default());
        memory.note(peer(1), short, at(0));
        assert_eq!(memory.recall(peer(1), at(1)).loss, LossClass::FromOne, "little is known");
        for second in 1..20 {
            memory.note(peer(1), short, at(second));
        }
        let expected = Remembered { loss: LossClass::FromEight, round_trip };
        assert_eq!(memory.recall(peer(1), at(20)), expected);
        assert_eq!(memory.recall(peer(2), at(20)), Remembered::default());
        assert_eq!(memory.recall(peer(1), at(19 + 3600)), Remembered::default());
    }

    #[test]
    fn the_latest_peers_are_remembered() {
        let memory = LossMemory::<IpAddr>::default();
        for number in 0..=REMEMBERED_PEERS as u32 {
            let seen = Experience { sent: 1000, lost: 100, round_trip: None };
            memory.note(peer(number), seen, at(u64::from(number)));
        }
        assert_eq!(memory.recall(peer(0), at(300)).loss, LossClass::Low);
        assert_eq!(memory.recall(peer(1), at(300)).loss, LossClass::FromEight);
    }
}
