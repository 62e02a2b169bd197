//! Kinds of a gateway's objects, and their contents.

use serde_json::Value;

/// Kinds of objects that belong to an EdgeGateway. Secrets are made elsewhere: they hold data that
/// must be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // they are Kubernetes' kinds
pub enum Kind {
    ServiceAccount,
    ConfigMap,
    Service,
    Deployment,
    DaemonSet,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
    NetworkPolicy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Service,
        Self::Deployment,
        Self::DaemonSet,
        Self::HorizontalPodAutoscaler,
        Self::PodDisruptionBudget,
        Self::NetworkPolicy,
    ];

    /// Group, version, kind and plural.
    pub const fn names(self) -> [&'static str; 4] {
        match self {
            Self::ServiceAccount => ["", "v1", "ServiceAccount", "serviceaccounts"],
            Self::ConfigMap => ["", "v1", "ConfigMap", "configmaps"],
            Self::Service => ["", "v1", "Service", "services"],
            Self::Deployment => ["apps", "v1", "Deployment", "deployments"],
            Self::DaemonSet => ["apps", "v1", "DaemonSet", "daemonsets"],
            Self::HorizontalPodAutoscaler => {
                ["autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"]
            }
            Self::PodDisruptionBudget => {
                ["policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"]
            }
            Self::NetworkPolicy => ["networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"],
        }
    }
}

/// An object to apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Kind of the object.
    pub kind: Kind,
    /// All fields that are ours.
    pub content: Value,
}

impl Object {
    pub(super) fn new(kind: Kind, mut content: Value, metadata: Value) -> Self {
        let [group, version, name, _] = kind.names();
        let api = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        content["apiVersion"] = api.into();
        content["kind"] = name.into();
        content["metadata"] = metadata;
        Self { kind, content }
    }
}
