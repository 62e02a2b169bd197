//! Rate limit of requests: a token bucket per client, in a table that does not grow without bound.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use std::collections::HashMap;

use packrat_api::token_endpoint::ClientRate;
use packrat_assist_token::token_bucket::{self, TokenBucket};

/// Buckets by client.
#[derive(Debug)]
pub struct RateLimit {
    rate: token_bucket::Rate,
    maximum_clients: usize,
    clients: HashMap<IpAddr, Client>,
}

#[derive(Debug, Clone, Copy)]
struct Client {
    bucket: TokenBucket,
    /// The time at which the bucket was last filled; since 1970.
    filled: Duration,
}

impl Client {
    /// Adds the tokens earned until `now`. A clock that was set back neither adds tokens nor
    /// removes any.
    fn refill(&mut self, rate: &token_bucket::Rate, now: Duration) {
        self.bucket.earn(rate.earned(now.saturating_sub(self.filled)), rate.burst);
        self.filled = now;
    }
}

impl RateLimit {
    /// A limit without clients.
    pub fn new(rate: ClientRate) -> Self {
        Self {
            rate: token_bucket::Rate {
                per_second: f64::from(rate.per_minute) / 60.0,
                burst: f64::from(rate.burst),
            },
            maximum_clients: usize::try_from(rate.clients).unwrap_or(usize::MAX),
            clients: HashMap::new(),
        }
    }

    /// Counts a request of `client` at `now` (since 1970).
    ///
    /// # Errors
    /// The client has asked too often: how long it has to wait.
    pub fn take(&mut self, client: IpAddr, now: Duration) -> Result<(), Duration> {
        let client = one_subscriber(client);
        if self.clients.len() >= self.maximum_clients && !self.clients.contains_key(&client) {
            self.make_room(now);
        }
        let full = Client { bucket: TokenBucket::new(self.rate.burst), filled: now };
        let client = self.clients.entry(client).or_insert(full);
        client.refill(&self.rate, now);
        if client.bucket.try_take(1.0) {
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - client.bucket.tokens()) / self.rate.per_second))
    }

    /// Clients that are remembered.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Forgets clients whose bucket is full again, and loses no state; without such a client, the
    /// one that has not asked for longest.
    fn make_room(&mut self, now: Duration) {
        let rate = self.rate;
        self.clients.retain(|_, client| {
            let mut later = *client;
            later.refill(&rate, now);
            later.bucket.tokens() < rate.burst
        });
        if self.clients.len() >= self.maximum_clients {
            let oldest = self
                .clients
                .iter()
                .min_by_key(|(_, client)| client.filled)
                .map(|(address, _)| *address);
            oldest.map(|client| self.clients.remove(&client));
        }
    }
}

/// An IPv4 address, or the /64 of an IPv6 address: one subscriber has all of it.
fn one_subscriber(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn limit(per_minute: u32, burst: u32, clients: u32) -> RateLimit {
        RateLimit::new(ClientRate { per_minute, burst, clients })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_burst_then_the_rate_and_others_are_not_touched() {
        let mut limit = limit(60, 3, 10);
        let (one, other) = (address("192.0.2.1"), address("192.0.2.2"));
        assert!((0..3).all(|_| limit.take(one, NOW).is_ok()));
        let wait = limit.take(one, NOW).unwrap_err();
        assert_eq!(wait, Duration::from_secs(1));
        assert!(limit.take(other, NOW).is_ok());
        assert!(limit.take(one, NOW + wait / 2).is_err());
        assert!(limit.take(one, NOW + wait).is_ok());
        assert!(limit.take(one, NOW + wait).is_err());
        // No tokens are saved up beyond the burst.
        let later = NOW + Duration::from_secs(3600);
        assert_eq!((0..10).filter(|_| limit.take(one, later).is_ok()).count(), 3);
    }

    #[test]
    fn a_subscriber_has_one_bucket() {
        let mut limit = limit(1, 1, 10);
        assert!(limit.take(address("2001:db8:0:1::1"), NOW).is_ok());
        assert!(limit.take(address("2001:db8:0:1:ffff::2"), NOW).is_err());
        assert!(limit.take(address("2001:db8:0:2::1"), NOW).is_ok());
        assert!(limit.take(address("192.0.2.1"), NOW).is_ok());
        assert!(limit.take(address("::ffff:192.0.2.1"), NOW).is_err());
    }

    #[test]
    fn a_flood_of_addresses_neither_fills_memory_nor_excludes_users() {
        let mut limit = limit(1, 1, 100);
        for number in 0..10_000u32 {
            assert!(
                limit
                    .take(
                        IpAddr::from(number.to_be_bytes()),
                        NOW + Duration::from_millis(number.into())
                    )
                    .is_ok()
            );
            assert!(limit.clients() <= 100);
        }
    }

    #[test]
    fn a_clock_that_is_set_back_does_no_harm() {
        let mut limit = limit(60, 2, 10);
        let one = address("192.0.2.1");
        assert!(limit.take(one, NOW).is_ok());
        assert!(limit.take(one, NOW - Duration::from_secs(1000)).is_ok());
        assert!(limit.take(one, NOW - Duration::from_secs(1000)).is_err());
        assert!(limit.take(one, NOW - Duration::from_secs(999)).is_ok());
    }
}
