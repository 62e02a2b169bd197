//! The ports of a Service that are to be assisted, and the gateway's ports for them.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use super::endpoints::{Endpoints, Protocol};
use crate::annotations::{PortChoice, PortName};
use crate::model::{ServiceModel, ServicePort};
use crate::names::PORT_ANNOTATION;
use crate::object_key::ObjectKey;
use crate::problem::LISTED_PROBLEMS;
use crate::problem::{Problem, Reason};
use crate::resource::{EndpointsFrom, ListenerStatus};

/// A port of a Service that is to be assisted.
pub(super) struct ChosenPort {
    /// The gateway's port.
    pub(super) listener: u16,
    /// True if that follows from the number of the Service's port.
    pub(super) follows: bool,
    /// The Service's port of which the route has its name.
    pub(super) service_port: u16,
    /// The Service's port as it is now.
    pub(super) current_port: u16,
    /// Name of the port.
    pub(super) port_name: String,
    pub(super) endpoints: Vec<SocketAddr>,
}

/// A Service whose port gets another number keeps the gateway's port, which clients know, unless an
/// annotation names another one. The route keeps its name with it, and the sessions that are there.
pub(super) fn keep_ports(
    chosen: &mut [ChosenPort],
    service: &ServiceModel,
    gateway_key: &ObjectKey,
    held: &[&ListenerStatus],
) -> Vec<Problem> {
    let held: Vec<_> = held.iter().filter(|listener| !listener.draining).collect();
    // A port that the annotation names is not kept for another one.
    let named: Vec<u16> = chosen.iter().map(|port| port.listener).collect();
    let mut problems = Vec::new();
    for port in chosen.iter_mut().filter(|port| port.follows) {
        let has = |number: u16| held.iter().any(|listener| listener.port == i32::from(number));
        if has(port.listener) {
            continue;
        }
        let kept = held.iter().find_map(|listener| {
            let number = u16::try_from(listener.port).ok()?;
            let followed = listener.port == listener.service_port;
            let is_same = listener.service_port_name.as_ref() == Some(&port.port_name);
            let is_free = || {
                ports_of(service).1.iter().all(|port| port.port != number)
                    && !named.contains(&number)
            };
            (followed && is_same && is_free()).then_some(number)
        });
        let Some(kept) = kept else { continue };
        let now = port.listener;
        let name = match port.port_name.as_str() {
            "" => now.to_string(),
            name => name.to_owned(),
        };
        let message = format!(
            "port {kept} of EdgeGateway {gateway_key} stays as it is, although the Service's port is {now} now: clients know it. {PORT_ANNOTATION}: {kept}:{name} says so for good, {now}:{name} moves it"
        );
        problems.push(Problem { reason: Reason::PortKept, message });
        (port.listener, port.service_port) = (kept, kept);
    }
    problems
}

/// The ports of a Service by which clients come: TCP ports, by which servers are reached, if
/// connections end at the gateway.
pub(super) fn ports_of(service: &ServiceModel) -> (Protocol, &[ServicePort]) {
    match service.annotations.terminates() {
        true => (Protocol::Tcp, &service.tcp_ports),
        false => (Protocol::Udp, &service.ports),
    }
}

/// The ports of a Service that are to be assisted, and the faults of its choice. If there are more
/// than `allowed`, the ports that the Service has already count, and then the first others.
pub(super) fn choose_ports(
    (key, service): (&ObjectKey, &ServiceModel),
    allowed: usize,
    held: &[&ListenerStatus],
    endpoints: &Endpoints<'_>,
    from: EndpointsFrom,
) -> (Vec<ChosenPort>, Vec<Problem>) {
    let (protocol, ports) = ports_of(service);
    let choices: Vec<PortChoice> = match &service.annotations.ports {
        Some(Ok(choices)) => choices.clone(),
        Some(Err(())) => return Default::default(),
        None => ports
            .iter()
            .map(|port| PortChoice { listener: None, service: PortName::Number(port.port) })
            .collect(),
    };
    let mut problems = Vec::new();
    if choices.is_empty() {
        let message = format!(
            "the Service has no {protocol} port; add one with protocol: {protocol}, or remove packrat.dev/assist"
        );
        problems.push(Problem { reason: Reason::NoSuchPort, message });
    }
    let by_number: HashMap<_, _> = ports.iter().map(|port| (port.port, port)).collect();
    let by_name: HashMap<_, _> = ports.iter().map(|port| (port.name.as_str(), port)).collect();
    let found = |choice: &PortChoice| match &choice.service {
        PortName::Number(number) => by_number.get(number).copied(),
        PortName::Name(name) => by_name.get(name.as_str()).copied(),
    };
    let mut chosen = Vec::new();
    for choice in at_most(allowed, choices, held, |choice| found(choice).map(|port| port.port)) {
        let Some(port) = found(&choice) else {
            problems.push(no_such_port(&choice, protocol, ports));
            continue;
        };
        let (endpoints, problem) = endpoints.of_port((key, service), (protocol, &port.name), from);
        problems.extend(problem);
        let is_named = matches!(choice.service, PortName::Name(_));
        chosen.push(ChosenPort {
            listener: choice.listener.unwrap_or(port.port),
            follows: choice.listener.is_none() && (is_named || service.annotations.ports.is_none()),
            service_port: port.port,
            current_port: port.port,
            port_name: port.name.clone(),
            endpoints,
        });
    }
    (chosen, problems)
}

/// As many choices as are allowed: first the choices whose listener the Service has. `number`: the
/// number of the Service's port.
fn at_most(
    allowed: usize,
    mut choices: Vec<PortChoice>,
    held: &[&ListenerStatus],
    number: impl Fn(&PortChoice) -> Option<u16>,
) -> Vec<PortChoice> {
    if choices.len() > allowed {
        let held: HashSet<i32> = held.iter().map(|listener| listener.port).collect();
        choices.sort_by_cached_key(|choice| {
            let number = choice.listener.or_else(|| number(choice));
            !number.is_some_and(|number| held.contains(&number.into()))
        });
        choices.truncate(allowed);
    }
    choices
}

/// The problem of a choice without a port. `ports`: all that the Service has.
fn no_such_port(choice: &PortChoice, protocol: Protocol, ports: &[ServicePort]) -> Problem {
    let name_of = |port: &ServicePort| match port.name.as_str() {
        "" => port.port.to_string(),
        name => format!("{} ({name})", port.port),
    };
    let known: Vec<_> = ports.iter().take(LISTED_PROBLEMS).map(name_of).collect();
    let known = match ports.len().saturating_sub(LISTED_PROBLEMS) {
        _ if known.is_empty() => "none".to_owned(),
        0 => known.join(", "),
        more => format!("{} and {more} more", known.join(", ")),
    };
    let message = format!(
        "the Service has no {protocol} port {}; its {protocol} ports: {known}",
        choice.service
    );
    Problem { reason: Reason::NoSuchPort, message }
}
