//! The custom resource's definition.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use packrat_operator::resource::EdgeGateway;
use serde_json::Value;

use super::{Check, INSTALL_HINT, Verdict};
use crate::operate::cluster::Cluster;

/// Name of this group of checks.
const CHECK_GROUP: &str = "definitions";
/// Hint if definitions are older than the operator.
const UPGRADE_HINT: &str = "upgrade the release, or with crds.enabled=false the definitions alone: kubectl apply --server-side --force-conflicts -f charts/packrat/definitions";

fn found(cluster: &Cluster) -> Result<Option<CustomResourceDefinition>, Check> {
    let api = cluster.api_of_cluster::<CustomResourceDefinition>();
    let name = EdgeGateway::crd_name();
    cluster.ask("getting the definition of EdgeGateway", api.get_opt(name)).map_err(|error| {
        let hint = "you need the right to get customresourcedefinitions.apiextensions.k8s.io";
        Check::of(CHECK_GROUP, "can be read", false, Verdict::Warning, error.to_string(), hint)
    })
}

/// Checks before an installation: no definitions are there, or only this version's.
pub(super) fn before_installation(cluster: &Cluster) -> Vec<Check> {
    match found(cluster) {
        Err(check) => vec![check],
        Ok(None) => vec![Check::passed(CHECK_GROUP, "are not there yet", None)],
        Ok(Some(definition)) => vec![of_this_version(&definition)],
    }
}

/// Checks after an installation.
pub(super) fn installed(cluster: &Cluster) -> Vec<Check> {
    let definition = match found(cluster) {
        Err(check) => return vec![check],
        Ok(definition) => definition,
    };
    let name = format!("{} is there", EdgeGateway::crd_name());
    let Some(definition) = definition else {
        return vec![Check::of(
            CHECK_GROUP,
            name,
            false,
            Verdict::Failed,
            "no such definition",
            INSTALL_HINT,
        )];
    };
    let is_established = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Established" && condition.status == "True");
    vec![
        Check::passed(CHECK_GROUP, name, None),
        Check::of(
            CHECK_GROUP,
            "is served",
            is_established,
            Verdict::Failed,
            "it is not established",
            "kubectl describe crd edgegateways.packrat.dev says why",
        ),
        of_this_version(&definition),
    ]
}

fn of_this_version(definition: &CustomResourceDefinition) -> Check {
    let ours = serde_json::to_value(&EdgeGateway::crd().spec.versions).unwrap_or_default();
    let theirs = serde_json::to_value(&definition.spec.versions).unwrap_or_default();
    let difference = missing(&ours, &theirs, "");
    Check::of(
        CHECK_GROUP,
        "is that of this version",
        difference.is_none(),
        Verdict::Warning,
        format!("it differs at {}", difference.unwrap_or_default()),
        UPGRADE_HINT,
    )
}

/// Path of the first value in `ours` that `theirs` lacks; the API server adds defaults.
fn missing(ours: &Value, theirs: &Value, path: &str) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => ours.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match theirs.get(name) {
                Some(other) => missing(value, other, &path),
                None => Some(path).filter(|_| !is_empty(value)),
            }
        }),
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            ours.iter().zip(theirs).enumerate().find_map(|(number, (value, other))| {
                missing(value, other, &format!("{path}[{number}]"))
            })
        }
        (Value::Number(ours), Value::Number(theirs)) if ours.as_f64() == theirs.as_f64() => None,
        _ if ours == theirs => None,
        _ => Some(path.to_owned()),
    }
}

/// True for values that the API server leaves out.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_are_no_difference_and_a_removed_field_is_one() {
        let ours = json!([{ "name": "v1alpha1", "schema": { "a": { "maximum": 5 }, "b": {} } }]);
        let theirs = json!([{ "name": "v1alpha1", "served": true, "schema": { "a": { "maximum": 5.0, "x": 1 }, "b": {} } }]);
        assert_eq!(missing(&ours, &theirs, ""), None);
        let older = json!([{ "name": "v1alpha1", "schema": { "a": { "maximum": 4 } } }]);
        assert_eq!(missing(&ours, &older, ""), Some("[0].schema.a.maximum".to_owned()));
    }
}
