//! Observations of the gateways themselves: Pods and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod, PodStatus, Service};
use kube::ResourceExt as _;
use tokio::sync::watch;

use crate::names::GATEWAY_LABEL;
use crate::object_key::ObjectKey;
use crate::resource::{ExposureType, WorkloadKind};
use crate::status::{Observed, Rollout, why_waiting};
use crate::workload::object_name;

/// A gateway's Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenPod {
    pub(super) gateway: ObjectKey,
    pub(super) ready: bool,
    /// True for a Pod that is being deleted.
    ending: bool,
    /// Why it is not ready.
    waiting: Option<String>,
    pub(super) node_addresses: Vec<String>,
    pub(super) pod_address: Option<String>,
}

/// Addresses of a gateway's Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SeenService {
    balancer: Vec<String>,
    cluster: Vec<String>,
    /// Ports of the nodes, by the gateway's UDP port.
    node_ports: BTreeMap<u16, i32>,
}

/// Observations of all gateways.
#[derive(Debug, Default)]
pub(super) struct Observations {
    seen: Mutex<Seen>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Seen {
    pods: BTreeMap<ObjectKey, SeenPod>,
    services: BTreeMap<ObjectKey, SeenService>,
    /// Workloads, by their kind and their gateway.
    workloads: BTreeMap<(WorkloadKind, ObjectKey), Rollout>,
    /// Addresses of nodes for clients outside of the cluster's network, by the name of the node,
    /// with those inside.
    nodes: BTreeMap<String, NodeAddresses>,
}

/// Addresses of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NodeAddresses {
    inside: Vec<String>,
    outside: Vec<String>,
}

impl Seen {
    /// The addresses at which clients reach these nodes: outside addresses first, if there are any.
    fn for_clients(&self, inside: &BTreeSet<String>) -> Vec<String> {
        let of_these = |node: &&NodeAddresses| node.inside.iter().any(|own| inside.contains(own));
        let outside: BTreeSet<&String> =
            self.nodes.values().filter(of_these).flat_map(|node| &node.outside).collect();
        outside.into_iter().chain(inside).cloned().collect()
    }
}

fn key<K: kube::Resource>(object: &K) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// Addresses of the node, of both families if it has them.
fn node_addresses(status: &PodStatus) -> Vec<String> {
    let all: Vec<String> =
        status.host_ips.iter().flatten().map(|address| address.ip.clone()).collect();
    if all.is_empty() { status.host_ip.clone().into_iter().collect() } else { all }
}

impl Observations {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receiver that is notified of changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn tell(&self, differs: bool) {
        if differs {
            self.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    pub(super) fn pod(&self, pod: &Pod, deleted: bool) {
        let pod_key = key(pod);
        let status = pod.status.as_ref();
        let ready = status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
            && pod.metadata.deletion_timestamp.is_none();
        let seen = pod.labels().get(GATEWAY_LABEL).filter(|_| !deleted).map(|gateway| SeenPod {
            gateway: ObjectKey::new(pod_key.namespace.clone(), gateway.clone()),
            ready,
            ending: pod.metadata.deletion_timestamp.is_some(),
            waiting: why_waiting(pod).filter(|_| !ready),
            node_addresses: status.map(node_addresses).unwrap_or_default(),
            pod_address: status.and_then(|status| status.pod_ip.clone()),
        });
        let differs = {
            let pods = &mut self.seen().pods;
            match seen {
                Some(seen) => pods.insert(pod_key, seen.clone()).as_ref() != Some(&seen),
                None => pods.remove(&pod_key).is_some(),
            }
        };
        self.tell(differs);
    }

    pub(super) fn node(&self, node: &Node, deleted: bool) {
        let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let mut seen = NodeAddresses::default();
        for address in all {
            match address.type_.as_str() {
                "InternalIP" => seen.inside.push(address.address.clone()),
                "ExternalIP" => seen.outside.push(address.address.clone()),
                _ => {}
            }
        }
        // Most nodes have no outside address, and add none.
        let is_known = !deleted && !seen.outside.is_empty();
        let differs = {
            let nodes = &mut self.seen().nodes;
            if is_known {
                nodes.insert(node.name_any(), seen.clone()).as_ref() != Some(&seen)
            } else {
                nodes.remove(&node.name_any()).is_some()
            }
        };
        self.tell(differs);
    }

    pub(super) fn retain_nodes(&self, keep: impl Fn(&ObjectKey) -> bool) {
        self.seen().nodes.retain(|name, _| keep(&ObjectKey::new("", name)));
        self.tell(true);
    }

    pub(super) fn retain_pods(&self, keep: impl Fn(&ObjectKey) -> bool) {
        self.seen().pods.retain(|key, _| keep(key));
        self.tell(true);
    }

    pub(super) fn retain_workloads(&self, kind: WorkloadKind, keep: impl Fn(&ObjectKey) -> bool) {
        self.seen().workloads.retain(|(of, gateway), _| {
            *of != kind || keep(&ObjectKey::new(&gateway.namespace, object_name(&gateway.name)))
        });
        self.tell(true);
    }

    pub(super) fn retain_services(&self, keep: impl Fn(&ObjectKey) -> bool) {
        self.seen().services.retain(|gateway, _| {
            keep(&ObjectKey::new(&gateway.namespace, object_name(&gateway.name)))
        });
        self.tell(true);
    }

    /// Records a Service. Services that do not belong to gateways are ignored, even if they have
    /// the label of one.
    pub(super) fn service(&self, service: &Service, deleted: bool) {
        let Some(name) = service.labels().get(GATEWAY_LABEL) else { return };
        if service.name_any() != object_name(name) {
            return;
        }
        let gateway = ObjectKey::new(service.namespace().unwrap_or_default(), name.clone());
        let mut seen = SeenService::default();
        let ingress = service
            .status
            .iter()
            .flat_map(|status| &status.load_balancer)
            .flat_map(|balancer| balancer.ingress.iter().flatten());
        for point in ingress {
            seen.balancer.extend(point.ip.clone().or_else(|| point.hostname.clone()));
        }
        if let Some(spec) = &service.spec {
            seen.cluster = spec.cluster_ips.clone().unwrap_or_default();
            seen.cluster.retain(|address| address != "None");
            let ports = spec.ports.iter().flatten();
            let udp = ports.filter(|port| port.protocol.as_deref() == Some("UDP"));
            seen.node_ports = udp
                .filter_map(|port| Some((u16::try_from(port.port).ok()?, port.node_port?)))
                .collect();
        }
        let differs = {
            let services = &mut self.seen().services;
            if deleted {
                services.remove(&gateway).is_some()
            } else {
                services.insert(gateway, seen.clone()).as_ref() != Some(&seen)
            }
        };
        self.tell(differs);
    }

    /// Records the workload of a gateway; `rollout` is `None` if it is gone. Other workloads are
    /// ignored.
    pub(super) fn workload(
        &self,
        kind: WorkloadKind,
        gateway: Option<&ObjectKey>,
        rollout: Option<Rollout>,
    ) {
        let Some(gateway) = gateway else { return };
        let place = (kind, gateway.clone());
        let differs = {
            let workloads = &mut self.seen().workloads;
            match rollout {
                Some(rollout) => {
                    workloads.insert(place, rollout.clone()).as_ref() != Some(&rollout)
                }
                None => workloads.remove(&place).is_some(),
            }
        };
        self.tell(differs);
    }

    /// The Pods of a gateway, with the workload of this kind.
    pub(super) fn of(&self, gateway: &ObjectKey, kind: WorkloadKind) -> Observed {
        let seen = self.seen();
        let pods = || seen.pods.iter().filter(|(_, pod)| pod.gateway == *gateway);
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let ready = pods().filter(|(_, pod)| pod.ready);
        let waiting = pods().filter(|(_, pod)| !pod.ending);
        let waiting =
            waiting.filter_map(|(key, pod)| Some((key.name.clone(), pod.waiting.clone()?)));
        let rollout = seen.workloads.get(&(kind, gateway.clone()));
        Observed {
            ready_pods: ready.clone().map(|(key, _)| key.name.clone()).collect(),
            ready: count(ready.count()),
            pods: count(pods().filter(|(_, pod)| !pod.ending).count()),
            ending: count(pods().filter(|(_, pod)| pod.ending).count()),
            waiting: waiting.clone().next(),
            rollout: rollout.cloned(),
            is_on_each_node: kind == WorkloadKind::DaemonSet,
            ..Observed::default()
        }
    }

    /// Addresses that clients of a gateway can use.
    pub(super) fn addresses(&self, gateway: &ObjectKey, exposure: ExposureType) -> Vec<String> {
        let seen = self.seen();
        let pods: Vec<_> = seen.pods.values().filter(|pod| pod.gateway == *gateway).collect();
        let nodes: BTreeSet<String> = pods
            .iter()
            .filter(|pod| pod.ready)
            .flat_map(|pod| pod.node_addresses.clone())
            .collect();
        let service = seen.services.get(gateway).cloned().unwrap_or_default();
        match exposure {
            ExposureType::LoadBalancer => service.balancer,
            ExposureType::ClusterIP => service.cluster,
            ExposureType::NodePort if service == SeenService::default() => Vec::new(),
            ExposureType::NodePort | ExposureType::HostNetwork => seen.for_clients(&nodes),
        }
    }

    /// Ports of the nodes, by the UDP port of a gateway.
    pub(super) fn node_ports(&self, gateway: &ObjectKey) -> BTreeMap<u16, i32> {
        self.seen().services.get(gateway).map(|seen| seen.node_ports.clone()).unwrap_or_default()
    }

    /// Names of the Pods of a gateway, with their addresses.
    pub(super) fn pods(&self, gateway: &ObjectKey) -> BTreeMap<String, Option<String>> {
        let seen = self.seen();
        seen.pods
            .iter()
            .filter(|(_, pod)| pod.gateway == *gateway)
            .map(|(key, pod)| (key.name.clone(), pod.pod_address.clone().filter(|_| pod.ready)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn clients_are_told_the_addresses_of_nodes_outside_first() {
        let observations = Observations::default();
        let pod = |name: &str, node: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": { "namespace": "shop", "name": name, "labels": { GATEWAY_LABEL: "edge" } },
                "status": {
                    "conditions": [{ "type": "Ready", "status": "True" }],
                    "hostIP": node, "hostIPs": [{ "ip": node }],
                },
            }))
            .unwrap()
        };
        let node = |name: &str, inside: &str, outside: Option<&str>| -> Node {
            let mut addresses = vec![json!({ "type": "InternalIP", "address": inside })];
            addresses.extend(outside.map(|ip| json!({ "type": "ExternalIP", "address": ip })));
            serde_json::from_value(
                json!({ "metadata": { "name": name }, "status": { "addresses": addresses } }),
            )
            .unwrap()
        };
        observations.pod(&pod("a", "10.0.0.1"), false);
        observations.pod(&pod("b", "10.0.0.2"), false);
        let outside = node("n1", "10.0.0.1", Some("203.0.113.1"));
        observations.node(&outside, false);
        observations.node(&node("n2", "10.0.0.2", None), false);
        // No gateway is there.
        observations.node(&node("n3", "10.0.0.3", Some("203.0.113.3")), false);
        let addresses =
            || observations.addresses(&ObjectKey::new("shop", "edge"), ExposureType::HostNetwork);
        assert_eq!(addresses(), ["203.0.113.1", "10.0.0.1", "10.0.0.2"]);
        observations.node(&outside, true);
        assert_eq!(addresses(), ["10.0.0.1", "10.0.0.2"]);
    }

    #[test]
    fn pods_that_drain_are_counted_apart_and_waiting_ones_named() {
        let observations = Observations::default();
        let pod = |name: &str, change: Value| {
            let mut pod = json!({
                "metadata": { "namespace": "shop", "name": name, "labels": { GATEWAY_LABEL: "edge" } },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            });
            json_patch::merge(&mut pod, &change);
            observations.pod(&serde_json::from_value(pod).unwrap(), false);
        };
        pod("ready", json!({}));
        pod("drains", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
        let unscheduled =
            json!([{ "type": "PodScheduled", "status": "False", "message": "no node" }]);
        pod("waits", json!({ "status": { "conditions": unscheduled } }));
        let edge = ObjectKey::new("shop", "edge");
        let found = observations.of(&edge, WorkloadKind::Deployment);
        assert_eq!((found.ready, found.pods, found.ending), (1, 2, 1));
        assert_eq!(found.waiting, Some(("waits".to_owned(), "no node".to_owned())));
        assert_eq!(found.rollout, None);

        let wanted = |number| Some(Rollout { wanted: number, ..Rollout::default() });
        observations.workload(WorkloadKind::Deployment, Some(&edge), wanted(3));
        observations.workload(WorkloadKind::DaemonSet, Some(&edge), wanted(9));
        assert_eq!(observations.of(&edge, WorkloadKind::Deployment).rollout, wanted(3));
        observations.retain_workloads(WorkloadKind::DaemonSet, |_| false);
        assert_eq!(observations.of(&edge, WorkloadKind::DaemonSet).rollout, None);
        observations.workload(WorkloadKind::Deployment, Some(&edge), None);
        assert_eq!(observations.of(&edge, WorkloadKind::Deployment).rollout, None);
    }

    #[test]
    fn a_service_removed_without_a_watch_has_no_addresses() {
        let observations = Observations::default();
        let service: Service = serde_json::from_value(json!({
            "metadata": {
                "namespace": "shop",
                "name": "packrat-gateway-edge",
                "labels": { GATEWAY_LABEL: "edge" },
            },
            "status": { "loadBalancer": { "ingress": [{ "ip": "203.0.113.1" }] } },
        }))
        .unwrap();
        observations.service(&service, false);
        let addresses =
            || observations.addresses(&ObjectKey::new("shop", "edge"), ExposureType::LoadBalancer);
        observations.retain_services(|all| *all == key(&service));
        assert_eq!(addresses(), ["203.0.113.1"]);
        observations.retain_services(|_| false);
        assert_eq!(addresses(), [""; 0]);
    }
}
