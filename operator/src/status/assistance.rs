//! Assistance that has stopped by itself: the gateways' reports on their routes, and condition
//! `Assisting`.

use std::collections::BTreeMap;

use super::observed::Observed;
use crate::gateway_api::Finding;
use crate::index::{GatewayView, Listener};
use crate::model::GatewayModel;
use crate::object_key::told;
use crate::problem::{LISTED_PROBLEMS, Reason};
use crate::resource::ListenerStatus;

/// A reading of the pages of an EdgeGateway's gateways, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Gateways that have been read.
    pub gateways: i32,
    /// Sessions of these gateways.
    pub sessions: i64,
    /// Routes on which assistance has stopped by itself somewhere, by the name of the route.
    pub routes: BTreeMap<String, StoppedRoute>,
}

impl Reading {
    /// Adds the reading of further gateways.
    pub fn add(&mut self, other: Self) {
        self.gateways += other.gateways;
        self.sessions += other.sessions;
        for (route, StoppedRoute { stopped, trying }) in other.routes {
            let sum = self.routes.entry(route).or_default();
            sum.stopped += stopped;
            sum.trying += trying;
        }
    }
}

/// Numbers of gateways on which a route's assistance is not as configured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoppedRoute {
    /// Gateways at which assistance of the route has stopped by itself: assisted sessions were
    /// slower than held-out ones.
    pub stopped: i32,
    /// Gateways at which assistance of the route is tried again, for half of the clients.
    pub trying: i32,
}

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

/// The reason of a condition about these routes; `None` where all is well.
fn harmed_reason(mut routes: impl Iterator<Item = StoppedRoute> + Clone) -> Option<&'static str> {
    if routes.clone().any(|route| route.stopped > 0) {
        Some(Reason::AssistanceStopped.name())
    } else {
        routes.any(|route| route.trying > 0).then_some("AssistanceTried")
    }
}

impl StoppedRoute {
    /// The largest numbers of some listeners of an EdgeGateway.
    pub fn worst<'a>(listeners: impl Iterator<Item = &'a ListenerStatus>) -> Self {
        listeners.fold(Self::default(), |worst, listener| Self {
            stopped: worst.stopped.max(listener.stopped_gateways),
            trying: worst.trying.max(listener.trying_gateways),
        })
    }

    /// The reason of a condition about it; `None` where all is well.
    pub fn reason(self) -> Option<&'static str> {
        harmed_reason(std::iter::once(self))
    }

    /// A sentence about the reading. `gateways`: the ready gateways; more were ready when they were
    /// read.
    pub fn told(self, gateways: i32) -> String {
        let Self { stopped, trying } = self;
        let gateways = gateways.max(stopped.saturating_add(trying));
        let mut parts = Vec::new();
        if stopped > 0 {
            parts.push(format!(
                "assistance has stopped by itself on {stopped} of {gateways} gateways: assisted sessions were slower than those held out (PackratAssistanceStopped in the runbook says what to do)"
            ));
        }
        if trying > 0 {
            parts.push(format!(
                "assistance that had stopped by itself is tried again on {trying} of {gateways} gateways, for half of the clients"
            ));
        }
        parts.join("; ")
    }
}
