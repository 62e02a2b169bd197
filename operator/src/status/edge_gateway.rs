//! The status of an EdgeGateway.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::assistance::{assisting, stopped_route};
use super::gateway::{accepted, programmed, ready, resolved_routes};
use super::observed::Observed;
use super::reading::StoppedRoute;
use super::rollout::rolled_out;
use crate::gateway_api::Finding;
use crate::index::GatewayView;
use crate::message::shortened;
use crate::model::GatewayModel;
use crate::object_key::route_key;
use crate::resource::{EdgeGatewayStatus, ListenerStatus};

/// The status of an EdgeGateway. `previous`: for the times of the conditions, which change with
/// their status only.
pub fn gateway_status(
    gateway: &GatewayModel,
    view: &GatewayView,
    observed: &Observed,
    previous: &[Condition],
    now: Timestamp,
) -> EdgeGatewayStatus {
    let findings = [
        accepted(view, observed),
        resolved_routes(view),
        programmed(observed),
        ready(gateway, view, observed),
        rolled_out(observed),
        assisting(gateway, view, observed),
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
        conditions: findings
            .map(|finding| condition(finding, gateway.generation, previous, now))
            .into(),
    }
}

/// The condition of a finding. `previous`: the conditions before, whose time stays while the status does.
fn condition(
    finding: Finding,
    generation: i64,
    previous: &[Condition],
    now: Timestamp,
) -> Condition {
    let status = finding.status_word();
    let before =
        previous.iter().find(|before| before.type_ == finding.type_ && before.status == status);
    Condition {
        type_: finding.type_.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.to_owned(),
        message: shortened(finding.message),
        observed_generation: Some(generation),
        last_transition_time: before
            .map_or_else(|| Time(now), |before| before.last_transition_time.clone()),
    }
}
