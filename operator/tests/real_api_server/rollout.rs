//! Gateways that are wanted and do not come, as objects tell of them.

use serde_json::json;

use super::{Cluster, gateway, service};

/// Kubernetes' own controllers try, and its own admission refuses.
#[test]
fn gateways_that_a_quota_refuses_are_told_at_every_object() {
    let namespace = "packrat-test-rollout";
    let Some((cluster, operator)) = Cluster::with_operator(namespace) else { return };
    // The ready gateway is there already.
    cluster.ready_gateway(namespace, "default", "192.0.2.9");
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "pods", "namespace": namespace },
        "spec": { "hard": { "pods": "1" } },
    }));
    cluster.wait_until("the quota to be counted", || {
        let found = cluster.get("ResourceQuota", namespace, "pods").unwrap();
        found["status"]["used"]["pods"] == "1"
    });
    cluster.apply(gateway(namespace, "default", &json!({ "workload": { "replicas": 3 } })));
    let on = json!({ "packrat.dev/assist": "enabled" });
    for object in service(namespace, "web", 443, &on, &["192.0.2.1".to_owned()]) {
        cluster.apply(object);
    }
    let says = |kind: &str, name: &str, type_: &str, status: &str, parts: &[&str]| {
        cluster.wait_until(&format!("{type_} of {kind} {name} with {parts:?}"), || {
            cluster.condition(kind, namespace, name, type_).is_some_and(
                |(found, reason, message)| {
                    let told = format!("{reason}: {message}");
                    found == status && parts.iter().all(|part| told.contains(part))
                },
            )
        });
    };
    let quota = "exceeded quota: pods";
    says(
        "EdgeGateway",
        "default",
        "RolledOut",
        "False",
        &["RolloutStuck: of 3 gateways", "FailedCreate", quota],
    );
    says("Service", "web", "packrat.dev/Assisted", "True", &["Assisted"]);
    cluster.wait_until("the Event", || {
        let events =
            cluster.runtime.block_on(cluster.api("Event", namespace).list(&Default::default()));
        events.unwrap().items.iter().any(|event| {
            event.data["reason"] == "RolloutStuck"
                && event.data["regarding"]["kind"] == "EdgeGateway"
                && event.data["note"].as_str().is_some_and(|note| note.contains(quota))
        })
    });
    cluster.delete("Pod", namespace, "ready-default");
    says(
        "EdgeGateway",
        "default",
        "Ready",
        "False",
        &["NoReadyGateway", "none of 3 wanted gateways is ready"],
    );
    says(
        "Service",
        "web",
        "packrat.dev/Assisted",
        "False",
        &["NoReadyGateway", "no gateway is ready"],
    );

    // On purpose, none.
    let none = json!({ "spec": { "workload": { "replicas": 0 } } });
    cluster.merge("EdgeGateway", namespace, "default", &none);
    says("EdgeGateway", "default", "Ready", "False", &["ScaledToZero"]);
    assert!(!operator.lacks_rules(), "{}", operator.log());
    cluster.remove_namespace(namespace);
}
