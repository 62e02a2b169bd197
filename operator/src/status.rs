//! Conditions of EdgeGateways and Services, with reasons. Pure; the shell writes them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::annotations::{ObjectKey, Problem, Reason};
use crate::index::{GatewayModel, GatewayView, Listener, ServiceView, route_key, told};
use crate::resource::{EdgeGatewayStatus, ExposureType, GatewayProxy, ListenerStatus};

/// The condition on a Service that asks for assistance.
pub const SERVICE_CONDITION: &str = "packrat.dev/Assisted";
/// Problems that are told in one message.
const TOLD: usize = 5;
/// Longest message, in bytes; the API server takes 32768.
const MAXIMUM_MESSAGE_BYTES: usize = 4096;

/// A reading of the pages of an EdgeGateway's gateways, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Gateways that have been read.
    pub gateways: i32,
    /// Their sessions.
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
    /// It has stopped by itself: assisted sessions were slower than those held out.
    pub stopped: i32,
    /// After that it is tried again, for half of the clients.
    pub trying: i32,
}

/// Observations of the gateways of an EdgeGateway.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// Addresses that clients can use.
    pub addresses: Vec<String>,
    /// Pods that are ready.
    pub ready: i32,
    /// All Pods.
    pub pods: i32,
    /// Names of the Pods that are ready.
    pub ready_pods: BTreeSet<String>,
    /// Connected gateways.
    pub proxies: Vec<GatewayProxy>,
    /// The version of the newest configuration, when it is known, and those that a gateway may
    /// have instead for a moment.
    pub versions: BTreeSet<String>,
    /// Ports of the nodes, by the gateway's UDP port.
    pub node_ports: BTreeMap<u16, i32>,
    /// The operator that writes the status.
    pub operator: String,
    /// The reading of the pages of those that are ready, once there is one.
    pub reading: Option<Reading>,
    /// Why the objects of the gateway could not be applied.
    pub failure: Option<String>,
    /// True if the namespace is being deleted, so that nothing can be made in it.
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

/// Condition `Accepted`: the objects of the gateway may and can be made.
fn accepted(view: &GatewayView, observed: &Observed) -> Finding {
    match &observed.failure {
        _ if observed.namespace_ends => Finding(
            Some(false),
            "NamespaceEnds",
            "the namespace is being deleted: nothing is made or repaired in it any more".to_owned(),
        ),
        _ if observed.definition_is_outdated => Finding(
            Some(false),
            Reason::DefinitionOutdated.name(),
            "the cluster has the resource definitions of an older version, which drop what the operator writes: of the status only conditions are current. Apply those of this version: kubectl apply --server-side --force-conflicts -f charts/packrat/crds".to_owned(),
        ),
        _ if view.refusal.is_some() => {
            Finding(Some(false), "NotPermitted", view.refusal.clone().unwrap_or_default())
        }
        None => Finding(Some(true), "Accepted", "the gateways are set up".to_owned()),
        Some(failure) => Finding(
            Some(false),
            "ApplyFailed",
            format!("an object of this EdgeGateway was refused: {failure}"),
        ),
    }
}

/// Condition `ResolvedRoutes`: every Service that chose the gateway has its ports.
fn resolved_routes(view: &GatewayView) -> Finding {
    let problems =
        || view.problems.iter().filter(|(_, problem)| problem.reason != Reason::PortKept);
    let Some((_, first)) = problems().next() else {
        let message = "all Services that chose this gateway have their ports".to_owned();
        return Finding(Some(true), "Resolved", message);
    };
    let mut told: Vec<String> = problems()
        .take(TOLD)
        .map(|(service, problem)| format!("{}: {}", told(service), problem.message))
        .collect();
    let count = problems().count();
    if count > TOLD {
        told.push(format!("and {} more", count - TOLD));
    }
    Finding(Some(false), first.reason.name(), told.join("; "))
}

/// Condition `Programmed`: every gateway that is ready is connected, and has taken the newest
/// configuration.
fn programmed(observed: &Observed) -> Finding {
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
        return Finding(Some(false), "Refused", message);
    }
    if proxies.is_empty() {
        let message = "no gateway is connected to the operator".to_owned();
        return Finding(None, "NotConnected", message);
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
        return Finding(Some(false), "NotConnected", message);
    }
    // One that is not ready serves no one who is new, and may be on its way out.
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
        return Finding(Some(false), "Pending", message);
    }
    let message = format!("{} gateways have the newest configuration", counted.len());
    Finding(Some(true), "Programmed", message)
}

/// The first names of many.
fn some_of(names: &[&str]) -> String {
    let mut told = names.iter().take(TOLD).copied().collect::<Vec<_>>().join(", ");
    if names.len() > TOLD {
        told.push_str(&format!(" and {} more", names.len() - TOLD));
    }
    told
}

/// Condition `Ready`: gateways run, and clients can reach them.
fn ready(gateway: &GatewayModel, view: &GatewayView, observed: &Observed) -> Finding {
    if observed.ready == 0 {
        let message = format!(
            "none of {} gateway Pods is ready; look at them with kubectl describe pods",
            observed.pods
        );
        return Finding(Some(false), "NoReadyGateway", message);
    }
    if view.listeners.values().all(|listener| listener.is_leaving) {
        let message =
            "no Service has chosen this gateway; annotate one with packrat.dev/assist: enabled";
        return Finding(Some(false), "NoRoutes", message.to_owned());
    }
    if observed.addresses.is_empty() {
        let message = match gateway.spec.exposure.type_ {
            ExposureType::LoadBalancer => {
                "the Service of type LoadBalancer has no address yet; without a load balancer choose spec.exposure.type NodePort or HostNetwork"
            }
            _ => "the gateways have no address yet",
        };
        return Finding(Some(false), "NoAddress", message.to_owned());
    }
    let message = format!("{} of {} gateways are ready", observed.ready, observed.pods);
    Finding(Some(true), "Ready", message)
}

/// The report of the gateways about the route of a listener. Before the first reading it is that in the
/// status: an operator that has just begun knows no better.
fn stopped_route(
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
fn assisting(gateway: &GatewayModel, view: &GatewayView, observed: &Observed) -> Finding {
    if !gateway.spec.assist {
        let message = "spec.assist is false: clients are forwarded without assistance";
        return Finding(Some(false), "SwitchedOff", message.to_owned());
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
        .take(TOLD)
        .map(|(name, route)| format!("{name}: {}", route.told(observed.ready)))
        .collect();
    if harmed.len() > TOLD {
        said.push(format!("and {} more", harmed.len() - TOLD));
    }
    if let Some(reason) = harmed_reason(harmed.iter().map(|(_, route)| *route)) {
        return Finding(Some(false), reason, said.join("; "));
    }
    let mut message = "assistance has stopped by itself on no route".to_owned();
    match observed.reading.as_ref().map_or(0, |reading| reading.gateways) {
        0 => {
            let message = "no gateway has been asked for its routes yet";
            return Finding(None, "NotKnown", message.to_owned());
        }
        read if read < observed.ready => {
            message.push_str(&format!(" of the {read} gateways that have answered"));
        }
        _ => {}
    }
    Finding(Some(true), "Assisting", message)
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

    /// A sentence about it. `gateways`: those that are ready; more were so when they were read.
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

/// The condition of a Service: status, reason, message. `None`: it has nothing to say, and an older
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
    match (harm.reason(), condition) {
        (Some(reason), (true, _, message)) => {
            Some((false, reason, shortened(format!("{message}; {}", harm.told(gateways)))))
        }
        (_, condition) => Some(condition),
    }
}

/// The condition of a Service as far as objects determine it.
fn configured_condition(view: &ServiceView) -> Option<(bool, &'static str, String)> {
    let worst = view.problems.iter().map(|problem| problem.reason).min();
    let told = |problems: &[Problem]| {
        problems
            .iter()
            .take(TOLD)
            .map(|problem| problem.message.clone())
            .collect::<Vec<_>>()
            .join("; ")
    };
    match (view.wanted, &view.gateway, view.listeners.is_empty()) {
        (false, _, _) if view.problems.is_empty() => None,
        (true, Some(gateway), false) => {
            let ports: Vec<_> = view.listeners.iter().map(ToString::to_string).collect();
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

/// A message that the API server takes.
pub(crate) fn shortened(mut message: String) -> String {
    if message.len() > MAXIMUM_MESSAGE_BYTES {
        let mut end = MAXIMUM_MESSAGE_BYTES;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::EdgeGatewaySpec;

    fn model(exposure: ExposureType) -> GatewayModel {
        let mut spec = EdgeGatewaySpec::default();
        spec.exposure.type_ = exposure;
        GatewayModel { generation: 7, spec, ..GatewayModel::default() }
    }

    fn proxy(name: &str, error: Option<&str>) -> GatewayProxy {
        GatewayProxy {
            name: name.to_owned(),
            replica: "r".to_owned(),
            version: Some("2".to_owned()),
            error: error.map(str::to_owned),
        }
    }

    fn routed() -> GatewayView {
        let listener = Listener {
            service: ObjectKey::new("shop", "web"),
            service_port: 8443,
            port_name: "quic".to_owned(),
            endpoints: vec!["[fd00::1]:443".parse().unwrap()],
            shares: Default::default(),
            overrides: Default::default(),
            is_leaving: false,
        };
        GatewayView { listeners: [(443, listener)].into(), ..GatewayView::default() }
    }

    fn well() -> Observed {
        Observed {
            addresses: vec!["2001:db8::1".to_owned()],
            ready: 2,
            pods: 2,
            ready_pods: ["a", "b"].map(str::to_owned).into(),
            proxies: vec![proxy("a", None), proxy("b", None)],
            versions: ["2".to_owned()].into(),
            reading: Some(Reading { gateways: 2, sessions: 3, ..Reading::default() }),
            ..Observed::default()
        }
    }

    /// The same with a route that is harmed.
    fn harmed(route: StoppedRoute) -> Observed {
        let mut observed = well();
        observed.reading.as_mut().unwrap().routes.insert("shop/web/8443".to_owned(), route);
        observed
    }

    fn said(status: &EdgeGatewayStatus, type_: &str) -> (String, String, String) {
        let found = status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
        assert_eq!(found.observed_generation, Some(7));
        (found.status.clone(), found.reason.clone(), found.message.clone())
    }

    /// Observations, each with the condition that follows: type, status, reason, a part of the
    /// message.
    #[test]
    fn what_is_said_in_which_case() {
        let (balancer, host) = (ExposureType::LoadBalancer, ExposureType::HostNetwork);
        for (exposure, observed, condition, status, reason, part) in [
            (balancer, well(), "Accepted", "True", "Accepted", "the gateways are set up"),
            (balancer, well(), "ResolvedRoutes", "True", "Resolved", "all Services"),
            (balancer, well(), "Programmed", "True", "Programmed", "2"),
            (balancer, well(), "Ready", "True", "Ready", "2 of 2 gateways are ready"),
            (
                balancer,
                Observed { failure: Some("Deployment: no".to_owned()), ..well() },
                "Accepted",
                "False",
                "ApplyFailed",
                "an object of this EdgeGateway was refused: Deployment: no",
            ),
            (
                balancer,
                Observed { namespace_ends: true, ..well() },
                "Accepted",
                "False",
                "NamespaceEnds",
                "is being deleted",
            ),
            (
                balancer,
                Observed { definition_is_outdated: true, ..well() },
                "Accepted",
                "False",
                "DefinitionOutdated",
                "-f charts/packrat/crds",
            ),
            (
                balancer,
                Observed {
                    proxies: vec![proxy("a", None), proxy("b", Some("bad port"))],
                    ..well()
                },
                "Programmed",
                "False",
                "Refused",
                "1 of 2 gateways refused a part of the configuration and keep the former: b: bad port",
            ),
            (
                balancer,
                Observed { proxies: Vec::new(), ..well() },
                "Programmed",
                "Unknown",
                "NotConnected",
                "no gateway is connected",
            ),
            (balancer, Observed { ready: 0, ..well() }, "Ready", "False", "NoReadyGateway", ""),
            (
                balancer,
                Observed { addresses: Vec::new(), ..well() },
                "Ready",
                "False",
                "NoAddress",
                "choose spec.exposure.type NodePort or HostNetwork",
            ),
            (balancer, well(), "Assisting", "True", "Assisting", "on no route"),
            (
                balancer,
                Observed { reading: None, ..well() },
                "Assisting",
                "Unknown",
                "NotKnown",
                "no gateway has been asked",
            ),
            (
                balancer,
                harmed(StoppedRoute { stopped: 1, trying: 1 }),
                "Assisting",
                "False",
                "AssistanceStopped",
                "UDP port 443 (Service shop/web): assistance has stopped by itself on 1 of 2 gateways",
            ),
            (
                balancer,
                harmed(StoppedRoute { stopped: 0, trying: 1 }),
                "Assisting",
                "False",
                "AssistanceTried",
                "tried again on 1 of 2 gateways",
            ),
            (
                host,
                Observed { addresses: Vec::new(), ..well() },
                "Ready",
                "False",
                "NoAddress",
                "no address yet",
            ),
        ] {
            let status_of =
                gateway_status(&model(exposure), &routed(), &observed, &[], Timestamp::UNIX_EPOCH);
            let (found_status, found_reason, message) = said(&status_of, condition);
            assert_eq!(
                (found_status.as_str(), found_reason.as_str()),
                (status, reason),
                "{message}"
            );
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn numbers_addresses_listeners_and_problems() {
        let web = ObjectKey::new("shop", "web");
        let problems = (0..7).map(|number| {
            let message = format!("problem {number}");
            (web.clone(), Problem { reason: Reason::PortConflict, message })
        });
        let view = GatewayView { problems: problems.collect(), ..routed() };
        let status = gateway_status(
            &model(ExposureType::LoadBalancer),
            &view,
            &well(),
            &[],
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(status.addresses, ["2001:db8::1"]);
        assert_eq!(
            (status.sessions, status.attached_routes, status.ready_gateways),
            (Some(3), Some(1), Some(2))
        );
        assert_eq!(status.observed_generation, Some(7));
        let expected = ListenerStatus {
            port: 443,
            service: "shop/web".to_owned(),
            service_port: 8443,
            service_port_name: Some("quic".to_owned()),
            endpoints: 1,
            ..ListenerStatus::default()
        };
        assert_eq!(status.listeners, [expected]);
        let (found, reason, message) = said(&status, "ResolvedRoutes");
        assert_eq!((found.as_str(), reason.as_str()), ("False", "PortConflict"));
        assert!(message.starts_with("Service shop/web: problem 0; "), "{message}");
        assert!(message.ends_with("; and 2 more"), "{message}");
    }

    #[test]
    fn assistance_that_has_stopped_is_in_the_conditions_of_listener_and_service() {
        let observed = harmed(StoppedRoute { stopped: 2, trying: 0 });
        let model = model(ExposureType::LoadBalancer);
        let of = |model: &GatewayModel, view: &GatewayView| {
            gateway_status(model, view, &observed, &[], Timestamp::UNIX_EPOCH)
        };
        let status = of(&model, &routed());
        assert_eq!((status.listeners[0].stopped_gateways, status.sessions), (2, Some(3)));
        let key = ObjectKey::new("shop", "web");
        let view = ServiceView {
            wanted: true,
            gateway: Some(ObjectKey::new("shop", "edge")),
            listeners: vec![443],
            ..ServiceView::default()
        };
        let (is_well, reason, message) = service_condition(&key, &view, Some(&status)).unwrap();
        assert_eq!((is_well, reason), (false, "AssistanceStopped"));
        assert!(message.contains("stopped by itself on 2 of 2 gateways"), "{message}");
        // Of another Service at that gateway, and of a port that is about to go, nothing is said.
        let other = ObjectKey::new("shop", "game");
        assert!(service_condition(&other, &view, Some(&status)).unwrap().0);
        assert!(service_condition(&key, &view, None).unwrap().0);
        let mut leaving = routed();
        leaving.listeners.get_mut(&443).unwrap().is_leaving = true;
        assert_eq!(said(&of(&model, &leaving), "Assisting").0, "True");
        // Where it is switched off there is nothing to stop.
        let mut off = model.clone();
        off.spec.assist = false;
        assert_eq!(said(&of(&off, &routed()), "Assisting").1, "SwitchedOff");
    }

    /// Without a reading the operator knows what the status says, and no more.
    #[test]
    fn a_route_stays_stopped_until_a_gateway_says_otherwise() {
        let mut model = model(ExposureType::LoadBalancer);
        let of = |model: &GatewayModel, observed: &Observed| {
            gateway_status(model, &routed(), observed, &[], Timestamp::UNIX_EPOCH)
        };
        model.status = of(&model, &harmed(StoppedRoute { stopped: 2, trying: 0 }));
        // One of the two is not ready any more.
        let unread = Observed { reading: None, ready: 1, ..well() };
        let status = of(&model, &unread);
        assert_eq!(status.listeners[0].stopped_gateways, 2);
        let (found, reason, message) = said(&status, "Assisting");
        assert_eq!((found.as_str(), reason.as_str()), ("False", "AssistanceStopped"));
        assert!(message.contains("on 2 of 2 gateways"), "{message}");
        let status = of(&model, &well());
        assert_eq!(status.listeners[0].stopped_gateways, 0);
        assert_eq!(said(&status, "Assisting").0, "True");
        let one = Reading { gateways: 1, ..Reading::default() };
        let message = said(&of(&model, &Observed { reading: Some(one), ..well() }), "Assisting").2;
        assert!(message.ends_with("on no route of the 1 gateways that have answered"), "{message}");
        // Of another Service at that port the status has said nothing.
        model.status.listeners[0].stopped_gateways = 2;
        model.status.listeners[0].service = "shop/game".to_owned();
        assert_eq!(of(&model, &unread).listeners[0].stopped_gateways, 0);
    }

    /// A gateway that the operator cannot reach keeps what it has: that is not the newest.
    #[test]
    fn a_gateway_is_programmed_when_it_has_acknowledged_what_is_newest() {
        let told = |change: &dyn Fn(&mut Observed)| {
            let mut observed = well();
            change(&mut observed);
            let model = model(ExposureType::LoadBalancer);
            let status = gateway_status(&model, &routed(), &observed, &[], Timestamp::UNIX_EPOCH);
            said(&status, "Programmed")
        };
        let of = |status: &str, reason: &str, message: &str| {
            (status.to_owned(), reason.to_owned(), message.to_owned())
        };
        let fine = of("True", "Programmed", "2 gateways have the newest configuration");
        assert_eq!(told(&|_| ()), fine);
        let behind = told(&|observed| observed.proxies[1].version = Some("1".to_owned()));
        let message = "1 of 2 gateways have not acknowledged the newest configuration: b";
        assert_eq!(behind, of("False", "Pending", message));
        // An endpoint has just come or gone: the answer is on its way.
        let recent = told(&|observed| {
            observed.proxies[1].version = Some("1".to_owned());
            observed.versions.insert("1".to_owned());
        });
        assert_eq!(recent, fine);
        // Before its first answer.
        let silent = told(&|observed| observed.proxies[1].version = None);
        assert_eq!(silent, behind);
        let (status, reason, message) = told(&|observed| {
            observed.proxies.pop();
        });
        assert_eq!((status.as_str(), reason.as_str()), ("False", "NotConnected"));
        assert!(message.starts_with("1 of 2 gateways are not connected"), "{message}");
        // One that ends, and one that is not ready yet, are no one's concern.
        let others = told(&|observed| {
            let ends = GatewayProxy { version: None, ..proxy("ends", None) };
            observed.proxies.push(ends);
        });
        assert_eq!(others, fine);
    }

    #[test]
    fn a_route_that_is_about_to_go_is_marked_and_not_counted() {
        let mut view = routed();
        view.listeners.get_mut(&443).unwrap().is_leaving = true;
        let status = gateway_status(
            &model(ExposureType::LoadBalancer),
            &view,
            &well(),
            &[],
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!((status.attached_routes, status.listeners[0].draining), (Some(0), true));
        assert_eq!(said(&status, "Ready").1, "NoRoutes");
    }

    #[test]
    fn a_gateway_that_nobody_has_chosen_is_not_ready() {
        let status = gateway_status(
            &model(ExposureType::LoadBalancer),
            &GatewayView::default(),
            &well(),
            &[],
            Timestamp::UNIX_EPOCH,
        );
        let message =
            "no Service has chosen this gateway; annotate one with packrat.dev/assist: enabled";
        assert_eq!(
            said(&status, "Ready"),
            ("False".to_owned(), "NoRoutes".to_owned(), message.to_owned())
        );
    }

    /// The time of a condition is that of its last change, whatever else is said meanwhile.
    #[test]
    fn the_time_changes_with_the_status_only() {
        let later = Timestamp::from_second(1000).unwrap();
        let view = routed();
        let first = gateway_status(
            &model(ExposureType::LoadBalancer),
            &view,
            &well(),
            &[],
            Timestamp::UNIX_EPOCH,
        );
        let fewer = Observed { ready: 1, ..well() };
        let second = gateway_status(
            &model(ExposureType::LoadBalancer),
            &view,
            &fewer,
            &first.conditions,
            later,
        );
        let third = gateway_status(
            &model(ExposureType::LoadBalancer),
            &view,
            &Observed { ready: 0, ..well() },
            &second.conditions,
            later,
        );
        let time = |status: &EdgeGatewayStatus| {
            status
                .conditions
                .iter()
                .find(|condition| condition.type_ == "Ready")
                .unwrap()
                .last_transition_time
                .0
        };
        assert_eq!((time(&second), time(&third)), (Timestamp::UNIX_EPOCH, later));
        assert_ne!(said(&second, "Ready").2, said(&first, "Ready").2);
    }
}
