//! Account of a source: its sessions' part of the shared limits, and the networks that it is in.
//!
//! ```text
//!   2001:db8:7:1234::/64 ---> 2001:db8:7:1200::/56 ---> 2001:db8:7::/48
//!   192.0.2.1            ---> 192.0.2.0/24
//! ```
//!
//! A source is charged together with its networks, as an attacker has as many addresses as its
//! network. A network leaves more to others than its members leave to each other: the use of one of
//! them costs its neighbours little.

use std::net::IpAddr;
use std::sync::Arc;

use packrat_wire::estimate::Timestamp;

use super::work::RecentWork;
use crate::budget::SourceBudget;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// A source, or a network of sources: the upper bits of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    bits: u64,
    level: Level,
}

/// Size of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Level {
    /// An IPv4 address.
    Address,
    /// 256 addresses of IPv4.
    Block,
    /// A /64 of IPv6: one link, or one subscriber.
    Link,
    /// A /56: one subscriber.
    Site,
    /// A /48: one organisation.
    Organisation,
}

impl Network {
    /// The source of an address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                Self { bits: u64::from(address.to_bits()), level: Level::Address }
            }
            IpAddr::V6(address) => {
                Self { bits: (address.to_bits() >> 64) as u64, level: Level::Link }
            }
        }
    }

    /// The next larger network that a network is in.
    pub(super) fn parent(self) -> Option<Self> {
        let (level, dropped) = match self.level {
            Level::Address => (Level::Block, 8),
            Level::Link => (Level::Site, 8),
            Level::Site => (Level::Organisation, 16),
            Level::Block | Level::Organisation => return None,
        };
        Some(Self { bits: self.bits >> dropped << dropped, level })
    }

    /// The largest network of an address that counts as one.
    pub(crate) fn largest_of(address: IpAddr) -> Self {
        Self::of(address).largest()
    }

    /// The largest network that a network is in.
    pub(crate) fn largest(self) -> Self {
        std::iter::successors(Some(self), |network| network.parent()).last().unwrap_or(self)
    }

    /// The network as bytes, different from any other network's.
    pub(crate) fn to_bytes(self) -> [u8; 9] {
        let [a, b, c, d, e, f, g, h] = self.bits.to_be_bytes();
        [self.level as u8, a, b, c, d, e, f, g, h]
    }

    /// Factor of this network's limits over a source's: sessions, and handshakes per second.
    pub(super) const fn factor(self) -> u32 {
        match self.level {
            Level::Address | Level::Link => 1,
            Level::Block | Level::Site => 4,
            Level::Organisation => 16,
        }
    }
}

/// Number of levels of an account: a source, and the networks that it is in.
pub(crate) const SOURCE_LEVELS: usize = 3;

/// Weight, by level, of the use of a source and of each larger network against the use left to
/// others.
const LEVEL_WEIGHTS: [f64; SOURCE_LEVELS] = [1.0, 0.75, 0.5];

/// Use of the shared limits by the sessions of one source, or of all sources of a network.
#[derive(Debug)]
pub(crate) struct SourceAccount {
    /// Bytes of repairs that its sessions may have.
    pub(crate) repairs: SourceBudget,
    work: RecentWork,
    /// Memory of its sessions.
    cache_bytes: AtomicUsize,
    parent: Option<Arc<Self>>,
}

impl SourceAccount {
    pub(super) fn new(parent: Option<Arc<Self>>) -> Self {
        Self {
            repairs: SourceBudget::new(),
            work: RecentWork::default(),
            cache_bytes: AtomicUsize::new(0),
            parent,
        }
    }

    /// The account, and its networks' accounts.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |account| account.parent.as_deref())
    }

    /// Share of a thread's work lately: the source's own, or a network's, whichever weighs more.
    pub(super) fn use_lately(&self, now: Timestamp) -> f64 {
        let share = |(account, weight): (&Self, f64)| account.work.share(now) * weight;
        self.levels().zip(LEVEL_WEIGHTS).map(share).fold(0.0, f64::max)
    }

    pub(super) fn charge(&self, units: u64, now: Timestamp) {
        self.levels().for_each(|account| account.work.add(units, now));
    }

    /// Bytes that must be left to others if it takes `more` bytes: half as many as it has then, or
    /// as its network has, by weight (dynamic thresholds of Choudhury98). One source has two thirds
    /// of all at most; several have the same.
    pub(super) fn cache_reserve(&self, more: usize) -> usize {
        let reserve = |(account, weight): (&Self, f64)| {
            let held = account.cache_bytes.load(Ordering::Relaxed) + more;
            (held as f64 * weight / 2.0) as usize
        };
        self.levels().zip(LEVEL_WEIGHTS).map(reserve).max().unwrap_or(0)
    }

    /// Records that its sessions hold `now` bytes instead of `before`.
    pub(super) fn hold(&self, before: usize, now: usize) {
        for account in self.levels() {
            if now >= before {
                account.cache_bytes.fetch_add(now - before, Ordering::Relaxed);
            } else {
                account.cache_bytes.fetch_sub(before - now, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Accounts of addresses, with the networks that they share.
    pub(in crate::admission) fn accounts(addresses: &[&str]) -> Vec<Arc<SourceAccount>> {
        fn find(
            known: &mut HashMap<Network, Arc<SourceAccount>>,
            network: Network,
        ) -> Arc<SourceAccount> {
            let parent = network.parent().map(|parent| find(known, parent));
            let account = || Arc::new(SourceAccount::new(parent));
            Arc::clone(known.entry(network).or_insert_with(account))
        }
        let mut known = HashMap::new();
        let of = |address: &&str| Network::of(address.parse().unwrap());
        addresses.iter().map(|address| find(&mut known, of(address))).collect()
    }

    #[test]
    fn addresses_of_one_network_share_its_account() {
        let shares = |one: &str, other: &str| {
            let pair = accounts(&[one, other]);
            let of_one = |account: &&SourceAccount| {
                pair[0].levels().any(|other| core::ptr::eq(other, *account))
            };
            pair[1].levels().filter(of_one).count()
        };
        assert_eq!(shares("192.0.2.1", "::ffff:192.0.2.1"), 2);
        assert_eq!(shares("192.0.2.1", "192.0.2.200"), 1);
        assert_eq!(shares("192.0.2.1", "192.0.3.1"), 0);
        assert_eq!(shares("2001:db8::1", "2001:db8::2"), 3);
        assert_eq!(shares("2001:db8::1", "2001:db8:0:ff::2"), 2);
        assert_eq!(shares("2001:db8::1", "2001:db8:0:ff00::2"), 1);
        assert_eq!(shares("2001:db8::1", "2001:db8:1::2"), 0);
    }

    #[test]
    fn a_source_leaves_half_of_what_it_holds_and_its_networks_less() {
        let [one, neighbour, other] =
            accounts(&["192.0.2.1", "192.0.2.2", "192.0.3.1"]).try_into().unwrap();
        one.hold(0, 1000);
        assert_eq!(one.cache_reserve(0), 500);
        assert_eq!((neighbour.cache_reserve(0), other.cache_reserve(8)), (375, 4));
        one.hold(1000, 200);
        assert_eq!(one.cache_reserve(200), 200);
        one.hold(200, 0);
        assert_eq!(one.cache_reserve(0), 0);
    }
}
