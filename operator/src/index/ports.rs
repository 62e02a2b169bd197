//! The ports of a Service that are to be assisted, and the gateway's ports for them.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use super::endpoints::{Addresses, Protocol};
use super::{ServiceModel, ServicePort, SliceModel};
use crate::annotations::{ObjectKey, PORT_ANNOTATION, PortChoice, PortName, Problem, Reason};
use crate::resource::{EndpointsFrom, ListenerStatus};
use crate::status::LISTED_PROBLEMS;

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
    key: &ObjectKey,
    (service, allowed): (&ServiceModel, usize),
    held: &[&ListenerStatus],
    slices: &[&SliceModel],
    addresses: &Addresses<'_>,
    from: EndpointsFrom,
) -> (Vec<ChosenPort>, Vec<Problem>) {
    let mut problems = Vec::new();
    let (protocol, ports) = ports_of(service);
    let name = match protocol {
        Protocol::Udp => "UDP",
        Protocol::Tcp => "TCP",
    };
    let all: Vec<PortChoice>;
    let choices = match &service.annotations.ports {
        Some(Ok(choices)) => choices,
        Some(Err(())) => return (Vec::new(), problems),
        None => {
            all = ports
                .iter()
                .map(|port| PortChoice { listener: None, service: PortName::Number(port.port) })
                .collect();
            &all
        }
    };
    if choices.is_empty() {
        problems.push(Problem {
            reason: Reason::NoSuchPort,
            message: format!(
                "the Service has no {name} port; add one with protocol: {name}, or remove packrat.dev/assist"
            ),
        });
    }
    let by_number: HashMap<_, _> = ports.iter().map(|port| (port.port, port)).collect();
    let by_name: HashMap<_, _> = ports.iter().map(|port| (port.name.as_str(), port)).collect();
    let found = |choice: &PortChoice| match &choice.service {
        PortName::Number(number) => by_number.get(number).copied(),
        PortName::Name(name) => by_name.get(name.as_str()).copied(),
    };
    let mut choices: Vec<_> = choices.iter().collect();
    if choices.len() > allowed {
        let held: HashSet<i32> = held.iter().map(|listener| listener.port).collect();
        choices.sort_by_cached_key(|choice| {
            let number = choice.listener.or_else(|| Some(found(choice)?.port));
            !number.is_some_and(|number| held.contains(&number.into()))
        });
        choices.truncate(allowed);
    }
    let mut chosen = Vec::new();
    for choice in choices {
        let Some(port) = found(choice) else {
            let known: Vec<_> = ports
                .iter()
                .take(LISTED_PROBLEMS)
                .map(|port| match port.name.as_str() {
                    "" => port.port.to_string(),
                    name => format!("{} ({name})", port.port),
                })
                .collect();
            let known = match ports.len().saturating_sub(LISTED_PROBLEMS) {
                _ if known.is_empty() => "none".to_owned(),
                0 => known.join(", "),
                more => format!("{} and {more} more", known.join(", ")),
            };
            problems.push(Problem {
                reason: Reason::NoSuchPort,
                message: format!(
                    "the Service has no {name} port {}; its {name} ports: {known}",
                    choice.service
                ),
            });
            continue;
        };
        let (endpoints, problem) = addresses.endpoints(
            from,
            &key.namespace,
            (protocol, &port.name),
            service.prefers_ipv6,
            slices,
        );
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
