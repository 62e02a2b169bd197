//! Observations that a status reports.

use std::collections::{BTreeMap, BTreeSet};

use super::reading::Reading;
use super::rollout::Rollout;
use crate::resource::GatewayProxy;

/// Observations of the gateways of an EdgeGateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// Addresses that clients can use.
    pub addresses: Vec<String>,
    /// The gateways' public key, once they have one.
    pub public_key: Option<String>,
    /// Pods that are ready.
    pub ready: i32,
    /// All Pods but those that end.
    pub pods: i32,
    /// Pods that end: they drain.
    pub ending: i32,
    /// A Pod that is not ready, and why.
    pub waiting: Option<(String, String)>,
    /// The workload of the Pods, once it has been seen.
    pub rollout: Option<Rollout>,
    /// True if the workload is a DaemonSet.
    pub is_on_each_node: bool,
    /// Names of the Pods that are ready.
    pub ready_pods: BTreeSet<String>,
    /// Connected gateways.
    pub proxies: Vec<GatewayProxy>,
    /// The version of the newest configuration, when it is known, and the versions that a gateway
    /// may have instead for a moment.
    pub versions: BTreeSet<String>,
    /// Ports of the nodes, by the gateway's UDP port.
    pub node_ports: BTreeMap<u16, i32>,
    /// The operator that writes the status.
    pub operator: String,
    /// Reading of the pages of the ready Pods, once there is one.
    pub reading: Option<Reading>,
    /// Why the objects of the gateway could not be applied.
    pub failure: Option<String>,
    /// True if the namespace is being deleted, so that no object can be made in it.
    pub namespace_ends: bool,
    /// True if the API server drops fields of the status that it does not know.
    pub definition_is_outdated: bool,
}
