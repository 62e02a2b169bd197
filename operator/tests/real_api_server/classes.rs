//! Two operators in one cluster: each has its EdgeGateways.

use serde_json::{Value, json};

use super::{Cluster, gateway, service};

/// Options of another release's operator.
const OTHER: [&str; 6] = [
    "--service-name",
    "other-operator",
    "--authority-secret",
    "other-operator-authority",
    "--lease",
    "other-operator",
];

#[test]
fn two_operators_never_touch_each_others_gateways() {
    let namespace = "packrat-test-classes";
    let Some((cluster, first)) = Cluster::with_operator(namespace) else { return };
    let deployment = "packrat-gateway-edge";
    cluster.apply(gateway(namespace, "edge", &json!({})));
    cluster.ready_gateway(namespace, "edge", "192.0.2.9");
    let wanted = json!({ "packrat.dev/assist": "enabled", "packrat.dev/gateway": "edge" });
    for object in service(namespace, "web", 443, &wanted, &["192.0.2.1".to_owned()]) {
        cluster.apply(object);
    }
    let holder =
        || cluster.get("EdgeGateway", namespace, "edge").unwrap()["status"]["operator"].clone();
    let is_assisted = || {
        cluster
            .condition("Service", namespace, "web", "packrat.dev/Assisted")
            .is_some_and(|(_, reason, _)| reason == "Assisted")
    };
    cluster.wait_until("the first operator's gateways", || {
        cluster.get("NetworkPolicy", namespace, deployment).is_some()
            && holder() == format!("{}/packrat-operator", super::HOME)
            && is_assisted()
    });
    // Status fields that a Deployment's own controllers write do not count here.
    let versions = || -> Vec<Value> {
        [
            ("Deployment", deployment, "generation"),
            ("ConfigMap", deployment, "resourceVersion"),
            ("Secret", "packrat-gateway-edge-client", "resourceVersion"),
            ("Service", "web", "resourceVersion"),
        ]
        .map(|(kind, name, version)| {
            cluster.get(kind, namespace, name).unwrap()["metadata"][version].clone()
        })
        .into()
    };
    let before = versions();

    // A second release of the same class: it reports that the gateway is not its own, and does not
    // change it.
    let second = cluster.operator_with("second", None, &OTHER);
    cluster.wait_until("the second operator", || second.is_elected());
    let own = format!("{}/packrat-operator", super::HOME);
    let other = format!("{}/other-operator", super::HOME);
    cluster.wait_until("what it says", || {
        let events =
            cluster.runtime.block_on(cluster.api("Event", namespace).list(&Default::default()));
        events.unwrap().items.iter().any(|event| {
            event.data["reason"] == "OtherOperator"
                && event.data["regarding"]["name"] == "edge"
                && event.data["note"].as_str().is_some_and(|note| {
                    note.contains(&format!("operator {other} leaves it alone"))
                        && note.contains(&format!("that of operator {own}"))
                })
        })
    });
    // Both see a change of one EdgeGateway, and another one without an owner: each gets one answer.
    // The second operator would write other objects: its certificates are of another authority.
    cluster.apply(gateway(namespace, "another", &json!({})));
    let replicas = json!({ "spec": { "workload": { "replicas": 3 } } });
    cluster.merge("EdgeGateway", namespace, "edge", &replicas);
    cluster.wait_until("the change", || {
        cluster.get("Deployment", namespace, deployment).unwrap()["spec"]["replicas"] == 3
    });
    let authority = |name: &str| {
        let secret = cluster.get("Secret", namespace, &format!("packrat-gateway-{name}-client"))?;
        secret["data"]["ca.crt"].as_str().map(str::to_owned)
    };
    let of_another = || {
        let status = cluster.get("EdgeGateway", namespace, "another")?["status"].clone();
        cluster.get("Deployment", namespace, "packrat-gateway-another")?;
        Some((status["operator"].as_str()?.to_owned(), authority("another")?))
    };
    cluster.wait_until("another gateway", || of_another().is_some());
    // Longer than an operator waits before it looks at everything again.
    std::thread::sleep(std::time::Duration::from_secs(17));
    let mut once = before.clone();
    once[0] = (before[0].as_i64().unwrap() + 1).into();
    assert_eq!(versions(), once, "{}", second.log());
    let (holder_of_another, its_authority) = of_another().unwrap();
    assert!([&own, &other].contains(&&holder_of_another), "{holder_of_another}");
    let is_of_the_first = Some(its_authority) == authority("edge");
    assert_eq!(is_of_the_first, holder_of_another == own, "{holder_of_another}");
    drop(second);

    // Another class: the first operator gives the gateway up, and the other one takes it over.
    let options: Vec<&str> = OTHER.into_iter().chain(["--class", "blue"]).collect();
    let blue = cluster.operator_with("blue", None, &options);
    cluster.wait_until("the operator of the other class", || blue.is_elected());
    let uid = cluster.get("Deployment", namespace, deployment).unwrap()["metadata"]["uid"].clone();
    cluster.merge("EdgeGateway", namespace, "edge", &json!({ "spec": { "class": "blue" } }));
    cluster.wait_until("the hand-over", || {
        holder() == format!("{}/other-operator", super::HOME) && is_assisted()
    });
    cluster.wait_until("the objects of the other operator", || {
        cluster.get("Secret", namespace, "packrat-gateway-edge-client").unwrap()["metadata"]["resourceVersion"] != before[2]
    });
    assert_eq!(cluster.get("Deployment", namespace, deployment).unwrap()["metadata"]["uid"], uid);
    let after = versions();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(versions(), after, "{}\n{}", first.log(), blue.log());
    assert!(!first.lacks_rules() && !blue.lacks_rules(), "{}", blue.log());
    cluster.remove_namespace(namespace);
}
