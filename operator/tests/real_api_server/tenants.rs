//! Limits of a shared gateway's tenants, and of EdgeGateways' authors.

use serde_json::{Value, json};

use super::{Cluster, gateway, service};

/// A Pod that runs nowhere, with an address: no kubelet is needed.
fn pod_with_address(cluster: &Cluster, namespace: &str, name: &str, address: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace },
        "spec": { "schedulerName": "nobody", "containers": [{ "name": "a", "image": "a" }] },
    });
    cluster.apply(pod);
    let status = json!({ "status": { "podIP": address, "podIPs": [{ "ip": address }] } });
    let api = cluster.api("Pod", namespace);
    let patch = kube::api::Patch::Merge(&status);
    cluster.runtime.block_on(api.patch_status(name, &Default::default(), &patch)).unwrap();
}

/// Objects with a slice as Kubernetes' own controller writes it.
fn of_pod(mut objects: [Value; 2], pod: &str) -> [Value; 2] {
    objects[1]["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] =
        "endpointslice-controller.k8s.io".into();
    objects[1]["endpoints"][0]["targetRef"] = json!({ "kind": "Pod", "name": pod });
    objects
}

#[test]
fn endpoints_are_pods_and_a_port_stays_with_the_served_service() {
    let namespace = "packrat-test-tenants";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    cluster.apply(gateway(namespace, "default", &json!({ "routes": {} })));
    cluster.ready_gateway(namespace, "default", "192.0.2.9");
    let old = json!({ "packrat.dev/assist": "disabled", "packrat.dev/port": "443:quic" });
    for object in service(namespace, "old", 8443, &old, &["10.9.9.66".to_owned()]) {
        cluster.apply(object);
    }
    // The seconds of creation decide about a free port.
    std::thread::sleep(std::time::Duration::from_secs(2));
    pod_with_address(&cluster, namespace, "web-0", "10.9.9.1");
    let on = json!({ "packrat.dev/assist": "enabled" });
    for object in of_pod(service(namespace, "web", 443, &on, &["10.9.9.1".to_owned()]), "web-0") {
        cluster.apply(object);
    }
    let listeners = || {
        let mut gateway = cluster.get("EdgeGateway", namespace, "default").unwrap();
        let listeners = gateway["status"]["listeners"].as_array_mut();
        for listener in listeners.into_iter().flatten() {
            listener.as_object_mut().unwrap().remove("nodePort");
        }
        gateway["status"]["listeners"].clone()
    };
    let of_web = json!([
        { "port": 443, "service": format!("{namespace}/web"), "servicePort": 443, "servicePortName": "quic", "endpoints": 1 },
    ]);
    cluster.wait_until("the route to the Pod", || listeners() == of_web);

    // The older Service asks now.
    let asks = json!({ "metadata": { "annotations": { "packrat.dev/assist": "enabled" } } });
    cluster.merge("Service", namespace, "old", &asks);
    let condition =
        |name: &str| cluster.condition("Service", namespace, name, "packrat.dev/Assisted");
    cluster.wait_until("the refusal", || {
        condition("old").is_some_and(|(status, reason, message)| {
            status == "False"
                && reason == "PortConflict"
                && message.contains(&format!("belongs to Service {namespace}/web"))
        })
    });
    assert_eq!(listeners(), of_web);
    let is_told =
        |kind: &str, reason: &str| {
            let events =
                cluster.runtime.block_on(cluster.api("Event", namespace).list(&Default::default()));
            events.unwrap().items.iter().any(|event| {
                event.data["regarding"]["kind"] == kind && event.data["reason"] == reason
            })
        };
    cluster.wait_until("the Events", || {
        is_told("Service", "PortConflict") && is_told("EdgeGateway", "PortConflict")
    });

    // A slice that a user writes adds no endpoint.
    let by_hand = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "web-by-hand", "namespace": namespace, "labels": { "kubernetes.io/service-name": "web" } },
        "ports": [{ "name": "quic", "port": 8443, "protocol": "UDP" }],
        "endpoints": [{ "addresses": ["10.9.9.9"] }],
    });
    cluster.apply(by_hand);
    cluster.wait_until("what is said about it", || {
        condition("web").is_some_and(|(status, reason, message)| {
            status == "True" && reason == "EndpointRefused" && message.contains("10.9.9.9")
        })
    });
    assert_eq!(listeners(), of_web);
    assert!(!operator.lacks_rules(), "{}", operator.log());
    cluster.remove_namespace(namespace);
}

/// An EdgeGateway's author has only the images and Secrets that are meant for gateways.
#[test]
fn authors_have_only_images_and_secrets_meant_for_gateways() {
    let namespace = "packrat-test-authors";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    let accepted = || cluster.condition("EdgeGateway", namespace, "edge", "Accepted");
    let said = |reason: &str, part: &str| {
        cluster.wait_until(part, || {
            accepted().is_some_and(|(status, found, message)| {
                status == "False" && found == reason && message.contains(part)
            })
        });
    };
    let deployment = || cluster.get("Deployment", namespace, "packrat-gateway-edge");
    cluster.apply(gateway(
        namespace,
        "edge",
        &json!({ "envoy": { "image": "evil.example/envoy:1" } }),
    ));
    said("NotPermitted", "evil.example/envoy:1 is not allowed");
    assert!(deployment().is_none());

    let secret = |labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "vendor", "namespace": namespace, "labels": labels },
            "stringData": { "headers": "key=value" },
        })
    };
    let headers = json!({ "name": "vendor", "key": "headers" });
    let otlp = json!({ "endpoint": "http://collector:4318", "headersSecret": headers, "plainHeaders": true });
    let spec = json!({
        "envoy": { "image": "mirror.example/packrat/gateway:1" }, "telemetry": { "otlp": otlp },
    });
    cluster.apply(gateway(namespace, "edge", &spec));
    said("ApplyFailed", "Secret vendor does not exist");
    cluster.apply(secret(json!({})));
    said("ApplyFailed", "Secret vendor is not for gateways");
    assert!(deployment().is_none());
    cluster.apply(secret(json!({ "packrat.dev/for-gateways": "true" })));
    cluster.wait_until("the gateways", || deployment().is_some());
    let image = &deployment().unwrap()["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(*image, "mirror.example/packrat/gateway:1");
    assert!(!operator.lacks_rules(), "{}", operator.log());
    cluster.remove_namespace(namespace);
}

#[test]
fn a_pod_that_starts_without_the_sidecar_it_asks_for_is_told() {
    let namespace = "packrat-test-without-sidecar";
    // No webhook is configured: as when no operator answers it.
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    let port = json!({ "containerPort": 7777, "hostPort": 7000, "protocol": "UDP" });
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "game", "namespace": namespace, "annotations": { "packrat.dev/inject": "sidecar" } },
        "spec": { "schedulerName": "nobody", "containers": [{ "name": "server", "image": "game", "ports": [port] }] },
    }));
    cluster.wait_until("the Event", || {
        let events =
            cluster.runtime.block_on(cluster.api("Event", namespace).list(&Default::default()));
        events.unwrap().items.iter().any(|event| {
            event.data["regarding"]["kind"] == "Pod"
                && event.data["regarding"]["name"] == "game"
                && event.data["reason"] == "NotInjected"
        })
    });
    assert!(!operator.lacks_rules(), "{}", operator.log());
    cluster.remove_namespace(namespace);
}
