//! A route: its context, the sessions of its clients, its live stream. Outlives the listeners that
//! use it: it is forgotten a while after the last of them, and of its sessions.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::inquiries::Inquiries;
use super::pending::PendingDatagrams;
use super::stream::{ConfiguredStream, RouteStream, StreamChange, WhenInUse};
use super::table::SessionTable;
use crate::configuration::ConfigurationError;
use crate::context::{Environment, RouteContext};
use crate::metrics::{Metric, Metrics};
use crate::socket::{ListenerAddress, Slot};
use crate::sync::Mutex;
use packrat_api::route::RouteConfig;
#[cfg(all(test, feature = "shuttle"))]
use packrat_api::route::StreamRoute;
use packrat_api::status::{ComparisonStatus, RouteSummary};
use packrat_wire::estimate::Timestamp;

/// One route of the process.
#[derive(Debug)]
pub struct Route {
    pub(crate) context: Arc<RouteContext>,
    pub(crate) sessions: SessionTable,
    pub(crate) pending: PendingDatagrams,
    pub(crate) inquiries: Inquiries,
    slots: Mutex<HashMap<(ListenerAddress, usize), Arc<Slot>>>,
    stream: ConfiguredStream,
    /// Time since which the route is unused, if that has been noticed.
    unused_since: Mutex<Option<Timestamp>>,
}

/// Time after which an unused route is forgotten. Until then its last counts can be read, and a
/// listener that comes back finds it as it was.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

impl Route {
    pub(crate) fn new(
        config: RouteConfig,
        environment: Arc<Environment>,
    ) -> Result<Self, ConfigurationError> {
        let pending = PendingDatagrams::default();
        pending.expect_arrivals(environment.now());
        Ok(Self {
            context: Arc::new(RouteContext::new(config, environment)?),
            sessions: SessionTable::default(),
            pending,
            inquiries: Inquiries::default(),
            slots: Mutex::default(),
            stream: ConfiguredStream::default(),
            unused_since: Mutex::default(),
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.context.name()
    }

    /// The name of the gateway that the route is configured with.
    pub fn gateway_name(&self) -> String {
        self.context.settings().config.gateway.clone()
    }

    /// The namespace that the route is configured with.
    pub fn namespace(&self) -> String {
        self.context.settings().config.namespace.clone()
    }

    /// The addresses that clients send to.
    pub fn listeners(&self) -> Vec<SocketAddr> {
        let slots = self.slots.lock();
        let filled = slots.iter().filter(|(_, slot)| slot.is_filled());
        let mut listeners: Vec<_> = filled.map(|((listener, _), _)| listener.get()).collect();
        listeners.sort_unstable();
        listeners.dedup();
        listeners
    }

    /// True if the route can be forgotten, because it has been unused for a while. `is_used`:
    /// whether it is in use now.
    pub(crate) fn is_over(&self, is_used: bool, now: Timestamp) -> bool {
        let mut since = self.unused_since.lock();
        if is_used || self.sessions.count() > 0 || self.has_listener() {
            *since = None;
            return false;
        }
        now.saturating_since(*since.get_or_insert(now)) > FORGOTTEN_AFTER
    }

    /// The public key that clients may pin, in hexadecimal digits.
    pub fn public_key(&self) -> Option<String> {
        self.context.public_key()
    }

    /// The configuration, without secrets.
    pub fn summary(&self) -> RouteSummary {
        let mut summary = self.context.summary();
        if let Some(stream) = &mut summary.stream {
            stream.unavailable = self.stream.error();
        }
        summary
    }

    /// Sessions to compare; `None` if all clients are assisted.
    pub fn comparison(&self) -> Option<ComparisonStatus> {
        self.context.comparison()
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.context.metrics
    }

    /// The address at which the route's stream arrives; `None` without a stream or a listener.
    pub fn stream_upstream(&self) -> Option<SocketAddr> {
        self.stream()?.upstream_address()
    }

    /// Counts datagrams of clients that the shell has dropped because it has no [`crate::Ingress`]
    /// for them.
    pub fn count_dropped(&self, datagrams: u64) {
        self.metrics().add(Metric::FromClientDropped, datagrams);
    }

    /// The slot of a listener on a worker; made when it is asked for the first time.
    pub(crate) fn slot(&self, listener: ListenerAddress, worker: usize) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        Arc::clone(slots.entry((listener, worker)).or_insert_with(|| Arc::new(Slot::new(listener))))
    }

    /// True if there is no server to which a subscriber's own datagrams could be forwarded.
    pub(crate) fn is_stream_only(&self) -> bool {
        self.stream.is_alone()
    }

    /// The route's stream, if it has one.
    pub(crate) fn stream(&self) -> Option<Arc<RouteStream>> {
        self.stream.current()
    }

    /// The configuration of the route's stream, if it has one now.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn configured_stream(&self) -> Option<StreamRoute> {
        self.stream.config()
    }

    /// Brings the route's stream into the state that is configured: its engine always, its sockets
    /// while there are listeners. `change` is called, in order, with the I/O threads' tasks.
    /// Returns when [`Self::retry_stream`] has to be called, if at all.
    pub(crate) fn follow_stream(&self, change: impl FnMut(StreamChange)) -> Option<Timestamp> {
        self.stream.follow(&self.context, || self.has_listener(), WhenInUse::Wait, change)
    }

    /// Retries the stream's sockets at the time that was `planned`; does not wait. Returns at once
    /// if another time has been planned since.
    pub(crate) fn retry_stream(
        &self,
        planned: Timestamp,
        change: impl FnMut(StreamChange),
    ) -> Option<Timestamp> {
        self.stream.is_due(planned).then_some(())?;
        self.stream.follow(&self.context, || self.has_listener(), WhenInUse::ComeAgain, change)
    }

    fn has_listener(&self) -> bool {
        self.slots.lock().values().any(|slot| slot.is_filled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_over_when_nobody_has_used_it_for_a_minute() {
        let config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        let route = Route::new(config, Environment::silent(1)).unwrap();
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        assert!(!route.is_over(true, at(0)) && !route.is_over(false, at(100)));
        assert!(!route.is_over(false, at(160)));
        // Use in between starts the time again.
        assert!(!route.is_over(true, at(161)) && !route.is_over(false, at(200)));
        assert!(!route.is_over(false, at(260)) && route.is_over(false, at(261)));
    }
}
