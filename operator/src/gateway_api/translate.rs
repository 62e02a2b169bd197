//! From a Gateway and its parameters to the EdgeGateway that it owns.

use std::collections::BTreeMap;

use packrat_wire::hexadecimal;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::objects::{Gateway, Infrastructure, Objects, ParametersRef};
use crate::names::{API_GROUP, GATEWAY_NAME_LABEL};
use crate::object_key::ObjectKey;
use crate::resource::{EdgeGatewaySpec, GatewayParametersSpec};

/// Longest name of an EdgeGateway: other names are made from it.
const MAXIMUM_NAME_BYTES: usize = 40;
/// Bytes of a name that a hash follows.
const KEPT_NAME_BYTES: usize = 31;

/// The EdgeGateway that a Gateway owns.
pub fn edge_gateway_key(gateway: &ObjectKey) -> ObjectKey {
    ObjectKey::new(&gateway.namespace, edge_gateway_name(&gateway.name))
}

/// The Gateway's name; where that is too long or has a point in it, its beginning and a hash.
fn edge_gateway_name(name: &str) -> String {
    if name.len() <= MAXIMUM_NAME_BYTES && !name.contains('.') {
        return name.to_owned();
    }
    let beginning: String = name.chars().take(KEPT_NAME_BYTES).collect();
    let hash = hexadecimal::encode(&Sha256::digest(name)[..4]);
    format!("{}-{hash}", beginning.replace('.', "-").trim_end_matches('-'))
}

/// The parameters that a reference names. The error describes the fault. `namespace`: the namespace
/// of the object that refers, if it has one.
///
/// # Errors
/// A sentence for a condition.
pub fn parameters<'a>(
    objects: &'a Objects,
    reference: &ParametersRef,
    namespace: Option<&str>,
) -> Result<&'a GatewayParametersSpec, String> {
    let ParametersRef { group, kind, name, .. } = reference;
    if group != "packrat.dev" || kind != "GatewayParameters" {
        return Err(format!(
            "parametersRef names {kind} {name} of group {group:?}; only GatewayParameters of packrat.dev are understood"
        ));
    }
    let Some(namespace) = namespace.or(reference.namespace.as_deref()) else {
        return Err(format!("parametersRef names GatewayParameters {name} without a namespace"));
    };
    let key = ObjectKey::new(namespace, name);
    let found = objects.parameters.get(&key).map(|parameters| &parameters.spec);
    found.ok_or_else(|| {
        format!("GatewayParameters {key} does not exist; create it, or correct parametersRef")
    })
}

/// The spec of the EdgeGateway that a Gateway owns.
pub fn edge_gateway_spec(
    key: &ObjectKey,
    infrastructure: &Infrastructure,
    parameters: Option<&GatewayParametersSpec>,
    class: &str,
) -> EdgeGatewaySpec {
    let mut spec = parameters.cloned().unwrap_or_default().edge_gateway(class);
    let pod = &mut spec.workload.pod;
    pod.labels.extend(labels(key, infrastructure));
    pod.annotations.extend(infrastructure.annotations.clone());
    spec.exposure.labels.extend(labels(key, infrastructure));
    spec.exposure.annotations.extend(infrastructure.annotations.clone());
    spec
}

/// Labels of everything that is made for a Gateway.
fn labels(key: &ObjectKey, infrastructure: &Infrastructure) -> BTreeMap<String, String> {
    let mut labels = infrastructure.labels.clone();
    // A value of a label is shorter than a name can be.
    if key.name.len() <= 63 {
        labels.insert(GATEWAY_NAME_LABEL.to_owned(), key.name.clone());
    }
    labels
}

/// The EdgeGateway that a Gateway owns, for server-side apply.
pub fn edge_gateway(key: &ObjectKey, gateway: &Gateway, spec: &EdgeGatewaySpec) -> Value {
    let edge = edge_gateway_key(key);
    json!({
        "apiVersion": "packrat.dev/v1alpha1",
        "kind": "EdgeGateway",
        "metadata": {
            "name": edge.name,
            "namespace": edge.namespace,
            "labels": labels(key, &gateway.spec.infrastructure),
            "annotations": gateway.spec.infrastructure.annotations,
            "ownerReferences": [{
                "apiVersion": format!("{API_GROUP}/v1"),
                "kind": "Gateway",
                "name": key.name,
                "uid": gateway.metadata.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway_api::Parameters;
    use crate::resource::{ExposureType, NamespacesFrom};

    #[test]
    fn an_edge_gateway_has_its_gateways_name_if_possible() {
        assert_eq!(edge_gateway_name("edge"), "edge");
        let long = "a".repeat(41);
        let names = [
            edge_gateway_name(&long),
            edge_gateway_name("edge.example"),
            edge_gateway_name("edge-example."),
        ];
        assert!(names[0].starts_with("aaaa") && names[1].starts_with("edge-example-"), "{names:?}");
        assert!(names.iter().all(|name| name.len() <= MAXIMUM_NAME_BYTES && !name.contains('.')));
        assert_ne!(names[1], names[2]);
    }

    #[test]
    fn parameters_and_infrastructure_become_the_spec() {
        let mut settings = GatewayParametersSpec::default();
        settings.exposure.type_ = ExposureType::ClusterIP;
        settings.workload.replicas = 5;
        let mut gateway = Gateway::default();
        let pair = |name: &str| [(name.to_owned(), "x".to_owned())].into();
        gateway.spec.infrastructure.labels = pair("team");
        gateway.spec.infrastructure.annotations = pair("cloud.example/balancer");
        let key = ObjectKey::new("shop", "edge");
        let spec = edge_gateway_spec(&key, &gateway.spec.infrastructure, Some(&settings), "blue");
        assert_eq!((spec.class.as_str(), spec.workload.replicas), ("blue", 5));
        assert_eq!(spec.exposure.type_, ExposureType::ClusterIP);
        assert_eq!(
            spec.routes.from,
            NamespacesFrom::All,
            "its listeners say whose routes it takes"
        );
        let pod = &spec.workload.pod;
        assert!(pod.labels.contains_key("team"));
        assert_eq!(pod.labels[GATEWAY_NAME_LABEL], "edge");
        assert!(pod.annotations.contains_key("cloud.example/balancer"));
        assert!(spec.exposure.annotations.contains_key("cloud.example/balancer"));
        assert!(spec.exposure.labels.contains_key("team"));
    }

    #[test]
    fn a_wrong_reference_to_parameters_is_told() {
        let mut objects = Objects::default();
        objects.parameters.insert(ObjectKey::new("shop", "small"), Parameters::default());
        let reference =
            |group: &str, kind: &str, name: &str, namespace: Option<&str>| ParametersRef {
                group: group.to_owned(),
                kind: kind.to_owned(),
                name: name.to_owned(),
                namespace: namespace.map(str::to_owned),
            };
        let right = reference("packrat.dev", "GatewayParameters", "small", Some("shop"));
        assert!(parameters(&objects, &right, None).is_ok());
        assert!(
            parameters(&objects, &right, Some("other")).is_err(),
            "a Gateway's are in its namespace"
        );
        for (wrong, part) in [
            (reference("", "ConfigMap", "small", Some("shop")), "ConfigMap"),
            (reference("packrat.dev", "GatewayParameters", "big", Some("shop")), "shop/big"),
            (reference("packrat.dev", "GatewayParameters", "small", None), "without a namespace"),
        ] {
            let error = parameters(&objects, &wrong, None).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
