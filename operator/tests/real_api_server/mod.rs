//! The operator with a real API server (a control plane is enough: no Pod has to run). Needs
//! `PACKRAT_TEST_KUBECONFIG`: a cluster that the test may use alone.

mod classes;
mod cluster;
mod definition;
mod gateway_api;
mod objects;
mod outage;
mod readings;
mod rollout;
mod scale;
mod security;
mod server_ids;
mod tcp;
mod tenants;
mod terminate;
mod upgrade;
mod webhook;

use cluster::{Cluster, HOME};
use serde_json::{Value, json};

/// A Service that asks for assistance, and its EndpointSlice.
fn service(
    namespace: &str,
    name: &str,
    port: u16,
    annotations: &Value,
    addresses: &[String],
) -> [Value; 2] {
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({ "addresses": [address], "conditions": { "ready": true } }))
        .collect();
    [
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name, "namespace": namespace, "annotations": annotations },
            "spec": { "ports": [{ "name": "quic", "port": port, "protocol": "UDP" }] },
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": format!("{name}-1"), "namespace": namespace,
                "labels": { "kubernetes.io/service-name": name },
            },
            "ports": [{ "name": "quic", "port": 8443, "protocol": "UDP" }],
            "endpoints": endpoints,
        }),
    ]
}

/// An EdgeGateway. The Services have endpoints without Pods, unless the spec has another setting
/// for routes.
fn gateway(namespace: &str, name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if spec["routes"].is_null() {
        spec["routes"] = json!({ "endpoints": "Any" });
    }
    json!({
        "apiVersion": "packrat.dev/v1alpha1", "kind": "EdgeGateway",
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    })
}
