//! The Pods' rights, and secrets that have to be replaced in time.

use base64::Engine as _;
use serde_json::{Value, json};

use super::{Cluster, gateway};

/// A Pod of a workload's template.
fn pod_of(workload: &Value, namespace: &str, name: &str) -> Value {
    let mut spec = workload["spec"]["template"]["spec"].clone();
    // A default of the API server's that a Pod of one's own may not have.
    spec.as_object_mut().unwrap().remove("priority");
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace }, "spec": spec })
}

/// Kubernetes' own admission decides.
#[test]
fn pods_off_the_host_network_run_at_the_level_restricted() {
    let namespace = "packrat-test-restricted";
    let Some((cluster, _operator)) = Cluster::with_operator(namespace) else { return };
    let enforce = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
    cluster.merge("Namespace", "", namespace, &json!({ "metadata": { "labels": enforce } }));
    let plain = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "a", "image": "a" }] } } } });
    let mut number = 0;
    cluster.wait_until("the level to be in force", || {
        number += 1;
        let refused = cluster.create(&pod_of(&plain, namespace, &format!("plain-{number}")));
        refused.is_err_and(|error| error.to_string().contains("violates PodSecurity \"restricted"))
    });

    // The gateways.
    let name = "packrat-gateway-edge";
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "edge-tls", "namespace": namespace, "labels": { "packrat.dev/for-gateways": "true" } },
        "stringData": { "tls.crt": "", "tls.key": "" },
    }));
    let tokens = json!({ "policy": "Optional", "tls": { "secretName": "edge-tls" } });
    cluster.apply(gateway(namespace, "edge", &json!({ "tokens": tokens })));
    cluster.wait_until("the gateways", || cluster.get("Deployment", namespace, name).is_some());
    let workload = cluster.get("Deployment", namespace, name).unwrap();
    cluster.create(&pod_of(&workload, namespace, "gateway")).unwrap();

    // The objects that the chart installs.
    let render = include_str!("../../../charts/renders/default.yaml");
    let documents = serde_saphyr::from_multiple::<Value>(render).unwrap();
    let operator = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
    let account = &operator["spec"]["template"]["spec"]["serviceAccountName"];
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": account, "namespace": namespace },
    }));
    cluster.create(&pod_of(operator, namespace, "operator")).unwrap();
    let test = documents.iter().find(|document| document["kind"] == "Pod").unwrap();
    cluster.create(&pod_of(&json!({ "spec": { "template": test } }), namespace, "test")).unwrap();

    // The host network is not for every namespace: it takes one that allows it.
    let on_host =
        json!({ "exposure": { "type": "HostNetwork" }, "workload": { "kind": "DaemonSet" } });
    cluster.apply(gateway(namespace, "host", &on_host));
    let name = "packrat-gateway-host";
    cluster.wait_until("the gateways of the nodes", || {
        cluster.get("DaemonSet", namespace, name).is_some()
    });
    let workload = cluster.get("DaemonSet", namespace, name).unwrap();
    let error = cluster.create(&pod_of(&workload, namespace, "host")).unwrap_err().to_string();
    assert!(
        error.contains("violates PodSecurity") && error.contains("hostNetwork=true"),
        "{error}"
    );
    cluster.remove_namespace(namespace);
}

/// A replica that starts finds a certificate that is soon too old, and a key of tokens that has
/// been used for long enough.
#[test]
fn certificates_and_keys_of_tokens_are_replaced_when_it_is_time() {
    let namespace = "packrat-test-replaced";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    cluster.apply(gateway(namespace, "edge", &json!({ "tokens": { "rotationHours": 24 } })));
    let (keys, client) = ("packrat-gateway-edge-keys", "packrat-gateway-edge-client");
    for name in [keys, client] {
        cluster.wait_until(name, || cluster.get("Secret", namespace, name).is_some());
    }
    cluster.wait_until("the gateways", || {
        cluster.get("PodDisruptionBudget", namespace, "packrat-gateway-edge").is_some()
    });
    drop(operator);

    let base64 = base64::engine::general_purpose::STANDARD;
    let entry = |name: &str, entry: &str| {
        let secret = cluster.get("Secret", namespace, name).unwrap();
        String::from_utf8(base64.decode(secret["data"][entry].as_str().unwrap()).unwrap()).unwrap()
    };
    let state = |name: &str| serde_json::from_str::<Value>(&entry(name, "state.json")).unwrap();
    let write = |name: &str, state: &Value| {
        let change = json!({ "data": { "state.json": base64.encode(state.to_string()) } });
        cluster.merge("Secret", namespace, name, &change);
    };
    let (former_keys, former_certificate) = (state(keys), entry(client, "tls.crt"));
    let mut old = former_keys.clone();
    old["tokens"]["since"] = (old["tokens"]["since"].as_i64().unwrap() - 25 * 3600).into();
    write(keys, &old);
    let mut old = state(client);
    old["issued"] = (old["issued"].as_i64().unwrap() - 3 * 86_400).into();
    write(client, &old);

    let _operator = cluster.operator("later", None);
    cluster.wait_until("another certificate", || entry(client, "tls.crt") != former_certificate);
    cluster.wait_until("the next key", || state(keys)["tokens"]["next"].is_array());
    let now = state(keys);
    assert_eq!(now["static_key"], former_keys["static_key"], "clients have pinned it");
    assert_eq!(
        now["tokens"]["current"], former_keys["tokens"]["current"],
        "announced, not yet used"
    );
    assert!(entry(client, "ca.crt").contains("BEGIN CERTIFICATE"));
    cluster.remove_namespace(namespace);
}
