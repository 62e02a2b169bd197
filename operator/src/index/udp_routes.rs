//! The listeners of UDPRoutes, at the ports of EdgeGateways that Gateways of the Gateway API own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::claims::above_limit;
use super::endpoints::{Endpoints, Protocol};
use super::listener::{Listener, Shares};
use super::objects::Index;
use super::resolution::GatewayView;
use super::tcp::{self, Asked, Passthrough};
use crate::annotations::read_tcp;
use crate::gateway_api::{Attached, Attachments, Destination, Policies};
use crate::model::{GatewayModel, ServiceModel};
use crate::names::TCP_ANNOTATION;
use crate::object_key::{ObjectKey, listener_key};
use crate::overrides::Overrides;
use crate::problem::{Problem, Reason};
use crate::resource::EndpointsFrom;

/// Destinations' weights, spread over their endpoints.
#[derive(Default)]
struct Spread {
    weights: BTreeMap<SocketAddr, f64>,
    /// Weight of destinations without endpoints.
    refused: f64,
}

impl Spread {
    /// Adds a destination. `endpoints`: none if it cannot be used.
    fn add(&mut self, weight: u32, endpoints: Vec<SocketAddr>) {
        let weight = f64::from(weight);
        if endpoints.is_empty() {
            self.refused += weight;
        }
        let each = weight / endpoints.len() as f64;
        for endpoint in endpoints {
            *self.weights.entry(endpoint).or_default() += each;
        }
    }
}

impl Index {
    /// Puts the ports of Gateways and the UDPRoutes that have them into the views of EdgeGateways.
    pub(super) fn serve_routes(
        &self,
        attachments: &Attachments,
        policies: &Policies,
        views: &mut BTreeMap<ObjectKey, GatewayView>,
        endpoints: &Endpoints<'_>,
    ) {
        let owned =
            attachments.gateways.iter().filter(|(_, state)| self.owns(&state.edge, &state.uid));
        for (gateway, state) in owned {
            let (Some(view), Some(model)) =
                (views.get_mut(&state.edge), self.gateways.get(&state.edge))
            else {
                continue;
            };
            for port in state.listeners.iter().filter(|listener| listener.is_served()) {
                view.ports.insert(port.port);
                let Some(attached) = &port.attached else { continue };
                let from = model.spec.routes.endpoints;
                let (mut listener, mut problems) =
                    self.listener(port.port, attached, from, endpoints);
                let settings = policies.of(gateway, &port.name, Some(&attached.route));
                let settings = settings.around(Overrides::default());
                let (settings, lowered) = settings.within(&model.spec, &state.edge.to_string());
                problems.extend(above_limit(lowered.iter()));
                listener.overrides = settings;
                let (tcp, of_tcp) =
                    self.tcp_of_route((&state.edge, model), attached, &listener, endpoints);
                listener.tcp = tcp;
                problems.extend(of_tcp);
                let problems = problems.into_iter().map(|told| (listener.service.clone(), told));
                view.problems.extend(problems);
                view.listeners.insert(port.port, listener);
            }
        }
    }

    /// The listener of a UDPRoute.
    fn listener(
        &self,
        port: u16,
        attached: &Attached,
        from: EndpointsFrom,
        endpoints: &Endpoints<'_>,
    ) -> (Listener, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut spread = Spread::default();
        let mut services = BTreeSet::new();
        for destination in used(attached) {
            let found = self.service_of(destination).and_then(|(place, number)| {
                let port = place.1.ports.iter().find(|known| known.port == number)?;
                services.insert(place.0.clone());
                let (found, problem) =
                    endpoints.of_port(place, (Protocol::Udp, &port.name), from);
                problems.extend(problem);
                if found.is_empty() {
                    let message = format!(
                        "port {number} of Service {} has no endpoint; check that Pods match its selector and have that port",
                        place.0
                    );
                    problems.push(Problem { reason: Reason::NoEndpoints, message });
                }
                Some(found)
            });
            spread.add(destination.weight, found.unwrap_or_default());
        }
        let Spread { mut weights, refused } = spread;
        let endpoints: Vec<SocketAddr> = weights.keys().copied().collect();
        let first = weights.values().next().copied();
        if refused == 0.0 && weights.values().all(|weight| Some(*weight) == first) {
            weights.clear();
        }
        let (quic_lb, problem) = self.server_ids_of_route(&attached.route);
        problems.extend(problem);
        let listener = Listener {
            service: listener_key(&attached.route),
            service_port: port,
            endpoints,
            shares: Shares { weights, refused, services },
            quic_lb,
            ..Listener::default()
        };
        (listener, problems)
    }

    /// The destinations of TCP connections to the port of a UDPRoute.
    fn tcp_of_route(
        &self,
        (gateway, model): (&ObjectKey, &GatewayModel),
        attached: &Attached,
        listener: &Listener,
        endpoints: &Endpoints<'_>,
    ) -> (Option<Passthrough>, Vec<Problem>) {
        let namespace = &attached.route.namespace;
        let annotation = self.gateway_api.routes.get(&attached.route);
        let annotation = annotation.and_then(|route| route.tcp.as_deref());
        let own = match annotation.map(read_tcp).transpose() {
            Ok(own) => own,
            Err(remedy) => {
                let message = format!("{TCP_ANNOTATION} is not understood; {remedy}");
                return (None, vec![Problem { reason: Reason::InvalidAnnotation, message }]);
            }
        };
        let tokens = listener.tokens(&model.spec);
        let asked = Asked { gateway, spec: &model.spec, own, tokens };
        match asked.wanted() {
            Ok(true) => {}
            Ok(false) => return (None, Vec::new()),
            Err(problem) => return (None, vec![problem]),
        }
        let (mut spread, mut problems) = (Spread::default(), Vec::new());
        let mut has_port = false;
        for destination in used(attached) {
            let found = self.service_of(destination).and_then(|(place, number)| {
                // A grant for UDPRoutes opens UDP.
                if !self.gateway_api.permit("TCPRoute", namespace, place.0) {
                    problems.extend(asked.without_grant(namespace, place.0));
                    return None;
                }
                let found = tcp::endpoints(place, number, &model.spec, endpoints);
                if found.is_none() {
                    problems.extend(asked.without_port(number, place.0));
                }
                found
            });
            has_port |= found.is_some();
            spread.add(destination.weight, found.unwrap_or_default());
        }
        let Spread { weights, refused } = spread;
        let passed = Passthrough { weights, refused, ..asked.passthrough() };
        (has_port.then_some(passed), problems)
    }

    /// The Service of a destination, and the number of its port.
    fn service_of<'a>(
        &'a self,
        destination: &'a Destination,
    ) -> Option<((&'a ObjectKey, &'a ServiceModel), u16)> {
        let (key, number) = destination.service.as_ref()?;
        Some(((key, self.services.get(key)?), *number))
    }
}

/// The destinations that get a share of the datagrams.
fn used(attached: &Attached) -> impl Iterator<Item = &Destination> {
    attached.destinations.iter().filter(|found| found.weight > 0)
}
