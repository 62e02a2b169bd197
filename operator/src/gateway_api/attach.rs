//! The UDPRoute of each listener, the destinations of its datagrams, and the resulting conditions.

use std::collections::{BTreeMap, BTreeSet};

use super::bundle::supported_version;
use super::controller::{controller_name, is_packrat};
use super::finding::Finding;
use super::namespace_rule::NamespaceRule;
use super::objects::{
    BackendRef, Gateway, Infrastructure, ListenerSpec, Objects, ParametersRef, UdpRoute, names,
};
use super::translate::{edge_gateway_key, edge_gateway_spec, parameters};
use crate::envoy::METRICS_PORT;
use crate::model::ServiceModel;
use crate::object_key::ObjectKey;
use crate::object_key::{listener_key, route_key, told};
use crate::resource::{EdgeGatewaySpec, GatewayParametersSpec, ParentReference};

/// The result for all objects of the Gateway API that are this operator's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attachments {
    /// GatewayClasses, each with its conditions `Accepted` and `SupportedVersion`.
    pub classes: BTreeMap<String, [Finding; 2]>,
    /// Gateways.
    pub gateways: BTreeMap<ObjectKey, GatewayState>,
    /// UDPRoutes that refer to these Gateways, or did.
    pub routes: BTreeMap<ObjectKey, RouteState>,
    /// Identities of Gateways that are another controller's, not a Packrat operator's.
    pub foreign: BTreeSet<String>,
}

/// The result for a Gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayState {
    /// Identity of the object.
    pub uid: String,
    /// The EdgeGateway that it owns.
    pub edge: ObjectKey,
    /// Spec of the EdgeGateway; `None` if it is unknown.
    pub spec: Option<Box<EdgeGatewaySpec>>,
    /// Condition `Accepted`.
    pub accepted: Finding,
    /// Listeners of the Gateway, in their order.
    pub listeners: Vec<ListenerState>,
}

/// The result for a listener.
#[derive(Debug, Clone, PartialEq)]
pub struct ListenerState {
    /// Name.
    pub name: String,
    /// Port.
    pub port: u16,
    /// Condition `Accepted`.
    pub accepted: Finding,
    /// Condition `Conflicted`.
    pub conflicted: Finding,
    /// Condition `ResolvedRefs`.
    pub resolved: Finding,
    /// True if it takes UDPRoutes.
    pub takes_udp_routes: bool,
    /// Namespaces whose routes it takes.
    pub namespaces: NamespaceRule,
    /// The Service (or its live stream), or the UDPRoute in its place, that is served there and still
    /// asks for it: no other one gets it.
    pub holder: Option<ObjectKey>,
    /// The route that it has.
    pub attached: Option<Attached>,
    /// Other routes that also want the listener.
    pub waiting: BTreeSet<ObjectKey>,
}

impl ListenerState {
    /// True if gateways listen on its port when it has a route.
    pub fn is_served(&self) -> bool {
        self.accepted.status == Some(true)
    }

    /// True if it takes UDPRoutes of a namespace with these labels.
    fn admits(&self, namespace: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.takes_udp_routes && self.namespaces.admits(namespace, labels)
    }
}

/// The Services that are served at ports of EdgeGateways, and UDPRoutes in the place of one.
pub type Holders = BTreeMap<(ObjectKey, u16), ObjectKey>;

/// A UDPRoute at a listener.
#[derive(Debug, Clone, PartialEq)]
pub struct Attached {
    /// The UDPRoute.
    pub route: ObjectKey,
    /// Destinations of the route.
    pub destinations: Vec<Destination>,
}

/// A destination of a UDPRoute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The Service and its port; `None` if it does not exist or may not be referred to: its share
    /// of the datagrams is dropped.
    pub service: Option<(ObjectKey, u16)>,
    /// Share of this destination among all.
    pub weight: u32,
}

/// The result for a UDPRoute: each of its parents that is this operator's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteState {
    /// Parents in the order of the spec.
    pub parents: Vec<ParentState>,
}

/// The result for a parent of a UDPRoute.
#[derive(Debug, Clone, PartialEq)]
pub struct ParentState {
    /// The reference as it is in the spec.
    pub reference: ParentReference,
    /// Condition `Accepted`.
    pub accepted: Finding,
    /// Condition `ResolvedRefs`.
    pub resolved: Finding,
    /// The older route that has the only listener it could have: this one gets no datagrams.
    pub waits_for: Option<ObjectKey>,
}

/// The Gateways of a class of operators, without the routes of their listeners.
pub fn gateways(objects: &Objects, class: &str) -> Attachments {
    let controller = controller_name(class);
    let mut attachments = Attachments::default();
    for (name, found) in &objects.classes {
        if found.spec.controller_name == controller {
            let parameters = found.spec.parameters_ref.as_ref();
            let accepted = class_accepted(objects, parameters);
            let supported = supported_version(objects.bundles.as_ref());
            attachments.classes.insert(name.clone(), [accepted, supported]);
        }
    }
    for (key, gateway) in &objects.gateways {
        match objects.classes.get(&gateway.spec.gateway_class_name) {
            Some(found) if found.spec.controller_name == controller => {
                let reference = found.spec.parameters_ref.as_ref();
                let state = gateway_state(objects, key, gateway, reference, class);
                attachments.gateways.insert(key.clone(), state);
            }
            Some(found) if !is_packrat(&found.spec.controller_name) => {
                attachments.foreign.insert(gateway.metadata.uid.clone());
            }
            _ => {}
        }
    }
    attachments
}

/// Gives the listeners of these Gateways their routes. `service`: Services with UDP ports.
/// `holders`: the routes that are served at the ports of the EdgeGateways; only Services that still
/// ask.
pub fn attach_routes<'a>(
    objects: &Objects,
    class: &str,
    attachments: &mut Attachments,
    service: impl Fn(&ObjectKey) -> Option<&'a ServiceModel>,
    holders: &Holders,
) {
    let controller = controller_name(class);
    for (key, state) in &mut attachments.gateways {
        let Some(gateway) = objects.gateways.get(key) else { continue };
        for (spec, listener) in gateway.spec.listeners.iter().zip(&mut state.listeners) {
            let served = holders.get(&(state.edge.clone(), listener.port));
            listener.holder =
                served.filter(|holder| still_asks(objects, key, spec, listener, holder)).cloned();
        }
    }
    // A served route keeps its listener: the time at which a route was made does not show the time
    // at which it asked. The oldest of the routes that want a free listener has it; between two of
    // the same second the name decides.
    let mut routes: Vec<_> = objects.routes.iter().collect();
    routes.sort_by_key(|(key, route)| (route.metadata.created, *key));
    for (key, route) in routes {
        let state = route_state(objects, key, route, &service, &mut attachments.gateways);
        if !state.parents.is_empty() || names(&route.status, &controller) {
            attachments.routes.insert(key.clone(), state);
        }
    }
}

/// True unless a holder is a UDPRoute that is gone, or may not have the listener any more.
fn still_asks(
    objects: &Objects,
    gateway: &ObjectKey,
    spec: &ListenerSpec,
    listener: &ListenerState,
    holder: &ObjectKey,
) -> bool {
    let Some(key) = route_key(holder) else { return true };
    let labels = objects.namespaces.get(&key.namespace);
    let refers = |route: &UdpRoute| {
        let mut references = route.spec.parent_refs.iter();
        references.any(|found| {
            found.is_gateway()
                && found.gateway(&key) == *gateway
                && found.selects(&spec.name, spec.port)
        })
    };
    listener.is_served()
        && listener.admits(&key.namespace, labels)
        && objects.routes.get(&key).is_some_and(refers)
}

fn class_accepted(objects: &Objects, reference: Option<&ParametersRef>) -> Finding {
    match reference.map(|reference| parameters(objects, reference, None)) {
        Some(Err(message)) => Finding::no("Accepted", "InvalidParameters", message),
        None | Some(Ok(_)) => {
            Finding::yes("Accepted", "Accepted", "the operator serves Gateways of this class")
        }
    }
}

fn gateway_state(
    objects: &Objects,
    key: &ObjectKey,
    gateway: &Gateway,
    of_class: Option<&ParametersRef>,
    class: &str,
) -> GatewayState {
    let mut infrastructure = gateway.spec.infrastructure.clone();
    let settings = settings(objects, key, &mut infrastructure, of_class);
    let listeners: Vec<_> = gateway
        .spec
        .listeners
        .iter()
        .map(|listener| listener_state(listener, key, &gateway.spec.listeners))
        .collect();
    let refused: Vec<&str> = listeners
        .iter()
        .filter(|listener| !listener.is_served() || listener.resolved.status == Some(false))
        .map(|listener| listener.name.as_str())
        .collect();
    let no = |reason, message: String| Finding::no("Accepted", reason, message);
    let accepted = match &settings {
        Err(message) => no("InvalidParameters", message.clone()),
        Ok(_) if !gateway.spec.addresses.is_empty() => no(
            "UnsupportedAddress",
            "spec.addresses is not supported; ask the load balancer for an address with annotations of spec.infrastructure, or with GatewayParameters".to_owned(),
        ),
        Ok(_) if refused.len() == listeners.len() => no(
            "ListenersNotValid",
            "no listener can be served: their conditions say why".to_owned(),
        ),
        Ok((_, lowered)) if !refused.is_empty() => Finding::yes(
            "Accepted",
            "ListenersNotValid",
            format!(
                "all listeners are served but {}: their conditions say why{lowered}",
                refused.join(", ")
            ),
        ),
        Ok((_, lowered)) => Finding::yes(
            "Accepted",
            "Accepted",
            format!("all listeners can be served{lowered}"),
        ),
    };
    let spec = match settings {
        Ok((settings, _)) if accepted.status == Some(true) => {
            Some(Box::new(edge_gateway_spec(key, &infrastructure, settings.as_ref(), class)))
        }
        Ok(_) | Err(_) => None,
    };
    GatewayState {
        uid: gateway.metadata.uid.clone(),
        edge: edge_gateway_key(key),
        spec,
        accepted,
        listeners,
    }
}

/// The settings of a Gateway: its own settings within the limits of its class, or else the settings
/// of its class; and the end of a sentence about lowered settings.
fn settings(
    objects: &Objects,
    gateway: &ObjectKey,
    infrastructure: &mut Infrastructure,
    of_class: Option<&ParametersRef>,
) -> Result<(Option<GatewayParametersSpec>, String), String> {
    let own = infrastructure.parameters_ref.as_ref();
    let of_class = of_class.map(|reference| parameters(objects, reference, None)).transpose()?;
    let own = own.map(|reference| parameters(objects, reference, Some(&gateway.namespace)));
    let own = own.transpose()?;
    let Some(ceiling) = of_class else {
        return Ok((own.cloned(), String::new()));
    };
    let (settings, mut lowered) = match own {
        Some(own) => own.clone().within(ceiling)?,
        None => (ceiling.clone(), Vec::new()),
    };
    let Infrastructure { labels, annotations, .. } = infrastructure;
    lowered.extend(ceiling.lower_infrastructure(labels, annotations));
    let told = match lowered.as_slice() {
        [] => String::new(),
        lowered => format!(
            "; it asks for more than the parameters of its class allow: {}",
            lowered.join(", ")
        ),
    };
    Ok((Some(settings), told))
}

fn listener_state(
    listener: &ListenerSpec,
    gateway: &ObjectKey,
    all: &[ListenerSpec],
) -> ListenerState {
    let is_udp = listener.protocol == "UDP";
    let same =
        |other: &&ListenerSpec| other.port == listener.port && other.protocol == listener.protocol;
    let is_conflicted = all.iter().filter(same).count() > 1;
    let kinds = &listener.allowed_routes.kinds;
    let takes_udp_routes =
        is_udp && (kinds.is_empty() || kinds.iter().any(|kind| kind.is_udp_route()));
    let invalid: Vec<&str> = kinds
        .iter()
        .filter(|kind| !is_udp || !kind.is_udp_route())
        .map(|kind| kind.kind.as_str())
        .collect();
    let accepted = if is_conflicted {
        Finding::no(
            "Accepted",
            "HostnameConflict",
            "another listener has the same port and protocol",
        )
    } else if !is_udp {
        let message = format!("protocol {} is not supported: gateways take UDP", listener.protocol);
        Finding::no("Accepted", "UnsupportedProtocol", message)
    } else if listener.port == METRICS_PORT {
        let message = format!("port {METRICS_PORT} is the gateways' own; choose another one");
        Finding::no("Accepted", "PortUnavailable", message)
    } else {
        Finding::yes("Accepted", "Accepted", "the listener can be served")
    };
    let conflicted = if is_conflicted {
        let message = "another listener has the same port and protocol; give it another port";
        Finding::yes("Conflicted", "HostnameConflict", message)
    } else {
        Finding::no("Conflicted", "NoConflicts", "no other listener has its port")
    };
    let resolved = if invalid.is_empty() {
        Finding::yes("ResolvedRefs", "ResolvedRefs", "all references are understood")
    } else {
        let message = format!(
            "routes of kind {} are not supported: listeners of protocol UDP take UDPRoute",
            invalid.join(", ")
        );
        Finding::no("ResolvedRefs", "InvalidRouteKinds", message)
    };
    ListenerState {
        name: listener.name.clone(),
        port: listener.port,
        accepted,
        conflicted,
        resolved,
        takes_udp_routes,
        namespaces: NamespaceRule::of(&listener.allowed_routes.namespaces, gateway),
        holder: None,
        attached: None,
        waiting: BTreeSet::new(),
    }
}

/// Attaches a route to the listeners that it may have.
fn route_state<'a>(
    objects: &Objects,
    key: &ObjectKey,
    route: &UdpRoute,
    service: &impl Fn(&ObjectKey) -> Option<&'a ServiceModel>,
    gateways: &mut BTreeMap<ObjectKey, GatewayState>,
) -> RouteState {
    let (destinations, resolved) = destinations(objects, key, route, service);
    let mut parents = Vec::new();
    for reference in route.spec.parent_refs.iter().filter(|reference| reference.is_gateway()) {
        let gateway_key = reference.gateway(key);
        let (Some(gateway), Some(state)) =
            (objects.gateways.get(&gateway_key), gateways.get_mut(&gateway_key))
        else {
            continue;
        };
        let attached = Attached { route: key.clone(), destinations: destinations.clone() };
        let labels = objects.namespaces.get(&key.namespace);
        let (accepted, waits_for) = attach_to(gateway, state, reference, &attached, labels);
        parents.push(ParentState {
            reference: reference.clone(),
            accepted,
            resolved: resolved.clone(),
            waits_for,
        });
    }
    RouteState { parents }
}

/// Gives a route the free ones of the listeners that a reference means. Returns its condition
/// `Accepted`, and the Service, or the UDPRoute in its place, that it waits for. One that waits is accepted
/// all the same: the specification has it attached.
fn attach_to(
    gateway: &Gateway,
    state: &mut GatewayState,
    reference: &ParentReference,
    attached: &Attached,
    labels: Option<&BTreeMap<String, String>>,
) -> (Finding, Option<ObjectKey>) {
    let no = |reason, message: String| (Finding::no("Accepted", reason, message), None);
    let specs = gateway.spec.listeners.iter();
    let mut meant: Vec<&mut ListenerState> = specs
        .zip(&mut state.listeners)
        .filter(|(spec, _)| reference.selects(&spec.name, spec.port))
        .map(|(_, listener)| listener)
        .collect();
    if meant.is_empty() {
        return no(
            "NoMatchingParent",
            "the Gateway has no listener of that name and port; correct sectionName or port"
                .to_owned(),
        );
    }
    let namespace = &attached.route.namespace;
    meant.retain(|listener| listener.admits(namespace, labels));
    if meant.is_empty() {
        return no(
            "NotAllowedByListeners",
            format!("no listener takes UDPRoutes of namespace {namespace}: see its allowedRoutes"),
        );
    }
    meant.retain(|listener| listener.is_served());
    if meant.is_empty() {
        let message = "the listener cannot be served: the status of the Gateway says why";
        return no("NoMatchingParent", message.to_owned());
    }
    let (has_one, waits) = take_free(meant, attached);
    match waits {
        Some((holder, why)) if !has_one => {
            let message = format!(
                "the route is attached, but {why} gets the datagrams of its listener until it goes: choose another listener"
            );
            (Finding::yes("Accepted", "Accepted", &message), Some(holder))
        }
        _ => (Finding::yes("Accepted", "Accepted", "the route is attached"), None),
    }
}

/// Attaches a route to the free ones of these listeners. Returns whether it has one, and the one that it
/// waits for, with a part of a sentence.
fn take_free(
    listeners: Vec<&mut ListenerState>,
    attached: &Attached,
) -> (bool, Option<(ObjectKey, String)>) {
    let mut waits = None;
    let mut has_one = false;
    let own = listener_key(&attached.route);
    for listener in listeners {
        match (&listener.attached, &listener.holder) {
            // A route may name a listener in two ways.
            (Some(other), _) if other.route == attached.route => has_one = true,
            (_, Some(holder)) if *holder != own => {
                let why = format!("{}, which is served there,", told(holder));
                waits = Some((holder.clone(), why));
                listener.waiting.insert(attached.route.clone());
            }
            (Some(other), _) => {
                let why = format!("the older UDPRoute {}", other.route);
                waits = Some((listener_key(&other.route), why));
                listener.waiting.insert(attached.route.clone());
            }
            (None, _) => {
                listener.attached = Some(attached.clone());
                has_one = true;
            }
        }
    }
    (has_one, waits)
}

/// The destinations of a route, and its condition `ResolvedRefs`.
fn destinations<'a>(
    objects: &Objects,
    key: &ObjectKey,
    route: &UdpRoute,
    service: &impl Fn(&ObjectKey) -> Option<&'a ServiceModel>,
) -> (Vec<Destination>, Finding) {
    let mut problem = None;
    let references = route.spec.rules.iter().flat_map(|rule| &rule.backend_refs);
    let destinations = references
        .map(|reference| {
            let service = match destination(objects, key, reference, service) {
                Ok(found) => Some(found),
                Err(finding) => {
                    problem.get_or_insert(finding);
                    None
                }
            };
            Destination { service, weight: reference.weight() }
        })
        .collect();
    let resolved = problem.unwrap_or_else(|| {
        Finding::yes("ResolvedRefs", "ResolvedRefs", "all backendRefs are resolved")
    });
    (destinations, resolved)
}

/// The Service of a reference, and its port.
fn destination<'a>(
    objects: &Objects,
    route: &ObjectKey,
    reference: &BackendRef,
    service: &impl Fn(&ObjectKey) -> Option<&'a ServiceModel>,
) -> Result<(ObjectKey, u16), Finding> {
    let no = |reason, message: String| Err(Finding::no("ResolvedRefs", reason, message));
    let kind = reference.kind.as_deref().unwrap_or("Service");
    let group = reference.group.as_deref().unwrap_or_default();
    if kind != "Service" || !group.is_empty() {
        return no(
            "InvalidKind",
            format!("{kind} {} of group {group:?} is no Service; name a Service", reference.name),
        );
    }
    let namespace = reference.namespace.as_ref().unwrap_or(&route.namespace);
    let key = ObjectKey::new(namespace, &reference.name);
    if !objects.permit("UDPRoute", &route.namespace, &key) {
        return no(
            "RefNotPermitted",
            format!(
                "no ReferenceGrant in namespace {namespace} permits UDPRoutes of namespace {} to refer to Service {}",
                route.namespace, reference.name
            ),
        );
    }
    let Some(port) = reference.port else {
        return no("BackendNotFound", format!("the reference to Service {key} names no port"));
    };
    let Some(found) = service(&key) else {
        return no(
            "BackendNotFound",
            format!("there is no Service {key} with UDP ports; create it, or correct backendRefs"),
        );
    };
    if !found.ports.iter().any(|known| known.port == port) {
        return no("BackendNotFound", format!("Service {key} has no UDP port {port}"));
    }
    Ok((key, port))
}
