//! Several operators in a cluster: EdgeGateways and Services of each.

use packrat_operator::index::{Index, Operator, Resolution};
use packrat_operator::policy::Policy;
use packrat_operator::problem::Reason;
use serde_json::{Value, json};

use super::{endpoints, gateway, key, service, take, web};

/// Two operators in a cluster touch neither each other's EdgeGateways nor the Services that have
/// chosen them.
#[test]
fn an_operator_leaves_alone_what_is_another_operators() {
    let own = Operator { class: "team-b".to_owned(), identity: "b/operator".to_owned() };
    let on = ("assist", "enabled");
    let [web, slice] = web(&[]);
    let resolve = |operator: Operator, class: &str, holder: Option<&str>| {
        let mut edge = gateway("app", "default", "Same");
        edge["spec"]["class"] = class.into();
        if let Some(holder) = holder {
            edge["status"] = json!({ "operator": holder });
        }
        let objects = [
            edge,
            web.clone(),
            slice.clone(),
            service("astray", 0, &[on, ("gateway", "nowhere")], &[("quic", 444)]),
            operator_service("packrat-system", "packrat"),
        ];
        let mut index = Index::new("packrat-system", Policy::default()).of_operator(operator);
        objects.iter().for_each(|object| take(&mut index, object));
        index.resolve()
    };
    let key = key("app", "default");
    let services = |resolution: &Resolution| -> Vec<String> {
        resolution.services.keys().map(|key| key.name.clone()).collect()
    };
    for holder in [None, Some("b/operator")] {
        let served = resolve(own.clone(), "team-b", holder);
        assert_eq!(endpoints(&served, 443), ["10.0.0.1:8443"]);
        // The default class reports on objects without an owner.
        assert_eq!((services(&served), served.foreign.len()), (vec!["web".to_owned()], 0));
    }
    let of_other_class = resolve(own.clone(), "packrat", Some("a/operator"));
    assert_eq!(of_other_class, Resolution::default());
    let of_another = resolve(own.clone(), "team-b", Some("a/operator"));
    assert!(of_another.gateways.is_empty() && of_another.services.is_empty());
    let (_, problem) = &of_another.foreign[&key];
    assert_eq!(problem.reason, Reason::OtherOperator);
    assert!(problem.message.contains("that of operator a/operator"), "{}", problem.message);
    // One that is of another class now is given up.
    let given_up = resolve(own, "packrat", Some("b/operator"));
    assert!(given_up.released.contains(&key) && given_up.gateways.is_empty());

    let default = resolve(Operator::default(), "team-b", Some("b/operator"));
    assert!(default.gateways.is_empty() && default.foreign.is_empty());
    assert_eq!(services(&default), ["astray"]);
}

/// The Services that an operator reports on, and the Services that it serves, of these objects.
fn spoken_of(home: &str, class: &str, objects: &[Value]) -> (Vec<String>, Vec<String>) {
    let operator =
        Operator { class: class.to_owned(), identity: format!("{home}/packrat-operator") };
    let mut index = Index::new(home, Policy::default()).of_operator(operator);
    objects.iter().for_each(|object| take(&mut index, object));
    let resolution = index.resolve();
    let served = resolution.gateways.values().flat_map(|view| view.listeners.values());
    (
        resolution.services.keys().map(|key| key.name.clone()).collect(),
        served.map(|listener| listener.service.name.clone()).collect(),
    )
}

/// Two operators with an EdgeGateway `default` each at home: a Service without a choice does not
/// belong to both, or each would write its status against the other's.
#[test]
fn a_service_that_names_no_gateway_is_one_operators() {
    let of_class = |namespace: &str, class: &str| {
        let mut edge = gateway(namespace, "default", "All");
        edge["spec"]["class"] = class.into();
        edge
    };
    let [web_service, slice] = web(&[]);
    let objects = [
        of_class("packrat-system", "packrat"),
        of_class("team-b", "team-b"),
        web_service,
        slice,
        operator_service("packrat-system", "packrat"),
        operator_service("team-b", "team-b"),
    ];
    let web = vec!["web".to_owned()];
    assert_eq!(spoken_of("packrat-system", "packrat", &objects), (web.clone(), web.clone()));
    assert_eq!(spoken_of("team-b", "team-b", &objects), (vec![], vec![]));
    // One of its own namespace comes first, whatever its class.
    let nearer = [&objects[..], &[of_class("app", "team-b")]].concat();
    assert_eq!(spoken_of("packrat-system", "packrat", &nearer), (vec![], vec![]));
    assert_eq!(spoken_of("team-b", "team-b", &nearer), (web.clone(), web.clone()));
    // An EdgeGateway at home that is of another class is not found: the default class reports it.
    let taken = [&[of_class("packrat-system", "team-b")], &objects[2..]].concat();
    assert_eq!(spoken_of("packrat-system", "packrat", &taken), (web, vec![]));
    assert_eq!(spoken_of("team-b", "team-b", &taken), (vec![], vec![]));
}

/// The Service in front of an operator, as the chart writes it.
fn operator_service(namespace: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": namespace, "name": "packrat-operator", "uid": namespace, "labels": { "packrat.dev/operator-class": class } },
        "spec": { "ports": [{ "name": "discovery", "port": 18000, "protocol": "TCP" }] },
    })
}

/// One operator reports on objects without an EdgeGateway, also if no operator has the default
/// class.
#[test]
fn one_operator_tells_of_services_that_belong_to_no_gateway() {
    let alone = [service("alone", 0, &[("assist", "enabled")], &[("quic", 443)])];
    let told_by = |operators: &[(&str, &str)]| -> Vec<String> {
        let services = operators.iter().map(|(home, class)| operator_service(home, class));
        let objects: Vec<Value> = services.chain(alone.clone()).collect();
        let tells = |home: &str, class: &str| !spoken_of(home, class, &objects).0.is_empty();
        operators
            .iter()
            .filter(|(home, class)| tells(home, class))
            .map(|(home, _)| (*home).to_owned())
            .collect()
    };
    assert_eq!(told_by(&[("a", "blue")]), ["a"]);
    assert_eq!(told_by(&[("a", "blue"), ("b", "green")]), ["a"]);
    assert_eq!(told_by(&[("a", "blue"), ("b", "packrat"), ("c", "zebra")]), ["b"]);
    // Two of one class, if the chart has not refused that: only one reports.
    assert_eq!(told_by(&[("b", "packrat"), ("a", "packrat")]), ["a"]);
}
