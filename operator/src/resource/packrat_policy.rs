//! `PackratPolicy`: settings that are attached to Gateways, listeners and UDPRoutes.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use packrat_api::knobs::{self, ClusterValues};
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::parent_reference::ParentReference;
use super::route::settings;
use super::schema::{conditions, join_lines};
use crate::overrides::Overrides;

/// Settings of routes, attached to Gateways, listeners and UDPRoutes.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "packrat.dev",
    version = "v1alpha1",
    kind = "PackratPolicy",
    plural = "packratpolicies",
    category = "packrat",
    category = "gateway-api",
    namespaced,
    status = "PackratPolicyStatus",
    derive = "PartialEq",
    derive = "Default",
    label("gateway.networking.k8s.io/policy", "Inherited"),
    doc = "Settings of routes, attached to Gateways, listeners and UDPRoutes.",
    printcolumn(
        json_path = ".status.ancestors[0].conditions[?(@.type==\"Accepted\")].status",
        name = "Accepted",
        type_ = "string"
    ),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = RecursiveTransform(join_lines))]
pub struct PackratPolicySpec {
    /// Objects of the policy's namespace that the settings are for.
    #[schemars(length(min = 1, max = 16))]
    pub target_refs: Vec<TargetReference>,
    /// Settings without a more specific one: of several policies the UDPRoute's wins, then the
    /// listener's, then the Gateway's. An annotation of a Service wins over all of them.
    #[serde(default)]
    pub defaults: PolicySettings,
    /// Settings that win over more specific ones: of several policies the Gateway's wins, then the
    /// listener's, then the UDPRoute's.
    #[serde(default)]
    pub overrides: PolicySettings,
}

/// An object that a policy is attached to.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
        { "rule": "!has(self.sectionName) || self.kind == 'Gateway'", "message": "sectionName is the name of a listener of a Gateway; remove it" },
    ]))]
pub struct TargetReference {
    /// gateway.networking.k8s.io.
    #[schemars(regex(pattern = "^gateway[.]networking[.]k8s[.]io$"))]
    pub group: String,
    /// Gateway or UDPRoute.
    #[schemars(regex(pattern = "^(Gateway|UDPRoute)$"))]
    pub kind: String,
    /// Name of the Gateway or UDPRoute.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Name of a listener of the Gateway; without it, all listeners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub section_name: Option<String>,
}

/// Settings that a route can have by itself, as an EdgeGateway writes them.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(transparent)]
pub struct PolicySettings(Map<String, Value>);

impl PolicySettings {
    /// The settings, as overrides of an EdgeGateway's.
    ///
    /// # Errors
    /// A sentence about the first one that is not understood.
    pub fn overrides(&self) -> Result<Overrides, String> {
        let (overrides, problems) = settings(&Value::Object(self.0.clone()));
        problems.into_iter().next().map_or(Ok(overrides), Err)
    }
}

impl JsonSchema for PolicySettings {
    fn schema_name() -> Cow<'static, str> {
        "PolicySettings".into()
    }

    fn inline_schema() -> bool {
        true
    }

    /// One property for each setting that a route can have by itself.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut properties = Map::new();
        for (knob, cluster) in knobs::in_cluster() {
            let mut schema = value_schema(cluster.values);
            schema["description"] = sentence(knob.meaning).into();
            match cluster.edge_gateway.split_once('.') {
                None => {
                    properties.insert(cluster.edge_gateway.to_owned(), schema);
                }
                Some((group, name)) => {
                    let group = properties.entry(group).or_insert_with(|| {
                        let description = format!("As spec.{group} of an EdgeGateway.");
                        json!({ "type": "object", "description": description, "properties": {} })
                    });
                    group["properties"][name] = schema;
                }
            }
        }
        json_schema!({ "type": "object", "properties": properties })
    }
}

fn value_schema(values: ClusterValues) -> Value {
    match values {
        ClusterValues::Bytes => {
            json!({ "type": "string", "maxLength": 20, "pattern": "^[1-9][0-9]{0,14}(Ki|Mi|Gi)?$" })
        }
        ClusterValues::Numbers { least, most } => {
            json!({ "type": "integer", "format": "int32", "minimum": least, "maximum": most })
        }
        ClusterValues::Switch => json!({ "type": "boolean" }),
        ClusterValues::Words(words) => {
            let words: Vec<&str> = words.all.iter().map(|(_, word)| *word).collect();
            json!({ "type": "string", "enum": words })
        }
    }
}

/// A meaning with a capital and a full stop.
fn sentence(meaning: &str) -> String {
    let mut characters = meaning.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).chain(['.']).collect()
}

/// Status of a `PackratPolicy`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct PackratPolicyStatus {
    /// Gateways and UDPRoutes that the policy is attached to, with the conditions of each operator.
    #[schemars(length(max = 16))]
    pub ancestors: Vec<PolicyAncestor>,
}

/// An object that a policy is attached to, with an operator's conditions.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyAncestor {
    /// The object.
    #[schemars(schema_with = "reference")]
    pub ancestor_ref: ParentReference,
    /// The operator that reports the conditions.
    pub controller_name: String,
    /// Accepted: the settings are in force there, unless others override them.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

fn reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "group": { "type": "string" },
            "kind": { "type": "string" },
            "namespace": { "type": "string" },
            "name": { "type": "string" },
            "sectionName": { "type": "string" },
            "port": { "type": "integer", "format": "int32" },
        },
    })
}
