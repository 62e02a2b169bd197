//! Connection IDs that name the servers of a Service.

use std::collections::BTreeMap;

use packrat_operator::annotations::Reason;
use packrat_operator::index::{Index, Resolution, read_server_ids};
use packrat_operator::status::service_condition;
use serde_json::{Value, json};

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
fn a_route_has_the_configurations_of_the_secret_that_its_service_names() {
    let mut index = a_service(&ASK);
    assert_eq!(index.server_id_secrets(), [key("app", "web-ids")].into());
    // It is served meanwhile.
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

    // A Secret that is damaged changes nothing for the clients that are there.
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
