//! TCP connections that are passed through: a listener on the port of a route, and the cluster of its
//! servers. The cluster is a resource of its own, so that endpoints change while connections last.

use super::proto::{
    Cluster, ClusterWeight, Filter, FilterChain, FilterChainMatch, Listener, ListenerFilter,
    ProxyProtocolConfig, ProxyProtocolUpstreamTransport, RawBuffer, TcpProxy, TlsInspector,
    TransportSocket, Typed as _, UInt32Value, WeightedCluster,
};
use super::{connections, servers};
use crate::index::Passthrough;

/// Connections that are tried one after the other, as a server may just have gone.
const CONNECT_ATTEMPTS: u32 = 3;
/// Least weight of an endpoint, in Envoy's units, which begin at 1.
const SMALLEST_WEIGHT: f64 = 1.0;
/// Sum of all weights of a route, in Envoy's units.
const WEIGHT_SUM: f64 = 1_000_000.0;
/// The binary one, in a [`ProxyProtocolConfig`].
const VERSION_2: i32 = 1;

/// The name of the cluster of a port.
pub(super) fn cluster_name(port: u16) -> String {
    format!("servers-{port}")
}

/// A part of the weights in Envoy's units.
fn units(weight: f64, of: f64) -> u32 {
    (weight / of * WEIGHT_SUM).round().max(SMALLEST_WEIGHT) as u32
}

/// The cluster of the servers.
pub(super) fn cluster(port: u16, passed: &Passthrough, limit: u32) -> Cluster {
    let sum: f64 = passed.weights.values().sum();
    let weights = passed.weights.iter();
    let endpoints =
        weights.map(|(server, weight)| servers::endpoint(server, Some(units(*weight, sum))));
    Cluster {
        transport_socket: passed.proxy_protocol.then(proxy_protocol),
        ..servers::cluster(cluster_name(port), endpoints.collect(), limit, None)
    }
}

/// The client's address in front of each connection to a server, by PROXY protocol, version 2.
fn proxy_protocol() -> TransportSocket {
    let plain = TransportSocket {
        name: "envoy.transport_sockets.raw_buffer".to_owned(),
        typed_config: Some(RawBuffer {}.to_any()),
    };
    let with_header = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig { version: VERSION_2 }),
        transport_socket: Some(plain),
    };
    TransportSocket {
        name: "envoy.transport_sockets.upstream_proxy_protocol".to_owned(),
        typed_config: Some(with_header.to_any()),
    }
}

/// The listener, without its address. `tokens`: the name at which clients ask for tokens, and the
/// filters that answer them.
pub(super) fn listener(
    port: u16,
    passed: &Passthrough,
    limit: u32,
    tokens: Option<(String, FilterChain)>,
) -> Listener {
    let name = format!("tcp-{port}");
    let sum: f64 = passed.weights.values().sum();
    // A cluster that does not exist closes its share of the connections.
    let share = |name: String, weight: f64| ClusterWeight {
        name,
        weight: units(weight, sum + passed.refused),
    };
    let refuses = passed.refused > 0.0 && sum > 0.0;
    let weighted_clusters = refuses.then(|| WeightedCluster {
        clusters: vec![share(cluster_name(port), sum), share("refused".to_owned(), passed.refused)],
    });
    let proxy = TcpProxy {
        stat_prefix: name.clone(),
        cluster: (!refuses).then(|| cluster_name(port)),
        max_connect_attempts: Some(UInt32Value { value: CONNECT_ATTEMPTS }),
        weighted_clusters,
    };
    let through = FilterChain {
        filters: vec![
            connections::limit(&name, limit.into()),
            Filter {
                name: "envoy.filters.network.tcp_proxy".to_owned(),
                typed_config: Some(proxy.to_any()),
            },
        ],
        ..FilterChain::default()
    };
    // Without tokens the bytes of a connection are not inspected.
    let inspector = tokens.as_ref().map(|_| ListenerFilter {
        name: "envoy.filters.listener.tls_inspector".to_owned(),
        typed_config: Some(TlsInspector {}.to_any()),
    });
    let tokens = tokens.map(|(server_name, chain)| FilterChain {
        filter_chain_match: Some(FilterChainMatch { server_names: vec![server_name] }),
        ..chain
    });
    Listener {
        filter_chains: tokens.into_iter().chain([through]).collect(),
        per_connection_buffer_limit_bytes: connections::buffer(),
        socket_options: connections::keepalive(),
        listener_filters: inspector.into_iter().collect(),
        stat_prefix: name.clone(),
        name,
        ..Listener::default()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn shares_of_connections_are_those_of_clients() {
        let weights = [("192.0.2.1:443", 3.0), ("192.0.2.2:443", 1.0)]
            .map(|(at, weight)| (at.parse().unwrap(), weight));
        let all = Passthrough { weights: weights.into(), ..Passthrough::default() };
        let made = cluster(443, &all, 10);
        let endpoints = &made.load_assignment.as_ref().unwrap().endpoints[0].lb_endpoints;
        let found: Vec<u32> = endpoints
            .iter()
            .map(|endpoint| endpoint.load_balancing_weight.as_ref().unwrap().value)
            .collect();
        assert_eq!(found, [750_000, 250_000]);
        assert!(made.encoded_len() > 0 && made.transport_socket.is_none());
        let with_address = Passthrough { proxy_protocol: true, ..all.clone() };
        assert!(cluster(443, &with_address, 10).transport_socket.is_some());
        let proxy = |passed: &Passthrough| {
            let listener = listener(443, passed, 10, None);
            assert!(listener.listener_filters.is_empty());
            let filter = listener.filter_chains[0].filters[1].typed_config.clone().unwrap();
            TcpProxy::decode(filter.value.as_slice()).unwrap()
        };
        assert_eq!(proxy(&all).cluster.as_deref(), Some("servers-443"));
        // A backendRef that does not exist.
        let clusters =
            proxy(&Passthrough { refused: 4.0, ..all.clone() }).weighted_clusters.unwrap().clusters;
        assert_eq!(clusters.iter().map(|share| share.weight).collect::<Vec<_>>(), [500_000; 2]);
        assert_eq!(
            proxy(&Passthrough { refused: 4.0, ..Passthrough::default() }).weighted_clusters,
            None
        );
    }
}
