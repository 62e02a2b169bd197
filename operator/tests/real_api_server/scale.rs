//! 500 Services with 5,000 endpoints: time, memory, and number of requests.
//! Printed, not asserted.

use std::time::Instant;

use futures::StreamExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Cluster, gateway, service};

const SERVICES: u16 = 500;
const ENDPOINTS: u16 = 10;

#[test]
fn five_hundred_services_with_five_thousand_endpoints() {
    let namespace = "packrat-test-scale";
    let options = ["--listeners-per-namespace", "500"];
    let Some((cluster, operator)) = Cluster::with_operator_and(namespace, &options) else {
        return;
    };
    let empty = operator.memory();
    cluster.apply(gateway(namespace, "default", &json!({})));
    cluster.ready_gateway(namespace, "default", "192.0.2.9");
    let wanted = json!({ "packrat.dev/assist": "enabled" });
    let objects: Vec<Value> = (0..SERVICES)
        .flat_map(|number| {
            let addresses: Vec<String> = (0..ENDPOINTS)
                .map(|endpoint| format!("10.{}.{}.{endpoint}", number / 250, number % 250))
                .collect();
            service(namespace, &format!("s{number}"), 20_000 + number, &wanted, &addresses)
        })
        .collect();
    let before = requests(&cluster);
    let start = Instant::now();
    let here = &cluster;
    cluster.runtime.block_on(async {
        futures::stream::iter(objects)
            .for_each_concurrent(16, |object| async move {
                let (kind, name) = (
                    object["kind"].as_str().unwrap(),
                    object["metadata"]["name"].as_str().unwrap(),
                );
                let parameters = PatchParams::apply("packrat-test").force();
                here.api(kind, namespace)
                    .patch(name, &parameters, &Patch::Apply(&object))
                    .await
                    .unwrap();
            })
            .await;
    });
    let written = start.elapsed();
    cluster.wait_until("all routes", || {
        let status = cluster.get("EdgeGateway", namespace, "default").unwrap()["status"].take();
        let endpoints: u64 = status["listeners"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|listener| listener["endpoints"].as_u64().unwrap())
            .sum();
        endpoints == u64::from(SERVICES) * u64::from(ENDPOINTS)
    });
    let routed = start.elapsed();
    cluster.wait_until("all conditions", || {
        let services = cluster
            .runtime
            .block_on(cluster.api("Service", namespace).list(&Default::default()))
            .unwrap();
        let told = |service: &kube::api::DynamicObject| {
            service.data["status"]["conditions"][0]["status"] == "True"
        };
        services.items.iter().filter(|service| told(service)).count() == usize::from(SERVICES)
    });
    println!(
        "{SERVICES} Services with {} endpoints: written by the test in {written:.1?}; all routes in the status after {routed:.1?}, all conditions after {:.1?}; the operator's memory {empty} KiB before, {} KiB after; its requests: {}",
        SERVICES * ENDPOINTS,
        start.elapsed(),
        operator.memory(),
        requests(&cluster) - before,
    );
    cluster.remove_namespace(namespace);
}

/// Requests that the API server has answered to the operator: applied objects, and Events.
fn requests(cluster: &Cluster) -> i64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = cluster.runtime.block_on(cluster.client.request_text(request)).unwrap();
    text.lines()
        .filter(|line| line.starts_with("apiserver_request_total"))
        .filter(|line| {
            [
                "subresource=\"status\"",
                "resource=\"events\"",
                "resource=\"secrets\"",
                "group=\"apps\"",
                "group=\"coordination.k8s.io\"",
            ]
            .iter()
            .any(|part| line.contains(part))
        })
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .map(|value| value as i64)
        .sum()
}
