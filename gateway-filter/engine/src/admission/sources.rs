//! Sessions and handshakes of one source and of its networks: an attacker that holds many networks
//! can't be stopped, one that holds a single one can.

use core::time::Duration;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError};

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::RateLimit;
use packrat_wire::estimate::Timestamp;

use super::account::{Network, SourceAccount};
use crate::config::GatewayConfig;
use crate::sync::Mutex;

/// Sources and networks remembered at once beside the ones with sessions; beyond, sources without
/// sessions are forgotten, and then new ones refused.
const MAXIMUM_SOURCES: usize = 65_536;
/// Interval of searches for forgettable sources when there is no room.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Sessions and handshakes by source address. Locked once per handshake and per session that ends,
/// never per datagram.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    sources: HashMap<Network, Source>,
    swept: Option<Timestamp>,
}

#[derive(Debug)]
struct Source {
    sessions: u32,
    handshakes: RateLimit,
    account: Arc<SourceAccount>,
}

/// A source, then the networks that it is in.
fn levels(address: IpAddr) -> impl Iterator<Item = Network> {
    std::iter::successors(Some(Network::of(address)), |network| network.parent())
}

/// Handshakes that a source, or network, may begin.
fn handshake_rate(config: &GatewayConfig, network: Network) -> Rate {
    let of_source = f64::from(config.handshakes_per_second_per_source);
    Rate::per_second(of_source * f64::from(network.factor()))
}

/// Most sources and networks that are remembered.
fn maximum_sources(config: &GatewayConfig) -> usize {
    config.maximum_sessions.saturating_add(MAXIMUM_SOURCES)
}

impl Source {
    /// True if the source may begin another session now.
    fn has_room(&self, config: &GatewayConfig, network: Network, now: Timestamp) -> bool {
        self.sessions < config.sessions_per_source.saturating_mul(network.factor())
            && self.handshakes.would_admit(&handshake_rate(config, network), now)
    }
}

impl Sources {
    /// True if [`Self::begin`] would succeed now. Does not change the limits, so that a forged
    /// address cannot use them up.
    pub(crate) fn may_begin(
        &self,
        address: IpAddr,
        config: &GatewayConfig,
        now: Timestamp,
    ) -> bool {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        levels(address).all(|network| match table.sources.get(&network) {
            Some(source) => source.has_room(config, network, now),
            None => table.sources.len() < maximum_sources(config),
        })
    }

    /// Counts a session of this source, if it and its networks may have another one now, and
    /// returns its account. Every success is followed by one [`Self::end`].
    pub(crate) fn begin(
        &self,
        address: IpAddr,
        config: &GatewayConfig,
        now: Timestamp,
    ) -> Option<Arc<SourceAccount>> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { sources, swept } = &mut *table;
        if sources.len() >= maximum_sources(config) && !sources.contains_key(&Network::of(address))
        {
            // A search through all of them takes a while, which a flood must not be able to cause
            // with each datagram.
            if swept.is_none_or(|swept| now.saturating_since(swept) >= SWEEP_INTERVAL) {
                *swept = Some(now);
                sources.retain(|_, source| source.sessions > 0);
            }
            if sources.len() >= maximum_sources(config) {
                return None;
            }
        }
        let account = enter(sources, Network::of(address), config, now);
        let admitted = levels(address).all(|network| {
            sources.get(&network).is_some_and(|source| source.has_room(config, network, now))
        });
        for network in levels(address).filter(|_| admitted) {
            if let Some(source) = sources.get_mut(&network) {
                source.handshakes.try_acquire(&handshake_rate(config, network), now);
                source.sessions += 1;
            }
        }
        admitted.then_some(account)
    }

    /// The account of this source, if it has had a session.
    pub(crate) fn account(&self, address: IpAddr) -> Option<Arc<SourceAccount>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.sources.get(&Network::of(address)).map(|source| Arc::clone(&source.account))
    }

    /// The account of this source, or of the smallest of its networks that is known.
    pub(crate) fn nearest_account(&self, address: IpAddr) -> Option<Arc<SourceAccount>> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let known = levels(address).find_map(|network| table.sources.get(&network));
        known.map(|source| Arc::clone(&source.account))
    }

    /// Records that a session of this source has ended.
    pub(crate) fn end(&self, address: IpAddr) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        for network in levels(address) {
            if let Some(source) = table.sources.get_mut(&network) {
                source.sessions = source.sessions.saturating_sub(1);
            }
        }
    }
}

/// The account of a source or network, made with its networks' accounts if it is new.
fn enter(
    sources: &mut HashMap<Network, Source>,
    network: Network,
    config: &GatewayConfig,
    now: Timestamp,
) -> Arc<SourceAccount> {
    if let Some(known) = sources.get(&network) {
        return Arc::clone(&known.account);
    }
    let parent = network.parent().map(|parent| enter(sources, parent, config, now));
    let account = Arc::new(SourceAccount::new(parent));
    let handshakes = RateLimit::new(handshake_rate(config, network).burst, now);
    sources.insert(network, Source { sessions: 0, handshakes, account: Arc::clone(&account) });
    account
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(sessions_per_source: u32, handshakes_per_second_per_source: u32) -> GatewayConfig {
        GatewayConfig {
            sessions_per_source,
            handshakes_per_second_per_source,
            maximum_sessions: 1000,
            ..GatewayConfig::default()
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_source_has_its_limit_and_others_are_not_touched() {
        let (sources, limits) = (Sources::default(), limited(3, 100));
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        assert!((0..9).all(|_| sources.may_begin(one, &limits, Timestamp::ZERO)), "asking is free");
        assert!((0..3).all(|_| sources.begin(one, &limits, Timestamp::ZERO).is_some()));
        assert!(
            sources.begin(one, &limits, Timestamp::ZERO).is_none()
                && !sources.may_begin(one, &limits, Timestamp::ZERO)
        );
        assert!(sources.begin(other, &limits, Timestamp::ZERO).is_some());
        sources.end(one);
        assert!(sources.begin(one, &limits, Timestamp::ZERO).is_some());
    }

    #[test]
    fn handshakes_are_limited_by_rate() {
        let (sources, limits) = (Sources::default(), limited(1000, 10));
        let one = address("2001:db8::1");
        assert_eq!(
            (0..50).filter(|_| sources.begin(one, &limits, Timestamp::ZERO).is_some()).count(),
            10
        );
        // Another address of the same /64 is the same source.
        assert!(sources.begin(address("2001:db8::2"), &limits, Timestamp::ZERO).is_none());
        let later = Timestamp::ZERO + Duration::from_millis(500);
        assert_eq!((0..50).filter(|_| sources.begin(one, &limits, later).is_some()).count(), 5);
    }

    #[test]
    fn a_network_has_a_few_times_what_a_source_has() {
        let (sources, limits) = (Sources::default(), limited(2, 1000));
        let begun = |address: &dyn Fn(u32) -> String| {
            let began = |number: &u32| {
                let address: IpAddr = address(*number).parse().unwrap();
                sources.begin(address, &limits, Timestamp::ZERO).is_some()
            };
            (0..200).filter(began).count()
        };
        assert_eq!(begun(&|number| format!("192.0.2.{number}")), 8);
        assert_eq!(begun(&|number| format!("2001:db8:7:{number:x}::1")), 8, "all of one /56");
        assert_eq!(begun(&|number| format!("2001:db8:7:{:x}::1", number << 8)), 24, "the /48");
        assert!(sources.begin(address("192.0.3.1"), &limits, Timestamp::ZERO).is_some());
        assert!(!sources.may_begin(address("192.0.2.201"), &limits, Timestamp::ZERO));
        sources.end(address("192.0.2.1"));
        assert!(sources.may_begin(address("192.0.2.201"), &limits, Timestamp::ZERO));
        assert!(sources.begin(address("192.0.2.201"), &limits, Timestamp::ZERO).is_some());

        let (sources, limits) = (Sources::default(), limited(1000, 10));
        let begun = |now| {
            let address = |number: u32| IpAddr::V4((0xc000_0200 + number % 200).into());
            (0..2000)
                .filter(|number| sources.begin(address(*number), &limits, now).is_some())
                .count()
        };
        assert_eq!(begun(Timestamp::ZERO), 40);
        assert_eq!(begun(Timestamp::from_millis(500)), 20);
    }

    #[test]
    fn a_flood_from_many_sources_does_not_grow_without_bound() {
        let (sources, limits) = (Sources::default(), limited(10, 10));
        for number in 0..200_000u32 {
            let address = IpAddr::V4(number.into());
            if sources.begin(address, &limits, Timestamp::ZERO).is_some() {
                sources.end(address);
            }
        }
        assert!(sources.table.lock().unwrap().sources.len() <= MAXIMUM_SOURCES + 1000);
    }
}
