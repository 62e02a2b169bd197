//! Statuses of GatewayClasses, Gateways and UDPRoutes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::reading::StoppedRoute;
use crate::gateway_api::objects::{Gateway, GatewayClass, PolicyModel, UdpRoute};
use crate::gateway_api::{
    Attachments, Finding, GatewayState, ListenerState, ParentState, RouteState,
};
use crate::message::shortened;
use crate::model::GatewayModel;
use crate::names::API_GROUP;
use crate::object_key::ObjectKey;
use crate::resource::{EdgeGatewayStatus, ParentReference};

/// Features of the Gateway API that the operator has, in alphabetical order.
const SUPPORTED_FEATURES: [&str; 3] = ["Gateway", "ReferenceGrant", "UDPRoute"];
/// Condition about assistance, of Gateways and of UDPRoutes: a type of Packrat's own.
const ASSISTING_CONDITION: &str = "packrat.dev/Assisting";
/// Longest list of addresses.
const MAXIMUM_ADDRESSES: usize = 16;

/// Longest list of ancestors of a policy.
const MAXIMUM_ANCESTORS: usize = 16;

/// A condition of an object, with the times of the previous one if its status is the same.
fn condition(finding: &Finding, previous: &Value, generation: i64, now: Timestamp) -> Value {
    let status = finding.status_word();
    let before = previous
        .as_array()
        .into_iter()
        .flatten()
        .find(|before| before["type"] == finding.type_ && before["status"] == status);
    let since = before
        .and_then(|before| before["lastTransitionTime"].as_str())
        .map_or_else(|| format!("{now:.0}"), str::to_owned);
    json!({
        "type": finding.type_,
        "status": status,
        "reason": finding.reason,
        "message": shortened(finding.message.clone()),
        "observedGeneration": generation,
        "lastTransitionTime": since,
    })
}

/// Conditions, with the times of the previous ones where their status is the same.
fn conditions(findings: &[Finding], previous: &Value, generation: i64, now: Timestamp) -> Value {
    findings.iter().map(|finding| condition(finding, previous, generation, now)).collect()
}

/// The status of a GatewayClass.
pub fn class_status(class: &GatewayClass, findings: &[Finding], now: Timestamp) -> Value {
    let previous = &class.status["conditions"];
    let features: Vec<Value> =
        SUPPORTED_FEATURES.iter().map(|name| json!({ "name": name })).collect();
    json!({
        "conditions": conditions(findings, previous, class.metadata.generation, now),
        "supportedFeatures": features,
    })
}

/// The status of a Gateway. `edge`: its EdgeGateway, if that exists. `failure`: why that could not
/// be written.
pub fn gateway_status(
    gateway: &Gateway,
    state: &GatewayState,
    edge: Option<&GatewayModel>,
    failure: Option<&str>,
    now: Timestamp,
) -> Value {
    let generation = gateway.metadata.generation;
    let programmed = programmed(state, edge, failure);
    let nothing = EdgeGatewayStatus::default();
    let of_edge = edge.map_or(&nothing, |edge| &edge.status);
    let addresses: Vec<Value> = of_edge
        .addresses
        .iter()
        .take(MAXIMUM_ADDRESSES)
        .map(|address| {
            let is_ip = address.parse::<std::net::IpAddr>().is_ok();
            json!({ "type": if is_ip { "IPAddress" } else { "Hostname" }, "value": address })
        })
        .collect();
    let listeners: Vec<Value> = state
        .listeners
        .iter()
        .map(|listener| {
            let before = gateway.status["listeners"].as_array();
            let mut before = before.into_iter().flatten();
            let before = before.find(|before| before["name"] == listener.name.as_str());
            let of_listener = if listener.is_served() {
                let reason = if programmed.status == Some(true) { "Programmed" } else { "Pending" };
                Finding { reason, ..programmed.clone() }
            } else {
                Finding::no("Programmed", "Invalid", "the listener is not accepted")
            };
            let findings = [
                listener.accepted.clone(),
                listener.conflicted.clone(),
                listener.resolved.clone(),
                of_listener,
            ];
            let kind = json!({ "group": API_GROUP, "kind": "UDPRoute" });
            let kinds = if listener.takes_udp_routes { json!([kind]) } else { json!([]) };
            let previous = before.map_or(&Value::Null, |before| &before["conditions"]);
            json!({
                "name": listener.name,
                "supportedKinds": kinds,
                "attachedRoutes": usize::from(listener.attached.is_some()) + listener.waiting.len(),
                "conditions": conditions(&findings, previous, generation, now),
            })
        })
        .collect();
    let mut findings = vec![state.accepted.clone(), programmed];
    findings.extend(edge.and_then(assisting));
    json!({
        "addresses": addresses,
        "conditions": conditions(&findings, &gateway.status["conditions"], generation, now),
        "listeners": listeners,
    })
}

/// The condition about assistance of a Gateway, taken from its EdgeGateway.
pub fn assisting(edge: &GatewayModel) -> Option<Finding> {
    let found = edge.status.conditions.iter().find(|condition| condition.type_ == "Assisting")?;
    let known = ["Assisting", "AssistanceStopped", "AssistanceTried", "SwitchedOff", "NotKnown"];
    let reason = known.into_iter().find(|reason| *reason == found.reason)?;
    let status = match found.status.as_str() {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    };
    Some(Finding { type_: ASSISTING_CONDITION, status, reason, message: found.message.clone() })
}

/// The condition about assistance of a UDPRoute at a parent; `None` if it has no listener, or its
/// EdgeGateway has no such condition.
pub fn route_assisting(
    route: &ObjectKey,
    parent: &ParentState,
    attachments: &Attachments,
    edges: &BTreeMap<ObjectKey, GatewayModel>,
) -> Option<Finding> {
    let state = attachments.gateways.get(&parent.reference.gateway(route))?;
    let edge = edges.get(&state.edge).filter(|edge| edge.owner.as_deref() == Some(&state.uid))?;
    let whole = assisting(edge)?;
    let is_own = |listener: &&ListenerState| {
        listener.attached.as_ref().is_some_and(|attached| attached.route == *route)
            && parent.reference.selects(&listener.name, listener.port)
    };
    let own: BTreeSet<i32> =
        state.listeners.iter().filter(is_own).map(|listener| listener.port.into()).collect();
    if own.is_empty() {
        return None;
    }
    if matches!(whole.reason, "SwitchedOff" | "NotKnown") {
        return Some(whole);
    }
    let listeners = edge.status.listeners.iter();
    let harm = StoppedRoute::worst(listeners.filter(|listener| own.contains(&listener.port)));
    let gateways = edge.status.ready_gateways.unwrap_or_default();
    Some(match harm.reason() {
        Some(reason) => Finding::no(ASSISTING_CONDITION, reason, harm.told(gateways)),
        None => {
            Finding::yes(ASSISTING_CONDITION, "Assisting", "assistance has not stopped by itself")
        }
    })
}

/// Condition `Programmed` of a Gateway.
fn programmed(state: &GatewayState, edge: Option<&GatewayModel>, failure: Option<&str>) -> Finding {
    let no = |reason, message: String| Finding::no("Programmed", reason, message);
    if state.accepted.status != Some(true) {
        return no("Invalid", "the Gateway is not accepted".to_owned());
    }
    if let Some(failure) = failure {
        let hint = if failure.contains("forbidden") {
            "; is the namespace one of the chart's gateway.namespaces?"
        } else {
            ""
        };
        let message = format!("its EdgeGateway {} cannot be written: {failure}{hint}", state.edge);
        return no("NoResources", message);
    }
    let Some(edge) = edge else {
        return no("Pending", "its EdgeGateway is being made".to_owned());
    };
    if edge.owner.as_deref() != Some(&state.uid) {
        let message = format!(
            "EdgeGateway {} is not this Gateway's; give one of the two another name",
            state.edge
        );
        return no("Invalid", message);
    }
    let is_current = edge.status.observed_generation == Some(edge.generation);
    let is_as_wanted = state.spec.as_deref().is_some_and(|spec| *spec == edge.spec);
    if !is_current || !is_as_wanted {
        return no("Pending", "the operator has not set up its newest settings yet".to_owned());
    }
    for type_ in ["Accepted", "Programmed"] {
        let found = edge.status.conditions.iter().find(|condition| condition.type_ == type_);
        match found {
            Some(found) if found.status == "True" => {}
            Some(found) => {
                let reason = if type_ == "Accepted" { "NoResources" } else { "Pending" };
                return no(reason, found.message.clone());
            }
            None => return no("Pending", "its EdgeGateway has no status yet".to_owned()),
        }
    }
    if edge.status.addresses.is_empty() {
        let message = "the Service in front of the gateways has no address yet";
        return no("AddressNotAssigned", message.to_owned());
    }
    Finding::yes("Programmed", "Programmed", "all gateways have the newest configuration")
}

/// The parents of a UDPRoute's status: this operator's new ones, and other controllers' unchanged.
/// `assisting`: the condition about assistance at a parent.
pub fn route_status(
    route: &UdpRoute,
    state: &RouteState,
    controller: &str,
    assisting: impl Fn(&ParentState) -> Option<Finding>,
    now: Timestamp,
) -> Value {
    let written = route.status["parents"].as_array().map_or(&[][..], Vec::as_slice);
    let (own, others): (Vec<_>, Vec<_>) =
        written.iter().partition(|parent| parent["controllerName"] == controller);
    let mut parents: Vec<Value> = others.into_iter().cloned().collect();
    for parent in &state.parents {
        let before = own.iter().find(|before| is_of(&before["parentRef"], &parent.reference));
        let previous = before.map_or(&Value::Null, |before| &before["conditions"]);
        let mut findings = vec![parent.accepted.clone(), parent.resolved.clone()];
        findings.extend(assisting(parent));
        parents.push(json!({
            "parentRef": parent.reference,
            "controllerName": controller,
            "conditions": conditions(&findings, previous, route.metadata.generation, now),
        }));
    }
    json!({ "parents": parents })
}

/// The ancestors of a PackratPolicy's status: this operator's new ones, and other controllers'
/// unchanged.
pub fn policy_status(
    policy: &PolicyModel,
    ancestors: &[(ParentReference, Finding)],
    controller: &str,
    now: Timestamp,
) -> Value {
    let written = policy.status["ancestors"].as_array().map_or(&[][..], Vec::as_slice);
    let (own, others): (Vec<_>, Vec<_>) =
        written.iter().partition(|entry| entry["controllerName"] == controller);
    let mut all: Vec<Value> = others.into_iter().cloned().collect();
    for (reference, accepted) in ancestors {
        let before = own.iter().find(|before| is_of(&before["ancestorRef"], reference));
        let previous = before.map_or(&Value::Null, |before| &before["conditions"]);
        let findings = std::slice::from_ref(accepted);
        all.push(json!({
            "ancestorRef": reference,
            "controllerName": controller,
            "conditions": conditions(findings, previous, policy.metadata.generation, now),
        }));
    }
    // The schema takes no more.
    all.truncate(MAXIMUM_ANCESTORS);
    json!({ "ancestors": all })
}

fn is_of(written: &Value, reference: &ParentReference) -> bool {
    serde_json::to_value(reference).is_ok_and(|reference| *written == reference)
}
