//! The UDP ports of gateways.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};

use packrat_api::route::ServerIds;
use packrat_api::token::TokenPolicy;

use super::tcp::Passthrough;
use super::terminate::Terminated;
use crate::object_key::ObjectKey;
use crate::overrides::Overrides;
use crate::resource::EdgeGatewaySpec;

/// A UDP port of a gateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listener {
    /// The Service. A UDPRoute is in the place of one, with `.udproute` behind its name.
    pub service: ObjectKey,
    /// The Service's port, as it was when the gateway got the route; of a UDPRoute the listener's.
    pub service_port: u16,
    /// Name of the Service's port; may be empty.
    pub port_name: String,
    /// Addresses that datagrams go to, sorted. Empty: the port is kept for the Service, but not
    /// listened on.
    pub endpoints: Vec<SocketAddr>,
    /// Shares of these.
    pub shares: Shares,
    /// Addresses that TCP connections to the port go to, if it takes any.
    pub tcp: Option<Passthrough>,
    /// The way in which clients' connections end here, if they do: then the endpoints are TCP
    /// endpoints.
    pub terminated: Option<Terminated>,
    /// The configurations by which connection IDs name the endpoints.
    pub quic_lb: Vec<ServerIds>,
    /// Overrides of the Service, or else of its Namespace.
    pub overrides: Overrides,
    /// True if the route is gone: only its present sessions are still served.
    pub is_leaving: bool,
}

impl Listener {
    /// The name of the route: the key of its sessions, and a label of its metrics.
    pub fn route(&self) -> String {
        format!("{}/{}", self.service, self.service_port)
    }

    /// The UDP port at which its live stream arrives.
    pub fn stream_port(&self) -> Option<u16> {
        self.overrides.multicast.map(|multicast| multicast.upstream.port())
    }

    /// Addresses that datagrams and connections go to.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let tcp = self.tcp.iter().flat_map(|passed| passed.weights.keys());
        self.endpoints.iter().chain(tcp).map(SocketAddr::ip)
    }

    /// Removes the endpoints at some addresses.
    pub(super) fn forget(&mut self, addresses: &HashSet<IpAddr>) {
        let stays = |endpoint: &SocketAddr| !addresses.contains(&endpoint.ip());
        self.endpoints.retain(stays);
        self.shares.weights.retain(|endpoint, _| stays(endpoint));
        if let Some(tcp) = &mut self.tcp {
            tcp.weights.retain(|endpoint, _| stays(endpoint));
        }
    }

    /// The policy about tokens: the Service's, or else its gateway's.
    pub fn tokens(&self, spec: &EdgeGatewaySpec) -> TokenPolicy {
        self.overrides.tokens().unwrap_or(spec.tokens.policy)
    }

    /// True if tokens are given out at the TCP port of the same number.
    pub fn gives_tokens(&self, spec: &EdgeGatewaySpec) -> bool {
        self.tokens(spec) != TokenPolicy::Off
            && spec.tokens.tls.is_some()
            && self.terminated.is_none()
    }
}

/// Shares of a listener's endpoints, and what else several destinations have more of than one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shares {
    /// Weights of endpoints; empty: all have the same.
    pub weights: BTreeMap<SocketAddr, f64>,
    /// Weight of the dropped share.
    pub refused: f64,
    /// Services that a UDPRoute may send to, with endpoints or without; empty: the Service itself.
    pub services: BTreeSet<ObjectKey>,
}
