//! The cluster of a route's servers, to which connections and requests go on.

use std::net::SocketAddr;

use super::connections::{self, number};
use super::proto::{
    CircuitBreakers, Cluster, ClusterLoadAssignment, Duration, Endpoint, LbEndpoint,
    LocalityLbEndpoints, Thresholds, address,
};

/// Seconds for a connection to a server.
const CONNECT_SECONDS: i64 = 5;

/// A server. `weight`: in Envoy's units; `None`: the same as all others.
pub(super) fn endpoint(server: &SocketAddr, weight: Option<u32>) -> LbEndpoint {
    LbEndpoint {
        endpoint: Some(Endpoint { address: address(&server.ip().to_string(), server.port()) }),
        load_balancing_weight: weight.and_then(number),
    }
}

/// The cluster. `connections`, `requests`: the most at a time.
pub(super) fn cluster(
    name: String,
    endpoints: Vec<LbEndpoint>,
    connections: u32,
    requests: Option<u32>,
) -> Cluster {
    Cluster {
        connect_timeout: Some(Duration { seconds: CONNECT_SECONDS }),
        per_connection_buffer_limit_bytes: connections::buffer(),
        circuit_breakers: Some(CircuitBreakers {
            thresholds: vec![Thresholds {
                max_connections: number(connections),
                max_pending_requests: number(connections),
                max_requests: requests.and_then(number),
            }],
        }),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: name.clone(),
            endpoints: vec![LocalityLbEndpoints { lb_endpoints: endpoints }],
        }),
        name,
        ..Cluster::default()
    }
}
