//! The side of a session towards its server, or towards the gateway that has the session of its
//! client: the endpoint, its answers, and the change to another one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;

use super::endpoint::{endpoint_for, source_ports};
use super::far_round_trip::FarRoundTrip;
use super::upstream::Upstream;
use super::upstream_state::{UpstreamState, UpstreamStateCell};
use crate::context::{RouteContext, Settings};
use crate::log::{Event, LogSubject};
use crate::metrics::Metric;
use crate::socket::{ClientAddress, EndpointAddress, FlowPermit, SourcePorts};
use crate::sync::atomic::{AtomicU8, Ordering};
use crate::sync::{Mutex, RwLock};

/// Longest time that a server which is not configured any more may leave its client without an
/// answer; then another one is tried.
const UNANSWERED_TIME: Duration = Duration::from_secs(3);

/// A session's part in the relaying of its client's datagrams to another gateway.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Relay {
    /// The session forwards the client's datagrams to a server.
    None,
    /// The session relays sealed datagrams; the others wait.
    Unproven,
    /// The session relays all datagrams.
    Proven,
}

impl Relay {
    /// The part with which an upstream begins.
    const fn of(upstream: &Upstream) -> Self {
        if upstream.is_relay() { Self::Unproven } else { Self::None }
    }
}

/// The state with which an upstream begins. Another gateway is left, like a server that is not
/// configured any more, as soon as it does not answer.
const fn state_of(upstream: &Upstream) -> UpstreamState {
    if upstream.is_relay() { UpstreamState::Draining } else { UpstreamState::Configured }
}

/// Opens a socket to `endpoint` for this client.
fn connect(
    endpoint: EndpointAddress,
    client: ClientAddress,
    settings: &Settings,
    allowed: &SourcePorts,
) -> io::Result<Upstream> {
    let ports = source_ports(allowed, &settings.source_port_key, client);
    Upstream::open(endpoint, settings.is_peer(endpoint.get()), &ports)
}

/// The name of a relay: the nonce of the question that it answers, and the session in question.
pub(crate) type RelayName = (u64, SessionId);

/// The side of a session towards its server.
#[derive(Debug)]
pub(crate) struct ServerSide {
    upstream: RwLock<Arc<Upstream>>,
    state: UpstreamStateCell,
    /// A [`Relay`]: whether `upstream` leads to another gateway; known without its lock.
    relay: AtomicU8,
    relay_name: Mutex<Option<RelayName>>,
    far_round_trip: FarRoundTrip,
    /// The right to the descriptor and the port of `upstream`.
    _permit: FlowPermit,
}

impl ServerSide {
    /// Begins with this endpoint.
    pub(super) fn open(
        endpoint: EndpointAddress,
        client: ClientAddress,
        settings: &Settings,
        allowed: &SourcePorts,
        permit: FlowPermit,
    ) -> io::Result<Self> {
        let upstream = connect(endpoint, client, settings, allowed)?;
        Ok(Self {
            state: UpstreamStateCell::new(state_of(&upstream)),
            relay: AtomicU8::new(Relay::of(&upstream) as u8),
            upstream: RwLock::new(Arc::new(upstream)),
            relay_name: Mutex::default(),
            far_round_trip: FarRoundTrip::default(),
            _permit: permit,
        })
    }

    pub(super) fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(&self.upstream.read())
    }

    /// True if another gateway has the session of the client.
    pub(super) fn is_relay(&self) -> bool {
        self.relay.load(Ordering::Relaxed) != Relay::None as u8
    }

    /// True if the other gateway has not confirmed yet that the client has proved to be here. Until
    /// then its datagrams may be another client's, in whose name one has named its own session.
    pub(crate) fn is_unproven_relay(&self) -> bool {
        self.relay.load(Ordering::Relaxed) == Relay::Unproven as u8
    }

    /// Names the relay that the session has begun with, once.
    pub(crate) fn name_relay(&self, name: RelayName) {
        self.relay_name.lock().get_or_insert(name);
    }

    /// The name of the relay whose other gateway has not confirmed the client's path yet.
    pub(crate) fn unproven_relay(&self) -> Option<RelayName> {
        self.is_unproven_relay().then(|| *self.relay_name.lock()).flatten()
    }

    /// Notes that the other gateway has confirmed the client's path, for the relay of this name.
    pub(crate) fn prove_relay(&self, name: RelayName) {
        if self.unproven_relay() != Some(name) {
            return;
        }
        let (from, to) = (Relay::Unproven as u8, Relay::Proven as u8);
        // Another thread may have left that gateway.
        let _ = self.relay.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Notes that a datagram goes to the server.
    pub(super) fn note_question(&self, now: impl Fn() -> Timestamp) {
        if self.state.get() == UpstreamState::Draining {
            self.state.set(UpstreamState::Unanswered { since: now() });
        }
        self.far_round_trip.note_question(now);
    }

    /// Notes that something has come from the server. Returns the first round trip, once, in
    /// microseconds.
    pub(super) fn note_answer(&self, now: Timestamp) -> Option<u64> {
        if matches!(self.state.get(), UpstreamState::Unanswered { .. }) {
            self.state.set(UpstreamState::Draining);
        }
        self.far_round_trip.note_answer(now)
    }

    /// The first round trip to the server, in microseconds, with the server's time to answer.
    pub(crate) fn far_round_trip(&self) -> Option<u64> {
        self.far_round_trip.microseconds()
    }

    /// The time of the server's first answer.
    pub(crate) fn answered(&self) -> Option<Timestamp> {
        self.far_round_trip.answered()
    }

    /// Compares the endpoint with the endpoints of a changed configuration. True if the session is
    /// to leave it.
    pub(super) fn follow_endpoints(&self, route: &RouteContext) -> bool {
        let has_lost_peer = {
            // Under its lock, and with the settings of now: another thread that follows an earlier
            // configuration must not have the last word.
            let upstream = self.upstream.write();
            if route.settings().config.endpoints.contains(&upstream.endpoint().get()) {
                self.state.set(UpstreamState::Configured);
                return false;
            }
            if upstream.is_relay() && route.settings().is_peer(upstream.endpoint().get()) {
                return false;
            }
            // A further change of the configuration gives it no more time to answer.
            if self.is_configured() {
                self.state.set(UpstreamState::Draining);
            }
            upstream.is_relay()
        };
        // A gateway is in the list until it has ended; a server may have been lost sight of.
        has_lost_peer || self.far_round_trip().is_none()
    }

    /// True if the endpoint is not configured and has not answered for too long.
    pub(super) fn is_overdue(&self, now: impl FnOnce() -> Timestamp) -> bool {
        match self.state.get() {
            UpstreamState::Unanswered { since } => now().saturating_since(since) > UNANSWERED_TIME,
            UpstreamState::Configured | UpstreamState::Draining => false,
        }
    }

    /// True if the configuration has the endpoint.
    pub(super) fn is_configured(&self) -> bool {
        self.state.get() == UpstreamState::Configured
    }

    /// Moves to the next choice among the endpoints that are configured; true if it has. Returns at
    /// once if another thread has done so.
    pub(super) fn leave(
        &self,
        route: &RouteContext,
        client: ClientAddress,
        subject: &impl LogSubject,
    ) -> bool {
        if !self.state.leave() {
            return false;
        }
        let has_moved = self.reconnect(route, client, subject, |settings, old| {
            let is_gone = !settings.config.endpoints.contains(&old.get());
            is_gone.then(|| endpoint_for(&settings.config, client)).flatten()
        });
        route.metrics.add(Metric::SessionsMoved, has_moved.into());
        has_moved
    }

    /// Moves to the endpoint that `choose` names, if it names one; true if it has. The log's lines are
    /// about `subject`.
    pub(super) fn reconnect(
        &self,
        route: &RouteContext,
        client: ClientAddress,
        subject: &impl LogSubject,
        choose: impl FnOnce(&Settings, EndpointAddress) -> Option<EndpointAddress>,
    ) -> bool {
        let mut upstream = self.upstream.write();
        let settings = route.settings();
        let old = upstream.endpoint();
        let Some(new) = choose(&settings, old) else { return false };
        let allowed = &route.environment.source_ports;
        let opened = connect(new, client, &settings, allowed).map(|opened| {
            self.relay.store(Relay::of(&opened) as u8, Ordering::Relaxed);
            self.state.set(state_of(&opened));
            *upstream = Arc::new(opened);
        });
        drop(upstream);
        match opened {
            Ok(()) => {
                route.environment.logger.about(Event::EndpointChanged, subject, || {
                    [("from", old.to_string().into()), ("to", new.to_string().into())]
                });
                true
            }
            Err(error) => {
                // The old socket still exists; the next change of the configuration tries again.
                route.metrics.add(Metric::UpstreamErrors, 1);
                route.environment.logger.about(Event::UpstreamError, subject, || {
                    [("endpoint", new.to_string().into()), ("error", error.to_string().into())]
                });
                false
            }
        }
    }
}
