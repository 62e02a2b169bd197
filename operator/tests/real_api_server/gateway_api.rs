//! The Gateway API with its own definitions: found when they appear, served, forgotten when they go.

use std::path::Path;

use serde_json::{Value, json};

use super::{Cluster, gateway, service};

const GROUP: &str = "gateway.networking.k8s.io";
const KINDS: [&str; 4] = ["gatewayclasses", "gateways", "udproutes", "referencegrants"];

/// The definitions that `tools/install-gateway-api` has put there.
fn definitions() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.packrat/gateway-api");
    let read = |kind: &str| {
        let path = folder.join(format!("{kind}.yaml"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("{}: {error}; run tools/install-gateway-api", path.display())
        });
        serde_saphyr::from_multiple::<Value>(&text).unwrap().remove(0)
    };
    KINDS.map(read).into()
}

fn forget_definitions(cluster: &Cluster) {
    for kind in KINDS {
        let name = format!("{kind}.{GROUP}");
        if cluster.get("CustomResourceDefinition", "", &name).is_some() {
            cluster.delete("CustomResourceDefinition", "", &name);
        }
        cluster.wait_until("the definition to go", || {
            cluster.get("CustomResourceDefinition", "", &name).is_none()
        });
    }
}

fn object(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": { "namespace": namespace, "name": name }, "spec": spec,
    })
}

/// Status and reason of a condition in a list of conditions.
fn condition(conditions: &Value, type_: &str) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = conditions.as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    (text(&found["status"]), text(&found["reason"]))
}

fn says(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn gateways_and_udp_routes_are_served_while_they_are_defined() {
    let (namespace, tenant) = ("packrat-test-gwapi", "packrat-test-gwapi-tenant");
    let Some(cluster) = Cluster::find() else { return };
    forget_definitions(&cluster);
    cluster.namespace(namespace, &json!({}));
    cluster.namespace(tenant, &json!({}));
    let operator = cluster.operator("only", None);
    cluster.wait_until("the election", || operator.is_elected());

    // Without definitions everything is as before.
    cluster.apply(gateway(namespace, "plain", &json!({})));
    let is_made = |name: &str| {
        cluster.get("Deployment", namespace, &format!("packrat-gateway-{name}")).is_some()
    };
    cluster.wait_until("an EdgeGateway's objects", || is_made("plain"));
    assert!(!operator.log().contains("gateway_api_"), "{}", operator.log());

    for definition in definitions() {
        cluster.define(definition);
    }
    cluster.apply(json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "GatewayClass", "metadata": { "name": "packrat-test" },
        "spec": {
            "controllerName": "packrat.dev/gateway-controller",
            "parametersRef": { "group": "packrat.dev", "kind": "GatewayParameters", "name": "small", "namespace": namespace },
        },
    }));
    cluster.apply(json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "GatewayClass", "metadata": { "name": "packrat-test-other" },
        "spec": { "controllerName": "example.org/other" },
    }));
    let of_class = |class: &str| {
        json!({ "gatewayClassName": class, "listeners": [
            { "name": "quic", "port": 443, "protocol": "UDP", "allowedRoutes": { "namespaces": { "from": "All" } } },
            { "name": "game", "port": 7000, "protocol": "UDP" },
        ]})
    };
    cluster.apply(object("Gateway", namespace, "edge", of_class("packrat-test")));
    cluster.apply(object("Gateway", namespace, "theirs", of_class("packrat-test-other")));
    let of_class = || cluster.get("GatewayClass", "", "packrat-test").unwrap()["status"].clone();
    // The parameters that it names are not there yet.
    cluster.wait_until("what is said about the class", || {
        condition(&of_class()["conditions"], "Accepted") == says("False", "InvalidParameters")
    });
    cluster.apply(json!({
        "apiVersion": "packrat.dev/v1alpha1", "kind": "GatewayParameters",
        "metadata": { "namespace": namespace, "name": "small" },
        "spec": { "exposure": { "type": "ClusterIP" }, "workload": { "replicas": 1 }, "endpoints": "Any" },
    }));
    for content in service(namespace, "web", 8443, &json!({}), &["192.0.2.1".to_owned()]) {
        cluster.apply(content);
    }
    for content in service(tenant, "shop", 8443, &json!({}), &["192.0.2.2".to_owned()]) {
        cluster.apply(content);
    }
    let route = |destination: &Value| {
        object(
            "UDPRoute",
            namespace,
            "web",
            json!({
                "parentRefs": [{ "name": "edge", "sectionName": "quic" }], "rules": [{ "backendRefs": [destination] }],
            }),
        )
    };
    cluster.apply(route(&json!({ "name": "web", "port": 8443 })));

    let edge = || cluster.get("EdgeGateway", namespace, "edge").unwrap_or_default();
    let status = || cluster.get("Gateway", namespace, "edge").unwrap()["status"].clone();
    let parent =
        || cluster.get("UDPRoute", namespace, "web").unwrap()["status"]["parents"][0].clone();
    cluster.wait_until("the route", || {
        edge()["status"]["listeners"][0]["service"] == format!("{namespace}/web.udproute")
            && edge()["status"]["listeners"][0]["endpoints"] == 1
            && is_made("edge")
    });
    // The definitions are of a known release; then one is not.
    let supported = || condition(&of_class()["conditions"], "SupportedVersion");
    cluster.wait_until("the release", || supported() == says("True", "SupportedVersion"));
    let routes = format!("udproutes.{GROUP}");
    let release = |version: &Value| {
        let annotations = json!({ format!("{GROUP}/bundle-version"): version });
        let change = json!({ "metadata": { "annotations": annotations } });
        cluster.merge("CustomResourceDefinition", "", &routes, &change);
    };
    release(&json!("v9.0.0"));
    cluster.wait_until("the unknown release", || {
        supported() == says("False", "UnsupportedVersion")
            && condition(&of_class()["conditions"], "Accepted") == says("True", "Accepted")
    });
    release(&json!("v1.6.3"));
    assert_eq!(edge()["metadata"]["ownerReferences"][0]["kind"], "Gateway");
    assert_eq!(edge()["spec"]["workload"]["replicas"], 1);
    cluster.wait_until("the statuses", || {
        condition(&of_class()["conditions"], "Accepted") == says("True", "Accepted")
            && condition(&status()["conditions"], "Accepted") == says("True", "Accepted")
            // No Pod runs here.
            && condition(&status()["conditions"], "Programmed") == says("False", "Pending")
            && status()["addresses"][0]["type"] == "IPAddress"
            && status()["listeners"][0]["attachedRoutes"] == 1
            && status()["listeners"][1]["attachedRoutes"] == 0
            && condition(&status()["listeners"][0]["conditions"], "ResolvedRefs") == says("True", "ResolvedRefs")
            && condition(&parent()["conditions"], "Accepted") == says("True", "Accepted")
            && condition(&parent()["conditions"], "ResolvedRefs") == says("True", "ResolvedRefs")
    });
    assert_eq!(parent()["controllerName"], "packrat.dev/gateway-controller");
    let ports =
        cluster.get("Service", namespace, "packrat-gateway-edge").unwrap()["spec"]["ports"].clone();
    let ports: Vec<_> =
        ports.as_array().unwrap().iter().map(|port| port["port"].as_i64()).collect();
    assert_eq!(ports, [Some(443), Some(7000)], "both listeners, with and without a route");

    // In another namespace, without and with its consent.
    cluster.apply(route(&json!({ "name": "shop", "namespace": tenant, "port": 8443 })));
    cluster.wait_until("the refusal", || {
        condition(&parent()["conditions"], "ResolvedRefs") == says("False", "RefNotPermitted")
            && edge()["status"]["listeners"][0]["endpoints"] == 0
    });
    cluster.apply(object(
        "ReferenceGrant",
        tenant,
        "edge",
        json!({
            "from": [{ "group": GROUP, "kind": "UDPRoute", "namespace": namespace }],
            "to": [{ "group": "", "kind": "Service" }],
        }),
    ));
    cluster.wait_until("the permission", || {
        condition(&parent()["conditions"], "ResolvedRefs") == says("True", "ResolvedRefs")
            && edge()["status"]["listeners"][0]["endpoints"] == 1
    });

    // A policy, and one that the schema refuses.
    let policy = |percent: u32| {
        json!({
            "apiVersion": "packrat.dev/v1alpha1", "kind": "PackratPolicy",
            "metadata": { "namespace": namespace, "name": "budget" },
            "spec": {
                "targetRefs": [{ "group": GROUP, "kind": "Gateway", "name": "edge", "sectionName": "quic" }],
                "defaults": { "repair": { "budgetPercent": percent }, "sender": "BBR" },
            },
        })
    };
    assert!(cluster.try_apply(policy(1001)).is_err());
    cluster.apply(policy(10));
    cluster.wait_until("what is said about the policy", || {
        let found = cluster.get("PackratPolicy", namespace, "budget").unwrap();
        let ancestor = &found["status"]["ancestors"][0];
        condition(&ancestor["conditions"], "Accepted") == says("True", "Accepted")
            && ancestor["ancestorRef"]["sectionName"] == "quic"
    });

    // An EdgeGateway that someone changes is put right; another controller's Gateway is left alone.
    cluster.merge(
        "EdgeGateway",
        namespace,
        "edge",
        &json!({ "spec": { "repair": { "budgetPercent": 7 } } }),
    );
    cluster.wait_until("the EdgeGateway as it was", || {
        edge()["spec"]["repair"]["budgetPercent"] == 25
    });
    let theirs = cluster.get("Gateway", namespace, "theirs").unwrap()["status"].clone();
    assert!(!theirs.to_string().contains("packrat"), "{theirs}");
    assert!(cluster.get("EdgeGateway", namespace, "theirs").is_none());

    // When the condition is void, no further status is written.
    let objects = || {
        [("Gateway", "edge"), ("UDPRoute", "web"), ("EdgeGateway", "edge")]
            .map(|(kind, name)| cluster.get(kind, namespace, name).unwrap())
    };
    cluster.wait_until("the last word", || {
        let [gateway, _, edge] = objects();
        let conditions = gateway["status"]["conditions"].to_string();
        edge["status"]["observedGeneration"] == edge["metadata"]["generation"]
            && edge["status"]["conditions"].to_string().contains("RolloutStuck")
            // There is no node for it, and Kubernetes says so after a while.
            && conditions.contains("no gateway is ready")
            && conditions.contains("ProgressDeadlineExceeded")
    });
    let versions = || objects().map(|object| object["metadata"]["resourceVersion"].clone());
    let before = versions();
    // Longer than an operator waits before it looks at everything again.
    std::thread::sleep(std::time::Duration::from_secs(17));
    assert_eq!(versions(), before, "{}", operator.log());

    // The Gateway goes, and everything with it.
    cluster.delete("Gateway", namespace, "edge");
    cluster.wait_until("the objects to go", || !is_made("edge") && edge().is_null());

    forget_definitions(&cluster);
    cluster.wait_until("the operator to notice", || {
        operator
            .log()
            .lines()
            .rfind(|line| line.contains("\"gateway_api\""))
            .is_some_and(|line| !line.contains("UdpRoute"))
    });
    cluster.apply(gateway(namespace, "later", &json!({})));
    cluster.wait_until("an EdgeGateway's objects", || is_made("later"));
    let failures = operator.log().lines().filter(|line| line.contains("watch_failed")).count();
    assert!(failures < 100, "{failures}");
    assert!(!operator.lacks_rules(), "{}", operator.log());
    cluster.remove_namespace(namespace);
    cluster.remove_namespace(tenant);
}
