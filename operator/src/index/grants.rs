//! The third phase, of all Services together: each port and each live stream goes to one claim.

use super::claims::Claim;
use super::resolution::Resolution;
use crate::names::MULTICAST_ANNOTATION;
use crate::object_key::{ObjectKey, told};
use crate::overrides::Multicast;
use crate::problem::{Problem, Reason};

/// A claim to the port at which a live stream arrives.
struct StreamClaim {
    is_new: bool,
    created: i64,
    gateway: ObjectKey,
    /// Port of the listener that has the live stream.
    port: u16,
    service: ObjectKey,
    multicast: Multicast,
}

impl StreamClaim {
    fn of(claim: &Claim<'_>) -> Option<Self> {
        let stream = claim.stream?;
        Some(Self {
            is_new: stream.is_new,
            created: claim.created,
            gateway: claim.gateway.clone(),
            port: claim.port,
            service: claim.listener.service.clone(),
            multicast: stream.multicast,
        })
    }
}

impl Resolution {
    /// Grants ports, and then live streams. The Service that has the port keeps it: the time at which a
    /// Service was made does not show the time at which it asked. A free port is the oldest Service's;
    /// between two of the same second the name decides.
    pub(super) fn grant(&mut self, mut claims: Vec<Claim<'_>>) {
        let mut streams: Vec<_> = claims.iter().filter_map(StreamClaim::of).collect();
        claims.sort_by(|a, b| {
            (a.is_new, a.created, &a.listener.service, a.port).cmp(&(
                b.is_new,
                b.created,
                &b.listener.service,
                b.port,
            ))
        });
        for claim in claims {
            self.grant_port(claim);
        }
        streams.sort_by(|a, b| {
            (a.is_new, a.created, &a.gateway, a.port, &a.service)
                .cmp(&(b.is_new, b.created, &b.gateway, b.port, &b.service))
        });
        for claim in streams {
            self.grant_stream(claim);
        }
    }

    fn grant_port(&mut self, claim: Claim<'_>) {
        let Claim { gateway: key, port, current_port, listener, .. } = claim;
        let Some(gateway) = self.gateways.get_mut(key) else { return };
        let Some(view) = self.services.get_mut(&listener.service) else { return };
        if let Some(holder) = gateway.listeners.get(&port) {
            let message = if holder.service == listener.service {
                format!(
                    "port {port} of EdgeGateway {key} is named twice; give each port of the Service another one in packrat.dev/port"
                )
            } else {
                format!(
                    "port {port} of EdgeGateway {key} belongs to {}; choose another one, for example packrat.dev/port: {}:{current_port}",
                    told(&holder.service),
                    port.wrapping_add(1).max(1024),
                )
            };
            view.problems.push(Problem { reason: Reason::PortConflict, message });
            return;
        }
        if listener.endpoints.is_empty() {
            // The port stays reserved: a Service does not lose it while its Pods restart. It is not
            // listened on, as there is no endpoint to forward to.
            let message = format!(
                "port {current_port} of the Service has no endpoint; check that Pods match its selector and have that port"
            );
            view.problems.push(Problem { reason: Reason::NoEndpoints, message });
        }
        view.listeners.push(port);
        gateway.listeners.insert(port, listener);
    }

    /// Grants the port at which a live stream arrives: to one Service, and never one that a route
    /// listens on.
    fn grant_stream(&mut self, claim: StreamClaim) {
        let Some(gateway) = self.gateways.get_mut(&claim.gateway) else { return };
        let port = claim.multicast.upstream.port();
        let holder = gateway.listeners.get(&port).or_else(|| {
            let mut others = gateway.listeners.values();
            others.find(|other| other.stream_port() == Some(port))
        });
        let message = holder.map(|holder| {
            format!(
                "port {port} of EdgeGateway {} belongs to {}; let the stream arrive at another one: {MULTICAST_ANNOTATION}",
                claim.gateway,
                told(&holder.service)
            )
        });
        let Some(granted) = gateway.listeners.get_mut(&claim.port) else { return };
        if granted.service != claim.service {
            return;
        }
        match (message, self.services.get_mut(&claim.service)) {
            (None, _) => granted.overrides.multicast = Some(claim.multicast),
            (Some(message), Some(view)) => {
                view.problems.push(Problem { reason: Reason::PortConflict, message });
            }
            (Some(_), None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::claims::ClaimedStream;
    use crate::index::{GatewayView, Listener, ServiceView};

    fn edge() -> ObjectKey {
        ObjectKey::new("app", "default")
    }

    fn claim<'a>(gateway: &'a ObjectKey, service: &str, port: u16) -> Claim<'a> {
        let listener = Listener {
            service: ObjectKey::new("app", service),
            endpoints: vec!["192.0.2.1:443".parse().unwrap()],
            ..Listener::default()
        };
        let (is_new, created, current_port, stream) = (true, 0, port, None);
        Claim { gateway, port, is_new, created, current_port, stream, listener }
    }

    /// The Services at the ports of the EdgeGateway, and the reasons of problems by Service.
    fn granted(claims: Vec<Claim<'_>>) -> (Resolution, Vec<(String, Reason)>) {
        let mut resolution = Resolution::default();
        resolution.gateways.insert(edge(), GatewayView::default());
        for claim in &claims {
            resolution.services.insert(claim.listener.service.clone(), ServiceView::default());
        }
        resolution.grant(claims);
        let problems = resolution.services.iter().flat_map(|(service, view)| {
            view.problems.iter().map(|problem| (service.name.clone(), problem.reason))
        });
        let problems = problems.collect();
        (resolution, problems)
    }

    #[test]
    fn a_port_is_its_present_owners_then_the_oldest_ones() {
        let edge = edge();
        let older = |name| Claim { created: 1, ..claim(&edge, name, 443) };
        let newer = |name| Claim { created: 2, ..claim(&edge, name, 443) };
        let owner = Claim { is_new: false, ..newer("z") };
        for (claims, winner) in [
            (vec![newer("a"), older("b")], "b"),
            (vec![older("b"), older("a")], "a"),
            (vec![older("b"), owner], "z"),
        ] {
            let (resolution, problems) = granted(claims);
            assert_eq!(resolution.gateways[&edge].listeners[&443].service.name, winner);
            assert_eq!(problems.len(), 1);
            assert!(problems[0].0 != winner && problems[0].1 == Reason::PortConflict);
        }
    }

    #[test]
    fn a_port_without_endpoints_is_granted_and_reported() {
        let edge = edge();
        let mut waiting = claim(&edge, "web", 443);
        waiting.listener.endpoints.clear();
        let (resolution, problems) = granted(vec![waiting]);
        assert!(resolution.gateways[&edge].listeners.contains_key(&443));
        assert_eq!(problems, [("web".to_owned(), Reason::NoEndpoints)]);
    }

    #[test]
    fn a_stream_is_granted_after_all_ports_and_to_one_listener() {
        let edge = edge();
        let with_stream = |name: &str, port: u16, stream: &str| {
            let multicast = Multicast::read(stream).unwrap();
            let stream = Some(ClaimedStream { is_new: true, multicast });
            Claim { stream, ..claim(&edge, name, port) }
        };
        let stream_of = |resolution: &Resolution, port: u16| {
            resolution.gateways[&edge].listeners[&port].stream_port()
        };
        let two =
            vec![with_stream("a", 7000, "0.0.0.0:5004"), with_stream("b", 7001, "0.0.0.0:5004")];
        let (resolution, problems) = granted(two);
        assert_eq!(
            (stream_of(&resolution, 7000), stream_of(&resolution, 7001)),
            (Some(5004), None)
        );
        assert_eq!(problems, [("b".to_owned(), Reason::PortConflict)]);
        // A listener has the port, however late it is.
        let late = Claim { created: 9, ..claim(&edge, "web", 5004) };
        let (resolution, problems) = granted(vec![with_stream("a", 7000, "0.0.0.0:5004"), late]);
        assert_eq!(stream_of(&resolution, 7000), None);
        assert_eq!(problems, [("a".to_owned(), Reason::PortConflict)]);
    }
}
