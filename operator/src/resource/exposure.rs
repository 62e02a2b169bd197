//! Exposure of gateways to clients.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Exposure of the gateways to clients.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self.type == 'LoadBalancer' || !has(self.loadBalancerClass)", "message": "loadBalancerClass needs exposure type LoadBalancer; remove it or change the type" },
        { "rule": "self.type == 'LoadBalancer' || size(self.loadBalancerSourceRanges) == 0", "message": "loadBalancerSourceRanges need exposure type LoadBalancer; remove them or change the type" },
        { "rule": "self.type == 'NodePort' || size(self.nodePorts) == 0", "message": "nodePorts need exposure type NodePort; remove them or change the type" },
        { "rule": "self.nodePorts.all(port, port.matches('^[1-9][0-9]{0,4}$') && int(port) <= 65535 && self.nodePorts[port] >= 1 && self.nodePorts[port] <= 65535)", "message": "nodePorts are ports of the nodes by the gateway's port, both from 1 to 65535, for example {\"443\": 30443}" },
        { "rule": "self.type != 'HostNetwork' || (!has(self.ipFamilyPolicy) && size(self.ipFamilies) == 0)", "message": "ipFamilyPolicy and ipFamilies are those of a Service, and exposure type HostNetwork has none: gateways listen on all addresses of their nodes; remove them" },
        { "rule": "self.type != 'HostNetwork' || !has(self.sessionAffinity)", "message": "sessionAffinity is that of a Service, and exposure type HostNetwork has none; remove it" },
        { "rule": "self.type in ['LoadBalancer', 'NodePort'] || self.externalTrafficPolicy == 'Local'", "message": "externalTrafficPolicy Cluster needs exposure type LoadBalancer or NodePort; remove it or change the type" },
    ]))]
pub struct Exposure {
    /// LoadBalancer, NodePort or ClusterIP: a Service of that type in front of the gateways.
    /// HostNetwork: no Service, the gateways listen on their nodes' addresses. Default:
    /// LoadBalancer.
    #[serde(rename = "type")]
    pub type_: ExposureType,
    /// Local keeps the client's address; Cluster hides it behind a node's, so that all clients of
    /// a node look like one. Default: Local.
    pub external_traffic_policy: ExternalTrafficPolicy,
    /// spec.sessionAffinity of the Service. ClientIP: a client whose port changes returns to the
    /// same gateway, if the load balancer also chooses by its address; some refuse such a Service.
    /// Default: what Kubernetes chooses, None.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<SessionAffinity>,
    /// spec.loadBalancerClass of the Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_balancer_class: Option<String>,
    /// spec.loadBalancerSourceRanges of the Service.
    pub load_balancer_source_ranges: Vec<String>,
    /// Fixed ports of the nodes, by the gateway's port, for example {"443": 30443}: for UDP, and
    /// for the TCP port of the same number that gives tokens out. Other ports are chosen by
    /// Kubernetes.
    #[schemars(extend("maxProperties" = 100))]
    pub node_ports: BTreeMap<String, i32>,
    /// spec.ipFamilyPolicy of the Service: SingleStack, PreferDualStack or RequireDualStack.
    /// Default: what Kubernetes chooses, one family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// spec.ipFamilies of the Service: IPv4, IPv6 or both, the more important one first. Default:
    /// the cluster's.
    #[schemars(length(max = 2))]
    pub ip_families: Vec<IpFamily>,
    /// Annotations of the Service, as cloud providers want them.
    pub annotations: BTreeMap<String, String>,
    /// Further labels of the Service. The operator's labels win.
    pub labels: BTreeMap<String, String>,
}

/// Ways to reach the gateways.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExposureType {
    /// A Service of type LoadBalancer.
    #[default]
    LoadBalancer,
    /// A Service of type NodePort.
    NodePort,
    /// A Service of type ClusterIP: for clients inside the cluster, or behind something else.
    ClusterIP,
    /// The nodes' own network.
    HostNetwork,
}

/// `ipFamilyPolicy` of a Service.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpFamilyPolicy {
    /// One family.
    SingleStack,
    /// Both, if the cluster has both.
    PreferDualStack,
    /// Both.
    RequireDualStack,
}

/// Families of addresses.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // they are what they are called
pub enum IpFamily {
    IPv4,
    IPv6,
}

/// `sessionAffinity` of a Service.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionAffinity {
    /// Each flow of a client goes to any gateway.
    None,
    /// All flows of one address go to one gateway.
    ClientIP,
}

/// `externalTrafficPolicy` of the Service.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExternalTrafficPolicy {
    /// To gateways on the node that the datagram has reached; the client's address stays.
    #[default]
    Local,
    /// To any gateway; the client's address is lost.
    Cluster,
}
