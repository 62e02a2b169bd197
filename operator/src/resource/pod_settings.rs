//! Settings of a gateway's Pods.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::size::parse_memory;

/// The workload of the gateways.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": "self.kind == 'Deployment' || !has(self.autoscaling)", "message": "spec.workload.autoscaling needs spec.workload.kind Deployment; remove it or change the kind" },
        { "rule": "!has(self.autoscaling) || self.autoscaling.minimumReplicas <= self.autoscaling.maximumReplicas", "message": "spec.workload.autoscaling.minimumReplicas must not be above maximumReplicas" },
        { "rule": "!has(self.autoscaling) || (has(self.autoscaling.by) && self.autoscaling.by == 'Other') || 'cpu' in self.pod.resources.requests", "message": "spec.workload.autoscaling measures the use of the requested processor time; set spec.workload.pod.resources.requests.cpu, for example 250m" },
    ]))]
pub struct Workload {
    /// Deployment: the number of gateways in replicas or autoscaling. DaemonSet: one on each node
    /// that the node selector names. Default: Deployment.
    pub kind: WorkloadKind,
    /// Gateways of a Deployment; without effect for a DaemonSet and with autoscaling. Default: 2.
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// Lets a HorizontalPodAutoscaler choose the number of gateways of a Deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// Placement, resources and extras of the Pods.
    pub pod: PodSettings,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            kind: WorkloadKind::Deployment,
            replicas: 2,
            autoscaling: None,
            pod: PodSettings::default(),
        }
    }
}

/// Kinds of workloads.
#[derive(
    JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord,
)]
pub enum WorkloadKind {
    /// A fixed number of gateways, or one that an autoscaler chooses.
    #[default]
    Deployment,
    /// One gateway on each selected node.
    DaemonSet,
}

/// The autoscaler that chooses the number of gateways.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Autoscaler {
    /// The operator creates a HorizontalPodAutoscaler.
    #[default]
    HorizontalPodAutoscaler,
    /// Your own autoscaler, for example a ScaledObject of KEDA: the operator creates none, and leaves the
    /// Deployment's replicas alone.
    Other,
}

/// Limits of a HorizontalPodAutoscaler. Of several targets, the one that needs the most gateways counts.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Autoscaling {
    /// The autoscaler's kind; with Other the fields below have no effect. Default:
    /// HorizontalPodAutoscaler.
    pub by: Autoscaler,
    /// Fewest gateways. Default: 2.
    #[schemars(range(min = 1, max = 1000))]
    pub minimum_replicas: i32,
    /// Most gateways. Default: 10.
    #[schemars(range(min = 1, max = 1000))]
    pub maximum_replicas: i32,
    /// Target for the average use of the requested processor time, in percent. Default: 60.
    #[schemars(range(min = 1, max = 100))]
    pub target_cpu_percent: i32,
    /// Target for the average number of sessions of a gateway: the Pods' metric packrat_sessions, which the
    /// cluster's custom metrics API has to have.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_sessions: Option<i32>,
    /// Target for the average number of datagrams a second of a gateway, in both directions: the Pods' metric
    /// packrat_datagrams_per_second.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_datagrams_per_second: Option<i32>,
}

impl Autoscaling {
    /// The targets, as a HorizontalPodAutoscaler has them.
    pub(crate) fn metrics(&self) -> Vec<Value> {
        let of_pods = [
            ("packrat_sessions", self.target_sessions),
            ("packrat_datagrams_per_second", self.target_datagrams_per_second),
        ];
        let of_pods = of_pods.into_iter().filter_map(|(name, target)| {
            let target = json!({ "type": "AverageValue", "averageValue": target?.to_string() });
            Some(
                json!({ "type": "Pods", "pods": { "metric": { "name": name }, "target": target } }),
            )
        });
        let target =
            json!({ "type": "Utilization", "averageUtilization": self.target_cpu_percent });
        let cpu = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        std::iter::once(cpu).chain(of_pods).collect()
    }
}

impl Default for Autoscaling {
    fn default() -> Self {
        Self {
            by: Autoscaler::default(),
            minimum_replicas: 2,
            maximum_replicas: 10,
            target_cpu_percent: 60,
            target_sessions: None,
            target_datagrams_per_second: None,
        }
    }
}

/// Placement, resources and extras of Pods.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSettings {
    /// Further labels. The operator's labels win.
    pub labels: BTreeMap<String, String>,
    /// Further annotations. The operator's annotations win.
    pub annotations: BTreeMap<String, String>,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that are tolerated.
    pub tolerations: Vec<Toleration>,
    /// Affinity as in a Pod. Default for a Deployment: gateways prefer different nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub affinity: Option<Value>,
    /// Topology spread constraints as in a Pod.
    #[schemars(schema_with = "any_objects")]
    pub topology_spread_constraints: Vec<Value>,
    /// Name of the PriorityClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Resources of the gateway's container. Default: requests of 250m CPU and 128Mi memory, no
    /// limits. Set a memory limit above spec.cache.bytesTotal times the number of routes.
    pub resources: Resources,
}

/// A toleration, as in a Pod.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Key of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Exists or Equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(Exists|Equal)$"))]
    pub operator: Option<String>,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// NoSchedule, PreferNoSchedule or NoExecute.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(NoSchedule|PreferNoSchedule|NoExecute)$"))]
    pub effect: Option<String>,
    /// Seconds for which a NoExecute taint is tolerated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// Resources of a container.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Reserved resources.
    #[schemars(schema_with = "quantities")]
    pub requests: BTreeMap<String, IntOrString>,
    /// Upper limits.
    #[schemars(schema_with = "quantities")]
    pub limits: BTreeMap<String, IntOrString>,
}

impl Default for Resources {
    fn default() -> Self {
        let quantity =
            |name: &str, value: &str| (name.to_owned(), IntOrString::String(value.to_owned()));
        Self {
            requests: [quantity("cpu", "250m"), quantity("memory", "128Mi")].into(),
            limits: BTreeMap::new(),
        }
    }
}

impl Resources {
    /// Bytes of the memory limit. `None` also for a notation that is not read here, such as `1e9`.
    pub fn memory_limit(&self) -> Option<u64> {
        match self.limits.get("memory")? {
            IntOrString::Int(bytes) => u64::try_from(*bytes).ok(),
            IntOrString::String(text) => parse_memory(text),
        }
    }
}

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true })
}

fn any_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "default": [],
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
}

fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": "^[0-9]+(\\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$",
        },
    })
}
