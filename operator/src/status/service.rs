//! The condition of a Service.

use super::reading::StoppedRoute;
use crate::index::ServiceView;
use crate::message::shortened;
use crate::object_key::ObjectKey;
use crate::problem::{LISTED_PROBLEMS, Problem, Reason};
use crate::resource::{EdgeGatewayStatus, ListenerStatus};

/// The condition of a Service: status, reason, message. `None`: there is no condition, and an older
/// one has to go. `edge`: the status of the EdgeGateway that it has.
pub fn service_condition(
    key: &ObjectKey,
    view: &ServiceView,
    edge: Option<&EdgeGatewayStatus>,
) -> Option<(bool, &'static str, String)> {
    let condition = configured_condition(view)?;
    let own = |listener: &&ListenerStatus| {
        listener.service == key.to_string()
            && u16::try_from(listener.port).is_ok_and(|port| view.listeners.contains(&port))
    };
    let listeners = edge.iter().flat_map(|edge| &edge.listeners);
    let harm = StoppedRoute::worst(listeners.filter(own));
    let gateways = edge.and_then(|edge| edge.ready_gateways).unwrap_or_default();
    let idle = edge.filter(|edge| edge.ready_gateways == Some(0));
    if let (Some(_), (true, _, route)) = (idle, &condition) {
        // Without the reason, which may change: there may be hundreds of Services.
        let message = format!(
            "no gateway is ready (its EdgeGateway's condition Ready says why); once one is: {route}"
        );
        return Some((false, Reason::NoReadyGateway.name(), shortened(message)));
    }
    match (harm.reason(), condition) {
        (Some(reason), (true, _, message)) => {
            Some((false, reason, shortened(format!("{message}; {}", harm.told(gateways)))))
        }
        (_, condition) => Some(condition),
    }
}

/// The condition of a Service whose connections end at a gateway.
fn terminated(view: &ServiceView, place: &str) -> (bool, &'static str, String) {
    let lacks = |problem: &&Problem| {
        matches!(problem.reason, Reason::NoEndpoints | Reason::NoCertificate | Reason::NotAllowed)
    };
    let route = format!(
        "connections end at EdgeGateway {place}: HTTP/3 over UDP, HTTP/2 and HTTP/1.1 over TCP; they are not assisted"
    );
    let messages: Vec<&str> = view
        .problems
        .iter()
        .take(LISTED_PROBLEMS)
        .map(|problem| problem.message.as_str())
        .collect();
    match view.problems.iter().find(lacks) {
        Some(problem) => (false, problem.reason.name(), shortened(messages.join("; "))),
        None => {
            let worst = view.problems.iter().map(|problem| problem.reason).min();
            let all = std::iter::once(route.as_str()).chain(messages).collect::<Vec<_>>();
            (true, worst.map_or("Terminated", Reason::name), shortened(all.join("; ")))
        }
    }
}

/// The condition of a Service as far as objects determine it.
fn configured_condition(view: &ServiceView) -> Option<(bool, &'static str, String)> {
    let worst = view.problems.iter().map(|problem| problem.reason).min();
    let told = |problems: &[Problem]| {
        problems
            .iter()
            .take(LISTED_PROBLEMS)
            .map(|problem| problem.message.clone())
            .collect::<Vec<_>>()
            .join("; ")
    };
    match (view.wanted, &view.gateway, view.listeners.is_empty()) {
        (false, _, _) if view.problems.is_empty() => None,
        (true, Some(gateway), false) => {
            let ports: Vec<_> = view.listeners.iter().map(ToString::to_string).collect();
            if view.terminates {
                return Some(terminated(view, &format!("{gateway} on port {}", ports.join(", "))));
            }
            let how = if view.is_off { "forwarded without assistance" } else { "assisted" };
            let route = format!("{how} by EdgeGateway {gateway} on UDP port {}", ports.join(", "));
            let is_served =
                view.problems.iter().all(|problem| problem.reason != Reason::NoEndpoints);
            Some(match worst {
                None if view.is_off => (
                    false,
                    "SwitchedOff",
                    format!(
                        "{route}; switched off by packrat.dev/config.assist, or by spec.assist of the EdgeGateway"
                    ),
                ),
                None => (true, "Assisted", route),
                Some(reason) if view.is_off && is_served => {
                    (false, reason.name(), shortened(format!("{route}; {}", told(&view.problems))))
                }
                Some(reason) if !is_served => {
                    (false, reason.name(), shortened(told(&view.problems)))
                }
                Some(reason) => {
                    (true, reason.name(), shortened(format!("{route}; {}", told(&view.problems))))
                }
            })
        }
        _ => Some((
            false,
            worst.map_or("NotAssisted", Reason::name),
            shortened(told(&view.problems)),
        )),
    }
}
