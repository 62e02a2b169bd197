//! The Pods of an EdgeGateway, which pass clients that have moved to each other.

use std::net::IpAddr;

use packrat_operator::index::Index;
use packrat_operator::keys::GatewayKeys;
use packrat_operator::resource::EdgeGatewaySpec;
use packrat_operator::xds::{self, GatewaySettings};
use serde_json::{Value, json};

use super::{endpoints, gateway, key, take, with_web};

fn pod(namespace: &str, name: &str, address: &str, phase: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": namespace, "name": name, "labels": labels },
        "status": { "phase": phase, "podIPs": [{ "ip": address }] },
    })
}

fn of_gateway(name: &str, address: &str, phase: &str) -> Value {
    let labels = json!({
        "packrat.dev/edge-gateway": "default", "app.kubernetes.io/managed-by": "packrat-operator",
    });
    pod("app", name, address, phase, &labels)
}

fn pods(index: &Index) -> Vec<String> {
    let resolution = index.resolve();
    resolution.gateways[&key("app", "default")].pods.iter().map(IpAddr::to_string).collect()
}

fn served() -> Index {
    with_web(gateway("app", "default", "Same"), &[])
}

#[test]
fn a_gateway_knows_its_pods_and_no_others() {
    let mut index = served();
    assert_eq!(pods(&index), [""; 0]);
    let unmanaged = json!({ "packrat.dev/edge-gateway": "default" });
    let managed = json!({
        "packrat.dev/edge-gateway": "default", "app.kubernetes.io/managed-by": "packrat-operator",
    });
    for object in [
        of_gateway("one", "10.0.1.1", "Running"),
        of_gateway("two", "10.0.1.2", "Running"),
        of_gateway("evicted", "10.0.1.3", "Failed"),
        pod("app", "unmanaged", "10.0.1.4", "Running", &unmanaged),
        pod("another", "elsewhere", "10.0.1.5", "Running", &managed),
    ] {
        take(&mut index, &object);
    }
    assert_eq!(pods(&index), ["10.0.1.1", "10.0.1.2"]);
    // One that ends still has its clients.
    let mut ending = of_gateway("two", "10.0.1.2", "Running");
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    take(&mut index, &ending);
    assert_eq!(pods(&index), ["10.0.1.1", "10.0.1.2"]);
    assert_eq!(endpoints(&index.resolve(), 443), ["10.0.0.1:8443"]);
}

/// The configuration of the listener, as a text somewhere in what Envoy gets.
fn listener(index: &Index) -> String {
    let view = &index.resolve().gateways[&key("app", "default")];
    let (key, keys) = (key("app", "default"), GatewayKeys::generate(0).unwrap());
    let settings = GatewaySettings {
        key: &key,
        spec: &EdgeGatewaySpec::default(),
        keys: &keys,
        listen_address: "::",
        token_filter: "",
        token_certificate: "",
    };
    let resources = xds::resources(&settings, view);
    String::from_utf8_lossy(&resources["udp-443"].resource.value).into_owned()
}

#[test]
fn gateways_are_told_of_each_other_where_there_are_several() {
    let mut index = served();
    take(&mut index, &of_gateway("one", "10.0.1.1", "Running"));
    assert!(!listener(&index).contains("peers"));
    take(&mut index, &of_gateway("two", "10.0.1.2", "Running"));
    let told = listener(&index);
    assert!(told.contains("peers") && told.contains("optional"), "{told}");
    assert!(told.contains("10.0.1.1:443") && told.contains("10.0.1.2:443"), "{told}");
    for number in 3..=65 {
        take(&mut index, &of_gateway(&number.to_string(), &format!("10.0.1.{number}"), "Running"));
    }
    assert!(!listener(&index).contains("peers"), "each move would be a flood");
}
