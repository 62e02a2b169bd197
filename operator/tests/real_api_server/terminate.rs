//! Connections that end at the gateway: the operator reads the certificate that a Service names.

use serde_json::{Value, json};

use super::{Cluster, gateway, service};

/// A Secret with a certificate and its key.
fn secret(namespace: &str, labels: &Value) -> Value {
    let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).unwrap();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "web-tls", "namespace": namespace, "labels": labels },
        "stringData": { "tls.crt": made.cert.pem(), "tls.key": made.signing_key.serialize_pem() },
    })
}

#[test]
fn a_secret_with_a_certificate_is_found_and_told_of() {
    let namespace = "packrat-test-terminate";
    let Some((cluster, _operator)) = Cluster::with_operator(namespace) else { return };
    let spec = json!({ "exposure": { "type": "LoadBalancer" }, "terminate": "Yes" });
    let wrong = cluster.try_apply(gateway(namespace, "default", &spec)).unwrap_err().to_string();
    assert!(wrong.contains("spec.terminate"), "{wrong}");
    let spec = json!({ "exposure": { "type": "LoadBalancer" }, "terminate": "Allowed" });
    cluster.apply(gateway(namespace, "default", &spec));
    cluster.ready_gateway(namespace, "default", "192.0.2.9");
    let ask = json!({
        "packrat.dev/assist": "enabled", "packrat.dev/mode": "terminate",
        "packrat.dev/certificate": "web-tls",
    });
    for mut object in service(namespace, "web", 443, &ask, &["192.0.2.1".to_owned()]) {
        match object["kind"].as_str() {
            Some("Service") => {
                object["spec"]["ports"][0]["protocol"] = "TCP".into();
                object["spec"]["ports"][0]["appProtocol"] = "kubernetes.io/h2c".into();
            }
            _ => object["ports"][0]["protocol"] = "TCP".into(),
        }
        cluster.apply(object);
    }
    let condition = || cluster.condition("Service", namespace, "web", "packrat.dev/Assisted");
    let told = |expected: &str, part: &str| {
        cluster.wait_until(part, || {
            condition()
                .is_some_and(|(_, reason, message)| reason == expected && message.contains(part))
        });
    };
    told("NoCertificate", "does not exist");
    cluster.apply(secret(namespace, &json!({})));
    told("NoCertificate", "is not for gateways");
    cluster.apply(secret(namespace, &json!({ "packrat.dev/for-gateways": "true" })));
    told("Terminated", "port 443");
    assert_eq!(condition().unwrap().0, "True");
    cluster.wait_until("the status", || {
        let found = cluster.get("EdgeGateway", namespace, "default").unwrap();
        let listener = &found["status"]["listeners"][0];
        listener["terminated"] == true && listener["endpoints"] == 1
    });
    let protocols = || {
        let found = cluster.get("Service", namespace, "packrat-gateway-default")?;
        let ports = found["spec"]["ports"].as_array()?.clone();
        Some(ports.iter().map(|port| port["protocol"].clone()).collect::<Vec<_>>())
    };
    cluster.wait_until("both protocols", || protocols() == Some(vec![json!("UDP"), json!("TCP")]));
    // Gateways that start without an operator also have it: two listeners with a certificate each.
    cluster.wait_until("the last configuration", || {
        let last = cluster.get("Secret", namespace, "packrat-gateway-default-last");
        last.is_some_and(|secret| {
            secret["data"]["listeners.pb"].as_str().is_some_and(|text| text.len() > 2000)
        })
    });
}
