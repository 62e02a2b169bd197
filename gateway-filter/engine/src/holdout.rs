//! The holdout: clients that are left without assistance, for comparison.
//!
//! A keyed hash of the client's address chooses them, so that a client that asks again, or comes
//! back from another port, is treated as before. Clients of one address, as behind a NAT, are
//! treated alike.

use std::net::IpAddr;

use sha2::{Digest, Sha256};
use zeroize::ZeroizeOnDrop;

use crate::admission::Network;

/// Chooses the clients of a holdout.
#[derive(ZeroizeOnDrop)]
pub(crate) struct HoldoutKey([u8; 32]);

impl HoldoutKey {
    /// `secret`: 32 bytes that clients do not know.
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// True for `share` (0 to 1) of the addresses. Larger shares choose the same ones, and more.
    pub(crate) fn chooses(&self, client: IpAddr, share: f64) -> bool {
        // The bits at the top decide, as if the hash were a number below 1.
        ((self.hash(client) >> 32) as f64) < share * (f64::from(u32::MAX) + 1.0)
    }

    /// A number that stands for the clients of an address, or of a subscriber's network.
    pub(crate) fn hash(&self, client: IpAddr) -> u64 {
        let mut hash = self.hasher(b"packrat holdout");
        match client.to_canonical() {
            IpAddr::V4(address) => hash.update(address.octets()),
            // One subscriber has a /64.
            IpAddr::V6(address) => {
                let [network @ .., _, _, _, _, _, _, _, _] = address.octets();
                hash.update(network);
            }
        }
        finish(hash)
    }

    /// A number that stands for all that one attacker may have: the largest network of an address
    /// that counts as one.
    pub(crate) fn hash_of_network(&self, client: IpAddr) -> u64 {
        let mut hash = self.hasher(b"packrat networks of a comparison");
        hash.update(Network::largest_of(client).to_bytes());
        finish(hash)
    }

    fn hasher(&self, purpose: &[u8]) -> Sha256 {
        let mut hash = Sha256::new_with_prefix(purpose);
        hash.update(self.0);
        hash
    }
}

fn finish(hash: Sha256) -> u64 {
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(key: &HoldoutKey, share: f64) -> Vec<u16> {
        let address = |number: u16| IpAddr::from([10, 1, (number >> 8) as u8, number as u8]);
        (0..10_000).filter(|number| key.chooses(address(*number), share)).collect()
    }

    #[test]
    fn a_larger_share_includes_the_clients_of_a_smaller_one() {
        let key = HoldoutKey::new([7; 32]);
        let (few, many) = (chosen(&key, 0.05), chosen(&key, 0.5));
        assert!((400..600).contains(&few.len()), "{}", few.len());
        assert!((4800..5200).contains(&many.len()), "{}", many.len());
        assert!(few.iter().all(|number| many.contains(number)));
        assert!(chosen(&key, 0.0).is_empty());
        assert_eq!(chosen(&key, 1.0).len(), 10_000);
    }

    #[test]
    fn another_secret_chooses_others() {
        let (one, other) =
            (chosen(&HoldoutKey::new([1; 32]), 0.5), chosen(&HoldoutKey::new([2; 32]), 0.5));
        let both = one.iter().filter(|number| other.contains(number)).count();
        assert!((2200..2800).contains(&both), "{both}");
    }

    #[test]
    fn one_subscriber_is_treated_alike() {
        let key = HoldoutKey::new([3; 32]);
        for network in 0..100u16 {
            let chosen = |last| {
                let address = IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, last]);
                key.chooses(address, 0.5)
            };
            assert!((0..20).all(|last| chosen(last) == chosen(0)));
            let plain = IpAddr::from([192, 0, 2, network as u8]);
            let IpAddr::V4(v4) = plain else { panic!() };
            assert_eq!(key.chooses(v4.to_ipv6_mapped().into(), 0.5), key.chooses(plain, 0.5));
        }
    }

    #[test]
    fn a_network_has_one_number_whatever_its_addresses() {
        let key = HoldoutKey::new([3; 32]);
        let numbers = |addresses: &[&str]| -> std::collections::BTreeSet<u64> {
            addresses.iter().map(|text| key.hash_of_network(text.parse().unwrap())).collect()
        };
        let organisation = ["2001:db8:7::1", "2001:db8:7:1::1", "2001:db8:7:ffff:8::"];
        assert_eq!(numbers(&organisation).len(), 1);
        assert_eq!(numbers(&["192.0.2.1", "192.0.2.200", "::ffff:192.0.2.9"]).len(), 1);
        let others =
            ["2001:db8:7::1", "2001:db8:8::1", "192.0.2.1", "192.0.3.1", "::192.0.2.0", "::"];
        assert_eq!(numbers(&others).len(), 5, "the last two are in one /48");
    }
}
