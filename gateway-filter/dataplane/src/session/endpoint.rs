//! The server that a client gets, and the port from which the gateway speaks for it.
//!
//! Both follow from the client's address, and the port also from the gateway's key: when a gateway
//! is replaced, its successor picks the same server and, if it is free, the same source port, so
//! that a connection continues without interruption. With [`Affinity::Address`] the client's port
//! does not count for the server: a NAT may give the client another one, with which a load balancer
//! sends it to another gateway, which must find the server that knows the connection.

use std::net::{IpAddr, SocketAddr};

use packrat_api::affinity::Affinity;
use packrat_api::route::RouteConfig;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::socket::{ClientAddress, EndpointAddress, SourcePorts};

/// Bytes of an address and port.
fn address_bytes(address: SocketAddr) -> [u8; 18] {
    let mut bytes = [0; 18];
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// The bytes of a client's address that determine its endpoint. With [`Affinity::Address`] the
/// bytes of its source: an IPv4 address, or the /64 of an IPv6 address.
fn affinity_bytes(affinity: Affinity, client: SocketAddr) -> [u8; 18] {
    match affinity {
        Affinity::Port => address_bytes(client),
        Affinity::Address => {
            let mut bytes = address_bytes(SocketAddr::new(client.ip(), 0));
            if client.ip().to_canonical().is_ipv6() {
                bytes[8..].fill(0);
            }
            bytes
        }
    }
}

/// The endpoint for a client of a route; `None` without endpoints, and for the share of clients that
/// the route refuses.
pub(crate) fn endpoint_for(config: &RouteConfig, client: ClientAddress) -> Option<EndpointAddress> {
    if config.weights.is_empty() && config.refused_weight == 0.0 {
        return choose_endpoint(&config.endpoints, config.affinity, client);
    }
    // Weighted rendezvous hashing: each endpoint draws a time from an exponential distribution whose
    // rate is its weight, and the earliest wins. With another weight or another endpoint only the
    // clients move that have to.
    let client = affinity_bytes(config.affinity, client.get());
    let time = |key: u64, weight: f64| {
        const FRACTION_STEPS: f64 = (1u64 << 53) as f64;
        let place = (xxh3_64_with_seed(&client, key) >> 11) as f64 + 0.5;
        -(place / FRACTION_STEPS).ln() / weight
    };
    let endpoints = config.endpoints.iter().map(|endpoint| {
        let weight = config.weights.get(endpoint).copied().unwrap_or(1.0);
        (time(xxh3_64(&address_bytes(*endpoint)), weight), Some(*endpoint))
    });
    let refused = (config.refused_weight > 0.0)
        .then(|| (time(xxh3_64(REFUSED_ENDPOINT), config.refused_weight), None));
    let earliest = endpoints.chain(refused).min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    earliest?.1.map(EndpointAddress::new)
}

/// Name in the place of an endpoint where clients are shared and there is none.
const REFUSED_ENDPOINT: &[u8] = b"refused";

/// The endpoint for a client: rendezvous hashing (Thaler98), the highest score
/// wins. Removing an endpoint moves its own clients only; `None` without endpoints.
fn choose_endpoint(
    endpoints: &[SocketAddr],
    affinity: Affinity,
    client: ClientAddress,
) -> Option<EndpointAddress> {
    let client = affinity_bytes(affinity, client.get());
    // The address decides between equal scores, so that the order of the list never matters.
    let score = |endpoint| xxh3_64_with_seed(&client, xxh3_64(&address_bytes(endpoint)));
    let best = endpoints.iter().copied().max_by_key(|&endpoint| (score(endpoint), endpoint));
    best.map(EndpointAddress::new)
}

/// Ports derived from a client's address that are tried before the kernel is left to choose.
const DERIVED_PORTS: u64 = 3;

/// Source ports to try for a client, best first: the client's own, which its host has chosen as
/// unpredictably as RFC 6056 asks for, then some that follow from its address and `key`, a secret
/// (RFC 6056, section 3.3.3).
///
/// Only allowed ports are among them. Otherwise a client could choose its port so that the gateway
/// occupies one that a service of the host is going to listen on.
pub(crate) fn source_ports(
    allowed: &SourcePorts,
    key: &[u8; 32],
    client: ClientAddress,
) -> Vec<u16> {
    let range = allowed.range();
    let width = u64::from(range.end() - range.start()) + 1;
    let derived = (0..DERIVED_PORTS).map(|number| {
        let digest = Sha256::new_with_prefix(key)
            .chain_update(address_bytes(client.get()))
            .chain_update(number.to_be_bytes())
            .finalize();
        let word = digest.iter().take(8).fold(0, |word, byte| word << 8 | u64::from(*byte));
        range.start() + u16::try_from(word % width).unwrap_or(0)
    });
    std::iter::once(client.get().port())
        .chain(derived)
        .filter(|port| allowed.contains(*port))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn client(number: u32) -> ClientAddress {
        ClientAddress::new((number.to_be_bytes(), (number % 60_000) as u16 + 1).into())
    }

    fn client_at(address: &str) -> ClientAddress {
        ClientAddress::new(address.parse().unwrap())
    }

    proptest! {
        #[test]
        fn removing_an_endpoint_moves_only_its_clients(
            hosts in prop::collection::hash_set(1u8..250, 2..12),
            clients in prop::collection::vec(any::<u32>(), 1..200),
            removed in any::<prop::sample::Index>(),
            by_port in any::<bool>(),
        ) {
            let affinity = if by_port { Affinity::Port } else { Affinity::Address };
            let all: Vec<SocketAddr> = hosts.iter().map(|&host| ([192, 0, 2, host], 443).into()).collect();
            let gone = all[removed.index(all.len())];
            let rest: Vec<_> = all.iter().copied().filter(|&endpoint| endpoint != gone).collect();
            let mut reversed = all.clone();
            reversed.reverse();
            for number in clients {
                let before = choose_endpoint(&all, affinity, client(number)).unwrap();
                let after = choose_endpoint(&rest, affinity, client(number)).unwrap();
                prop_assert_eq!(before, choose_endpoint(&reversed, affinity, client(number)).unwrap());
                prop_assert!(before.get() == gone || before == after);
                prop_assert!(after.get() != gone);
            }
        }

        #[test]
        fn source_ports_are_allowed_ones(
            first in 1u16..=65_535,
            width in 0u16..3000,
            reserved in any::<u16>(),
            number in any::<u32>(),
        ) {
            let allowed = SourcePorts::new(first..=first.saturating_add(width), vec![reserved..=reserved.saturating_add(99)]);
            for port in source_ports(&allowed, &[7; 32], client(number)) {
                prop_assert!((first..=first.saturating_add(width)).contains(&port));
                prop_assert!(port < reserved || port > reserved.saturating_add(99));
            }
        }
    }

    #[test]
    fn clients_spread_over_the_endpoints() {
        let endpoints: Vec<SocketAddr> =
            (1..=4u8).map(|host| ([192, 0, 2, host], 443).into()).collect();
        let mut counts = [0; 4];
        for number in 0..4000 {
            let chosen =
                choose_endpoint(&endpoints, Affinity::Address, client(number * 7919)).unwrap();
            counts[endpoints.iter().position(|&endpoint| endpoint == chosen.get()).unwrap()] += 1;
        }
        // Expected 1000 each with a standard deviation of 27; the hash is fixed, so this never
        // wavers.
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(choose_endpoint(&[], Affinity::Address, client(1)), None);
    }

    fn shared(weights: &[(u8, f64)], refused: f64) -> RouteConfig {
        let endpoint = |host: u8| SocketAddr::from(([192, 0, 2, host], 443));
        let endpoints = weights.iter().map(|(host, _)| endpoint(*host));
        let mut config = RouteConfig::unchecked("web", endpoints);
        config.weights = weights.iter().map(|(host, weight)| (endpoint(*host), *weight)).collect();
        config.refused_weight = refused;
        config
    }

    /// Expected of 10,000 clients, by weight, with standard deviations below 50; the hash is fixed.
    #[test]
    fn clients_are_distributed_by_weight_and_refused_without_one() {
        let config = shared(&[(1, 7.0), (2, 2.0)], 1.0);
        let mut counts = [0; 3];
        for number in 0..10_000 {
            let chosen = endpoint_for(&config, client(number * 7919)).map(EndpointAddress::get);
            let place = chosen
                .map(|chosen| config.endpoints.iter().position(|one| *one == chosen).unwrap());
            counts[place.unwrap_or(2)] += 1;
        }
        for (count, expected) in counts.into_iter().zip([7000, 2000, 1000]) {
            assert!((expected - 200..expected + 200).contains(&count), "{counts:?}");
        }
    }

    #[test]
    fn a_weight_that_falls_moves_the_clients_of_its_endpoint_only() {
        let (before, after) = (
            shared(&[(1, 3.0), (2, 3.0), (3, 3.0)], 0.0),
            shared(&[(1, 3.0), (2, 1.0), (3, 3.0)], 0.0),
        );
        let mut moved = 0;
        for number in 0..1000 {
            let client = client(number * 7919);
            let [old, new] =
                [&before, &after].map(|config| endpoint_for(config, client).unwrap().get());
            assert!(old == new || old == before.endpoints[1], "{old} {new}");
            moved += usize::from(old != new);
        }
        assert!(moved > 100, "{moved}");
        // Equal weights have the same effect as no weights.
        let plain = RouteConfig::unchecked("web", before.endpoints.clone());
        let same = |number: u32| {
            endpoint_for(&before, client(number)) == endpoint_for(&plain, client(number))
        };
        assert!((0..1000).all(same));
    }

    /// The server stays the same also behind another gateway, which knows only the client's new
    /// address.
    #[test]
    fn a_client_whose_port_changes_has_the_same_server() {
        let endpoints: Vec<SocketAddr> =
            (1..=10u8).map(|host| ([192, 0, 2, host], 443).into()).collect();
        let servers = |affinity, addresses: &[&str]| {
            let chosen = addresses
                .iter()
                .map(|client| choose_endpoint(&endpoints, affinity, client_at(client)).unwrap());
            chosen.collect::<HashSet<_>>().len()
        };
        let moves = ["198.51.100.7:40000", "198.51.100.7:40001", "198.51.100.7:1024"];
        assert_eq!(servers(Affinity::Address, &moves), 1);
        // A host of IPv6 also changes its address within its network.
        let moves = ["[2001:db8::1]:4000", "[2001:db8::2:3]:4001", "[2001:db8::ffff]:9"];
        assert_eq!(servers(Affinity::Address, &moves), 1);
        let many: Vec<String> =
            (0..100).map(|port| format!("198.51.100.7:{}", 1024 + port)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(servers(Affinity::Address, &many), 1);
        assert_eq!(servers(Affinity::Port, &many), 10);
        let neighbours: Vec<String> =
            (0..100).map(|network| format!("[2001:db8:0:{network:x}::1]:443")).collect();
        let neighbours: Vec<&str> = neighbours.iter().map(String::as_str).collect();
        assert_eq!(servers(Affinity::Address, &neighbours), 10);
    }

    #[test]
    fn a_mapped_client_address_is_the_same_client() {
        let endpoints: Vec<SocketAddr> =
            (1..=9u8).map(|host| ([192, 0, 2, host], 443).into()).collect();
        let chosen: HashSet<_> = ["198.51.100.7:40000", "[::ffff:198.51.100.7]:40000"]
            .map(|text| choose_endpoint(&endpoints, Affinity::Port, client_at(text)))
            .into();
        assert_eq!(chosen.len(), 1);
    }

    #[test]
    fn the_clients_own_port_comes_first_when_it_is_ephemeral() {
        let allowed = SourcePorts::new(32_768..=60_999, vec![51_820..=51_820]);
        let ports = |address: &str| source_ports(&allowed, &[7; 32], client_at(address));
        assert_eq!(ports("198.51.100.7:40000")[0], 40_000);
        assert_ne!(ports("198.51.100.7:53")[0], 53);
        // A port that the host keeps for a service, and one that the gateway listens on.
        assert!(!ports("198.51.100.7:51820").contains(&51_820));
        allowed.exclude(40_000);
        assert!(!ports("198.51.100.7:40000").contains(&40_000));
    }

    #[test]
    fn who_does_not_know_the_key_cannot_tell_a_derived_port() {
        let allowed = SourcePorts::new(32_768..=60_999, Vec::new());
        let ports = |key: u8| source_ports(&allowed, &[key; 32], client_at("198.51.100.7:53"));
        assert_eq!(ports(1), ports(1), "a successor with the same key finds the same ports");
        let different: HashSet<u16> = (0..100).flat_map(ports).collect();
        assert!(different.len() > 280, "{}", different.len());
    }
}
