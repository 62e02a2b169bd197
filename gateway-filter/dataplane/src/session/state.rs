//! One client of one route.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use packrat_engine::{Flow, FlowCounters, HandshakeOutcome, NetworkPath, Outbox};
use packrat_wire::estimate::Timestamp;
use serde_json::{Map, Value};

use super::assistance::Assistance;
use super::assisted::AssistedSessions;
use super::client_path::{ClientPath, Newcomer};
use super::deadlines::{Armed, look_at};
use super::endpoint::{endpoint_for, source_ports};
use super::engine_events;
use super::far_round_trip::FarRoundTrip;
use super::flow_id::FlowId;
use super::occupancy::{Occupancy, Occupant};
use super::transfer::{Losses, Transfer};
use super::upstream::Upstream;
use super::upstream_state::{UpstreamState, UpstreamStateCell};
use crate::context::{Arm, RouteContext, Settings};
use crate::log::{Event, LogSubject, Logger};
use crate::metrics::{Distribution, Metric};
use crate::socket::{
    ClientAddress, Ecn, EndpointAddress, FlowPermit, GsoBatch, RouteRoom, SendReport, Sender,
    WhenFull, canonical,
};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};
use packrat_api::status::{ClientOfServer, SessionSnapshot};

/// Longest time that a server which is not configured any more may leave its client without an
/// answer; then another one is tried.
const UNANSWERED: Duration = Duration::from_secs(3);

/// Idle timeout of a session that is not assured, where the configured one is longer: long enough
/// for the pauses in which a client repeats its first question (RFC 9002, section 6.2: 1, 2 and
/// 4 s).
pub(crate) const UNASSURED_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A session's part in the relaying of its client's datagrams to another gateway.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Relay {
    /// It forwards them to a server.
    None,
    /// It relays what is sealed; the rest waits.
    Unproven,
    /// It relays everything.
    Proven,
}

impl Relay {
    const fn of(is_relay: bool) -> Self {
        if is_relay { Self::Unproven } else { Self::None }
    }
}

/// The state with which an upstream begins. Another gateway is left, like a server that is not
/// configured any more, as soon as it does not answer.
const fn state_of(is_relay: bool) -> UpstreamState {
    if is_relay { UpstreamState::Draining } else { UpstreamState::Configured }
}

/// Totals of a session; for the log line at its end.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) to_client_datagrams: AtomicU64,
    pub(crate) to_client_bytes: AtomicU64,
    pub(crate) to_server_datagrams: AtomicU64,
    pub(crate) to_server_bytes: AtomicU64,
    pub(crate) repairs: AtomicU64,
}

/// The work that is left after a session has followed its route.
#[derive(Debug)]
#[must_use]
pub(crate) struct Followed {
    /// The session has another upstream socket, which its I/O thread has to read.
    pub(crate) has_moved: bool,
    /// Datagrams of the engine, for the client and for the server.
    pub(crate) outbox: Outbox,
}

/// One client of one route.
///
/// A session has no way to its I/O thread: where the thread has to do something, a method says so,
/// and the caller tells the thread.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) route: Arc<RouteContext>,
    pub(crate) id: FlowId,
    /// The worker whose I/O thread reads the upstream socket.
    pub(crate) worker: usize,
    pub(crate) totals: Totals,
    pub(crate) transfer: Transfer,
    pub(crate) opened: Timestamp,
    /// The client's address at that time: for it counts what is compared. Later it may be that of a
    /// gateway that relays.
    pub(crate) origin: IpAddr,
    /// The two addresses in it change under the locks of the route's table only.
    path: RwLock<ClientPath>,
    /// The time at which the client last sealed something at its path, and the time at which it was
    /// asked whether it is still there, in microseconds; 0: never.
    heard: AtomicU64,
    asked: AtomicU64,
    /// Another client has proved to be at this client's path: nothing of this session is sent there
    /// until its client shows up elsewhere.
    displaced: AtomicBool,
    /// The session that has displaced this one, which is without assistance: what the server still
    /// sends here is, most likely, for its client.
    successor: Mutex<Weak<Self>>,
    /// Taken out of the table for good.
    closed: AtomicBool,
    upstream: RwLock<Arc<Upstream>>,
    upstream_state: UpstreamStateCell,
    generation: AtomicU64,
    assistance: Mutex<Assistance>,
    /// The sessions of the route that the engine assists.
    index: Arc<AssistedSessions<Self>>,
    /// True if the engine assists this session, whose client has therefore proved its address; known
    /// without the lock of `assistance`.
    assisted: AtomicBool,
    /// True if the engine records what passes to the client: also for a session that is only asked for.
    recorded: AtomicBool,
    /// A [`Relay`]: whether `upstream` leads to another gateway; known without its lock.
    relay: AtomicU8,
    /// True if the route sends twice what sparse flows bring to clients without a session.
    sparse_copies: AtomicBool,
    last_activity: AtomicU64,
    /// The time at which the I/O thread will look at this session next; others ask for an earlier
    /// one.
    pub(crate) armed: Armed,
    ecn: AtomicU8,
    far_round_trip: FarRoundTrip,
    /// The refusal of the client's last question, if it was refused.
    refusal: Mutex<Option<HandshakeOutcome>>,
    /// The right to the descriptor and the port of `upstream`.
    _permit: FlowPermit,
}

impl Session {
    pub(crate) fn open(
        route: &Arc<RouteContext>,
        settings: &Settings,
        index: &Arc<AssistedSessions<Self>>,
        client: Newcomer<'_>,
        room: RouteRoom,
        worker: usize,
        now: Timestamp,
    ) -> io::Result<Self> {
        let Newcomer { path, known } = client;
        let environment = &route.environment;
        let permit = environment
            .capacity
            .try_acquire(path.client.get().ip(), room)
            .map_err(|refusal| io::Error::new(io::ErrorKind::QuotaExceeded, refusal))?;
        let usual = || endpoint_for(&settings.config, path.client);
        let endpoint = known.or_else(usual).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "the route has no endpoint for this client")
        })?;
        let ports = source_ports(&environment.source_ports, &settings.source_port_key, path.client);
        let is_relay = settings.is_peer(endpoint.get());
        let upstream = Upstream::open(endpoint, is_relay, &ports)?;
        Ok(Self {
            route: Arc::clone(route),
            id: FlowId::new(environment.next_number()),
            worker,
            totals: Totals::default(),
            transfer: Transfer::default(),
            opened: now,
            origin: path.client.get().ip(),
            path: RwLock::new(path.clone()),
            heard: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            displaced: AtomicBool::new(false),
            successor: Mutex::default(),
            closed: AtomicBool::new(false),
            upstream: RwLock::new(Arc::new(upstream)),
            upstream_state: UpstreamStateCell::new(state_of(is_relay)),
            // Of these settings: the route may have others by now, which the session then follows.
            generation: AtomicU64::new(settings.generation),
            assistance: Mutex::new(Assistance::new(Arc::clone(&route.engine))),
            index: Arc::clone(index),
            assisted: AtomicBool::new(false),
            recorded: AtomicBool::new(false),
            relay: AtomicU8::new(Relay::of(is_relay) as u8),
            sparse_copies: AtomicBool::new(settings.config.sparse_copies),
            last_activity: AtomicU64::new(now.as_micros()),
            armed: Armed::default(),
            ecn: AtomicU8::new(0),
            far_round_trip: FarRoundTrip::default(),
            refusal: Mutex::default(),
            _permit: permit,
        })
    }

    pub(crate) fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(&self.upstream.read())
    }

    pub(crate) fn path(&self) -> ClientPath {
        self.path.read().clone()
    }

    /// The client's address now.
    pub(crate) fn client(&self) -> ClientAddress {
        self.path.read().client
    }

    /// Both addresses of the client's datagrams now: the session's key in the table.
    pub(crate) fn network(&self) -> NetworkPath {
        self.path.read().network()
    }

    /// Moves the client; the table's locks of the old and the new path must be held.
    pub(crate) fn set_path(&self, path: &ClientPath) {
        *self.path.write() = path.clone();
    }

    /// The session's claim to its path, where another client has proved to be. The table's lock of
    /// the path must be held.
    pub(crate) fn occupancy(&self, now: Timestamp) -> Occupancy {
        let time = |cell: &AtomicU64| match cell.load(Ordering::Relaxed) {
            0 => None,
            microseconds => Some(Timestamp::from_micros(microseconds)),
        };
        let occupant = Occupant {
            is_assisted: self.is_assisted(),
            heard: time(&self.heard),
            asked: time(&self.asked),
            is_assured: self.is_assured(),
            answered: self.answered(),
            active: self.idle_since(),
        };
        let occupancy = occupant.occupancy(now);
        if occupancy == Occupancy::Ask && !occupant.is_being_asked(now) {
            self.asked.store(now.as_micros().max(1), Ordering::Relaxed);
        }
        occupancy
    }

    /// The client has sealed something at its path, at this time.
    pub(crate) fn note_heard(&self, heard: Option<Timestamp>) {
        if let Some(heard) = heard {
            self.heard.fetch_max(heard.as_micros(), Ordering::Relaxed);
        }
    }

    /// True if client and server have both spoken twice, or the client has sealed something: the
    /// client's address is, most likely, not forged. Only then does the session last for the
    /// configured idle timeout, and is closed for no other reason.
    pub(crate) fn is_assured(&self) -> bool {
        let twice = |total: &AtomicU64| total.load(Ordering::Relaxed) >= 2;
        let Totals { to_client_datagrams, to_server_datagrams, .. } = &self.totals;
        (twice(to_client_datagrams) && twice(to_server_datagrams)) || self.is_assisted()
    }

    pub(crate) fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }

    /// The session's client is at its path, or another one is. The table's lock of the path must be
    /// held.
    pub(crate) fn set_displaced(&self, displaced: bool) {
        self.displaced.store(displaced, Ordering::Relaxed);
        *self.successor.lock() = Weak::new();
    }

    /// Another session has displaced this one, which has no assistance. The table's lock of the path
    /// must be held.
    pub(crate) fn set_successor(&self, successor: &Arc<Self>) {
        *self.successor.lock() = Arc::downgrade(successor);
        self.displaced.store(true, Ordering::Relaxed);
    }

    /// The session whose client is at the path that was this one's, as long as it is there.
    pub(crate) fn successor(&self) -> Option<Arc<Self>> {
        if !self.is_displaced() {
            return None;
        }
        let successor = self.successor.lock().upgrade()?;
        let is_there = !successor.is_displaced() && successor.network() == self.network();
        is_there.then_some(successor)
    }

    /// True if something of the base connection was sent to the server.
    pub(crate) fn has_asked(&self) -> bool {
        self.totals.to_server_datagrams.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The table's lock of the path must be held.
    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// True if the engine assists this session.
    pub(crate) fn is_assisted(&self) -> bool {
        self.assisted.load(Ordering::Relaxed)
    }

    /// True if the engine wants to know what passes: it records that, or sends some of it twice.
    pub(crate) fn is_followed(&self) -> bool {
        self.recorded.load(Ordering::Relaxed) || self.has_sparse_copies()
    }

    /// True if the engine wants to know what comes from the client.
    pub(crate) fn is_heard(&self) -> bool {
        self.has_sparse_copies() && !self.is_assisted()
    }

    fn has_sparse_copies(&self) -> bool {
        self.sparse_copies.load(Ordering::Relaxed) && !self.is_relay()
    }

    /// True if another gateway has the session of the client: everything that the client sends goes
    /// there as it is, and what comes from there goes to the client.
    pub(crate) fn is_relay(&self) -> bool {
        self.relay.load(Ordering::Relaxed) != Relay::None as u8
    }

    /// True if the other gateway has not said yet that the client has proved to be here. Until then its
    /// datagrams may be another client's, in whose name one has named its own session.
    pub(crate) fn is_unproven_relay(&self) -> bool {
        self.relay.load(Ordering::Relaxed) == Relay::Unproven as u8
    }

    /// The other gateway says so.
    pub(crate) fn prove_relay(&self) {
        let (from, to) = (Relay::Unproven as u8, Relay::Proven as u8);
        // Another thread may have left that gateway.
        let _ = self.relay.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Calls the engine for this session, and keeps the index of assisted sessions up to date;
    /// `None` after a fault in it, or when the session has ended.
    pub(crate) fn assist<R>(self: &Arc<Self>, action: impl FnOnce(&mut Flow) -> R) -> Option<R> {
        let mut assistance = self.assistance.lock();
        let result = assistance.run(&self.route, action);
        self.index(&mut assistance);
        let rescued = assistance.take_rescued();
        drop(assistance);
        self.forward_rescued(rescued);
        result
    }

    /// Forwards what has waited in a flow that has failed.
    fn forward_rescued(&self, rescued: Option<Box<Outbox>>) {
        let Some(rescued) = rescued else { return };
        let (upstream, sender) = (self.upstream(), Sender::default());
        for (datagram, _) in rescued.datagrams_to_server() {
            let report = sender.send_connected(upstream.socket(), datagram);
            self.route.metrics.add(Metric::UpstreamDatagrams, report.datagrams);
            self.route.metrics.add(Metric::UpstreamBytes, report.bytes);
            self.route.metrics.add(Metric::UpstreamDropped, report.dropped);
            self.totals.to_server_datagrams.fetch_add(report.datagrams, Ordering::Relaxed);
            self.totals.to_server_bytes.fetch_add(report.bytes, Ordering::Relaxed);
        }
    }

    /// Calls the engine for this session for the last time.
    pub(crate) fn end_assistance(self: &Arc<Self>, action: impl FnOnce(&mut Flow)) {
        let mut assistance = self.assistance.lock();
        assistance.run(&self.route, action);
        assistance.finish(&self.route);
        self.index(&mut assistance);
        let rescued = assistance.take_rescued();
        drop(assistance);
        self.forward_rescued(rescued);
    }

    fn index(self: &Arc<Self>, assistance: &mut Assistance) {
        if let Some((before, now)) = assistance.replaced_sessions() {
            self.index.replace(self, before, now);
        }
        // A session that a client without a cookie has asked for has ids, too.
        let is_assisted = assistance.is_assisted();
        if is_assisted && !self.is_assisted() {
            self.transfer.set_arm(Arm::Assisted);
        }
        self.assisted.store(is_assisted, Ordering::Relaxed);
        self.recorded.store(assistance.records(), Ordering::Relaxed);
    }

    /// True if the engine wants to be called before the I/O thread looks at this session anyway:
    /// then the thread has to be told.
    pub(crate) fn wants_earlier_look(&self, deadline: Option<Timestamp>) -> bool {
        deadline.is_some_and(|deadline| {
            // The clock is read only where it may decide.
            self.armed.is_later_than(deadline)
                && self.armed.is_later_than(look_at(deadline, self.route.environment.now()))
        })
    }

    pub(crate) fn touch(&self, now: Timestamp) {
        self.last_activity.fetch_max(now.as_micros(), Ordering::Relaxed);
    }

    pub(crate) fn idle_since(&self) -> Timestamp {
        Timestamp::from_micros(self.last_activity.load(Ordering::Relaxed))
    }

    /// Notes that a datagram goes to the server.
    pub(crate) fn note_question(&self) {
        if self.upstream_state.get() == UpstreamState::Draining {
            let since = self.route.environment.now();
            self.upstream_state.set(UpstreamState::Unanswered { since });
        }
        self.far_round_trip.note_question(|| self.route.environment.now());
    }

    /// Notes that something has come from the server.
    pub(crate) fn note_answer(&self, now: Timestamp) {
        if matches!(self.upstream_state.get(), UpstreamState::Unanswered { .. }) {
            self.upstream_state.set(UpstreamState::Draining);
        }
        if let Some(microseconds) = self.far_round_trip.note_answer(now) {
            self.route.metrics.add_far_round_trip(microseconds);
            self.route.metrics.record(Distribution::FarRoundTrip, microseconds);
        }
    }

    /// The first round trip to the server, in microseconds, with the server's time to answer.
    pub(crate) fn far_round_trip(&self) -> Option<u64> {
        self.far_round_trip.microseconds()
    }

    /// The time of the server's first answer.
    pub(crate) fn answered(&self) -> Option<Timestamp> {
        self.far_round_trip.answered()
    }

    /// The time after which the session has been idle for too long. Of one that is displaced, and
    /// has no assistance, the client never speaks again.
    pub(crate) fn idle_timeout(&self) -> Duration {
        let configured = self.route.settings().config.idle_timeout();
        let lasts = self.is_assured() && (self.is_assisted() || !self.is_displaced());
        if lasts { configured } else { configured.min(UNASSURED_IDLE_TIMEOUT) }
    }

    pub(crate) fn remember_ecn(&self, ecn: Ecn) {
        self.ecn.store(ecn.traffic_class(), Ordering::Relaxed);
    }

    /// Follows a listener whose socket is another one now, and a configuration that has changed.
    pub(crate) fn follow(self: &Arc<Self>, path: &ClientPath) -> Option<Followed> {
        let unchanged = {
            let current = self.path.read();
            Arc::ptr_eq(&current.slot, &path.slot) || current.slot.is_filled()
        };
        if !unchanged {
            let mut current = self.path.write();
            // It may just have moved, on the word of another thread.
            if current.network() == path.network() {
                *current = path.clone();
            }
        }
        self.follow_route()
    }

    /// Takes over a configuration that has changed, and leaves an endpoint that is not configured
    /// and does not answer.
    pub(crate) fn follow_route(self: &Arc<Self>) -> Option<Followed> {
        let generation = self.route.generation();
        if self.generation.swap(generation, Ordering::AcqRel) != generation {
            let mut outbox = Outbox::default();
            let has_moved = self.follow_configuration(&mut outbox);
            return Some(Followed { has_moved, outbox });
        }
        let has_moved = match self.upstream_state.get() {
            UpstreamState::Unanswered { since }
                if self.route.environment.now().saturating_since(since) > UNANSWERED =>
            {
                self.leave_endpoint()
            }
            _ => false,
        };
        has_moved.then(|| Followed { has_moved, outbox: Outbox::default() })
    }

    /// Notes that the network says the server can't be reached: when it is not configured any
    /// more, there is nothing to wait for. True if the session has another upstream socket.
    #[must_use]
    pub(crate) fn note_unreachable(&self) -> bool {
        self.upstream_state.get() != UpstreamState::Configured && self.leave_endpoint()
    }

    fn follow_configuration(self: &Arc<Self>, outbox: &mut Outbox) -> bool {
        {
            let mut assistance = self.assistance.lock();
            assistance.follow_route(&self.route, outbox);
            self.index(&mut assistance);
            let sparse_copies = self.route.engine.config().sparse_copies;
            self.sparse_copies.store(sparse_copies, Ordering::Relaxed);
        }
        let has_lost_peer = {
            // Under its lock, and with the settings of now: another thread that follows an earlier
            // configuration must not have the last word.
            let upstream = self.upstream.write();
            if self.route.settings().config.endpoints.contains(&upstream.endpoint().get()) {
                self.upstream_state.set(UpstreamState::Configured);
                return false;
            }
            if upstream.is_relay() && self.route.settings().is_peer(upstream.endpoint().get()) {
                return false;
            }
            self.upstream_state.set(UpstreamState::Draining);
            upstream.is_relay()
        };
        // A gateway is in the list until it has ended; a server may have been lost sight of.
        (has_lost_peer || self.far_round_trip().is_none()) && self.leave_endpoint()
    }

    /// Moves to the next choice among the endpoints that are configured; true if it has. Nothing
    /// happens when another thread has done so.
    fn leave_endpoint(&self) -> bool {
        if !self.upstream_state.leave() {
            return false;
        }
        let has_moved = self.reconnect(|settings, old| {
            let is_gone = !settings.config.endpoints.contains(&old.get());
            is_gone.then(|| endpoint_for(&settings.config, self.client())).flatten()
        });
        self.route.metrics.add(Metric::SessionsMoved, has_moved.into());
        has_moved
    }

    /// Goes on with the endpoint that the client had through another gateway. The client has to have
    /// proved its address. True if the endpoint is another one now.
    pub(crate) fn resume_endpoint(&self, known: EndpointAddress) -> bool {
        self.reconnect(|_, old| (old != known).then_some(known))
    }

    /// Leaves another gateway for a server: the client begins a session here. True if it has.
    pub(crate) fn stop_relaying(&self) -> bool {
        let client = self.client();
        self.is_relay() && self.reconnect(|settings, _| endpoint_for(&settings.config, client))
    }

    /// Moves to the endpoint that `choose` names, if it names one; true if it has.
    fn reconnect(
        &self,
        choose: impl FnOnce(&Settings, EndpointAddress) -> Option<EndpointAddress>,
    ) -> bool {
        let mut upstream = self.upstream.write();
        let settings = self.route.settings();
        let old = upstream.endpoint();
        let Some(new) = choose(&settings, old) else { return false };
        let allowed = &self.route.environment.source_ports;
        let ports = source_ports(allowed, &settings.source_port_key, self.client());
        let is_relay = settings.is_peer(new.get());
        let opened = Upstream::open(new, is_relay, &ports).map(|opened| {
            *upstream = Arc::new(opened);
            self.relay.store(Relay::of(is_relay) as u8, Ordering::Relaxed);
            self.upstream_state.set(state_of(is_relay));
        });
        drop(upstream);
        match opened {
            Ok(()) => {
                self.log(Event::EndpointChanged, || {
                    [("from", old.to_string().into()), ("to", new.to_string().into())]
                });
                true
            }
            Err(error) => {
                // The old socket still exists; the next change of the configuration tries again.
                self.route.metrics.add(Metric::UpstreamErrors, 1);
                self.log(Event::UpstreamError, || {
                    [("endpoint", new.to_string().into()), ("error", error.to_string().into())]
                });
                false
            }
        }
    }

    /// Sends datagrams of the base connection to the client.
    pub(crate) fn send_to_client(
        &self,
        sender: &mut Sender,
        batches: &[GsoBatch<'_>],
        when_full: WhenFull,
    ) -> SendReport {
        if self.is_displaced() {
            let dropped = GsoBatch::count(batches);
            self.route.metrics.add(Metric::DownstreamDropped, dropped);
            return SendReport { dropped, ..SendReport::default() };
        }
        self.path().send(&self.route, sender, batches, when_full)
    }

    /// Sends what the engine has for the client: control datagrams and repairs.
    pub(crate) fn send_outbox(
        &self,
        sender: &mut Sender,
        outbox: &mut Outbox,
        when_full: WhenFull,
    ) {
        let ecn = Ecn::from_traffic_class(self.ecn.load(Ordering::Relaxed)).for_repair();
        if !self.is_displaced() {
            let repairs = self.path().send_outbox(&self.route, sender, outbox, ecn, when_full);
            // Without a session, what is sent again are copies of a sparse flow's.
            if self.is_assisted() {
                self.totals.repairs.fetch_add(repairs, Ordering::Relaxed);
            }
        }
        self.record_events(outbox);
        outbox.clear();
    }

    /// Writes what has happened in the engine to the log, and what it has measured to the metrics.
    pub(crate) fn record_events(&self, outbox: &mut Outbox) {
        if !engine_events::record(&self.route, self.id, self, outbox) {
            self.assistance.lock().observe(false);
        }
    }

    /// Has the engine tell of each step in this session; what it tells is kept in the environment's
    /// observations.
    pub(crate) fn observe(&self) {
        self.assistance.lock().observe(true);
    }

    /// Writes a line about this session.
    pub(crate) fn log<const N: usize>(
        &self,
        event: Event,
        fields: impl FnOnce() -> [(&'static str, Value); N],
    ) {
        self.route.environment.logger.about(event, self, fields);
    }

    /// The last mile's losses, as the client has reported them.
    pub(crate) fn losses(&self) -> Losses {
        let (counters, ..) = self.assistance.lock().figures(&self.route);
        Losses {
            recorded: counters.datagrams_recorded,
            missing: counters.datagrams_missing,
            repaired: counters.repairs_arrived,
        }
    }

    /// The session as an operator may see it.
    pub(crate) fn snapshot(&self) -> SessionSnapshot {
        self.snapshot_with_counters().0
    }

    /// The client, for its server; `None` while the system does not tell the socket's address.
    pub(crate) fn client_of_server(&self) -> Option<ClientOfServer> {
        let upstream = self.upstream();
        Some(ClientOfServer {
            upstream: canonical(upstream.local()?),
            client: canonical(self.client().get()),
            server: canonical(upstream.endpoint().get()),
            route: self.route.name().to_owned(),
            session: self.id.get(),
        })
    }

    /// The same, with what the engine has counted.
    pub(crate) fn detailed_snapshot(&self) -> SessionSnapshot {
        let (snapshot, counters) = self.snapshot_with_counters();
        let counted = FlowCounters::FIELDS.iter().zip(counters.values());
        let counted = counted.filter(|(_, count)| *count > 0);
        SessionSnapshot {
            counters: counted.map(|((name, _), count)| ((*name).to_owned(), count)).collect(),
            ..snapshot
        }
    }

    /// The session without its counters, and these, of the same moment.
    fn snapshot_with_counters(&self) -> (SessionSnapshot, FlowCounters) {
        let environment = &self.route.environment;
        let (counters, gauges, assistance) = self.assistance.lock().figures(&self.route);
        let total = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let snapshot = SessionSnapshot {
            session: self.id.get(),
            client: environment.logger.client(self.client().get()).as_str().map(str::to_owned),
            endpoint: self.upstream().endpoint().get(),
            relayed: self.is_relay(),
            assistance: assistance.map(|id| id.get()),
            seconds: environment.now().saturating_since(self.opened).as_secs_f64(),
            to_client_datagrams: total(&self.totals.to_client_datagrams),
            to_client_bytes: total(&self.totals.to_client_bytes),
            to_server_datagrams: total(&self.totals.to_server_datagrams),
            to_server_bytes: total(&self.totals.to_server_bytes),
            recorded: counters.datagrams_recorded,
            missing: counters.datagrams_missing,
            repairs: counters.repairs,
            repairs_arrived: counters.repairs_arrived,
            resets: counters.resets_gateway + counters.resets_client,
            cache_bytes: gauges.cache_bytes,
            last_mile_round_trip_microseconds: gauges.round_trip_microseconds,
            last_mile_loss_ppm: gauges.loss_ppm,
            far_round_trip_microseconds: self.far_round_trip().unwrap_or_default(),
            route: self.route.name().to_owned(),
            refusal: self.refusal().map(|outcome| outcome.name().to_owned()),
            counters: BTreeMap::new(),
        };
        (snapshot, counters)
    }

    /// Notes what became of a question of the client.
    pub(crate) fn note_outcome(&self, outcome: HandshakeOutcome) {
        let refusal = match outcome {
            // Questions in between.
            HandshakeOutcome::Offered | HandshakeOutcome::Malformed => return,
            HandshakeOutcome::Accepted | HandshakeOutcome::AcceptedWithoutCookie => None,
            refusal => Some(refusal),
        };
        *self.refusal.lock() = refusal;
    }

    fn refusal(&self) -> Option<HandshakeOutcome> {
        *self.refusal.lock()
    }
}

impl LogSubject for Session {
    fn describe(&self, line: &mut Map<String, Value>, logger: &Logger) {
        self.route.describe(line, logger);
        line.insert("session".to_owned(), self.id.into());
        line.insert("client".to_owned(), logger.client(self.client().get()));
    }
}
