//! The models of objects: the fields that the operator needs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt as _};

use crate::annotations::{Annotations, Carrier};
use crate::names::{API_GROUP, FIELD_MANAGER, GATEWAY_LABEL, MANAGED_BY};
use crate::object_key::ObjectKey;
use crate::problem::Problem;
use crate::resource::{EdgeGateway, EdgeGatewaySpec, EdgeGatewayStatus};

/// The label of an EndpointSlice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of an EndpointSlice that names its author, and Kubernetes' own.
const SLICE_AUTHOR: (&str, &str) =
    ("endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io");

/// An EdgeGateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatewayModel {
    /// Identity of the object.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// True if it is being deleted.
    pub deleting: bool,
    /// The spec.
    pub spec: EdgeGatewaySpec,
    /// The status, as it is written.
    pub status: EdgeGatewayStatus,
    /// Identity of the Gateway of the Gateway API that owns it.
    pub owner: Option<String>,
}

impl GatewayModel {
    /// The model of an EdgeGateway.
    pub fn read(gateway: &EdgeGateway) -> Self {
        Self {
            uid: gateway.uid().unwrap_or_default(),
            generation: gateway.metadata.generation.unwrap_or_default(),
            deleting: gateway.metadata.deletion_timestamp.is_some(),
            spec: gateway.spec.clone(),
            status: gateway.status.clone().unwrap_or_default(),
            owner: gateway
                .owner_references()
                .iter()
                .find(|owner| {
                    owner.controller == Some(true)
                        && owner.kind == "Gateway"
                        && owner.api_version.split('/').next() == Some(API_GROUP)
                })
                .map(|owner| owner.uid.clone()),
        }
    }
}

/// A Service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceModel {
    /// Identity of the object.
    pub uid: String,
    /// Seconds since 1970 at which it was made; decides about conflicts.
    pub created: i64,
    /// Annotations of the Service.
    pub annotations: Annotations,
    /// UDP ports.
    pub ports: Vec<ServicePort>,
    /// TCP ports.
    pub tcp_ports: Vec<ServicePort>,
    /// The `appProtocol` of TCP ports that have one, by their number.
    pub application_protocols: BTreeMap<u16, String>,
    /// True if IPv6 is the Service's first family of addresses, which is used if its Pods have
    /// addresses of both.
    pub prefers_ipv6: bool,
    /// The condition of ours that is on it.
    pub condition: Option<Condition>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Name; empty when the Service has one port only.
    pub name: String,
    /// Number.
    pub port: u16,
}

impl ServiceModel {
    /// The model of a Service; `None` if it does not ask for Packrat by itself (its Namespace may
    /// still ask for assistance: then it matters if it has UDP ports).
    pub fn read(service: &Service) -> Option<Self> {
        let texts =
            service.annotations().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let annotations = Annotations::read(Carrier::Service, texts);
        let ports_of = |protocol: &str| -> Vec<ServicePort> {
            let all = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
            // Kubernetes writes the protocol that it takes for granted.
            all.filter(|port| port.protocol.as_deref().unwrap_or("TCP") == protocol)
                .filter_map(|port| {
                    Some(ServicePort {
                        name: port.name.clone().unwrap_or_default(),
                        port: u16::try_from(port.port).ok()?,
                    })
                })
                .collect()
        };
        let ports = ports_of("UDP");
        let condition = service
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .find(|condition| condition.type_ == crate::names::SERVICE_CONDITION)
            .cloned();
        // The gateways' own Services also have UDP ports.
        if is_ours(service)
            || (ports.is_empty() && annotations == Annotations::default() && condition.is_none())
        {
            return None;
        }
        Some(Self {
            uid: service.uid().unwrap_or_default(),
            created: service
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(0, |time| time.0.as_second()),
            annotations,
            ports,
            tcp_ports: ports_of("TCP"),
            application_protocols: service
                .spec
                .iter()
                .flat_map(|spec| spec.ports.iter().flatten())
                .filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP")
                .filter_map(|port| {
                    Some((u16::try_from(port.port).ok()?, port.app_protocol.clone()?))
                })
                .collect(),
            prefers_ipv6: service
                .spec
                .iter()
                .flat_map(|spec| spec.ip_families.iter().flatten())
                .next()
                .is_some_and(|family| family == "IPv6"),
            condition,
        })
    }
}

/// A Namespace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamespaceModel {
    /// Identity of the object.
    pub uid: String,
    /// Annotations of the Namespace.
    pub annotations: Annotations,
}

impl NamespaceModel {
    /// The model of a Namespace; `None` when it has no annotation of Packrat's.
    pub fn read(namespace: &Namespace) -> Option<Self> {
        let texts =
            namespace.annotations().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let annotations = Annotations::read(Carrier::Namespace, texts);
        (annotations != Annotations::default())
            .then(|| Self { uid: namespace.uid().unwrap_or_default(), annotations })
    }
}

/// An EndpointSlice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SliceModel {
    /// The Service it belongs to.
    pub service: String,
    /// True if its label names Kubernetes' own controller as its maker. Anyone can write that: its
    /// Pods' addresses are checked.
    pub is_kubernetes: bool,
    /// Names and numbers of its UDP ports.
    pub ports: Vec<ServicePort>,
    /// Names and numbers of its TCP ports.
    pub tcp_ports: Vec<ServicePort>,
    /// Addresses of the slice.
    pub addresses: Vec<Address>,
}

/// An address of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// The Pod that the slice names for this address, in the slice's namespace.
    pub pod: Option<String>,
    /// True if it is ready for new clients.
    pub ready: bool,
    /// True if it answers, though it may be about to end.
    pub serving: bool,
}

impl SliceModel {
    /// The model of an EndpointSlice; `None` when it is of no use: no Service, no port, or host
    /// names.
    pub fn read(slice: &EndpointSlice) -> Option<Self> {
        let service = slice.labels().get(SERVICE_NAME)?.clone();
        let ports_of = |protocol: &str| -> Vec<ServicePort> {
            let all = slice.ports.iter().flatten();
            all.filter(|port| port.protocol.as_deref().unwrap_or("TCP") == protocol)
                .filter_map(|port| {
                    Some(ServicePort {
                        name: port.name.clone().unwrap_or_default(),
                        port: port.port.and_then(|port| u16::try_from(port).ok())?,
                    })
                })
                .collect()
        };
        let (ports, tcp_ports) = (ports_of("UDP"), ports_of("TCP"));
        if (ports.is_empty() && tcp_ports.is_empty()) || slice.address_type == "FQDN" {
            return None;
        }
        let addresses = slice
            .endpoints
            .iter()
            .flat_map(|endpoint| {
                // Unknown means ready, according to the API.
                let ready = endpoint
                    .conditions
                    .as_ref()
                    .and_then(|conditions| conditions.ready)
                    .unwrap_or(true);
                let serving = endpoint
                    .conditions
                    .as_ref()
                    .and_then(|conditions| conditions.serving)
                    .unwrap_or(ready);
                let target = endpoint.target_ref.as_ref().filter(|target| {
                    target.kind.as_deref() == Some("Pod")
                        && (target.namespace.is_none() || target.namespace == slice.namespace())
                });
                let pod = target.and_then(|target| target.name.clone());
                endpoint.addresses.iter().filter_map(move |text| {
                    Some(Address {
                        ip: text.parse::<IpAddr>().ok()?.to_canonical(),
                        pod: pod.clone(),
                        ready,
                        serving,
                    })
                })
            })
            .collect();
        let is_kubernetes =
            slice.labels().get(SLICE_AUTHOR.0).map(String::as_str) == Some(SLICE_AUTHOR.1);
        Some(Self { service, is_kubernetes, ports, tcp_ports, addresses })
    }

    /// The key of a slice's Service.
    pub fn service_key(&self, namespace: &str) -> ObjectKey {
        ObjectKey::new(namespace, self.service.clone())
    }
}

/// A Pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodModel {
    /// Identity of the object.
    pub uid: String,
    /// Addresses of the Pod; empty before it has any, and after it has ended.
    pub addresses: Vec<IpAddr>,
    /// The EdgeGateway in its namespace that it is a gateway of.
    pub gateway: Option<String>,
    /// The reason for which it has no sidecar although it asks for one.
    pub problem: Option<Problem>,
}

impl PodModel {
    /// The model of a Pod; `None` when it is of no use yet, or no longer.
    pub fn read(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref();
        // Another Pod may have the addresses of one that has ended.
        let has_ended = status
            .and_then(|status| status.phase.as_deref())
            .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
        if has_ended {
            return None;
        }
        let addresses: Vec<IpAddr> = status
            .iter()
            .flat_map(|status| status.pod_ips.iter().flatten())
            .filter_map(|address| address.ip.parse::<IpAddr>().ok())
            .map(|address| address.to_canonical())
            .collect();
        let problem = crate::inject::missing_sidecar(pod);
        let gateway = pod.labels().get(GATEWAY_LABEL).filter(|_| is_ours(pod)).cloned();
        (!addresses.is_empty() || problem.is_some()).then(|| Self {
            uid: pod.uid().unwrap_or_default(),
            addresses,
            gateway,
            problem,
        })
    }
}

/// True if the operator has made an object, according to its label.
pub(crate) fn is_ours<K: Resource>(object: &K) -> bool {
    object.meta().labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).map(String::as_str)
        == Some(FIELD_MANAGER)
}

/// The addresses of a Node.
pub fn node_addresses(node: &Node) -> Vec<IpAddr> {
    node.status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten())
        .filter_map(|address| address.address.parse::<IpAddr>().ok())
        .map(|address| address.to_canonical())
        .collect()
}

/// The addresses at which a Service is reached, which are never endpoints.
pub fn service_addresses(service: &Service) -> Vec<IpAddr> {
    let spec = service.spec.iter();
    let of_spec = spec.flat_map(|spec| {
        let lists = [&spec.cluster_ips, &spec.external_ips];
        lists.into_iter().flatten().flatten().chain(&spec.cluster_ip)
    });
    let balancers = service
        .status
        .iter()
        .flat_map(|status| &status.load_balancer)
        .flat_map(|balancer| balancer.ingress.iter().flatten())
        .filter_map(|ingress| ingress.ip.as_ref());
    let mut addresses: Vec<IpAddr> = of_spec
        .chain(balancers)
        .filter_map(|text| text.parse::<IpAddr>().ok())
        .map(|address| address.to_canonical())
        .collect();
    addresses.sort();
    addresses.dedup();
    addresses
}
