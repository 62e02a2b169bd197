//! Gateways, UDPRoutes and PackratPolicies in the place of EdgeGateways and annotations.

use std::time::Duration;

use packrat_wire::hexadecimal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::exposure::{assisted, described, with};
use crate::command::{Failure, Outcome, until};
use crate::suite::{SHOP_NAMESPACE, SMALLEST_FILE, Suite};

/// Name of the objects in `manifests/gateway-api.yaml`.
const OBJECTS_NAME: &str = "standard";
const NODE_PORT: u16 = 30447;
const CACHE_BYTES: u64 = 768 << 10;
/// Path at which each of the two servers identifies itself.
const WHICH_PATH: &str = "which";
/// Longest time until a change is in force.
const CHANGE_PATIENCE: Duration = Duration::from_secs(60);

/// A client downloads through the gateway that the operator makes for a Gateway; all conditions are
/// true; weights and the end of the route are in force.
pub(super) fn udp_route(suite: &mut Suite) -> Outcome<String> {
    with(suite, "gateway-api.yaml", |suite| {
        until(CHANGE_PATIENCE, "all conditions", || conditions(suite))?;
        suite.gateway_is(OBJECTS_NAME, "Ready")?;
        let to = suite.node_port(OBJECTS_NAME, NODE_PORT)?;
        let transfer = assisted(suite, &to)?;
        if transfer.repaired() == Some(0) {
            return Err(Failure::new("assisted, but nothing was repaired"));
        }
        let configured = configured(suite)?;
        if configured["cache_bytes_per_session"] != CACHE_BYTES {
            return Err(Failure(format!("the policy is not in force: {configured}")));
        }
        expect_server(suite, &to, "first")?;
        let weights = json!([
            { "name": "web", "port": 443, "weight": 0 },
            { "name": "web-second", "port": 444, "weight": 1 },
        ]);
        let changed = json!({ "spec": { "rules": [{ "backendRefs": weights }] } }).to_string();
        suite.kubectl.output([
            "patch",
            "udproute",
            OBJECTS_NAME,
            "-n",
            SHOP_NAMESPACE,
            "--type=merge",
            "-p",
            &changed,
        ])?;
        until(CHANGE_PATIENCE, "the new weights", || expect_server(suite, &to, "second"))?;
        until(CHANGE_PATIENCE, "all conditions after the change", || conditions(suite))?;
        suite.kubectl.output(["delete", "udproute", OBJECTS_NAME, "-n", SHOP_NAMESPACE])?;
        until(CHANGE_PATIENCE, "a listener without a route", || {
            let status = suite.get(SHOP_NAMESPACE, &["gateway", OBJECTS_NAME])?["status"].clone();
            match status["listeners"][0]["attachedRoutes"].as_u64() {
                Some(0) => Ok(()),
                _ => Err(Failure(format!("the Gateway's status is {status}"))),
            }
        })?;
        let mut request = suite.request(SMALLEST_FILE, &to);
        (request.connect_limit, request.limit) = (Duration::from_secs(3), Duration::from_secs(3));
        let bytes = suite.download(&request)?.bytes;
        if bytes > 0 {
            return Err(Failure(format!("{bytes} bytes arrived through a Gateway without routes")));
        }
        Ok(format!(
            "{}; another weight, another server; without the route nothing",
            described(&transfer)
        ))
    })
}

/// Fails unless the newest generation of all objects is in force by their status.
fn conditions(suite: &Suite) -> Outcome {
    let get = |kind: &str, name: &str| suite.get(SHOP_NAMESPACE, &[kind, name]);
    let class = get("gatewayclass", "packrat-e2e")?;
    expect_true("GatewayClass", &class, &class["status"], &["Accepted"])?;
    let gateway = get("gateway", OBJECTS_NAME)?;
    expect_true("Gateway", &gateway, &gateway["status"], &["Accepted", "Programmed"])?;
    let listener = &gateway["status"]["listeners"][0];
    expect_true("listener", &gateway, listener, &["Accepted", "Programmed", "ResolvedRefs"])?;
    if listener["attachedRoutes"] != 1 || gateway["status"]["addresses"][0]["value"].is_null() {
        return Err(Failure(format!("the Gateway's status is {}", gateway["status"])));
    }
    let route = get("udproute", OBJECTS_NAME)?;
    expect_true("UDPRoute", &route, &route["status"]["parents"][0], &["Accepted", "ResolvedRefs"])?;
    let policy = get("packratpolicy", OBJECTS_NAME)?;
    expect_true("PackratPolicy", &policy, &policy["status"]["ancestors"][0], &["Accepted"])
}

/// Fails unless these conditions of an object, or of a part of it, are True for its newest generation.
fn expect_true(what: &str, object: &Value, part: &Value, types: &[&str]) -> Outcome {
    let conditions = part["conditions"].as_array().cloned().unwrap_or_default();
    for type_ in types {
        let found = conditions.iter().find(|condition| condition["type"] == *type_);
        let is_true = found.is_some_and(|condition| {
            condition["status"] == "True"
                && condition["observedGeneration"] == object["metadata"]["generation"]
        });
        if !is_true {
            return Err(Failure(format!("{what}: {type_} is {}", found.unwrap_or(&Value::Null))));
        }
    }
    Ok(())
}

/// The configuration of the route, as the gateway itself reports it.
fn configured(suite: &Suite) -> Outcome<Value> {
    let (pod, _) = suite.gateway_pod(OBJECTS_NAME)?;
    let path = format!("/api/v1/namespaces/{SHOP_NAMESPACE}/pods/{pod}:9902/proxy/packrat");
    let status: Value = serde_json::from_str(&suite.kubectl.output(["get", "--raw", &path])?)?;
    Ok(status["routes"][0]["configuration"].clone())
}

/// Fails unless a new client is served by this one of the two servers.
fn expect_server(suite: &Suite, to: &str, name: &str) -> Outcome {
    let mut request = suite.request(WHICH_PATH, to);
    (request.connect_limit, request.limit) = (Duration::from_secs(10), Duration::from_secs(10));
    suite.download(&request)?.expect(&hexadecimal::encode(&Sha256::digest(name)))
}
