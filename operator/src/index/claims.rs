//! The second phase of a Service: each chosen port becomes a claim, with the listener that it would be.

use packrat_api::route::ServerIds;

use super::chosen::{Chosen, Facts};
use super::listener::Listener;
use super::objects::Index;
use super::ports::ChosenPort;
use super::resolution::ServiceView;
use super::tcp::{self, Asked};
use super::terminate;
use crate::names::{MODE_ANNOTATION, MULTICAST_ANNOTATION, PORT_ANNOTATION};
use crate::object_key::ObjectKey;
use crate::overrides::{Multicast, Overrides};
use crate::problem::{Problem, Reason};
use crate::resource::ExposureType;

/// A Service's claim to a port of an EdgeGateway.
pub(super) struct Claim<'a> {
    pub(super) gateway: &'a ObjectKey,
    pub(super) port: u16,
    /// True unless the Service has the port already.
    pub(super) is_new: bool,
    /// Seconds since 1970 at which the Service was made.
    pub(super) created: i64,
    /// The Service's port as it is now.
    pub(super) current_port: u16,
    /// The live stream, which is granted once all listeners are known.
    pub(super) stream: Option<ClaimedStream>,
    /// The listener, without its live stream.
    pub(super) listener: Listener,
}

/// A live stream that a Service claims the port of.
#[derive(Clone, Copy)]
pub(super) struct ClaimedStream {
    /// True unless the Service has the port for its live stream already.
    pub(super) is_new: bool,
    pub(super) multicast: Multicast,
}

impl Claim<'_> {
    /// The ports that the Service has already, and still asks for.
    pub(super) fn held_ports(&self) -> impl Iterator<Item = u16> {
        let listener = (!self.is_new).then_some(self.port);
        let stream = self.stream.filter(|stream| !stream.is_new);
        listener.into_iter().chain(stream.map(|stream| stream.multicast.upstream.port()))
    }
}

impl Index {
    /// The claims of a Service to its chosen ports.
    pub(super) fn claims<'a>(
        &self,
        mut chosen: Chosen<'a>,
        facts: &Facts<'_>,
        view: &mut ServiceView,
    ) -> Vec<Claim<'a>> {
        let ports = std::mem::take(&mut chosen.ports);
        let Chosen { key, service, gateway_key, gateway, .. } = chosen;
        let namespace = self.annotations_of(&key.namespace);
        let mut own = service.annotations.overrides.clone().or(namespace.overrides.clone());
        let refusal = own.multicast.and_then(|stream| refuse_stream(stream, &chosen, ports.len()));
        if refusal.is_some() {
            own.multicast = None;
        }
        let within = |settings: Overrides| settings.within(&gateway.spec, &gateway_key.to_string());
        // With policies they depend on the port.
        let settings: Vec<(Overrides, Vec<String>)> = match ports.as_slice() {
            [] => vec![within(own)],
            ports => {
                let at =
                    |port: &ChosenPort| facts.declared.settings(gateway_key, port.listener, &own);
                ports.iter().map(at).map(within).collect()
            }
        };
        view.is_off =
            settings.iter().all(|(settings, _)| !settings.assist().unwrap_or(gateway.spec.assist));
        view.problems.extend(above_limit(settings.iter().flat_map(|(_, lowered)| lowered)));
        view.problems.extend(refusal);
        let (quic_lb, problem) = self.server_ids_of(key, service);
        view.problems.extend(problem);
        let settings = settings.into_iter().map(|(settings, _)| settings);
        let claims = ports.into_iter().zip(settings).map(|(port, settings)| {
            self.claim(&chosen, port, settings, &quic_lb, facts, &mut view.problems)
        });
        claims.collect()
    }

    /// The claim to one port. `settings`: the listener's.
    fn claim<'a>(
        &self,
        chosen: &Chosen<'a>,
        port: ChosenPort,
        settings: Overrides,
        quic_lb: &[ServerIds],
        facts: &Facts<'_>,
        problems: &mut Vec<Problem>,
    ) -> Claim<'a> {
        let Chosen { key, service, gateway_key, gateway, .. } = *chosen;
        let (terminated, faults) = self.terminated(key, service, port.current_port);
        problems.extend(faults);
        let tcp = if terminated.is_some() {
            terminate::tcp(service, &port.endpoints)
        } else {
            let asked = Asked {
                gateway: gateway_key,
                spec: &gateway.spec,
                own: service.annotations.tcp,
                tokens: settings.tokens().unwrap_or(gateway.spec.tokens.policy),
            };
            let (tcp, problem) =
                tcp::of_service(&asked, (key, service), port.current_port, &facts.endpoints);
            problems.extend(problem);
            tcp
        };
        let held = chosen.held_at(port.listener);
        let held_stream = held.and_then(|listener| listener.stream_port);
        let stream = settings.multicast.map(|multicast| ClaimedStream {
            is_new: held_stream != Some(multicast.upstream.port().into()),
            multicast,
        });
        Claim {
            gateway: gateway_key,
            port: port.listener,
            is_new: held.is_none(),
            created: service.created,
            current_port: port.current_port,
            stream,
            listener: Listener {
                service: key.clone(),
                service_port: port.service_port,
                port_name: port.port_name,
                endpoints: port.endpoints,
                tcp,
                terminated,
                quic_lb: quic_lb.to_vec(),
                overrides: settings.with_multicast(None),
                ..Listener::default()
            },
        }
    }
}

/// Problems about lowered settings, each once.
pub(super) fn above_limit<'a>(sentences: impl Iterator<Item = &'a String>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for message in sentences {
        let problem = Problem { reason: Reason::AboveLimit, message: message.clone() };
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems
}

/// Why a gateway does not serve a Service's live stream; its port is served without it then. `ports`:
/// the number of chosen ports.
fn refuse_stream(stream: Multicast, chosen: &Chosen<'_>, ports: usize) -> Option<Problem> {
    let (gateway, spec) = (chosen.gateway_key, &chosen.gateway.spec);
    let port = stream.upstream.port();
    let (reason, message) = if chosen.service.annotations.terminates() {
        (
            Reason::InvalidAnnotation,
            format!(
                "{MULTICAST_ANNOTATION} is for datagrams, and {MODE_ANNOTATION}: terminate for connections; remove one"
            ),
        )
    } else if !spec.multicast.enabled {
        (
            Reason::NotAllowed,
            format!(
                "EdgeGateway {gateway} serves no live streams; set its spec.multicast.enabled to true, or remove {MULTICAST_ANNOTATION}"
            ),
        )
    } else if stream.has_group() && spec.exposure.type_ != ExposureType::HostNetwork {
        (
            Reason::NotAllowed,
            format!(
                "EdgeGateway {gateway} is not on the hosts' network, where multicast groups are; set its spec.exposure.type to HostNetwork, or let the stream arrive by unicast: {MULTICAST_ANNOTATION}: 0.0.0.0:{port}"
            ),
        )
    } else if !spec.multicast.ports.contains(port) {
        (
            Reason::NotAllowed,
            format!(
                "live streams arrive at ports {} of EdgeGateway {gateway} (its spec.multicast.ports), not at {port}; correct {MULTICAST_ANNOTATION}",
                spec.multicast.ports
            ),
        )
    } else if ports != 1 {
        (
            Reason::InvalidAnnotation,
            format!(
                "{MULTICAST_ANNOTATION} is for one UDP port, and {ports} are chosen; name one with {PORT_ANNOTATION}"
            ),
        )
    } else {
        return None;
    };
    Some(Problem { reason, message })
}
