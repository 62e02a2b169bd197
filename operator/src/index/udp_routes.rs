//! The listeners of EdgeGateways that Gateways of the Gateway API own: their ports, and the
//! UDPRoutes that have them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::endpoints::{Addresses, Protocol};
use super::tcp::{self, Asked, Passthrough};
use super::{GatewayModel, Index, Listener, Resolution, SliceModel};
use crate::annotations::{ObjectKey, Problem, Reason, TCP_ANNOTATION, read_tcp};
use crate::gateway_api::{Attached, Attachments, Effective, Holders, NamespaceRule, Policies};
use crate::overrides::Overrides;
use crate::resource::EndpointsFrom;

/// End of the name of a UDPRoute among Services, whose names have no points.
const ROUTE_SUFFIX: &str = ".udproute";

/// The Services by namespace and name, each with its EndpointSlices.
pub(super) type Slices<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a SliceModel>>;

/// The ports of each EdgeGateway of a Gateway.
pub(super) type Declared = BTreeMap<ObjectKey, BTreeMap<u16, DeclaredPort>>;

/// A port of a Gateway.
#[derive(Debug)]
pub(super) struct DeclaredPort {
    /// Namespaces whose routes it takes.
    namespaces: NamespaceRule,
    /// Settings of its routes.
    settings: Effective,
}

/// The settings of an annotated Service at a port of an EdgeGateway: its own settings, and the
/// settings of policies around them.
pub(super) fn settings_at(
    declared: &Declared,
    gateway: &ObjectKey,
    port: u16,
    own: &Overrides,
) -> Overrides {
    match declared.get(gateway).and_then(|ports| ports.get(&port)) {
        Some(found) => found.settings.clone().around(own.clone()),
        None => own.clone(),
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

/// The place of a UDPRoute among the Services that have listeners.
pub(crate) fn listener_key(route: &ObjectKey) -> ObjectKey {
    ObjectKey::new(&route.namespace, format!("{}{ROUTE_SUFFIX}", route.name))
}

/// The UDPRoute that is in the place of a Service; `None` for a Service.
pub(crate) fn route_key(listener: &ObjectKey) -> Option<ObjectKey> {
    let name = listener.name.strip_suffix(ROUTE_SUFFIX)?;
    Some(ObjectKey::new(&listener.namespace, name))
}

/// A Service, or a UDPRoute in its place, for a sentence.
pub(crate) fn told(key: &ObjectKey) -> String {
    match route_key(key) {
        Some(route) => format!("UDPRoute {route}"),
        None => format!("Service {key}"),
    }
}

impl Index {
    /// The ports of the EdgeGateways that Gateways own. An EdgeGateway of that name with another
    /// owner has no ports here.
    pub(super) fn declared(&self, attachments: &Attachments, policies: &Policies) -> Declared {
        let owned =
            attachments.gateways.iter().filter(|(_, state)| self.owns(&state.edge, &state.uid));
        owned
            .map(|(gateway, state)| {
                let served = state.listeners.iter().filter(|listener| listener.is_served());
                let ports = served.map(|listener| {
                    let namespaces = listener.namespaces.clone();
                    let settings = policies.of(gateway, &listener.name, None);
                    (listener.port, DeclaredPort { namespaces, settings })
                });
                (state.edge.clone(), ports.collect())
            })
            .collect()
    }

    /// True if an EdgeGateway belongs to the Gateway with this identity.
    pub(super) fn owns(&self, edge: &ObjectKey, uid: &str) -> bool {
        self.gateways.get(edge).is_some_and(|model| model.owner.as_deref() == Some(uid))
    }

    /// EdgeGateways of this operator whose Gateways have another controller now.
    pub(super) fn abandoned(&self, attachments: &Attachments) -> BTreeSet<ObjectKey> {
        let is_abandoned = |owner: &String| attachments.foreign.contains(owner);
        let gateways = self.gateways.iter().filter(|(_, model)| self.operator.serves(model));
        let found = gateways.filter(|(_, model)| model.owner.as_ref().is_some_and(is_abandoned));
        found.map(|(key, _)| key.clone()).collect()
    }

    /// The UDPRoutes that are served at the ports of the EdgeGateways that Gateways own, and the
    /// Services that still ask. `claims`: gateway, port and Service of these.
    pub(super) fn holders<'a>(
        &self,
        declared: &Declared,
        claims: impl Iterator<Item = (&'a ObjectKey, u16, &'a ObjectKey)>,
    ) -> Holders {
        let routes = declared.keys().flat_map(|edge| {
            let served =
                self.gateways.get(edge).into_iter().flat_map(|model| &model.status.listeners);
            served.filter_map(|listener| {
                let (namespace, name) = listener.service.split_once('/')?;
                let key = ObjectKey::new(namespace, name);
                let port = u16::try_from(listener.port).ok()?;
                route_key(&key).map(|_| ((edge.clone(), port), key))
            })
        });
        let services = claims
            .filter(|(edge, ..)| declared.contains_key(edge))
            .map(|(edge, port, service)| ((edge.clone(), port), service.clone()));
        routes.chain(services).collect()
    }

    /// Why a Service may not have a port of the EdgeGateway of a Gateway.
    pub(super) fn refuse_undeclared(
        &self,
        declared: &Declared,
        gateway: &ObjectKey,
        namespace: &str,
        port: u16,
    ) -> Option<Problem> {
        self.gateways.get(gateway)?.owner.as_ref()?;
        let message = match declared.get(gateway).and_then(|ports| ports.get(&port)) {
            None => format!(
                "Gateway {gateway} has no UDP listener at port {port}; add one, or name the port of one with packrat.dev/port"
            ),
            Some(found)
                if !found
                    .namespaces
                    .admits(namespace, self.gateway_api.namespaces.get(namespace)) =>
            {
                format!(
                    "the listener at port {port} of Gateway {gateway} takes no routes of namespace {namespace}: see its allowedRoutes"
                )
            }
            Some(_) => return None,
        };
        Some(Problem { reason: Reason::NotAllowed, message })
    }

    /// Puts the ports of Gateways and the UDPRoutes that have them into a resolution.
    pub(super) fn attach(
        &self,
        resolution: &mut Resolution,
        slices: &Slices<'_>,
        addresses: &Addresses<'_>,
    ) {
        let attachments = std::mem::take(&mut resolution.attachments);
        let policies = std::mem::take(&mut resolution.policies);
        for (gateway, state) in
            attachments.gateways.iter().filter(|(_, state)| self.owns(&state.edge, &state.uid))
        {
            let (Some(view), Some(model)) =
                (resolution.gateways.get_mut(&state.edge), self.gateways.get(&state.edge))
            else {
                continue;
            };
            let from = model.spec.routes.endpoints;
            for listener in state.listeners.iter().filter(|listener| listener.is_served()) {
                view.ports.insert(listener.port);
                let Some(attached) = &listener.attached else { continue };
                let (mut made, mut problems) =
                    self.listener(listener.port, attached, from, slices, addresses);
                let settings = policies.of(gateway, &listener.name, Some(&attached.route));
                let settings = settings.around(Overrides::default());
                let (settings, lowered) = settings.within(&model.spec, &state.edge.to_string());
                let above = |message| Problem { reason: Reason::AboveLimit, message };
                problems.extend(lowered.into_iter().map(above));
                made.overrides = settings;
                let (tcp, mut of_tcp) =
                    self.tcp_of_route((&state.edge, model), attached, &made, slices, addresses);
                made.tcp = tcp;
                problems.append(&mut of_tcp);
                view.problems
                    .extend(problems.into_iter().map(|problem| (made.service.clone(), problem)));
                view.listeners.insert(listener.port, made);
            }
        }
        resolution.attachments = attachments;
        resolution.policies = policies;
    }

    /// The listener of a UDPRoute.
    fn listener(
        &self,
        port: u16,
        attached: &Attached,
        from: EndpointsFrom,
        slices: &Slices<'_>,
        addresses: &Addresses<'_>,
    ) -> (Listener, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut shares = Shares::default();
        for destination in attached.destinations.iter().filter(|found| found.weight > 0) {
            let weight = f64::from(destination.weight);
            let found = destination.service.as_ref().and_then(|(key, number)| {
                let service = self.services.get(key)?;
                let name = &service.ports.iter().find(|known| known.port == *number)?.name;
                shares.services.insert(key.clone());
                let of_service = slices.get(&(key.namespace.as_str(), key.name.as_str()));
                let of_service = of_service.map_or(&[][..], Vec::as_slice);
                let (endpoints, problem) = addresses.endpoints(
                    from,
                    &key.namespace,
                    (Protocol::Udp, name.as_str()),
                    service.prefers_ipv6,
                    of_service,
                );
                problems.extend(problem);
                if endpoints.is_empty() {
                    let message = format!(
                        "port {number} of Service {key} has no endpoint; check that Pods match its selector and have that port"
                    );
                    problems.push(Problem { reason: Reason::NoEndpoints, message });
                    return None;
                }
                Some(endpoints)
            });
            let Some(endpoints) = found else {
                shares.refused += weight;
                continue;
            };
            let each = weight / endpoints.len() as f64;
            for endpoint in endpoints {
                *shares.weights.entry(endpoint).or_default() += each;
            }
        }
        let endpoints: Vec<SocketAddr> = shares.weights.keys().copied().collect();
        let mut weights = shares.weights.values();
        let first = weights.next().copied();
        if shares.refused == 0.0 && weights.all(|weight| Some(*weight) == first) {
            shares.weights.clear();
        }
        let (quic_lb, problem) = self.server_ids_of_route(&attached.route);
        problems.extend(problem);
        let listener = Listener {
            service: listener_key(&attached.route),
            service_port: port,
            port_name: String::new(),
            endpoints,
            shares,
            tcp: None,
            terminated: None,
            quic_lb,
            overrides: Default::default(),
            is_leaving: false,
        };
        (listener, problems)
    }

    /// The destinations of TCP connections to the port of a UDPRoute.
    fn tcp_of_route(
        &self,
        (gateway, model): (&ObjectKey, &GatewayModel),
        attached: &Attached,
        listener: &Listener,
        slices: &Slices<'_>,
        addresses: &Addresses<'_>,
    ) -> (Option<Passthrough>, Vec<Problem>) {
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
        let (mut passed, mut problems) = (asked.passthrough(), Vec::new());
        let mut has_port = false;
        for destination in attached.destinations.iter().filter(|found| found.weight > 0) {
            let weight = f64::from(destination.weight);
            let found = destination.service.as_ref().and_then(|(key, number)| {
                let service = self.services.get(key)?;
                // A grant for UDPRoutes opens UDP.
                if !self.gateway_api.permit("TCPRoute", &attached.route.namespace, key) {
                    problems.extend(asked.without_grant(&attached.route.namespace, key));
                    return None;
                }
                let of_service = slices.get(&(key.namespace.as_str(), key.name.as_str()));
                let of_service = of_service.map_or(&[][..], Vec::as_slice);
                let namespace = &key.namespace;
                let found =
                    tcp::endpoints(service, namespace, *number, &model.spec, of_service, addresses);
                if found.is_none() {
                    problems.extend(asked.without_port(*number, key));
                }
                found
            });
            has_port |= found.is_some();
            match found.filter(|endpoints| !endpoints.is_empty()) {
                None => passed.refused += weight,
                Some(endpoints) => {
                    let each = weight / endpoints.len() as f64;
                    for endpoint in endpoints {
                        *passed.weights.entry(endpoint).or_default() += each;
                    }
                }
            }
        }
        (has_port.then_some(passed), problems)
    }
}
