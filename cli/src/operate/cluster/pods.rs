//! The Pods of gateways.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use packrat_operator::workload::GATEWAY_LABEL;
use serde::Serialize;

use super::Cluster;
use crate::operate::error::OperateError;

/// Where in the cluster a gateway is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Place {
    /// Namespace of the EdgeGateway and of its Pods.
    pub(crate) namespace: String,
    /// Name of the EdgeGateway.
    pub(crate) edge_gateway: String,
    /// Name of the Pod.
    pub(crate) pod: String,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.pod)
    }
}

/// Whether a Pod is ready and not about to end.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

impl Cluster {
    /// The Pods of gateways in the namespace that is looked at, ready ones and others.
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
        Ok(found)
    }
}
