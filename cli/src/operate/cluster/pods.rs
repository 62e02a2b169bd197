//! The Pods of gateways.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use packrat_operator::names::GATEWAY_LABEL;
use packrat_operator::names::SIDECAR_LABEL;
use serde::Serialize;

use super::Cluster;
use crate::operate::error::OperateError;

/// A gateway's place in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Place {
    /// Namespace of the EdgeGateway and of its Pods.
    pub(crate) namespace: String,
    /// Name of the EdgeGateway; of a sidecar its metrics' label `gateway`, which is made of the
    /// Pod's name.
    pub(crate) edge_gateway: String,
    /// Name of the Pod.
    pub(crate) pod: String,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.pod)
    }
}

/// True if a Pod is ready and not about to end.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Name that a sidecar gives itself: when it was injected, the Pods of a workload had only a name
/// prefix.
fn sidecar_name(pod: &Pod) -> String {
    let name = pod.metadata.generate_name.clone().unwrap_or_else(|| pod.name_any());
    name.trim_end_matches('-').to_owned()
}

impl Cluster {
    fn sidecar_pods(&self) -> Result<Vec<(Place, Pod)>, OperateError> {
        let pods = self.list(&self.api::<Pod>(), SIDECAR_LABEL)?;
        let mut found: Vec<_> = pods
            .into_iter()
            .map(|pod| {
                let place = Place {
                    namespace: pod.namespace().unwrap_or_default(),
                    edge_gateway: sidecar_name(&pod),
                    pod: pod.name_any(),
                };
                (place, pod)
            })
            .collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    /// The Pods of gateways in the chosen namespace, ready ones and others; then the Pods with a
    /// gateway as a sidecar.
    pub(crate) fn gateway_pods(&self) -> Result<Vec<(Place, Pod)>, OperateError> {
        let pods = self.list(&self.api::<Pod>(), GATEWAY_LABEL)?;
        let mut found: Vec<_> = pods
            .into_iter()
            .map(|pod| {
                let place = Place {
                    namespace: pod.namespace().unwrap_or_default(),
                    edge_gateway: pod.labels().get(GATEWAY_LABEL).cloned().unwrap_or_default(),
                    pod: pod.name_any(),
                };
                (place, pod)
            })
            .collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found.extend(self.sidecar_pods()?);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sidecar_is_called_as_its_metrics_call_it() {
        for metadata in [
            json!({ "name": "game-7c9f-x2x4z", "generateName": "game-7c9f-", "namespace": "play" }),
            json!({ "name": "alone", "namespace": "play" }),
        ] {
            let mut injected = json!({
                "metadata": metadata,
                "spec": { "containers": [{ "name": "game", "ports": [{ "containerPort": 7000, "hostPort": 7000, "protocol": "UDP" }] }] },
            });
            let pod: Pod = serde_json::from_value(injected.clone()).unwrap();
            // The API server asks before it has made a name of generateName.
            if injected["metadata"]["generateName"].is_string() {
                injected["metadata"]["name"] = json!(null);
            }
            injected["metadata"]["annotations"] = json!({ "packrat.dev/inject": "sidecar" });
            let sidecar = packrat_operator::inject::Sidecar::default();
            packrat_operator::inject::inject_pod(&mut injected, &sidecar).unwrap();
            let configuration = injected["spec"]["initContainers"][0]["args"][1].as_str().unwrap();
            let expected = format!("\"gateway\":\"{}\"", sidecar_name(&pod));
            assert!(configuration.contains(&expected), "{expected}: {configuration}");
        }
    }
}
