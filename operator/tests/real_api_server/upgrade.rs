//! The definition of the chart's first version gives way to the present one, with the objects that
//! are there.

use packrat_operator::resource::{EdgeGateway, EdgeGatewaySpec};
use serde_json::{Value, json};

use super::{Cluster, gateway, service};

/// Fields of the first version, with values other than the defaults.
fn used() -> Value {
    json!({
        "exposure": { "type": "NodePort", "externalTrafficPolicy": "Cluster", "nodePorts": { "443": 30443 } },
        "workload": { "replicas": 3, "pod": { "nodeSelector": { "edge": "yes" } } },
        "envoy": { "workers": 2, "logLevel": "info" },
        "cache": { "bytesPerSession": "2Mi", "bytesTotal": "512Mi" },
        "repair": { "budgetPercent": 50 },
        "lastMile": { "residualLossPerMillion": 100 },
        "sessions": { "maximum": 1000, "idleTimeoutSeconds": 60 },
        "tokens": { "policy": "Optional", "rotationHours": 12, "tls": { "secretName": "edge-tls" } },
        "drain": { "seconds": 5 },
        "routes": { "from": "All" },
    })
}

#[test]
fn edge_gateways_of_the_first_version_are_kept_and_work() {
    let Some(cluster) = Cluster::find() else { return };
    let namespace = "packrat-test-upgrade";
    cluster.namespace(namespace, &json!({}));
    let former: Value =
        serde_saphyr::from_str(include_str!("../former/edgegateways.yaml")).unwrap();
    cluster.define(former);
    cluster.apply(gateway(namespace, "edge", &used()));
    let before = cluster.get("EdgeGateway", namespace, "edge").unwrap();
    assert_eq!(before["spec"]["tokens"]["lifetimeSeconds"], 300, "the former defaults are stored");

    // The present operator without the present definition reports that this is outdated.
    let early = cluster.operator("early", None);
    let accepted = || cluster.condition("EdgeGateway", namespace, "edge", "Accepted");
    cluster.wait_until("what it says", || {
        accepted().is_some_and(|(status, reason, message)| {
            status == "False"
                && reason == "DefinitionOutdated"
                && message.contains("kubectl apply --server-side")
        })
    });
    cluster.wait_until("an Event", || {
        let events =
            cluster.runtime.block_on(cluster.api("Event", namespace).list(&Default::default()));
        events.unwrap().items.iter().any(|event| event.data["reason"] == "DefinitionOutdated")
    });
    assert!(early.log().contains("definition_outdated"), "{}", early.log());
    drop(early);

    // As `kubectl apply --server-side` does before `helm upgrade`.
    for definition in cluster.definitions() {
        cluster.define(definition);
    }
    let mut after = Value::Null;
    cluster.wait_until("the present schema", || {
        after = cluster.get("EdgeGateway", namespace, "edge").unwrap();
        after["spec"]["exposure"]["ipFamilies"].is_array()
    });
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["metadata"]["generation"], before["metadata"]["generation"]);
    // All former fields are unchanged, and all of them are understood, but for the settings that EdgeGateways
    // no longer have.
    let mut spec = before["spec"].clone();
    spec.as_object_mut().unwrap().remove("lastMile");
    spec["sessions"].as_object_mut().unwrap().remove("handshakesPerSecondPerSource");
    fn kept(path: &str, before: &Value, after: &Value) {
        match before {
            Value::Object(fields) => {
                for (name, field) in fields {
                    kept(&format!("{path}.{name}"), field, &after[name]);
                }
            }
            _ => assert_eq!(before, after, "{path}"),
        }
    }
    kept("spec", &spec, &after["spec"]);
    let read: EdgeGateway = serde_json::from_value(after.clone()).unwrap();
    assert_eq!(
        serde_json::to_value(&read.spec).unwrap(),
        after["spec"],
        "nothing is lost between the API server and the operator"
    );
    assert_ne!(read.spec, EdgeGatewaySpec::default());

    // The present operator takes it, and it can be changed. Its Secret has to be labelled now.
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "edge-tls", "namespace": namespace, "labels": { "packrat.dev/for-gateways": "true" } },
        "stringData": { "tls.crt": "", "tls.key": "" },
    }));
    let operator = cluster.operator("upgraded", None);
    cluster.wait_until("the election", || operator.is_elected());
    let wanted = json!({ "packrat.dev/assist": "enabled", "packrat.dev/gateway": "edge" });
    for object in service(namespace, "web", 443, &wanted, &["192.0.2.1".to_owned()]) {
        cluster.apply(object);
    }
    cluster.wait_until("the gateways", || {
        cluster
            .get("Deployment", namespace, "packrat-gateway-edge")
            .is_some_and(|found| found["spec"]["replicas"] == 3)
    });
    cluster.wait_until("the node port", || {
        cluster
            .get("Service", namespace, "packrat-gateway-edge")
            .is_some_and(|found| found["spec"]["ports"][0]["nodePort"] == 30443)
    });
    cluster.merge(
        "EdgeGateway",
        namespace,
        "edge",
        &json!({ "spec": { "workload": { "replicas": 1 } } }),
    );
    cluster.wait_until("the change", || {
        cluster
            .get("Deployment", namespace, "packrat-gateway-edge")
            .is_some_and(|found| found["spec"]["replicas"] == 1)
    });
    // The former definition is not in its way any more.
    cluster.wait_until("the claim", || {
        let status = cluster.get("EdgeGateway", namespace, "edge").unwrap()["status"].clone();
        status["operator"] == format!("{}/packrat-operator", super::HOME)
            && accepted().is_none_or(|(_, reason, _)| reason != "DefinitionOutdated")
    });
    cluster.remove_namespace(namespace);
}
