//! Routes that are gone and still served for a while, so that their sessions can end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use super::listener::Listener;
use super::objects::Index;
use super::resolution::Resolution;
use super::tcp::Passthrough;
use crate::object_key::ObjectKey;
use crate::policy::Quotas;
use crate::resource::ListenerStatus;

/// Remembers the listeners of the last time.
#[derive(Debug, Default)]
pub struct Lingering {
    /// The most listeners that vanished, of a namespace at an EdgeGateway, are its quota: a tenant that changes
    /// its ports again and again has no more.
    pub quotas: Quotas,
    seen: BTreeMap<(ObjectKey, u16), Listener>,
    /// Vanished listeners, each with the second at which its time ends.
    gone: BTreeMap<(ObjectKey, u16), (Listener, i64)>,
    /// Identities of the Pods that endpoints are, or were.
    pods: HashMap<IpAddr, String>,
}

impl Lingering {
    /// Takes over the listeners from before this replica began, which the statuses of EdgeGateways
    /// name: a route that was about to go keeps its port at the Service and in the NetworkPolicy.
    /// Its endpoints are not known; Envoy, which knows them, keeps the listener (see
    /// [`crate::xds::delta`]). Before the first [`Self::extend`].
    pub fn resume<'a>(
        &mut self,
        listeners: impl IntoIterator<Item = (&'a ObjectKey, &'a ListenerStatus)>,
        now: i64,
        seconds: impl Fn(&ObjectKey) -> i64,
    ) {
        for (gateway, status) in listeners {
            let (Ok(port), Ok(service_port), Some((namespace, name))) = (
                u16::try_from(status.port),
                u16::try_from(status.service_port),
                status.service.split_once('/'),
            ) else {
                continue;
            };
            let listener = Listener {
                service: ObjectKey::new(namespace, name),
                service_port,
                port_name: status.service_port_name.clone().unwrap_or_default(),
                tcp: status.tcp_endpoints.map(|_| Passthrough::default()),
                is_leaving: true,
                ..Listener::default()
            };
            self.gone.insert((gateway.clone(), port), (listener, now + seconds(gateway)));
        }
    }

    /// Forgets endpoints of former listeners whose address another Pod has by now: it would get datagrams that
    /// are not for it, and could ask for the clients' addresses. Before each [`Self::extend`] by the same
    /// `resolution` of `index`.
    pub fn recognize(&mut self, resolution: &Resolution, index: &Index) {
        let former = self.seen.values().chain(self.gone.values().map(|(listener, _)| listener));
        let now = resolution.gateways.values().flat_map(|view| view.listeners.values());
        let addresses: HashSet<IpAddr> = former.chain(now).flat_map(Listener::addresses).collect();
        let mut recycled = HashSet::new();
        let mut pods = HashMap::new();
        for pod in index.pods.values() {
            for address in pod.addresses.iter().filter(|address| addresses.contains(address)) {
                if self.pods.get(address).is_some_and(|known| *known != pod.uid) {
                    recycled.insert(*address);
                }
                pods.insert(*address, pod.uid.clone());
            }
        }
        self.pods.retain(|address, _| addresses.contains(address));
        self.pods.extend(pods);
        let is_served = |listener: &mut Listener| {
            listener.endpoints.is_empty() || {
                listener.forget(&recycled);
                !listener.endpoints.is_empty()
            }
        };
        self.seen.retain(|_, listener| is_served(listener));
        self.gone.retain(|_, (listener, _)| is_served(listener));
    }

    /// Takes note of the listeners that there are, and of vanished ones.
    fn see(&mut self, resolution: &Resolution, now: i64, seconds: impl Fn(&ObjectKey) -> i64) {
        let current: BTreeMap<(ObjectKey, u16), Listener> = resolution
            .gateways
            .iter()
            .flat_map(|(key, view)| {
                view.listeners
                    .iter()
                    .map(move |(port, listener)| ((key.clone(), *port), listener.clone()))
            })
            .filter(|(_, listener)| !listener.endpoints.is_empty())
            .collect();
        for (key, listener) in std::mem::replace(&mut self.seen, current) {
            if !self.seen.contains_key(&key) {
                let until = now + seconds(&key.0);
                self.gone.insert(key, (listener, until));
            }
        }
    }

    /// Adds to `resolution` the listeners that have vanished from it less than `seconds` of their
    /// gateway ago, unless the port is taken. Returns the time at which to call again.
    pub fn extend(
        &mut self,
        resolution: &mut Resolution,
        now: i64,
        seconds: impl Fn(&ObjectKey) -> i64,
    ) -> Option<i64> {
        self.see(resolution, now, seconds);
        let mut of_tenants = HashMap::<(ObjectKey, String), usize>::new();
        self.gone.retain(|(gateway, port), (listener, until)| {
            let Some(view) = resolution.gateways.get_mut(gateway) else { return false };
            let tenant = (gateway.clone(), listener.service.namespace.clone());
            let of_tenant = of_tenants.entry(tenant).or_default();
            let has_room = *of_tenant < self.quotas.per_namespace
                && view.listeners.len() < Quotas::MOST_PER_GATEWAY.into();
            let free = match view.listeners.get(port) {
                None => true,
                // The Service has its port and no endpoint at the moment: the former endpoints stay
                // in use.
                Some(holder) => {
                    holder.service == listener.service
                        && holder.endpoints.is_empty()
                        && !listener.endpoints.is_empty()
                }
            };
            let stays = free && has_room && *until > now;
            if stays {
                *of_tenant += 1;
                let mut listener = listener.clone();
                // A Service that has its port and no endpoint at the moment takes clients, unless an endpoint
                // is of another one that a UDPRoute may send to no more.
                let services = &listener.shares.services;
                listener.is_leaving = view
                    .listeners
                    .get(port)
                    .is_none_or(|holder| !services.is_subset(&holder.shares.services));
                // Its live stream's port may be another Service's by now.
                let stream = listener.stream_port();
                let mut others = view.listeners.values();
                if stream.is_some() && others.any(|other| other.stream_port() == stream) {
                    listener.overrides.multicast = None;
                }
                view.listeners.insert(*port, listener);
            }
            stays
        });
        self.gone.values().map(|(_, until)| *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::GatewayView;
    use crate::overrides::Multicast;

    fn resolution(listeners: &[(u16, &str)]) -> Resolution {
        let listeners = listeners
            .iter()
            .map(|(port, service)| {
                let listener = Listener {
                    service: ObjectKey::new("a", *service),
                    service_port: *port,
                    endpoints: vec!["192.0.2.1:443".parse().unwrap()],
                    ..Listener::default()
                };
                (*port, listener)
            })
            .collect();
        let view = GatewayView { listeners, ..GatewayView::default() };
        Resolution {
            gateways: [(ObjectKey::new("a", "edge"), view)].into(),
            ..Resolution::default()
        }
    }

    fn ports(lingering: &mut Lingering, of: &[(u16, &str)], now: i64) -> (Vec<u16>, Option<i64>) {
        let mut resolution = resolution(of);
        let again = lingering.extend(&mut resolution, now, |_| 60);
        (
            resolution.gateways[&ObjectKey::new("a", "edge")].listeners.keys().copied().collect(),
            again,
        )
    }

    #[test]
    fn a_removed_route_is_served_until_its_sessions_had_time_to_end() {
        let mut lingering = Lingering::default();
        assert_eq!(ports(&mut lingering, &[(443, "web"), (444, "dns")], 0), (vec![443, 444], None));
        assert_eq!(ports(&mut lingering, &[(444, "dns")], 10), (vec![443, 444], Some(70)));
        assert_eq!(ports(&mut lingering, &[(444, "dns")], 69), (vec![443, 444], Some(70)));
        assert_eq!(ports(&mut lingering, &[(444, "dns")], 70), (vec![444], None));
    }

    /// A removed route is marked as draining; a route that waits for endpoints is not.
    #[test]
    fn a_removed_route_is_marked_but_not_one_without_endpoints() {
        let edge = ObjectKey::new("a", "edge");
        let mut lingering = Lingering::default();
        lingering.extend(&mut resolution(&[(443, "web"), (444, "dns")]), 0, |_| 60);
        let mut now = resolution(&[(443, "web")]);
        now.gateways.get_mut(&edge).unwrap().listeners.get_mut(&443).unwrap().endpoints.clear();
        lingering.extend(&mut now, 1, |_| 60);
        let leaving = now.gateways[&edge].listeners.values().map(|listener| listener.is_leaving);
        assert_eq!(leaving.collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn a_tenant_that_changes_ports_often_stays_within_its_quota() {
        let mut lingering = Lingering::default();
        let most = lingering.quotas.per_namespace;
        for round in 0..10 {
            let ports_of_round: Vec<_> =
                (0..100).map(|at| (1000 + 100 * round + at, "web")).collect();
            let (kept, _) = ports(&mut lingering, &ports_of_round, round.into());
            assert!(kept.len() <= 100 + most, "{} listeners", kept.len());
        }
    }

    #[test]
    fn another_service_has_the_port_at_once() {
        let mut lingering = Lingering::default();
        ports(&mut lingering, &[(443, "web")], 0);
        let mut taken = resolution(&[(443, "new")]);
        assert_eq!(lingering.extend(&mut taken, 1, |_| 60), None);
        let view = &taken.gateways[&ObjectKey::new("a", "edge")];
        assert_eq!(view.listeners[&443].service.name, "new");
    }

    #[test]
    fn a_live_stream_leaves_its_port_to_the_one_that_has_it_now() {
        let edge = ObjectKey::new("a", "edge");
        let streaming = |listeners: &[(u16, &str)]| {
            let mut resolution = resolution(listeners);
            for listener in resolution.gateways.get_mut(&edge).unwrap().listeners.values_mut() {
                listener.overrides.multicast = Multicast::read("0.0.0.0:5004");
            }
            resolution
        };
        let streams = |resolution: &Resolution| -> Vec<_> {
            let listeners = resolution.gateways[&edge].listeners.iter();
            listeners.map(|(port, listener)| (*port, listener.stream_port())).collect()
        };
        let mut lingering = Lingering::default();
        lingering.extend(&mut streaming(&[(7000, "tv")]), 0, |_| 60);
        let mut gone = resolution(&[]);
        lingering.extend(&mut gone, 1, |_| 60);
        assert_eq!(streams(&gone), [(7000, Some(5004))]);
        let mut taken = streaming(&[(7001, "other")]);
        lingering.extend(&mut taken, 2, |_| 60);
        assert_eq!(streams(&taken), [(7000, None), (7001, Some(5004))]);
    }

    #[test]
    fn a_starting_replica_keeps_the_ports_of_draining_routes() {
        let edge = ObjectKey::new("a", "edge");
        let status = |port, service: &str| ListenerStatus {
            port,
            service: service.to_owned(),
            service_port: port,
            endpoints: 1,
            ..ListenerStatus::default()
        };
        let before = [
            status(443, "a/web"),
            status(444, "a/dns"),
            status(445, "a/taken"),
            status(-1, "nonsense"),
        ];
        let mut lingering = Lingering::default();
        lingering.resume(before.iter().map(|status| (&edge, status)), 0, |_| 60);
        let now = [(443, "web"), (445, "new")];
        let mut resolution = resolution(&now);
        assert_eq!(lingering.extend(&mut resolution, 0, |_| 60), Some(60));
        let listeners = &resolution.gateways[&edge].listeners;
        assert_eq!(listeners.keys().copied().collect::<Vec<_>>(), [443, 444, 445]);
        assert!(!listeners[&443].endpoints.is_empty() && listeners[&444].endpoints.is_empty());
        assert!(
            listeners[&444].is_leaving,
            "it says that it goes, and not that it has no endpoint"
        );
        assert_eq!(listeners[&445].service.name, "new");
        assert_eq!(ports(&mut lingering, &now, 60), (vec![443, 445], None));
    }

    #[test]
    fn what_comes_back_stays() {
        let mut lingering = Lingering::default();
        ports(&mut lingering, &[(443, "web")], 0);
        ports(&mut lingering, &[], 1);
        assert_eq!(ports(&mut lingering, &[(443, "web")], 2), (vec![443], None));
        assert_eq!(ports(&mut lingering, &[(443, "web")], 100), (vec![443], None));
    }
}
