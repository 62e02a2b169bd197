//! Connection IDs that name servers: the operator reads the Secret that a Service names.

use serde_json::{Value, json};

use super::{Cluster, gateway, service};

fn secret(namespace: &str, labels: &Value, ids: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "web-ids", "namespace": namespace, "labels": labels },
        "stringData": { "quic-lb.json": ids.to_string() },
    })
}

#[test]
fn a_secret_with_server_ids_is_found_and_told_of() {
    let namespace = "packrat-test-server-ids";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    cluster.apply(gateway(namespace, "default", &json!({})));
    cluster.ready_gateway(namespace, "default", "192.0.2.9");
    let ask = json!({ "packrat.dev/assist": "enabled", "packrat.dev/quic-lb": "web-ids" });
    for object in service(namespace, "web", 443, &ask, &["192.0.2.1".to_owned()]) {
        cluster.apply(object);
    }
    let told = |expected: &str, part: &str| {
        cluster.wait_until(part, || {
            let condition = cluster.condition("Service", namespace, "web", "packrat.dev/Assisted");
            condition.is_some_and(|(status, reason, message)| {
                status == "True" && reason == expected && message.contains(part)
            })
        });
    };
    told("NoServerIds", "does not exist");
    let ids = json!([{ "server_id_bytes": 4, "nonce_bytes": 12 }]);
    cluster.apply(secret(namespace, &json!({}), &ids));
    told("NoServerIds", "is not for gateways");
    cluster.apply(secret(namespace, &json!({ "packrat.dev/for-gateways": "true" }), &ids));
    told("Assisted", "assisted by EdgeGateway");
    assert!(!operator.lacks_rules(), "{}", operator.log());
    cluster.remove_namespace(namespace);
}
