//! Sessions and handshakes of one source: an attacker that holds many addresses can't be stopped,
//! one that holds a single address can.

use core::time::Duration;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::estimate::Timestamp;

use super::RateLimit;
use crate::budget::SourceBudget;
use crate::config::GatewayConfig;

/// Sources remembered at once beside those that have sessions; beyond, those without sessions are
/// forgotten, and then new ones refused.
const MAXIMUM_SOURCES: usize = 65_536;
/// eACKs of one source's sessions together that can't be decoded, per second and at once, until
/// they are many; and one more for each of its sessions: behind a large NAT there are many of them,
/// and each has one that fails now and then.
const FAILED_DECODES_PER_SECOND: f64 = 200.0;
/// Interval of looking through them when there is no room.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Sessions and handshakes by source address. Locked once per handshake and per eACK that can't be
/// decoded, never per datagram.
#[derive(Debug)]
pub(crate) struct Sources {
    sessions_per_source: u32,
    handshakes: Rate,
    maximum_sources: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    sources: HashMap<IpAddr, Source>,
    swept: Option<Timestamp>,
}

#[derive(Debug)]
struct Source {
    sessions: u32,
    handshakes: RateLimit,
    /// eACKs that may fail to decode before they are many.
    failures: RateLimit,
    budget: Arc<SourceBudget>,
}

impl Source {
    fn new(handshakes: &Rate, now: Timestamp) -> Self {
        Self {
            sessions: 0,
            handshakes: RateLimit::new(handshakes.burst, now),
            failures: RateLimit::new(FAILED_DECODES_PER_SECOND, now),
            budget: Arc::new(SourceBudget::new()),
        }
    }
}

impl Sources {
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        Self {
            sessions_per_source: config.sessions_per_source,
            handshakes: Rate::per_second(config.handshakes_per_second_per_source.into()),
            maximum_sources: config.maximum_sessions.saturating_add(MAXIMUM_SOURCES),
            table: Mutex::default(),
        }
    }

    /// True if [`Self::begin`] would succeed now; changes nothing, so that nothing can be used up
    /// in the name of a forged address.
    pub(crate) fn may_begin(&self, address: IpAddr, now: Timestamp) -> bool {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        match table.sources.get(&source(address)) {
            Some(source) => {
                source.handshakes.would_admit(&self.handshakes, now)
                    && source.sessions < self.sessions_per_source
            }
            None => table.sources.len() < self.maximum_sources,
        }
    }

    /// Counts a session of this source, if it may have another one now, and returns the budget of
    /// its repairs. Every success is followed by one [`Self::end`].
    pub(crate) fn begin(&self, address: IpAddr, now: Timestamp) -> Option<Arc<SourceBudget>> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { sources, swept } = &mut *table;
        let address = source(address);
        if sources.len() >= self.maximum_sources && !sources.contains_key(&address) {
            // A look through all of them takes a while, which a flood must not be able to ask for
            // with each datagram.
            if swept.is_none_or(|swept| now.saturating_since(swept) >= SWEEP_INTERVAL) {
                *swept = Some(now);
                sources.retain(|_, source| source.sessions > 0);
            }
            if sources.len() >= self.maximum_sources {
                return None;
            }
        }
        let source = sources.entry(address).or_insert_with(|| Source::new(&self.handshakes, now));
        let tokens = source.handshakes.refill(&self.handshakes, now);
        if source.sessions >= self.sessions_per_source || !tokens.try_take(1.0) {
            return None;
        }
        source.sessions += 1;
        Some(Arc::clone(&source.budget))
    }

    /// The budget of this source's repairs; a full one when it has never had a session.
    pub(crate) fn budget(&self, address: IpAddr) -> Arc<SourceBudget> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let known = table.sources.get(&source(address)).map(|source| Arc::clone(&source.budget));
        known.unwrap_or_else(|| Arc::new(SourceBudget::new()))
    }

    /// Counts an eACK of this source that could not be decoded. True if they are few.
    pub(crate) fn decode_failed(&self, address: IpAddr, now: Timestamp) -> bool {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(source) = table.sources.get_mut(&source(address)) else { return true };
        let rate = Rate::per_second(FAILED_DECODES_PER_SECOND + f64::from(source.sessions));
        source.failures.try_acquire(&rate, now)
    }

    /// Counts a session that exists already, whatever the limits.
    pub(crate) fn adopt(&self, address: IpAddr) -> Arc<SourceBudget> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let source = table
            .sources
            .entry(source(address))
            .or_insert_with(|| Source::new(&self.handshakes, Timestamp::ZERO));
        source.sessions += 1;
        Arc::clone(&source.budget)
    }

    /// A session of this source has ended.
    pub(crate) fn end(&self, address: IpAddr) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = table.sources.get_mut(&source(address)) {
            source.sessions = source.sessions.saturating_sub(1);
        }
    }
}

/// An IPv4 address, or the /64 of an IPv6 address: one subscriber has all of it.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(sessions_per_source: u32, handshakes_per_second_per_source: u32) -> Sources {
        Sources::new(&GatewayConfig {
            sessions_per_source,
            handshakes_per_second_per_source,
            maximum_sessions: 1000,
            ..GatewayConfig::default()
        })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_source_has_its_limit_and_others_are_not_touched() {
        let sources = limited(3, 100);
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        assert!((0..9).all(|_| sources.may_begin(one, Timestamp::ZERO)), "asking is free");
        assert!((0..3).all(|_| sources.begin(one, Timestamp::ZERO).is_some()));
        assert!(
            sources.begin(one, Timestamp::ZERO).is_none()
                && !sources.may_begin(one, Timestamp::ZERO)
        );
        assert!(sources.begin(other, Timestamp::ZERO).is_some());
        sources.end(one);
        assert!(sources.begin(one, Timestamp::ZERO).is_some());
    }

    #[test]
    fn handshakes_are_limited_by_rate() {
        let sources = limited(1000, 10);
        let one = address("2001:db8::1");
        assert_eq!((0..50).filter(|_| sources.begin(one, Timestamp::ZERO).is_some()).count(), 10);
        // Another address of the same /64 is the same source.
        assert!(sources.begin(address("2001:db8::2"), Timestamp::ZERO).is_none());
        let later = Timestamp::ZERO + Duration::from_millis(500);
        assert_eq!((0..50).filter(|_| sources.begin(one, later).is_some()).count(), 5);
    }

    #[test]
    fn failed_decodes_are_many_when_all_sessions_of_a_source_have_too_many() {
        let sources = limited(10, 10);
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        assert!(
            [one, other].into_iter().all(|source| sources.begin(source, Timestamp::ZERO).is_some())
        );
        let few = |address, now| (0..1000).filter(|_| sources.decode_failed(address, now)).count();
        assert_eq!(few(one, Timestamp::ZERO), 200);
        assert!(sources.decode_failed(other, Timestamp::ZERO));
        assert_eq!(few(one, Timestamp::ZERO + Duration::from_millis(500)), 100);
        assert_eq!(few(one, Timestamp::ZERO + Duration::from_secs(60)), 201);
        assert!(
            (0..3).all(|_| sources.begin(one, Timestamp::ZERO + Duration::from_secs(60)).is_some())
        );
        assert_eq!(
            few(one, Timestamp::ZERO + Duration::from_secs(90)),
            204,
            "one more for each session"
        );
    }

    #[test]
    fn a_flood_from_many_sources_does_not_grow_without_bound() {
        let sources = limited(10, 10);
        for number in 0..200_000u32 {
            let address = IpAddr::V4(number.into());
            if sources.begin(address, Timestamp::ZERO).is_some() {
                sources.end(address);
            }
        }
        assert!(sources.table.lock().unwrap().sources.len() <= MAXIMUM_SOURCES + 1000);
    }
}
