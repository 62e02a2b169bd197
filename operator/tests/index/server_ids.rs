//! Connection IDs that name the servers of a Service.

use std::collections::BTreeMap;

use packrat_operator::index::{Index, Resolution, read_server_ids};
use packrat_operator::problem::Reason;
use packrat_operator::status::service_condition;
use serde_json::{Value, json};

use super::gateway_api::{a_gateway, edge_of, listener, of_packrat, route};
use super::{endpoints, gateway, index, key, service, slice};

const ASK: [(&str, &str); 2] = [("assist", "enabled"), ("quic-lb", "web-ids")];
const KEY: &str = "8f95f09245765f80256934e50c66207f";

fn labels() -> BTreeMap<String, String> {
    [("packrat.dev/for-gateways".to_owned(), "true".to_owned())].into()
}

fn entries(ids: &Value) -> BTreeMap<String, Vec<u8>> {
    [("quic-lb.json".to_owned(), ids.to_string().into_bytes())].into()
}

fn a_service(annotations: &[(&str, &str)]) -> Index {
    index(&[
        gateway("app", "default", "Same"),
        service("web", 0, annotations, &[("quic", 443)]),
        slice("web", "web-1", &[("quic", 8443)], &[("10.0.0.1", true)]),
    ])
}

fn told(resolution: &Resolution) -> (bool, &'static str, String) {
    let service = &resolution.services[&key("app", "web")];
    service_condition(&key("app", "web"), service, None).unwrap()
}

#[test]
fn a_route_has_the_configurations_of_its_services_secret() {
    let mut index = a_service(&ASK);
    assert_eq!(index.server_id_secrets(), [key("app", "web-ids")].into());
    // The Service is still served.
    let before = index.resolve();
    assert_eq!(endpoints(&before, 443), ["10.0.0.1:8443"]);
    let (holds, reason, message) = told(&before);
    assert_eq!((holds, reason), (true, "NoServerIds"));
    assert!(message.contains("Secret app/web-ids has not been read yet"), "{message}");

    let ids = json!([{ "server_id_bytes": 4, "nonce_bytes": 12, "key": KEY }]);
    assert!(
        index.set_server_ids(key("app", "web-ids"), read_server_ids(&labels(), &entries(&ids)))
    );
    assert!(index.has_server_ids(&key("app", "web-ids")));
    let resolution = index.resolve();
    let listener = &resolution.gateways[&key("app", "default")].listeners[&443];
    assert_eq!(listener.quic_lb.len(), 1);
    assert_eq!(listener.quic_lb[0].of(listener.endpoints[0]), [10, 0, 0, 1]);
    assert_eq!(told(&resolution).1, "Assisted");

    // A damaged Secret does not affect the clients that are there.
    let problem = Err("does not exist".to_owned());
    assert!(index.set_server_ids(key("app", "web-ids"), problem));
    let resolution = index.resolve();
    assert_eq!(resolution.gateways[&key("app", "default")].listeners[&443].quic_lb.len(), 1);
    assert_eq!(told(&resolution).1, "NoServerIds");
}

#[test]
fn only_secrets_of_routes_are_looked_at() {
    for annotations in [
        &[("quic-lb", "web-ids")][..],
        &[("assist", "disabled"), ("quic-lb", "web-ids")],
        &[ASK[0], ASK[1], ("gateway", "elsewhere/other")],
        &[ASK[0], ASK[1], ("mode", "terminate")],
    ] {
        assert!(a_service(annotations).server_id_secrets().is_empty(), "{annotations:?}");
    }
    let resolution = a_service(&[ASK[0], ("quic-lb", "no/name")]).resolve();
    let problems = &resolution.services[&key("app", "web")].problems;
    assert_eq!(problems[0].reason, Reason::InvalidAnnotation);
}

#[test]
fn what_is_wrong_with_a_secret_is_said_without_its_keys() {
    let good = json!([{ "server_id_bytes": 4, "nonce_bytes": 12, "key": KEY }]);
    let read = |labels: &BTreeMap<_, _>, entries: &BTreeMap<_, _>| {
        read_server_ids(labels, entries).unwrap_err()
    };
    assert!(read(&BTreeMap::new(), &entries(&good)).contains("label it packrat.dev/for-gateways"));
    assert!(read(&labels(), &BTreeMap::new()).contains("no entry quic-lb.json"));
    for wrong in [
        json!({ "key": KEY }),
        json!([{ "server_id_bytes": 4, "nonce_bytes": 12, "secret": KEY }]),
        json!([{ "server_id_bytes": KEY, "nonce_bytes": 12 }]),
        json!([{ "server_id_bytes": 4, "nonce_bytes": 12, "key": format!("{KEY}0") }]),
    ] {
        let said = read(&labels(), &entries(&wrong));
        assert!(said.contains("quic-lb.json") && !said.contains(KEY), "{said}");
    }
}

/// A Gateway with a UDPRoute that has this annotation, and one whose Gateway is another controller's.
fn a_udp_route(secret: &str) -> Index {
    let all = json!({ "namespaces": { "from": "All" } });
    let gateway = a_gateway("edge", json!([listener("quic", 443, all)]));
    let of = |name: &str, parent: &str| {
        let services = json!([{ "name": "web", "port": 443 }]);
        let mut route = route("app", name, 1, json!({ "name": parent }), services);
        route["metadata"]["annotations"] = json!({ "packrat.dev/quic-lb": secret });
        route
    };
    index(&[
        of_packrat(),
        edge_of(&gateway),
        gateway,
        service("web", 0, &[], &[("quic", 443)]),
        slice("web", "web-1", &[("quic", 8443)], &[("10.0.0.1", true)]),
        of("routed", "edge"),
        of("elsewhere", "another"),
    ])
}

#[test]
fn a_udp_route_names_the_secret_of_its_servers() {
    let mut index = a_udp_route("web-ids");
    let secret = key("app", "web-ids");
    assert_eq!(index.server_id_secrets(), [secret.clone()].into());
    let edge = key("app", "edge");
    let problems = |resolution: &Resolution| {
        let problems = &resolution.gateways[&edge].problems;
        problems.iter().map(|(_, problem)| problem.reason).collect::<Vec<_>>()
    };
    let before = index.resolve();
    assert_eq!(problems(&before), [Reason::NoServerIds]);
    assert!(before.gateways[&edge].listeners[&443].quic_lb.is_empty(), "it is served all the same");

    let ids = json!([{ "server_id_bytes": 4, "nonce_bytes": 12, "key": KEY }]);
    assert!(index.set_server_ids(secret.clone(), read_server_ids(&labels(), &entries(&ids))));
    let resolution = index.resolve();
    assert_eq!(problems(&resolution), []);
    let listener = &resolution.gateways[&edge].listeners[&443];
    assert_eq!(listener.quic_lb[0].of(listener.endpoints[0]), [10, 0, 0, 1]);
}

#[test]
fn a_udp_route_that_names_no_secret_says_so() {
    let index = a_udp_route("no/name");
    assert!(index.server_id_secrets().is_empty());
    let resolution = index.resolve();
    let gateway = &resolution.gateways[&key("app", "edge")];
    let (_, problem) = gateway.problems.first().unwrap();
    assert_eq!(problem.reason, Reason::InvalidAnnotation);
    assert!(gateway.listeners[&443].quic_lb.is_empty());
}

#[test]
fn no_secret_is_read_for_another_controllers_udp_route() {
    let mut index = a_udp_route("web-ids");
    assert!(
        index.set_gateway_api(|objects| objects.routes.remove(&key("app", "routed")).is_some())
    );
    assert!(index.server_id_secrets().is_empty());
}
