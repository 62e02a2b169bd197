//! Readings of gateways' pages, as objects tell of them.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{Cluster, gateway, service};

/// The port of gateways' pages.
const PAGES: u16 = 9902;

/// A page of a gateway with the route `shop/web/443` of a namespace at this stage.
fn page(namespace: &str, stage: &str) -> String {
    json!({ "version": "0.1.0", "routes": [{
        "route": format!("{namespace}/web/443"), "metrics": { "packrat_sessions": 7 },
        "comparison": { "holdout": 0.05, "stage": stage, "sizes": [] },
    }]})
    .to_string()
}

/// Answers every request with the newest page until the test's process ends.
fn serve(listener: TcpListener, page: Arc<Mutex<String>>) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = Vec::new();
            let mut part = [0; 1024];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut part) {
                    Ok(length @ 1..) => request.extend_from_slice(&part[..length]),
                    _ => break,
                }
            }
            let body = page.lock().unwrap().clone();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            // The operator may have gone away.
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
}

#[test]
fn assistance_that_a_gateway_has_stopped_is_told_at_its_objects() {
    let namespace = "packrat-test-readings";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    // The Pod of the gateway is this test.
    let address = cluster.own_address().ip();
    let current = Arc::new(Mutex::new(page(namespace, "assisting")));
    serve(TcpListener::bind((address, PAGES)).unwrap(), Arc::clone(&current));
    cluster.apply(gateway(namespace, "default", &json!({ "exposure": { "type": "ClusterIP" } })));
    let on = json!({ "packrat.dev/assist": "enabled" });
    for object in service(namespace, "web", 443, &on, &["192.0.2.1".to_owned()]) {
        cluster.apply(object);
    }
    cluster.ready_gateway(namespace, "default", &address.to_string());

    let says = |kind: &str, name: &str, type_: &str, status: &str, reason: &str| {
        cluster.wait_until(&format!("{type_} {status} {reason} of {kind} {name}"), || {
            cluster
                .condition(kind, namespace, name, type_)
                .is_some_and(|(found, why, _)| found == status && why == reason)
        });
    };
    let edge = || cluster.get("EdgeGateway", namespace, "default").unwrap();
    says("EdgeGateway", "default", "Assisting", "True", "Assisting");
    says("Service", "web", "packrat.dev/Assisted", "True", "Assisted");
    assert_eq!(edge()["status"]["sessions"], 7);

    *current.lock().unwrap() = page(namespace, "stopped");
    says("EdgeGateway", "default", "Assisting", "False", "AssistanceStopped");
    says("Service", "web", "packrat.dev/Assisted", "False", "AssistanceStopped");
    assert_eq!(edge()["status"]["listeners"][0]["stoppedGateways"], 1);
    let (_, _, message) =
        cluster.condition("EdgeGateway", namespace, "default", "Assisting").unwrap();
    assert!(
        message.contains("UDP port 443") && message.contains("on 1 of 1 gateways"),
        "{message}"
    );
    let events = || -> Vec<Value> {
        let api = cluster.api("Event", namespace);
        let found = cluster.runtime.block_on(api.list(&Default::default())).unwrap();
        found.items.into_iter().map(|event| event.data).collect()
    };
    cluster.wait_until("the Event", || {
        events().iter().any(|event| {
            event["reason"] == "AssistanceStopped"
                && event["type"] == "Warning"
                && event["regarding"]["kind"] == "EdgeGateway"
        })
    });

    *current.lock().unwrap() = page(namespace, "trial");
    says("EdgeGateway", "default", "Assisting", "False", "AssistanceTried");
    *current.lock().unwrap() = page(namespace, "assisting");
    says("EdgeGateway", "default", "Assisting", "True", "Assisting");
    says("Service", "web", "packrat.dev/Assisted", "True", "Assisted");
    assert!(edge()["status"]["listeners"][0]["stoppedGateways"].is_null());
    assert!(!operator.lacks_rules(), "{}", operator.log());
    cluster.remove_namespace(namespace);
}
