//! Gateways, UDPRoutes and their statuses: objects in, listeners and statuses out.

mod ceiling;
mod holders;
mod policies;
mod routes;
mod statuses;

use k8s_openapi::jiff::Timestamp;
use packrat_operator::gateway_api::objects::Gateway;
use packrat_operator::gateway_api::translate;
use packrat_operator::index::{Index, Resolution};
use packrat_operator::policy::Policy;
use serde_json::{Value, json};

use super::{key, service, slice, take};

const GROUP: &str = "gateway.networking.k8s.io";

fn class(name: &str, controller: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "GatewayClass",
        "metadata": { "name": name, "generation": 3 }, "spec": { "controllerName": controller },
    })
}

pub(super) fn of_packrat() -> Value {
    class("packrat", "packrat.dev/gateway-controller")
}

pub(super) fn listener(name: &str, port: u16, allowed: Value) -> Value {
    json!({ "name": name, "port": port, "protocol": "UDP", "allowedRoutes": allowed })
}

/// A Gateway in namespace `app`.
pub(super) fn a_gateway(name: &str, listeners: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Gateway",
        "metadata": { "namespace": "app", "name": name, "uid": format!("uid-{name}"), "generation": 4 },
        "spec": { "gatewayClassName": "packrat", "listeners": listeners },
    })
}

/// The EdgeGateway that the operator makes for a Gateway.
pub(super) fn edge_of(gateway: &Value) -> Value {
    let read = read_gateway(gateway);
    let name = gateway["metadata"]["name"].as_str().unwrap();
    let spec =
        translate::edge_gateway_spec(&key("app", name), &read.spec.infrastructure, None, "packrat");
    let mut edge = translate::edge_gateway(&key("app", name), &read, &spec);
    edge["metadata"]["uid"] = "edge".into();
    edge["metadata"]["generation"] = 1.into();
    edge
}

fn read_gateway(gateway: &Value) -> Gateway {
    use packrat_operator::gateway_api::objects::Read as _;
    Gateway::read(&serde_json::from_value(gateway.clone()).unwrap()).unwrap()
}

pub(super) fn route(
    namespace: &str,
    name: &str,
    second: u32,
    parent: Value,
    services: Value,
) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "UDPRoute",
        "metadata": {
            "namespace": namespace, "name": name, "generation": 2,
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        },
        "spec": { "parentRefs": [parent], "rules": [{ "backendRefs": services }] },
    })
}

/// A route of namespace `app` to its Service `web`, for any listener of the Gateway `edge`.
fn to_web(name: &str, second: u32) -> Value {
    let services = json!([{ "name": "web", "port": 8443 }]);
    route("app", name, second, json!({ "name": "edge" }), services)
}

/// The Gateway `edge` with a listener at port 443.
fn quic_gateway() -> Value {
    a_gateway("edge", json!([listener("quic", 443, json!({}))]))
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

/// Two Services with a Pod each, of namespace `app`.
fn servers() -> Vec<Value> {
    vec![
        service("web", 0, &[], &[("quic", 8443)]),
        slice("web", "web-1", &[("quic", 1443)], &[("10.0.0.1", true)]),
        service("canary", 0, &[], &[("quic", 8443)]),
        slice("canary", "canary-1", &[("quic", 1443)], &[("10.0.0.2", true), ("10.0.0.3", true)]),
    ]
}

fn index(objects: &[Value]) -> Index {
    let mut index = Index::new("packrat-system", Policy::default());
    objects.iter().for_each(|object| take(&mut index, object));
    index
}

/// A Gateway `edge` with these listeners, its EdgeGateway, the servers, and more.
fn resolve(listeners: Value, more: &[Value]) -> Resolution {
    let gateway = a_gateway("edge", listeners);
    let mut all = vec![of_packrat(), edge_of(&gateway), gateway];
    all.extend(servers());
    all.extend(more.iter().cloned());
    index(&all).resolve()
}

fn served(resolution: &Resolution, port: u16) -> Option<(String, Vec<String>)> {
    let listener = resolution.gateways[&key("app", "edge")].listeners.get(&port)?;
    Some((listener.route(), listener.endpoints.iter().map(ToString::to_string).collect()))
}

/// Conditions `Accepted` and `ResolvedRefs` of a route's only parent: status, reason.
fn told(resolution: &Resolution, namespace: &str, name: &str) -> [(bool, &'static str); 2] {
    let state = &resolution.attachments.routes[&key(namespace, name)];
    assert_eq!(state.parents.len(), 1);
    [&state.parents[0].accepted, &state.parents[0].resolved]
        .map(|finding| (finding.status.unwrap(), finding.reason))
}

const GOOD: [(bool, &str); 2] = [(true, "Accepted"), (true, "ResolvedRefs")];

fn a_gateway_of(name: &str, class: &str) -> Value {
    let mut gateway = a_gateway(name, json!([listener("quic", 443, json!({}))]));
    gateway["spec"]["gatewayClassName"] = class.into();
    gateway
}

fn condition<'a>(conditions: &'a Value, type_: &str) -> (&'a str, &'a str) {
    let all = conditions.as_array().unwrap();
    let found = all.iter().find(|condition| condition["type"] == type_).unwrap();
    (found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}
