//! Repairs for the whole group: when subscribers at several addresses miss the same packet, and
//! within one budget for all of them.
//!
//! Every receiver of the group gets such a repair, so its price is not one subscriber's. Addresses
//! are counted whole, although one host can have all of a /64: receivers of a group are often on
//! one link. Such a host cannot have the stream sent to everyone because of the budget, the
//! configured share of the stream's bytes. It rises with the number of sources that each repair
//! serves, to four times that: in a large group every packet is lost by someone, and repairs to
//! each would cost more. Repairs beyond the budget go to the subscriber that asks.

use core::time::Duration;
use std::collections::HashSet;
use std::net::IpAddr;

use packrat_assist_token::token_bucket::TokenBucket;
use packrat_wire::estimate::Timestamp;

use crate::admission::Network;

/// Bytes of repairs for the group that are saved up.
const GROUP_REPAIR_BURST_BYTES: f64 = 32.0 * 1024.0;
/// Factor by which the budget rises above the configured one, at most.
const MAXIMUM_RISE_FACTOR: f64 = 4.0;
/// Addresses that are remembered per packet.
const MAXIMUM_ADDRESSES: usize = 64;
/// Weight of the newest second in the mean.
const SECOND_WEIGHT: f64 = 0.25;

/// Subscribers that miss the same packet.
#[derive(Debug)]
pub(super) struct Missed {
    since: Timestamp,
    addresses: Vec<IpAddr>,
    to_group: bool,
}

impl Missed {
    pub(super) fn since(now: Timestamp) -> Self {
        Self { since: now, addresses: Vec::new(), to_group: false }
    }

    /// Time since a subscriber first missed the packet.
    pub(super) fn age(&self, now: Timestamp) -> Duration {
        now.saturating_since(self.since)
    }

    /// Records that a subscriber at this address misses the packet; each address counts once.
    pub(super) fn by(&mut self, address: IpAddr) {
        if self.addresses.len() < MAXIMUM_ADDRESSES && !self.addresses.contains(&address) {
            self.addresses.push(address);
        }
    }

    pub(super) fn addresses(&self) -> usize {
        self.addresses.len()
    }

    /// The sources of these addresses, each counted once.
    fn sources(&self) -> usize {
        self.addresses.iter().map(|address| Network::of(*address)).collect::<HashSet<_>>().len()
    }

    pub(super) fn sent_to_group(&mut self) {
        self.to_group = true;
    }

    /// True if a repair is under way to the group.
    pub(super) fn is_under_way(&self) -> bool {
        self.to_group
    }
}

/// Budget of a stream's repairs for the group.
#[derive(Debug)]
pub(super) struct GroupRepairs {
    tokens: TokenBucket,
    /// Sources that a repair serves, on average.
    served: f64,
}

impl GroupRepairs {
    pub(super) fn new() -> Self {
        Self { tokens: TokenBucket::new(GROUP_REPAIR_BURST_BYTES), served: 0.0 }
    }

    /// Earns `bytes` of repairs. `threshold`: number of addresses from which a repair goes to the
    /// group.
    pub(super) fn earn(&mut self, bytes: f64, threshold: u32) {
        let rise = self.served / f64::from(threshold.max(1));
        self.tokens.earn(bytes * rise.clamp(1.0, MAXIMUM_RISE_FACTOR), GROUP_REPAIR_BURST_BYTES);
    }

    /// Takes `length` bytes for one repair.
    pub(super) fn take(&mut self, length: usize) -> bool {
        self.tokens.try_take(length as f64)
    }

    /// Measures how many sources the repairs of the last second have served.
    pub(super) fn follow<'a>(&mut self, missed: impl Iterator<Item = &'a Missed>) {
        let (mut repairs, mut sources) = (0u32, 0usize);
        for missed in missed.filter(|missed| missed.to_group) {
            repairs += 1;
            sources += missed.sources();
        }
        if repairs > 0 {
            self.smooth(sources as f64 / f64::from(repairs));
        }
    }

    /// Records that symbols serve this number of sources.
    pub(super) fn serve(&mut self, sources: usize) {
        self.smooth(sources as f64);
    }

    fn smooth(&mut self, sources: f64) {
        let weight = if self.served == 0.0 { 1.0 } else { SECOND_WEIGHT };
        self.served += (sources - self.served) * weight;
    }
}
