//! Conditions of EdgeGateways and Services, with reasons. Pure; the shell writes them.

mod assistance;
mod gateway;
mod service;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

pub use self::assistance::{Reading, StoppedRoute};
use self::assistance::{assisting, stopped_route};
use self::gateway::{accepted, programmed, ready, resolved_routes};
pub use self::service::service_condition;
use crate::index::{GatewayModel, GatewayView, route_key};
use crate::message::shortened;
use crate::resource::{EdgeGatewayStatus, GatewayProxy, ListenerStatus};

/// The condition on a Service that asks for assistance.
pub const SERVICE_CONDITION: &str = "packrat.dev/Assisted";
/// Problems that are listed in one message.
pub(crate) const LISTED_PROBLEMS: usize = 5;
/// Observations of the gateways of an EdgeGateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// Addresses that clients can use.
    pub addresses: Vec<String>,
    /// The gateways' public key, once they have one.
    pub public_key: Option<String>,
    /// Pods that are ready.
    pub ready: i32,
    /// All Pods.
    pub pods: i32,
    /// Names of the Pods that are ready.
    pub ready_pods: BTreeSet<String>,
    /// Connected gateways.
    pub proxies: Vec<GatewayProxy>,
    /// The version of the newest configuration, when it is known, and the versions that a gateway
    /// may have instead for a moment.
    pub versions: BTreeSet<String>,
    /// Ports of the nodes, by the gateway's UDP port.
    pub node_ports: BTreeMap<u16, i32>,
    /// The operator that writes the status.
    pub operator: String,
    /// Reading of the pages of the ready Pods, once there is one.
    pub reading: Option<Reading>,
    /// Why the objects of the gateway could not be applied.
    pub failure: Option<String>,
    /// True if the namespace is being deleted, so that no object can be made in it.
    pub namespace_ends: bool,
    /// True if the API server drops fields of the status that it does not know.
    pub definition_is_outdated: bool,
}

/// The status of an EdgeGateway. `previous`: for the times of the conditions, which change with
/// their status only.
pub fn gateway_status(
    gateway: &GatewayModel,
    view: &GatewayView,
    observed: &Observed,
    previous: &[Condition],
    now: Timestamp,
) -> EdgeGatewayStatus {
    let conditions = [
        ("Accepted", accepted(view, observed)),
        ("ResolvedRoutes", resolved_routes(view)),
        ("Programmed", programmed(observed)),
        ("Ready", ready(gateway, view, observed)),
        ("Assisting", assisting(gateway, view, observed)),
    ];
    let listeners: Vec<_> = view
        .listeners
        .iter()
        .map(|(&port, listener)| {
            let StoppedRoute { stopped, trying } =
                stopped_route(gateway, (port, listener), observed);
            ListenerStatus {
                port: port.into(),
                service: listener.service.to_string(),
                service_port: listener.service_port.into(),
                service_port_name: route_key(&listener.service)
                    .is_none()
                    .then(|| listener.port_name.clone()),
                endpoints: i32::try_from(listener.endpoints.len()).unwrap_or(i32::MAX),
                tcp_endpoints: listener
                    .tcp
                    .as_ref()
                    .map(|tcp| i32::try_from(tcp.weights.len()).unwrap_or(i32::MAX)),
                terminated: listener.terminated.is_some(),
                stream_port: listener.stream_port().map(i32::from),
                draining: listener.is_leaving,
                node_port: observed.node_ports.get(&port).copied(),
                stopped_gateways: stopped,
                trying_gateways: trying,
            }
        })
        .collect();
    let routes = listeners.iter().filter(|listener| !listener.draining).count();
    EdgeGatewayStatus {
        operator: Some(observed.operator.clone()).filter(|operator| !operator.is_empty()),
        observed_generation: Some(gateway.generation),
        addresses: observed.addresses.clone(),
        public_key: observed.public_key.clone(),
        attached_routes: i32::try_from(routes).ok(),
        listeners,
        ready_gateways: Some(observed.ready),
        sessions: observed.reading.as_ref().map(|reading| reading.sessions),
        // Each replica of the operator writes its own.
        proxies: Vec::new(),
        conditions: conditions
            .map(|(type_, finding)| finding.condition(type_, gateway.generation, previous, now))
            .into(),
    }
}

/// The content of a condition: status (`None`: unknown), reason and message.
struct Finding(Option<bool>, &'static str, String);

impl Finding {
    fn condition(
        self,
        type_: &str,
        generation: i64,
        previous: &[Condition],
        now: Timestamp,
    ) -> Condition {
        let Self(status, reason, message) = self;
        let status = match status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let before =
            previous.iter().find(|before| before.type_ == type_ && before.status == status);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: shortened(message),
            observed_generation: Some(generation),
            last_transition_time: before
                .map_or_else(|| Time(now), |before| before.last_transition_time.clone()),
        }
    }
}
