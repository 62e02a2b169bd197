//! From objects to listeners.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use packrat_api::token::TokenPolicy;

use super::{GatewayModel, Index, SliceModel};
use crate::annotations::{
    Annotations, DEFAULT_GATEWAY, MULTICAST, ObjectKey, PORT, PortChoice, PortName, Problem, Reason,
};
use crate::overrides::{Multicast, Overrides};
use crate::resource::{EdgeGatewaySpec, ExposureType, NamespacesFrom};

/// The state that follows from all objects of the index.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolution {
    /// Each EdgeGateway with its listeners.
    pub gateways: BTreeMap<ObjectKey, GatewayView>,
    /// Each Service that asks for assistance or has something wrong with it.
    pub services: BTreeMap<ObjectKey, ServiceView>,
    /// Namespaces with something wrong: identity of the object, and what.
    pub namespaces: BTreeMap<String, (String, Vec<Problem>)>,
}

/// The routes of an EdgeGateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatewayView {
    /// Listeners by their UDP port.
    pub listeners: BTreeMap<u16, Listener>,
    /// Problems of Services that have chosen this gateway.
    pub problems: BTreeSet<(ObjectKey, Problem)>,
}

/// A UDP port of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// The Service.
    pub service: ObjectKey,
    /// The Service's port.
    pub service_port: u16,
    /// Where datagrams go, sorted. Empty: the port is kept for the Service, but not listened on.
    pub endpoints: Vec<SocketAddr>,
    /// Overrides of the Service, or else of its Namespace.
    pub overrides: Overrides,
}

impl Listener {
    /// The name of the route: the key of its sessions, and a label of its metrics.
    pub fn route(&self) -> String {
        format!("{}/{}", self.service, self.service_port)
    }

    /// The policy about tokens: what the Service says, or else its gateway.
    pub fn tokens(&self, spec: &EdgeGatewaySpec) -> TokenPolicy {
        self.overrides.tokens.unwrap_or(spec.tokens.policy)
    }
}

/// Result for a Service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceView {
    /// True if the Service or its Namespace asks for assistance.
    pub wanted: bool,
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

/// A Service that wants a port of a gateway.
struct Claim<'a> {
    gateway: ObjectKey,
    service: &'a ObjectKey,
    created: i64,
    listener: u16,
    service_port: u16,
    endpoints: Vec<SocketAddr>,
    overrides: Overrides,
}

impl Index {
    /// The state that follows from all objects of the index.
    pub fn resolve(&self) -> Resolution {
        let mut resolution = Resolution::default();
        for (key, gateway) in &self.gateways {
            if !gateway.deleting {
                resolution.gateways.insert(key.clone(), GatewayView::default());
            }
        }
        for (name, namespace) in &self.namespaces {
            if !namespace.annotations.problems.is_empty() {
                let told = (namespace.uid.clone(), namespace.annotations.problems.clone());
                resolution.namespaces.insert(name.clone(), told);
            }
        }
        let mut slices: BTreeMap<(&str, &str), Vec<&SliceModel>> = BTreeMap::new();
        for (key, slice) in &self.slices {
            slices.entry((&key.namespace, &slice.service)).or_default().push(slice);
        }
        let mut claims = Vec::new();
        for key in self.services.keys() {
            let of_service = slices.get(&(key.namespace.as_str(), key.name.as_str()));
            let (view, mut of_this) = self.claims(key, of_service.map_or(&[][..], Vec::as_slice));
            claims.append(&mut of_this);
            if view.wanted || !view.problems.is_empty() || view.condition.is_some() {
                resolution.services.insert(key.clone(), view);
            }
        }
        // The oldest Service has the port; between two of the same second the name decides.
        claims.sort_by(|a, b| {
            (a.created, a.service, a.listener).cmp(&(b.created, b.service, b.listener))
        });
        for claim in claims {
            resolution.grant(claim);
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

    /// The view of a Service, and the ports that it claims.
    fn claims<'a>(
        &'a self,
        key: &'a ObjectKey,
        slices: &[&SliceModel],
    ) -> (ServiceView, Vec<Claim<'a>>) {
        let nothing = Annotations::default();
        let Some(service) = self.services.get(key) else { return Default::default() };
        let namespace =
            self.namespaces.get(&key.namespace).map_or(&nothing, |model| &model.annotations);
        let own = &service.annotations;
        // A Namespace speaks for Services with UDP ports only.
        let inherited = namespace.assist.unwrap_or(false) && !service.ports.is_empty();
        let mut view = ServiceView {
            wanted: own.assist.unwrap_or(inherited),
            problems: own.problems.clone(),
            condition: service.condition.clone(),
            uid: service.uid.clone(),
            ..ServiceView::default()
        };
        if !view.wanted {
            return (view, Vec::new());
        }
        let (gateway_key, gateway) = match self.gateway_of(key, own, namespace) {
            Ok(found) => found,
            Err(problem) => {
                view.problems.extend(problem);
                return (view, Vec::new());
            }
        };
        view.gateway = Some(gateway_key.clone());
        let (chosen, mut problems) = choose_ports(service, slices);
        view.problems.append(&mut problems);
        if gateway.deleting {
            return (view, Vec::new());
        }
        let mut overrides = own.overrides.clone().or(namespace.overrides.clone());
        if let Some(multicast) = overrides.multicast
            && let Some(refusal) =
                refuse_multicast(multicast, gateway_key, &gateway.spec, chosen.len())
        {
            view.problems.push(refusal);
            overrides.multicast = None;
        }
        let claims = chosen
            .into_iter()
            .map(|(listener, service_port, endpoints)| Claim {
                gateway: gateway_key.clone(),
                service: key,
                created: service.created,
                listener,
                service_port,
                endpoints,
                overrides: overrides.clone(),
            })
            .collect();
        (view, claims)
    }

    /// The EdgeGateway of a Service, or why there is none; `None` when that has been said where
    /// the annotation is.
    fn gateway_of(
        &self,
        service: &ObjectKey,
        own: &Annotations,
        namespace: &Annotations,
    ) -> Result<(&ObjectKey, &GatewayModel), Option<Problem>> {
        let problem = |reason, message| Some(Problem { reason, message });
        let chosen = match own.gateway.as_ref().or(namespace.gateway.as_ref()) {
            Some(Ok((namespace, name))) => (namespace.as_deref(), name.as_str()),
            Some(Err(())) if own.gateway.is_some() => return Err(None),
            // A wrong one on the Namespace is told at the Service, too.
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
        let candidates = match chosen.0 {
            Some(namespace) => vec![ObjectKey::new(namespace, chosen.1)],
            None => vec![
                ObjectKey::new(&service.namespace, chosen.1),
                ObjectKey::new(&self.home, chosen.1),
            ],
        };
        let found = candidates.iter().find_map(|candidate| self.gateways.get_key_value(candidate));
        let Some((key, gateway)) = found else {
            let places: Vec<_> = candidates.iter().map(ToString::to_string).collect();
            return Err(problem(
                Reason::GatewayNotFound,
                format!(
                    "there is no EdgeGateway {}; make one, or name another with the annotation packrat.dev/gateway",
                    places.join(" nor ")
                ),
            ));
        };
        if gateway.spec.routes.from == NamespacesFrom::Same && key.namespace != service.namespace {
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
                "EdgeGateway {gateway} serves no live streams; set its spec.multicast.enabled to true, or remove {MULTICAST}"
            ),
        )
    } else if multicast.has_group() && spec.exposure.type_ != ExposureType::HostNetwork {
        (
            Reason::NotAllowed,
            format!(
                "EdgeGateway {gateway} is not on the hosts' network, where multicast groups are; set its spec.exposure.type to HostNetwork, or let the stream arrive by unicast: {MULTICAST}: 0.0.0.0:{}",
                multicast.upstream.port()
            ),
        )
    } else if ports != 1 {
        (
            Reason::InvalidAnnotation,
            format!(
                "{MULTICAST} is for one UDP port, and {ports} are chosen; name one with {PORT}"
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
                    "port {} of EdgeGateway {} belongs to the older Service {}; choose another one, for example packrat.dev/port: {}:{}",
                    claim.listener,
                    claim.gateway,
                    holder.service,
                    claim.listener.wrapping_add(1).max(1024),
                    claim.service_port
                )
            };
            view.problems.push(Problem { reason: Reason::PortConflict, message });
            return;
        }
        if claim.endpoints.is_empty() {
            // No other Service gets the port: a Service does not lose it while its Pods restart. It
            // is not listened on, as there is nothing to forward to.
            let message = format!(
                "port {} of the Service has no endpoint; check that Pods match its selector and have that port",
                claim.service_port
            );
            view.problems.push(Problem { reason: Reason::NoEndpoints, message });
        }
        view.listeners.push(claim.listener);
        gateway.listeners.insert(
            claim.listener,
            Listener {
                service: claim.service.clone(),
                service_port: claim.service_port,
                endpoints: claim.endpoints,
                overrides: claim.overrides,
            },
        );
    }
}

/// Ports of a Service that are to be assisted: the gateway's port, the Service's port, the
/// endpoints.
type ChosenPorts = Vec<(u16, u16, Vec<SocketAddr>)>;

fn choose_ports(
    service: &super::ServiceModel,
    slices: &[&SliceModel],
) -> (ChosenPorts, Vec<Problem>) {
    let mut problems = Vec::new();
    let all: Vec<PortChoice>;
    let choices = match &service.annotations.ports {
        Some(Ok(choices)) => choices,
        Some(Err(())) => return (Vec::new(), problems),
        None => {
            all = service
                .ports
                .iter()
                .map(|port| PortChoice { listener: None, service: PortName::Number(port.port) })
                .collect();
            &all
        }
    };
    if choices.is_empty() {
        problems.push(Problem {
            reason: Reason::NoSuchPort,
            message: "the Service has no UDP port; add one with protocol: UDP, or remove packrat.dev/assist"
                .to_owned(),
        });
    }
    let mut chosen = Vec::new();
    for choice in choices {
        let found = service.ports.iter().find(|port| match &choice.service {
            PortName::Number(number) => port.port == *number,
            PortName::Name(name) => port.name == *name,
        });
        let Some(port) = found else {
            let known: Vec<_> = service
                .ports
                .iter()
                .map(|port| match port.name.as_str() {
                    "" => port.port.to_string(),
                    name => format!("{} ({name})", port.port),
                })
                .collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            problems.push(Problem {
                reason: Reason::NoSuchPort,
                message: format!(
                    "the Service has no UDP port {}; its UDP ports: {known}",
                    choice.service
                ),
            });
            continue;
        };
        chosen.push((
            choice.listener.unwrap_or(port.port),
            port.port,
            endpoints(&port.name, service.prefers_ipv6, slices),
        ));
    }
    (chosen, problems)
}

/// Endpoints of a port: those that are ready; if there is none, those that still answer; if there
/// is none, all, since a container that restarts keeps its address, and dropping the listener would
/// lose the sessions. Of Pods with addresses of both families those of one are taken: each Pod
/// counts once.
fn endpoints(port_name: &str, prefers_ipv6: bool, slices: &[&SliceModel]) -> Vec<SocketAddr> {
    let mut tiers: [BTreeSet<SocketAddr>; 3] = Default::default();
    for slice in slices {
        let Some(port) = slice.ports.iter().find(|port| port.name == port_name) else { continue };
        for address in &slice.addresses {
            if address.ip.is_unspecified() || address.ip.is_multicast() {
                continue;
            }
            let tier = if address.ready {
                0
            } else if address.serving {
                1
            } else {
                2
            };
            tiers[tier].insert(SocketAddr::new(address.ip, port.port));
        }
    }
    let tier = tiers.into_iter().find(|tier| !tier.is_empty()).unwrap_or_default();
    let (preferred, others): (Vec<_>, Vec<_>) =
        tier.into_iter().partition(|endpoint| endpoint.is_ipv6() == prefers_ipv6);
    if preferred.is_empty() { others } else { preferred }
}
