//! The loss of clients' last miles, as a route's sessions have measured it, and as a new session of
//! the same client, or of the same route, expects it.
//!
//! A handshake is over before anything can be measured, and its losses cost the most. The
//! measurement of earlier sessions of the client's address is the best guess; without any, the
//! median of the addresses of its network is, or the median of the other networks, if there are a
//! few. A client that lies about its losses gets copies of its own datagrams. It counts for its
//! network only, a /24 or /48, which has one vote and does not displace another network's: a median
//! moves only for most of the networks.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::PoisonError;

use packrat_wire::estimate::{MediumLoss, Timestamp};

use crate::admission::Network;
use crate::sync::Mutex;

/// Number of addresses that are remembered, the latest.
const REMEMBERED_ADDRESSES: usize = 1024;
/// Time for which the loss of an address is remembered.
const LOSS_MEMORY: Duration = Duration::from_secs(3600);
/// Networks whose median is a guess for another network, and addresses whose median is one for
/// their network.
const LOSS_QUORUM: usize = 5;

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
    /// Records that a session of this address has seen `sent` datagrams, of which the medium has
    /// lost `lost`.
    pub(crate) fn note(&self, address: Network, sent: u64, lost: u64, now: Timestamp) {
        let mut last_miles = self.last_miles.lock().unwrap_or_else(PoisonError::into_inner);
        if !last_miles.contains_key(&address) && last_miles.len() >= REMEMBERED_ADDRESSES {
            last_miles.retain(|_, known| known.is_young(now));
            if last_miles.len() >= REMEMBERED_ADDRESSES {
                forget_one(&mut last_miles, address.largest());
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
        let mut of_networks = HashMap::<_, Vec<f64>>::new();
        for (address, known) in last_miles.iter().filter(|(_, known)| known.is_young(now)) {
            of_networks.entry(address.largest()).or_default().push(known.medium.loss());
        }
        let own = of_networks.get(&address.largest()).filter(|own| own.len() >= LOSS_QUORUM);
        if let Some(own) = own {
            return median(own.clone());
        }
        let votes: Vec<f64> = of_networks.into_values().map(median).collect();
        if votes.len() < LOSS_QUORUM { 0.0 } else { median(votes) }
    }
}

/// The median of some losses.
fn median(mut losses: Vec<f64>) -> f64 {
    let middle = losses.len() / 2;
    *losses.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Forgets the oldest address of a network, or of the one that has the most.
fn forget_one(last_miles: &mut HashMap<Network, Remembered>, own: Network) {
    let mut sizes = HashMap::<_, usize>::new();
    for address in last_miles.keys() {
        *sizes.entry(address.largest()).or_default() += 1;
    }
    let victim = last_miles.iter().min_by_key(|(address, known)| {
        let network = address.largest();
        (network != own, Reverse(sizes.get(&network)), known.at)
    });
    if let Some(victim) = victim.map(|(address, _)| *address) {
        last_miles.remove(&victim);
    }
}

impl Remembered {
    fn is_young(&self, now: Timestamp) -> bool {
        now.saturating_since(self.at) < LOSS_MEMORY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn address(last: u8) -> Network {
        Network::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
    }

    fn in_network(third: u8, last: u8) -> Network {
        Network::of(IpAddr::V4(Ipv4Addr::new(198, 51, third, last)))
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
        for (third, lost) in [(1, 0), (2, 0), (3, 50), (4, 60)] {
            memory.note(in_network(third, 1), 936, lost, at(0));
        }
        // However many addresses of a network say it.
        (1..=100).for_each(|last| memory.note(in_network(4, last), 936, 60, at(0)));
        assert_eq!(memory.expect(address(9), at(1)), 0.0, "too few");
        (1..=100).for_each(|last| memory.note(in_network(5, last), 936, 900, at(0)));
        assert!((memory.expect(address(9), at(1)) - 0.05).abs() < 1e-9, "one of them may lie");
        assert_eq!(memory.expect(in_network(1, 1), at(1)), 0.0, "its own");
        let beside = memory.expect(in_network(5, 200), at(1));
        assert!((beside - 0.9).abs() < 1e-9, "that of its network: {beside}");
    }

    #[test]
    fn a_network_displaces_its_own_addresses_only() {
        let memory = LossMemory::default();
        let honest = |third| in_network(third, 1);
        (0..200).for_each(|third| memory.note(honest(third), 936, 100, at(0)));
        let of_one = |number: u128| {
            let bits = (0x2001_0db8_0bad_u128 << 80) | (number << 64);
            Network::of(IpAddr::V6(bits.into()))
        };
        (0..5000).for_each(|number| memory.note(of_one(number), 1000, 300, at(1)));
        let knows = |address| memory.last_miles.lock().unwrap().contains_key(&address);
        assert!((0..200).all(|third| knows(honest(third))));
        // A network that is new has a place of the largest one.
        memory.note(honest(200), 936, 0, at(2));
        assert!((0..=200).all(|third| knows(honest(third))));
        assert_eq!(memory.last_miles.lock().unwrap().len(), REMEMBERED_ADDRESSES);
    }

    #[test]
    fn it_has_a_largest_size_and_keeps_the_latest() {
        let memory = LossMemory::default();
        for number in 0..=REMEMBERED_ADDRESSES as u32 {
            let network = Network::of(IpAddr::V4(Ipv4Addr::from_bits(number << 8)));
            memory.note(network, 936, 100, at(u64::from(number)));
        }
        assert_eq!(memory.last_miles.lock().unwrap().len(), REMEMBERED_ADDRESSES);
        let first = Network::of(IpAddr::V4(Ipv4Addr::from_bits(0)));
        assert!(!memory.last_miles.lock().unwrap().contains_key(&first));
    }
}
