//! Assistance that has stopped by itself: the gateways' reports on their routes, and condition
//! `Assisting`.

use super::observed::Observed;
use super::reading::{StoppedRoute, harmed_reason};
use crate::gateway_api::Finding;
use crate::index::{GatewayView, Listener};
use crate::model::GatewayModel;
use crate::object_key::told;
use crate::problem::LISTED_PROBLEMS;
use crate::resource::ListenerStatus;

/// The report of the gateways about the route of a listener. Before the first reading it is that in the
/// status: an operator that has just begun knows no better.
pub(super) fn stopped_route(
    gateway: &GatewayModel,
    (port, listener): (u16, &Listener),
    observed: &Observed,
) -> StoppedRoute {
    let Some(reading) = &observed.reading else {
        let is_it = |known: &&ListenerStatus| {
            known.port == i32::from(port) && known.service == listener.service.to_string()
        };
        return StoppedRoute::worst(gateway.status.listeners.iter().filter(is_it));
    };
    reading.routes.get(&listener.route()).copied().unwrap_or_default()
}

/// Condition `Assisting`: assistance has stopped by itself on no route.
pub(super) fn assisting(
    gateway: &GatewayModel,
    view: &GatewayView,
    observed: &Observed,
) -> Finding {
    if !gateway.spec.assist {
        let message = "spec.assist is false: clients are forwarded without assistance";
        return Finding::no("Assisting", "SwitchedOff", message);
    }
    let harmed: Vec<(String, StoppedRoute)> = view
        .listeners
        .iter()
        .filter(|(_, listener)| !listener.is_leaving)
        .map(|(&port, listener)| {
            let name = format!("UDP port {port} ({})", told(&listener.service));
            (name, stopped_route(gateway, (port, listener), observed))
        })
        .filter(|(_, route)| *route != StoppedRoute::default())
        .collect();
    let mut said: Vec<String> = harmed
        .iter()
        .take(LISTED_PROBLEMS)
        .map(|(name, route)| format!("{name}: {}", route.told(observed.ready)))
        .collect();
    if harmed.len() > LISTED_PROBLEMS {
        said.push(format!("and {} more", harmed.len() - LISTED_PROBLEMS));
    }
    if let Some(reason) = harmed_reason(harmed.iter().map(|(_, route)| *route)) {
        return Finding::no("Assisting", reason, said.join("; "));
    }
    let mut message = "assistance has stopped by itself on no route".to_owned();
    match observed.reading.as_ref().map_or(0, |reading| reading.gateways) {
        0 => {
            let message = "no gateway has been asked for its routes yet";
            return Finding::unknown("Assisting", "NotKnown", message);
        }
        read if read < observed.ready => {
            message.push_str(&format!(" of the {read} gateways that have answered"));
        }
        _ => {}
    }
    Finding::yes("Assisting", "Assisting", message)
}
