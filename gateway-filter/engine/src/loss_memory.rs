//! The loss of clients' last miles, as a route's sessions have measured it: what a new session of the
//! same client, or of the same route, expects.
//!
//! A handshake is over before anything can be measured, and its losses cost the most. What earlier
//! sessions of the client's address have seen is the best guess; without any, the median of all
//! addresses is, where there are a few. A client that lies about its losses gets copies of its own
//! datagrams; a median moves for most of the addresses only.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::PoisonError;

use packrat_wire::estimate::{MediumLoss, Timestamp};

use crate::admission::Network;
use crate::sync::Mutex;

/// Addresses that are remembered, the latest, for so long.
const ADDRESSES: usize = 1024;
const MEMORY: Duration = Duration::from_secs(3600);
/// Addresses from which a median says something about another one.
const QUORUM: usize = 5;

/// The last miles of a route.
#[derive(Debug, Default)]
pub(crate) struct LossMemory {
    last_miles: Mutex<HashMap<Network, Remembered>>,
}

#[derive(Debug, Clone, Copy)]
struct Remembered {
    medium: MediumLoss,
    at: Timestamp,
}

impl LossMemory {
    /// A session of this address has seen `sent` datagrams, of which the medium has lost `lost`.
    pub(crate) fn note(&self, address: Network, sent: u64, lost: u64, now: Timestamp) {
        let mut last_miles = self.last_miles.lock().unwrap_or_else(PoisonError::into_inner);
        if !last_miles.contains_key(&address) && last_miles.len() >= ADDRESSES {
            last_miles.retain(|_, known| known.is_young(now));
            let oldest = last_miles.iter().min_by_key(|(_, known)| known.at);
            if let Some(oldest) = oldest.map(|(address, _)| *address)
                && last_miles.len() >= ADDRESSES
            {
                last_miles.remove(&oldest);
            }
        }
        let fresh = Remembered { medium: MediumLoss::default(), at: now };
        let known = last_miles.entry(address).or_insert(fresh);
        if !known.is_young(now) {
            *known = fresh;
        }
        known.medium.on_fate(sent, lost, lost);
        known.at = now;
    }

    /// Loss that a session of this address expects, 0 to 1.
    pub(crate) fn expect(&self, address: Network, now: Timestamp) -> f64 {
        let last_miles = self.last_miles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = last_miles.get(&address).filter(|known| known.is_young(now)) {
            return own.medium.loss();
        }
        let mut losses: Vec<f64> = last_miles
            .values()
            .filter(|known| known.is_young(now))
            .map(|known| known.medium.loss())
            .collect();
        if losses.len() < QUORUM {
            return 0.0;
        }
        let middle = losses.len() / 2;
        *losses.select_nth_unstable_by(middle, f64::total_cmp).1
    }
}

impl Remembered {
    fn is_young(&self, now: Timestamp) -> bool {
        now.saturating_since(self.at) < MEMORY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn address(last: u8) -> Network {
        Network::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn an_address_expects_what_it_has_seen_until_that_is_old() {
        let memory = LossMemory::default();
        assert_eq!(memory.expect(address(1), at(0)), 0.0);
        memory.note(address(1), 936, 100, at(0));
        assert!((memory.expect(address(1), at(1)) - 0.1).abs() < 1e-9);
        assert_eq!(memory.expect(address(2), at(1)), 0.0, "one address is no route");
        assert_eq!(memory.expect(address(1), at(3600)), 0.0);
        memory.note(address(1), 1000, 0, at(3600));
        assert_eq!(memory.expect(address(1), at(3600)), 0.0, "the old one is gone");
    }

    #[test]
    fn an_unknown_address_expects_the_median_of_the_others() {
        let memory = LossMemory::default();
        for (last, lost) in [(1, 0), (2, 0), (3, 50), (4, 60)] {
            memory.note(address(last), 936, lost, at(0));
        }
        assert_eq!(memory.expect(address(9), at(1)), 0.0, "too few");
        memory.note(address(5), 936, 900, at(0));
        assert!((memory.expect(address(9), at(1)) - 0.05).abs() < 1e-9, "one of them may lie");
        assert_eq!(memory.expect(address(1), at(1)), 0.0, "its own");
    }

    #[test]
    fn it_has_a_largest_size_and_keeps_the_latest() {
        let memory = LossMemory::default();
        for number in 0..=ADDRESSES as u32 {
            let network = Network::of(IpAddr::V4(Ipv4Addr::from_bits(number)));
            memory.note(network, 936, 100, at(u64::from(number)));
        }
        assert_eq!(memory.last_miles.lock().unwrap().len(), ADDRESSES);
        let first = Network::of(IpAddr::V4(Ipv4Addr::from_bits(0)));
        assert!(!memory.last_miles.lock().unwrap().contains_key(&first));
    }
}
