//! From objects to listeners.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use packrat_api::route::ServerIds;
use packrat_api::token::TokenPolicy;

use super::endpoints::Addresses;
use super::ports::{ChosenPort, choose_ports, keep_ports};
use super::quotas::{Allowances, Held, asked};
use super::tcp::{self, Asked, Passthrough};
use super::terminate::{self, Terminated};
use super::udp_routes::{Declared, Shares, Slices, settings_at, told};
use super::{GatewayModel, Index, ServiceModel, SliceModel};
use crate::annotations::{
    Annotations, DEFAULT_GATEWAY, MODE_ANNOTATION, MULTICAST_ANNOTATION, ObjectKey,
    PORT_ANNOTATION, Problem, Reason,
};
use crate::gateway_api::{self, Attachments, Policies, controller_name};
use crate::overrides::{Multicast, Overrides};
use crate::resource::{EdgeGatewaySpec, ExposureType};
use crate::workload::METRICS_PORT;

/// The state that follows from all objects of the index.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolution {
    /// Each EdgeGateway with its listeners.
    pub gateways: BTreeMap<ObjectKey, GatewayView>,
    /// Each Service that asks for assistance or has something wrong with it.
    pub services: BTreeMap<ObjectKey, ServiceView>,
    /// Namespaces with something wrong: identity of the object, and what.
    pub namespaces: BTreeMap<String, (String, Vec<Problem>)>,
    /// Pods with something wrong: identity of the object, and what.
    pub pods: BTreeMap<ObjectKey, (String, Vec<Problem>)>,
    /// EdgeGateways of this operator's class that belong to another operator: identity of the
    /// object, and the message about it.
    pub foreign: BTreeMap<ObjectKey, (String, Problem)>,
    /// EdgeGateways that were this operator's, and are of another class now.
    pub released: BTreeSet<ObjectKey>,
    /// The objects of the Gateway API that are this operator's.
    pub attachments: Attachments,
    /// The PackratPolicies that are in force.
    pub policies: Policies,
    /// EdgeGateways whose Gateways have another controller now, which is not a Packrat operator.
    pub abandoned: BTreeSet<ObjectKey>,
}

/// The routes of an EdgeGateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatewayView {
    /// Listeners by their UDP port.
    pub listeners: BTreeMap<u16, Listener>,
    /// UDP ports that the gateway has even without a route, from its Gateway.
    pub ports: BTreeSet<u16>,
    /// Addresses of the gateway's Pods, also of Pods that are ending.
    pub pods: BTreeSet<IpAddr>,
    /// Problems of Services that have chosen this gateway.
    pub problems: BTreeSet<(ObjectKey, Problem)>,
    /// The reason for which the operator's installer does not let it be set up or changed.
    pub refusal: Option<String>,
}

/// A UDP port of a gateway.
#[derive(Debug, Clone, PartialEq)]
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
        self.overrides.tokens.unwrap_or(spec.tokens.policy)
    }

    /// True if tokens are given out at the TCP port of the same number.
    pub fn gives_tokens(&self, spec: &EdgeGatewaySpec) -> bool {
        self.tokens(spec) != TokenPolicy::Off
            && spec.tokens.tls.is_some()
            && self.terminated.is_none()
    }
}

/// Result for a Service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceView {
    /// True if the Service or its Namespace asks for assistance.
    pub wanted: bool,
    /// True if assistance is switched off: the gateway only forwards.
    pub is_off: bool,
    /// True if clients' connections end at the gateway.
    pub terminates: bool,
    /// The gateway that it has.
    pub gateway: Option<ObjectKey>,
    /// The gateway's ports that it has.
    pub listeners: Vec<u16>,
    /// Problems of the Service.
    pub problems: Vec<Problem>,
    /// The condition of ours that is on it.
    pub condition: Option<Condition>,
    /// Identity of the object.
    pub uid: String,
}

/// The listeners that Services have, and how many each may have.
struct Tenants<'a> {
    held: Held<'a>,
    allowances: Allowances<'a>,
}

/// A Service that wants a port of a gateway.
struct Claim<'a> {
    gateway: ObjectKey,
    service: &'a ObjectKey,
    /// True unless the Service has the port already.
    is_new: bool,
    /// True unless the Service has the port for its live stream already.
    is_new_stream: bool,
    created: i64,
    listener: u16,
    /// The Service's port of which the route has its name.
    service_port: u16,
    /// The Service's port as it is now.
    current_port: u16,
    port_name: String,
    endpoints: Vec<SocketAddr>,
    tcp: Option<Passthrough>,
    terminated: Option<Terminated>,
    quic_lb: Vec<ServerIds>,
    overrides: Overrides,
}

impl Index {
    /// The state that follows from all objects of the index.
    pub fn resolve(&self) -> Resolution {
        let mut resolution = Resolution::default();
        for (key, gateway) in &self.gateways {
            if !self.operator.serves(gateway) {
                let holder = gateway.status.operator.as_ref();
                if self.operator.is_of_class(gateway) {
                    let problem = foreign(holder, &self.operator.identity, key);
                    resolution.foreign.insert(key.clone(), (gateway.uid.clone(), problem));
                } else if holder == Some(&self.operator.identity) {
                    resolution.released.insert(key.clone());
                }
            } else if !gateway.deleting {
                let refusal = self.policy.refusal(&gateway.spec);
                let view = GatewayView { refusal, ..GatewayView::default() };
                resolution.gateways.insert(key.clone(), view);
            }
        }
        for (key, pod) in &self.pods {
            let Some(gateway) = &pod.gateway else { continue };
            let gateway = ObjectKey::new(key.namespace.clone(), gateway.clone());
            if let Some(view) = resolution.gateways.get_mut(&gateway) {
                view.pods.extend(pod.addresses.first());
            }
        }
        let tells_of_the_rest = self.tells_of_the_rest();
        for (key, pod) in self.pods.iter().filter(|_| tells_of_the_rest) {
            if let Some(problem) = &pod.problem {
                let told = (pod.uid.clone(), vec![problem.clone()]);
                resolution.pods.insert(key.clone(), told);
            }
        }
        for (name, namespace) in self.namespaces.iter().filter(|_| tells_of_the_rest) {
            if !namespace.annotations.problems.is_empty() {
                let told = (namespace.uid.clone(), namespace.annotations.problems.clone());
                resolution.namespaces.insert(name.clone(), told);
            }
        }
        let mut slices = Slices::new();
        for (key, slice) in &self.slices {
            slices.entry((&key.namespace, &slice.service)).or_default().push(slice);
        }
        let addresses = Addresses::of(self);
        resolution.attachments = gateway_api::gateways(&self.gateway_api, &self.operator.class);
        resolution.policies = gateway_api::policies(
            &self.gateway_api,
            &resolution.attachments,
            &controller_name(&self.operator.class),
            tells_of_the_rest,
        );
        let declared = self.declared(&resolution.attachments, &resolution.policies);
        resolution.abandoned = self.abandoned(&resolution.attachments);
        let mut claims = Vec::new();
        let concerned =
            self.services.iter().filter(|(key, _)| self.is_concerned(key, tells_of_the_rest));
        let held = Held::of(self);
        let tenants = Tenants { allowances: self.allowances(concerned.clone(), &held), held };
        for (key, _) in concerned {
            let of_service = slices.get(&(key.namespace.as_str(), key.name.as_str()));
            let of_service = of_service.map_or(&[][..], Vec::as_slice);
            let (view, mut of_this) = self.claims(key, of_service, &addresses, &declared, &tenants);
            claims.append(&mut of_this);
            if view.wanted || !view.problems.is_empty() || view.condition.is_some() {
                resolution.services.insert(key.clone(), view);
            }
        }
        // Of a free port of a Gateway a UDPRoute comes before Services.
        let held = claims.iter().flat_map(|claim| {
            let listener = (!claim.is_new).then_some(claim.listener);
            let stream = claim.overrides.multicast.filter(|_| !claim.is_new_stream);
            let stream = stream.map(|multicast| multicast.upstream.port());
            let ports = listener.into_iter().chain(stream);
            ports.map(move |port| (&claim.gateway, port, claim.service))
        });
        let holders = self.holders(&declared, held);
        gateway_api::attach_routes(
            &self.gateway_api,
            &self.operator.class,
            &mut resolution.attachments,
            |key| self.services.get(key).filter(|service| !service.ports.is_empty()),
            &holders,
        );
        self.attach(&mut resolution, &slices, &addresses);
        // The Service that has the port keeps it: the time at which a Service was made does not
        // show the time at which it asked. A free port is the oldest Service's; between two of the
        // same second the name decides.
        claims.sort_by(|a, b| {
            (a.is_new, a.created, a.service, a.listener)
                .cmp(&(b.is_new, b.created, b.service, b.listener))
        });
        let mut streams: Vec<_> = claims
            .iter()
            .filter_map(|claim| {
                let multicast = claim.overrides.multicast?;
                let place = (claim.gateway.clone(), claim.listener, claim.service.clone());
                Some((claim.is_new_stream, claim.created, place, multicast))
            })
            .collect();
        for claim in claims {
            resolution.grant(claim);
        }
        streams.sort_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        for (_, _, (gateway, listener, service), multicast) in streams {
            resolution.grant_stream(&gateway, listener, &service, multicast);
        }
        for (key, view) in &resolution.services {
            let Some(gateway) =
                view.gateway.as_ref().and_then(|key| resolution.gateways.get_mut(key))
            else {
                continue;
            };
            gateway
                .problems
                .extend(view.problems.iter().map(|problem| (key.clone(), problem.clone())));
        }
        resolution
    }

    /// True if this operator serves a Service, and reports on it: the Service has chosen one of its
    /// EdgeGateways. One operator reports on Services whose choice does not exist.
    fn is_concerned(&self, key: &ObjectKey, tells_of_the_rest: bool) -> bool {
        let Some(service) = self.services.get(key) else { return false };
        match self.choice(key, &service.annotations) {
            Ok((_, gateway)) => self.operator.serves(gateway),
            Err(_) => tells_of_the_rest,
        }
    }

    /// The view of a Service, and the ports that it claims.
    fn claims<'a>(
        &'a self,
        key: &'a ObjectKey,
        slices: &[&SliceModel],
        addresses: &Addresses<'_>,
        declared: &Declared,
        tenants: &Tenants<'_>,
    ) -> (ServiceView, Vec<Claim<'a>>) {
        let Some(service) = self.services.get(key) else { return Default::default() };
        let namespace = self.annotations_of(&key.namespace);
        let own = &service.annotations;
        let mut view = ServiceView {
            wanted: is_wanted(service, namespace),
            problems: own.problems.clone(),
            terminates: own.terminates(),
            condition: service.condition.clone(),
            uid: service.uid.clone(),
            ..ServiceView::default()
        };
        if !view.wanted {
            return (view, Vec::new());
        }
        let (gateway_key, gateway) = match self.gateway_of(key, own) {
            Ok(found) => found,
            Err(problem) => {
                view.problems.extend(problem);
                return (view, Vec::new());
            }
        };
        view.gateway = Some(gateway_key.clone());
        // Connections are left alone unless the Service has asked.
        if own.mode == Some(Err(())) {
            return (view, Vec::new());
        }
        if let Some(problem) = terminate::refusal(service, gateway_key, &gateway.spec) {
            view.problems.push(problem);
            return (view, Vec::new());
        }
        let from = gateway.spec.routes.endpoints;
        let held = tenants.held.by(gateway_key, key);
        let allowed = tenants.allowances.get(key).copied().unwrap_or_default();
        view.problems.extend(self.above_quota((gateway_key, asked(service), allowed)));
        let (mut chosen, mut problems) =
            choose_ports(key, (service, allowed), held, slices, addresses, from);
        problems.extend(keep_ports(&mut chosen, service, gateway_key, held));
        view.problems.append(&mut problems);
        if gateway.deleting {
            return (view, Vec::new());
        }
        let has = |port: u16| held.iter().find(|listener| listener.port == i32::from(port));
        chosen.retain(|ChosenPort { listener, .. }| {
            let refusal =
                refuse_port(*listener, key, gateway_key, &gateway.spec, has(*listener).is_some())
                    .or_else(|| {
                        self.refuse_undeclared(declared, gateway_key, &key.namespace, *listener)
                    });
            let is_allowed = refusal.is_none();
            view.problems.extend(refusal);
            is_allowed
        });
        let mut own = own.overrides.clone().or(namespace.overrides.clone());
        let mut refusal = None;
        if own.multicast.is_some() && service.annotations.terminates() {
            own.multicast = None;
            let message = format!(
                "{MULTICAST_ANNOTATION} is for datagrams, and {MODE_ANNOTATION}: terminate for connections; remove one"
            );
            refusal = Some(Problem { reason: Reason::InvalidAnnotation, message });
        }
        if let Some(multicast) = own.multicast {
            refusal = refuse_multicast(multicast, gateway_key, &gateway.spec, chosen.len());
            if refusal.is_some() {
                own.multicast = None;
            }
        }
        // With policies they depend on the port.
        let settings = |port: Option<u16>| {
            let own = match port {
                Some(port) => settings_at(declared, gateway_key, port, &own),
                None => own.clone(),
            };
            own.within(&gateway.spec, &gateway_key.to_string())
        };
        let ports: Vec<Option<u16>> = match chosen.as_slice() {
            [] => vec![None],
            chosen => chosen.iter().map(|chosen| Some(chosen.listener)).collect(),
        };
        let mut lowered = Vec::new();
        view.is_off = true;
        for (settings, sentences) in ports.into_iter().map(settings) {
            view.is_off &= !settings.assist.unwrap_or(gateway.spec.assist);
            let new = sentences.into_iter().filter(|sentence| !lowered.contains(sentence));
            lowered.extend(new.collect::<Vec<_>>());
        }
        let above = |message| Problem { reason: Reason::AboveLimit, message };
        view.problems.extend(lowered.into_iter().map(above));
        view.problems.extend(refusal);
        let (quic_lb, problem) = self.server_ids_of(key, service);
        view.problems.extend(problem);
        let of_port = |chosen: ChosenPort| {
            let overrides = settings(Some(chosen.listener)).0;
            let asked = Asked {
                gateway: gateway_key,
                spec: &gateway.spec,
                own: service.annotations.tcp,
                tokens: overrides.tokens.unwrap_or(gateway.spec.tokens.policy),
            };
            let place = (key, service);
            let (terminated, problems) = self.terminated(key, service, chosen.current_port);
            view.problems.extend(problems);
            let tcp = if terminated.is_some() {
                terminate::tcp(service, &chosen.endpoints)
            } else {
                let (tcp, problem) =
                    tcp::of_service(&asked, place, chosen.current_port, slices, addresses);
                view.problems.extend(problem);
                tcp
            };
            Claim {
                gateway: gateway_key.clone(),
                service: key,
                is_new: has(chosen.listener).is_none(),
                is_new_stream: has(chosen.listener).and_then(|listener| listener.stream_port)
                    != own.multicast.map(|multicast| multicast.upstream.port().into()),
                created: service.created,
                listener: chosen.listener,
                service_port: chosen.service_port,
                current_port: chosen.current_port,
                port_name: chosen.port_name,
                endpoints: chosen.endpoints,
                tcp,
                terminated,
                quic_lb: quic_lb.clone(),
                overrides,
            }
        };
        let claims = chosen.into_iter().map(of_port).collect();
        (view, claims)
    }

    /// The annotations of a Namespace; empty if it is not known.
    pub(super) fn annotations_of(&self, namespace: &str) -> &Annotations {
        static NO_ANNOTATIONS: LazyLock<Annotations> = LazyLock::new(Annotations::default);
        self.namespaces.get(namespace).map_or(&*NO_ANNOTATIONS, |model| &model.annotations)
    }

    /// The EdgeGateway that a Service has chosen, or the reason why it has no gateway; `None` when
    /// the annotation's own message gives that reason.
    fn choice(
        &self,
        service: &ObjectKey,
        own: &Annotations,
    ) -> Result<(&ObjectKey, &GatewayModel), Option<Problem>> {
        let problem = |reason, message| Some(Problem { reason, message });
        let namespace = self.annotations_of(&service.namespace);
        let chosen = match own.gateway.as_ref().or(namespace.gateway.as_ref()) {
            Some(Ok((namespace, name))) => (namespace.as_deref(), name.as_str()),
            Some(Err(())) if own.gateway.is_some() => return Err(None),
            // A wrong annotation of the Namespace is also reported at the Service.
            Some(Err(())) => {
                return Err(problem(
                    Reason::InvalidAnnotation,
                    format!(
                        "Namespace {} names no EdgeGateway that can be understood; correct its annotation packrat.dev/gateway",
                        service.namespace
                    ),
                ));
            }
            None => (None, DEFAULT_GATEWAY),
        };
        let named = ObjectKey::new(chosen.0.unwrap_or(&service.namespace), chosen.1);
        // Each operator has another home: only the default class's counts, or two would take the
        // same Service for their own.
        let at_home = (chosen.0.is_none() && self.operator.is_default())
            .then(|| ObjectKey::new(&self.home, chosen.1))
            .filter(|at_home| *at_home != named);
        let found = self.gateways.get_key_value(&named).or_else(|| {
            let found = self.gateways.get_key_value(at_home.as_ref()?)?;
            self.operator.is_of_class(found.1).then_some(found)
        });
        found.ok_or_else(|| {
            let at_home = at_home.map_or_else(String::new, |at_home| {
                format!(" nor {at_home} of class {}", self.operator.class)
            });
            problem(
                Reason::GatewayNotFound,
                format!(
                    "there is no EdgeGateway {named}{at_home}; make one, or name another with the annotation packrat.dev/gateway"
                ),
            )
        })
    }

    /// The EdgeGateway of this operator that takes a Service which wants one.
    pub(super) fn wanted_gateway(
        &self,
        key: &ObjectKey,
        service: &ServiceModel,
    ) -> Option<(&ObjectKey, &GatewayModel)> {
        if !is_wanted(service, self.annotations_of(&key.namespace)) {
            return None;
        }
        let found = self.gateway_of(key, &service.annotations).ok();
        found.filter(|(_, gateway)| self.operator.serves(gateway))
    }

    /// The EdgeGateway of a Service that takes it, or the reason why it has no gateway.
    pub(super) fn gateway_of(
        &self,
        service: &ObjectKey,
        own: &Annotations,
    ) -> Result<(&ObjectKey, &GatewayModel), Option<Problem>> {
        let (key, gateway) = self.choice(service, own)?;
        let problem = |reason, message| Some(Problem { reason, message });
        if !gateway.spec.routes.admits(&service.namespace, &key.namespace) {
            return Err(problem(
                Reason::NotAllowed,
                format!(
                    "EdgeGateway {key} takes Services of its own namespace only; set its spec.routes.from to All, or use one in {}",
                    service.namespace
                ),
            ));
        }
        Ok((key, gateway))
    }
}

/// True if a Service or its Namespace asks for assistance. A Namespace speaks for Services with UDP ports
/// only.
pub(super) fn is_wanted(service: &ServiceModel, namespace: &Annotations) -> bool {
    let has_ports = !service.ports.is_empty() || service.annotations.terminates();
    service.annotations.assist.unwrap_or(namespace.assist.unwrap_or(false) && has_ports)
}

/// The message about an EdgeGateway of this operator's class that is another operator's.
fn foreign(holder: Option<&String>, own: &str, gateway: &ObjectKey) -> Problem {
    let holder = holder.map_or("another", String::as_str);
    let message = format!(
        "operator {own} leaves it alone: it is that of operator {holder}. Two releases of the chart need two classes (value class, spec.class). If {holder} is gone for good, hand it over: kubectl patch edgegateway {} -n {} --subresource status --type merge -p '{{\"status\":{{\"operator\":null}}}}'",
        gateway.name, gateway.namespace
    );
    Problem { reason: Reason::OtherOperator, message }
}

/// Why a Service may not have a port of a gateway. `has`: it has the port already.
fn refuse_port(
    port: u16,
    service: &ObjectKey,
    gateway: &ObjectKey,
    spec: &EdgeGatewaySpec,
    has: bool,
) -> Option<Problem> {
    let message = if port == METRICS_PORT {
        format!("port {port} is the gateways' own; choose another one with {PORT_ANNOTATION}")
    } else if !spec.routes.grants(&service.namespace, port) {
        format!(
            "EdgeGateway {gateway} does not give port {port} to Services of namespace {}; choose one that its spec.routes.ports names, or add it there",
            service.namespace
        )
    } else if spec.multicast.enabled && spec.multicast.ports.contains(port) && !has {
        format!(
            "port {port} of EdgeGateway {gateway} is for live streams (spec.multicast.ports: {}); choose another one with {PORT_ANNOTATION}",
            spec.multicast.ports
        )
    } else {
        return None;
    };
    Some(Problem { reason: Reason::NotAllowed, message })
}

/// Why a gateway does not serve a Service's live stream; its port is served without it then.
fn refuse_multicast(
    multicast: Multicast,
    gateway: &ObjectKey,
    spec: &EdgeGatewaySpec,
    ports: usize,
) -> Option<Problem> {
    let (reason, message) = if !spec.multicast.enabled {
        (
            Reason::NotAllowed,
            format!(
                "EdgeGateway {gateway} serves no live streams; set its spec.multicast.enabled to true, or remove {MULTICAST_ANNOTATION}"
            ),
        )
    } else if multicast.has_group() && spec.exposure.type_ != ExposureType::HostNetwork {
        (
            Reason::NotAllowed,
            format!(
                "EdgeGateway {gateway} is not on the hosts' network, where multicast groups are; set its spec.exposure.type to HostNetwork, or let the stream arrive by unicast: {MULTICAST_ANNOTATION}: 0.0.0.0:{}",
                multicast.upstream.port()
            ),
        )
    } else if !spec.multicast.ports.contains(multicast.upstream.port()) {
        (
            Reason::NotAllowed,
            format!(
                "live streams arrive at ports {} of EdgeGateway {gateway} (its spec.multicast.ports), not at {}; correct {MULTICAST_ANNOTATION}",
                spec.multicast.ports,
                multicast.upstream.port()
            ),
        )
    } else if ports != 1 {
        (
            Reason::InvalidAnnotation,
            format!(
                "{MULTICAST_ANNOTATION} is for one UDP port, and {ports} are chosen; name one with {PORT_ANNOTATION}"
            ),
        )
    } else {
        return None;
    };
    Some(Problem { reason, message })
}

impl Resolution {
    fn grant(&mut self, claim: Claim<'_>) {
        let Some(gateway) = self.gateways.get_mut(&claim.gateway) else { return };
        let Some(view) = self.services.get_mut(claim.service) else { return };
        if let Some(holder) = gateway.listeners.get(&claim.listener) {
            let message = if holder.service == *claim.service {
                format!(
                    "port {} of EdgeGateway {} is named twice; give each port of the Service another one in packrat.dev/port",
                    claim.listener, claim.gateway
                )
            } else {
                format!(
                    "port {} of EdgeGateway {} belongs to {}; choose another one, for example packrat.dev/port: {}:{}",
                    claim.listener,
                    claim.gateway,
                    told(&holder.service),
                    claim.listener.wrapping_add(1).max(1024),
                    claim.current_port
                )
            };
            view.problems.push(Problem { reason: Reason::PortConflict, message });
            return;
        }
        if claim.endpoints.is_empty() {
            // The port stays reserved: a Service does not lose it while its Pods restart. It is not
            // listened on, as there is no endpoint to forward to.
            let message = format!(
                "port {} of the Service has no endpoint; check that Pods match its selector and have that port",
                claim.current_port
            );
            view.problems.push(Problem { reason: Reason::NoEndpoints, message });
        }
        view.listeners.push(claim.listener);
        gateway.listeners.insert(
            claim.listener,
            Listener {
                service: claim.service.clone(),
                service_port: claim.service_port,
                port_name: claim.port_name,
                endpoints: claim.endpoints,
                shares: Shares::default(),
                tcp: claim.tcp,
                terminated: claim.terminated,
                quic_lb: claim.quic_lb,
                // Live streams are granted when all listeners are known.
                overrides: Overrides { multicast: None, ..claim.overrides },
                is_leaving: false,
            },
        );
    }

    /// Grants the port at which a live stream arrives: to one Service, and never one that a route
    /// listens on.
    fn grant_stream(
        &mut self,
        key: &ObjectKey,
        listener: u16,
        service: &ObjectKey,
        multicast: Multicast,
    ) {
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        let port = multicast.upstream.port();
        let holder = gateway.listeners.get(&port).or_else(|| {
            let mut others = gateway.listeners.values();
            others.find(|other| other.stream_port() == Some(port))
        });
        let message = holder.map(|holder| {
            format!(
                "port {port} of EdgeGateway {key} belongs to {}; let the stream arrive at another one: {MULTICAST_ANNOTATION}",
                told(&holder.service)
            )
        });
        let Some(granted) = gateway.listeners.get_mut(&listener) else { return };
        if granted.service != *service {
            return;
        }
        match (message, self.services.get_mut(service)) {
            (None, _) => granted.overrides.multicast = Some(multicast),
            (Some(message), Some(view)) => {
                view.problems.push(Problem { reason: Reason::PortConflict, message });
            }
            (Some(_), None) => {}
        }
    }
}
