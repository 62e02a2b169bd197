//! The conditions of an EdgeGateway, except for its assistance.

use super::observed::Observed;
use crate::gateway_api::Finding;
use crate::index::GatewayView;
use crate::model::GatewayModel;
use crate::object_key::told;
use crate::problem::{LISTED_PROBLEMS, Reason};
use crate::resource::{ExposureType, GatewayProxy};

/// Condition `Accepted`: the objects of the gateway may and can be made.
pub(super) fn accepted(view: &GatewayView, observed: &Observed) -> Finding {
    match &observed.failure {
        _ if observed.namespace_ends => Finding::no(
            "Accepted",
            "NamespaceEnds",
            "the namespace is being deleted: nothing is made or repaired in it any more",
        ),
        _ if observed.definition_is_outdated => Finding::no(
            "Accepted",
            Reason::DefinitionOutdated.name(),
            "the cluster has the resource definitions of an older version, which drop what the operator writes: of the status only conditions are current. Upgrade the release, or with crds.enabled=false the definitions alone: kubectl apply --server-side --force-conflicts -f charts/packrat/definitions",
        ),
        _ if view.refusal.is_some() => {
            Finding::no("Accepted", "NotPermitted", view.refusal.clone().unwrap_or_default())
        }
        None => Finding::yes("Accepted", "Accepted", "the gateways are set up"),
        Some(failure) => Finding::no(
            "Accepted",
            "ApplyFailed",
            format!("an object of this EdgeGateway was refused: {failure}"),
        ),
    }
}

/// Condition `ResolvedRoutes`: every Service that chose the gateway has its ports.
pub(super) fn resolved_routes(view: &GatewayView) -> Finding {
    let problems =
        || view.problems.iter().filter(|(_, problem)| problem.reason != Reason::PortKept);
    let Some((_, first)) = problems().next() else {
        let message = "all Services that chose this gateway have their ports";
        return Finding::yes("ResolvedRoutes", "Resolved", message);
    };
    let mut told: Vec<String> = problems()
        .take(LISTED_PROBLEMS)
        .map(|(service, problem)| format!("{}: {}", told(service), problem.message))
        .collect();
    let count = problems().count();
    if count > LISTED_PROBLEMS {
        told.push(format!("and {} more", count - LISTED_PROBLEMS));
    }
    Finding::no("ResolvedRoutes", first.reason.name(), told.join("; "))
}

/// Condition `Programmed`: every gateway that is ready is connected, and has taken the newest
/// configuration.
pub(super) fn programmed(observed: &Observed) -> Finding {
    let Observed { proxies, ready_pods, versions, .. } = observed;
    let refusals: Vec<String> = proxies
        .iter()
        .filter_map(|proxy| Some(format!("{}: {}", proxy.name, proxy.error.as_ref()?)))
        .collect();
    if !refusals.is_empty() {
        let message = format!(
            "{} of {} gateways refused a part of the configuration and keep the former: {}",
            refusals.len(),
            proxies.len(),
            refusals.join("; ")
        );
        return Finding::no("Programmed", "Refused", message);
    }
    if proxies.is_empty() {
        let message = if observed.ready == 0 {
            format!("no gateway is ready, and none is connected{}", observed.why_fewer())
        } else {
            "no gateway is connected to the operator".to_owned()
        };
        return Finding::unknown("Programmed", "NotConnected", message);
    }
    let silent: Vec<&str> = ready_pods
        .iter()
        .filter(|pod| !proxies.iter().any(|proxy| proxy.name == **pod))
        .map(String::as_str)
        .collect();
    if !silent.is_empty() {
        let message = format!(
            "{} of {} gateways are not connected to the operator and keep the configuration that they have: {}; can their Pods reach its Service?",
            silent.len(),
            ready_pods.len(),
            some_of(&silent)
        );
        return Finding::no("Programmed", "NotConnected", message);
    }
    // A Pod that is not ready serves no new clients, and may be on its way out.
    let counts = |proxy: &&GatewayProxy| ready_pods.is_empty() || ready_pods.contains(&proxy.name);
    let counted: Vec<&GatewayProxy> = proxies.iter().filter(counts).collect();
    let behind: Vec<&str> = counted
        .iter()
        .filter(|proxy| proxy.version.as_ref().is_none_or(|version| !versions.contains(version)))
        .map(|proxy| proxy.name.as_str())
        .collect();
    if !behind.is_empty() {
        let message = format!(
            "{} of {} gateways have not acknowledged the newest configuration: {}",
            behind.len(),
            counted.len(),
            some_of(&behind)
        );
        return Finding::no("Programmed", "Pending", message);
    }
    let message = format!("{} gateways have the newest configuration", counted.len());
    Finding::yes("Programmed", "Programmed", message)
}

/// The first names of many.
fn some_of(names: &[&str]) -> String {
    let mut told = names.iter().take(LISTED_PROBLEMS).copied().collect::<Vec<_>>().join(", ");
    if names.len() > LISTED_PROBLEMS {
        told.push_str(&format!(" and {} more", names.len() - LISTED_PROBLEMS));
    }
    told
}

/// Condition `Ready`: gateways run, and clients can reach them.
pub(super) fn ready(gateway: &GatewayModel, view: &GatewayView, observed: &Observed) -> Finding {
    let (ready, wanted) = (observed.ready, observed.wanted());
    if ready == 0 && wanted == 0 && observed.rollout.is_some() {
        let message = "no gateway is wanted: the workload has no replicas, or no node";
        return Finding::no("Ready", "ScaledToZero", message);
    }
    if ready == 0 {
        let message = format!("none of {wanted} wanted gateways is ready{}", observed.why_fewer());
        return Finding::no("Ready", Reason::NoReadyGateway.name(), message);
    }
    if view.listeners.values().all(|listener| listener.is_leaving) {
        let message =
            "no Service has chosen this gateway; annotate one with packrat.dev/assist: enabled";
        return Finding::no("Ready", "NoRoutes", message);
    }
    if observed.addresses.is_empty() {
        let message = match gateway.spec.exposure.type_ {
            ExposureType::LoadBalancer => {
                "the Service of type LoadBalancer has no address yet; without a load balancer choose spec.exposure.type NodePort or HostNetwork"
            }
            _ => "the gateways have no address yet",
        };
        return Finding::no("Ready", "NoAddress", message);
    }
    let why = if ready < wanted { observed.why_fewer() } else { String::new() };
    let message = format!("{ready} of {wanted} gateways are ready{why}");
    Finding::yes("Ready", "Ready", message)
}
