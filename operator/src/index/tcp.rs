//! TCP connections to the port of a route: they go through to the TCP port that the same Service
//! has under the same number. The port belongs to the route for both protocols: the rules for UDP
//! decide who may have it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use packrat_api::token::TokenPolicy;

use super::endpoints::{Endpoints, Protocol};
use crate::annotations::TcpChoice;
use crate::model::ServiceModel;
use crate::names::TCP_ANNOTATION;
use crate::object_key::ObjectKey;
use crate::problem::{Problem, Reason};
use crate::resource::{EdgeGatewaySpec, TcpPolicy};

/// The destinations of TCP connections to a port of a gateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Passthrough {
    /// Addresses that connections go to, with weights. Empty: connections are closed.
    pub weights: BTreeMap<SocketAddr, f64>,
    /// Weight of connections that are closed.
    pub refused: f64,
    /// True if servers read the client's address in front of each connection.
    pub proxy_protocol: bool,
}

/// The words of a gateway about TCP connections to one of its ports.
pub(super) struct Asked<'a> {
    pub(super) gateway: &'a ObjectKey,
    pub(super) spec: &'a EdgeGatewaySpec,
    /// The word of the route itself.
    pub(super) own: Option<TcpChoice>,
    /// The policy about tokens, which are given out at the same port.
    pub(super) tokens: TokenPolicy,
}

impl Asked<'_> {
    /// True if TCP connections are to be passed through, as far as there is where to.
    pub(super) fn wanted(&self) -> Result<bool, Problem> {
        let not_allowed = |message| Problem { reason: Reason::NotAllowed, message };
        let wanted = match (self.spec.tcp, self.own) {
            (TcpPolicy::Off, Some(TcpChoice::Passthrough | TcpChoice::ProxyProtocol)) => {
                return Err(not_allowed(format!(
                    "EdgeGateway {} takes no TCP connections; set its spec.tcp to Allowed, or remove {TCP_ANNOTATION}",
                    self.gateway
                )));
            }
            (TcpPolicy::Off, _) | (_, Some(TcpChoice::Off)) | (TcpPolicy::Allowed, None) => false,
            (TcpPolicy::Allowed | TcpPolicy::Passthrough, _) => true,
        };
        let tls = self.spec.tokens.tls.as_ref().filter(|_| self.tokens != TokenPolicy::Off);
        if wanted && tls.is_some_and(|tls| tls.server_name.is_none()) {
            return Err(not_allowed(format!(
                "TCP connections to the port are not passed through: EdgeGateway {} gives tokens out there; set its spec.tokens.tls.serverName, the name of its own that clients ask for tokens at",
                self.gateway
            )));
        }
        Ok(wanted)
    }

    /// The way in which connections are passed through, without destinations.
    pub(super) fn passthrough(&self) -> Passthrough {
        let proxy_protocol = self.own == Some(TcpChoice::ProxyProtocol);
        Passthrough { proxy_protocol, ..Passthrough::default() }
    }

    /// True if the route itself has asked.
    fn is_own(&self) -> bool {
        self.own.is_some_and(|own| own != TcpChoice::Off)
    }

    /// A problem if the route has asked, and the Service's namespace does not let it.
    pub(super) fn without_grant(&self, namespace: &str, service: &ObjectKey) -> Option<Problem> {
        self.is_own().then(|| Problem {
            reason: Reason::NotAllowed,
            message: format!(
                "no ReferenceGrant in namespace {} permits TCPRoutes of namespace {namespace} to refer to Service {service}, whose TCP port is not opened by one for UDPRoutes; add it there, or remove {TCP_ANNOTATION}",
                service.namespace
            ),
        })
    }

    /// A problem if the route has asked, and its Service has no such port.
    pub(super) fn without_port(&self, number: u16, service: &ObjectKey) -> Option<Problem> {
        self.is_own().then(|| Problem {
            reason: Reason::NoSuchPort,
            message: format!(
                "Service {service} has no TCP port {number}; add one with protocol: TCP, of the number of the UDP port, or remove {TCP_ANNOTATION}"
            ),
        })
    }
}

/// The endpoints of the TCP port of a number that a Service has; `None` if it has none.
pub(super) fn endpoints(
    place: (&ObjectKey, &ServiceModel),
    number: u16,
    spec: &EdgeGatewaySpec,
    endpoints: &Endpoints<'_>,
) -> Option<Vec<SocketAddr>> {
    let port = place.1.tcp_ports.iter().find(|port| port.port == number)?;
    // A fault of an address is reported for the UDP port.
    Some(endpoints.of_port(place, (Protocol::Tcp, &port.name), spec.routes.endpoints).0)
}

/// The destinations of connections to a Service's port, and a problem.
pub(super) fn of_service(
    asked: &Asked<'_>,
    place: (&ObjectKey, &ServiceModel),
    number: u16,
    all: &Endpoints<'_>,
) -> (Option<Passthrough>, Option<Problem>) {
    match asked.wanted() {
        Err(problem) => return (None, Some(problem)),
        Ok(false) => return (None, None),
        Ok(true) => {}
    }
    match endpoints(place, number, asked.spec, all) {
        None => (None, asked.without_port(number, place.0)),
        Some(found) => {
            let weights = found.into_iter().map(|endpoint| (endpoint, 1.0)).collect();
            (Some(Passthrough { weights, ..asked.passthrough() }), None)
        }
    }
}
