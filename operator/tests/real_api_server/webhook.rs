//! The API server asks the injector.

use serde_json::{Value, json};

use super::Cluster;

#[test]
fn the_api_server_gets_pods_with_sidecars_from_the_injector() {
    let Some(cluster) = Cluster::find() else { return };
    let namespace = "packrat-test-webhook";
    cluster.namespace(namespace, &json!({}));
    let operator = cluster.operator("injector", None);
    let address = operator.listening(2);
    cluster.apply(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "packrat-injector" },
        "webhooks": [{
            "name": "inject.packrat.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "timeoutSeconds": 2,
            "reinvocationPolicy": "IfNeeded",
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
            "clientConfig": { "url": format!("https://{address}/inject") },
        }],
    }));
    cluster.wait_until("the certificate authority", || {
        let found = cluster.get("MutatingWebhookConfiguration", "", "packrat-injector").unwrap();
        found["webhooks"][0]["clientConfig"]["caBundle"].is_string()
    });
    let pod = |name: &str, annotation: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace, "annotations": { "packrat.dev/inject": annotation } },
            "spec": { "containers": [{
                "name": "server", "image": "game",
                "ports": [{ "containerPort": 7777, "hostPort": 7000, "protocol": "UDP" }],
            }]},
        })
    };
    let sidecars = |pod: &Value| pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
    // It takes the API server a moment to look at a new configuration.
    let mut number = 0;
    cluster.wait_until("a Pod with a sidecar", || {
        number += 1;
        sidecars(&cluster.create(&pod(&format!("game-{number}"), "sidecar")).unwrap()) == 1
    });
    assert_eq!(sidecars(&cluster.create(&pod("plain", "disabled")).unwrap()), 0);
    // A mistake does not keep the Pod from running.
    assert_eq!(sidecars(&cluster.create(&pod("mistake", "yes")).unwrap()), 0);
    // And neither does an operator that is away.
    drop(operator);
    assert_eq!(sidecars(&cluster.create(&pod("later", "sidecar")).unwrap()), 0);
    cluster.delete("MutatingWebhookConfiguration", "", "packrat-injector");
    cluster.remove_namespace(namespace);
}
