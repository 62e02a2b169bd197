//! The endpoints of Services: which addresses of EndpointSlices datagrams may go to.
//!
//! A user who may write EndpointSlices of a namespace could otherwise have the gateway, whose
//! address other Pods and nodes may trust, send to whatever address that user names
//! (CVE-2021-25740).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use super::objects::Index;
use crate::model::{Address, PodModel, ServiceModel, SliceModel};
use crate::object_key::ObjectKey;
use crate::policy::Policy;
use crate::problem::{Problem, Reason};
use crate::resource::EndpointsFrom;

/// The EndpointSlices of all Services, and the addresses that gateways may or may not forward to.
pub(super) struct Endpoints<'a> {
    policy: &'a Policy,
    pods: &'a BTreeMap<ObjectKey, PodModel>,
    nodes: HashSet<IpAddr>,
    services: HashSet<IpAddr>,
    slices: HashMap<ObjectKey, Vec<&'a SliceModel>>,
}

/// The protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Udp,
    Tcp,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        })
    }
}

/// The reason for which an address is no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// The endpoint's Pod is not known, or has no address: it may be about to come.
    NotYet,
    /// A network that gateways never forward to.
    Never,
    /// A Node's address.
    Node,
    /// A Service's address.
    Service,
    /// The slice was not made by Kubernetes' controller.
    Author,
    /// No Pod, or one that has other addresses.
    Pod,
}

impl<'a> Endpoints<'a> {
    pub(super) fn of(index: &'a Index) -> Self {
        let mut slices = HashMap::<_, Vec<_>>::new();
        for (key, slice) in index.slices.iter() {
            slices.entry(slice.service_key(&key.namespace)).or_default().push(slice);
        }
        Self {
            policy: &index.policy,
            pods: &index.pods,
            nodes: index.nodes.values().flatten().copied().collect(),
            services: index.service_addresses.values().flatten().copied().collect(),
            slices,
        }
    }

    fn refuse(
        &self,
        from: EndpointsFrom,
        namespace: &str,
        slice: &SliceModel,
        address: &Address,
    ) -> Option<Refusal> {
        if self.policy.never(address.ip) || address.ip.is_unspecified() || address.ip.is_multicast()
        {
            return Some(Refusal::Never);
        }
        if self.nodes.contains(&address.ip) {
            return Some(Refusal::Node);
        }
        if self.services.contains(&address.ip) {
            return Some(Refusal::Service);
        }
        if from == EndpointsFrom::Any {
            return None;
        }
        if !slice.is_kubernetes {
            return Some(Refusal::Author);
        }
        let Some(name) = &address.pod else { return Some(Refusal::Pod) };
        match self.pods.get(&ObjectKey::new(namespace, name)) {
            Some(pod) if pod.addresses.contains(&address.ip) => None,
            Some(pod) if !pod.addresses.is_empty() => Some(Refusal::Pod),
            _ => Some(Refusal::NotYet),
        }
    }

    /// Endpoints of a Service's port: the ready ones; if there are none, the endpoints that still answer;
    /// if there are none, all, since a container that restarts keeps its address, and dropping the
    /// listener would lose the sessions. Of Pods with addresses of both families only one family is
    /// taken: each Pod counts once.
    pub(super) fn of_port(
        &self,
        (key, service): (&ObjectKey, &ServiceModel),
        (protocol, port_name): (Protocol, &str),
        from: EndpointsFrom,
    ) -> (Vec<SocketAddr>, Option<Problem>) {
        let namespace = &key.namespace;
        let mut tiers: [BTreeSet<SocketAddr>; 3] = Default::default();
        let mut refused = BTreeMap::new();
        for slice in self.slices.get(key).into_iter().flatten() {
            let ports = match protocol {
                Protocol::Udp => &slice.ports,
                Protocol::Tcp => &slice.tcp_ports,
            };
            let Some(port) = ports.iter().find(|port| port.name == port_name) else {
                continue;
            };
            for address in &slice.addresses {
                if let Some(refusal) = self.refuse(from, namespace, slice, address) {
                    if refusal != Refusal::NotYet {
                        refused.insert(address.ip, refusal);
                    }
                    continue;
                }
                let tier = match (address.ready, address.serving) {
                    (true, _) => 0,
                    (false, true) => 1,
                    (false, false) => 2,
                };
                tiers[tier].insert(SocketAddr::new(address.ip, port.port));
            }
        }
        let tier = tiers.into_iter().find(|tier| !tier.is_empty()).unwrap_or_default();
        let (preferred, others): (Vec<_>, Vec<_>) =
            tier.into_iter().partition(|endpoint| endpoint.is_ipv6() == service.prefers_ipv6);
        let endpoints = if preferred.is_empty() { others } else { preferred };
        (endpoints, problem(namespace, &refused))
    }
}

/// One problem for all addresses of a port that are no endpoints.
fn problem(namespace: &str, refused: &BTreeMap<IpAddr, Refusal>) -> Option<Problem> {
    let (address, refusal) = refused.iter().next()?;
    let why = match refusal {
        Refusal::Never | Refusal::NotYet => {
            "gateways never forward to loopback, link-local and multicast addresses, nor to networks that the operator was installed to exclude".to_owned()
        }
        Refusal::Node => {
            "it is a node's, to which gateways never forward; run the servers in the Pod network"
                .to_owned()
        }
        Refusal::Service => {
            "it is a Service's, to which gateways never forward; let the Service select the Pods"
                .to_owned()
        }
        Refusal::Author => {
            "its EndpointSlice is not that of Kubernetes' own controller; give the Service a selector, or set spec.routes.endpoints of the EdgeGateway to Any".to_owned()
        }
        Refusal::Pod => format!(
            "no Pod of namespace {namespace} has it; give the Service a selector, or set spec.routes.endpoints of the EdgeGateway to Any"
        ),
    };
    let others = match refused.len() - 1 {
        0 => String::new(),
        more => format!("; and so are {more} more"),
    };
    let message = format!("the endpoint {address} is not used: {why}{others}");
    Some(Problem { reason: Reason::EndpointRefused, message })
}
