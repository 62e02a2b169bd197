//! One client of one route.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_engine::{AddressProof, NetworkPath};
use packrat_wire::estimate::Timestamp;
use serde_json::{Map, Value};

use super::assisted::AssistedSessions;
use super::client_path::{ClientPath, Newcomer};
use super::deadlines::Armed;
use super::endpoint::endpoint_for;
use super::engine_side::EngineSide;
use super::evidence::Evidence;
use super::flow_id::FlowId;
use super::occupancy::{Occupancy, Occupant};
use super::path_claim::PathClaim;
use super::server_side::ServerSide;
use super::transfer::Transfer;
use super::upstream::Upstream;
use crate::context::{RouteContext, Settings};
use crate::log::{Event, LogSubject, Logger};
use crate::metrics::{Distribution, Metric};
use crate::socket::{ClientAddress, Ecn, GsoBatch, RouteRoom, SendReport, Sender, WhenFull};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Idle timeout of a session that is not mutual, if the configured one is longer: long enough for
/// the pauses in which a client repeats its first question (RFC 9002, section 6.2: 1, 2 and 4 s).
pub(crate) const ONE_SIDED_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Totals of a session; for the log line at its end.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) to_client_datagrams: AtomicU64,
    pub(crate) to_client_bytes: AtomicU64,
    pub(crate) to_server_datagrams: AtomicU64,
    pub(crate) to_server_bytes: AtomicU64,
    pub(crate) repairs: AtomicU64,
}

/// One client of one route.
///
/// A session has no way to its I/O thread: if the thread has to act, a method returns that, and the
/// caller notifies the thread.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) route: Arc<RouteContext>,
    pub(crate) id: FlowId,
    /// The worker whose I/O thread reads the upstream socket.
    pub(crate) worker: usize,
    pub(crate) totals: Totals,
    pub(crate) transfer: Transfer,
    pub(crate) opened: Timestamp,
    /// The client's address at that time, which counts for the comparison. Later the session's
    /// address may be a relaying gateway's.
    pub(crate) origin: IpAddr,
    /// The two addresses in it change under the locks of the route's table only.
    path: RwLock<ClientPath>,
    claim: PathClaim<Self>,
    pub(crate) server_side: ServerSide,
    pub(crate) engine_side: EngineSide<Self>,
    evidence: Evidence,
    /// Taken out of the table for good.
    closed: AtomicBool,
    /// Generation of the configuration that the session has followed.
    generation: AtomicU64,
    last_activity: AtomicU64,
    /// The time at which the I/O thread will look at this session next; others ask for an earlier
    /// one.
    pub(crate) armed: Armed,
    ecn: AtomicU8,
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
        let (client, ports) = (path.client, &environment.source_ports);
        let server_side = ServerSide::open(endpoint, client, settings, ports, permit)?;
        Ok(Self {
            route: Arc::clone(route),
            id: FlowId::new(environment.next_number()),
            worker,
            totals: Totals::default(),
            transfer: Transfer::default(),
            opened: now,
            origin: path.client.get().ip(),
            path: RwLock::new(path.clone()),
            claim: PathClaim::default(),
            server_side,
            engine_side: EngineSide::new(route, index, settings.config.sparse_copies),
            evidence: Evidence::default(),
            closed: AtomicBool::new(false),
            // Of these settings: the route may have others by now, which the session then follows.
            generation: AtomicU64::new(settings.generation),
            last_activity: AtomicU64::new(now.as_micros()),
            armed: Armed::default(),
            ecn: AtomicU8::new(0),
        })
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

    /// Takes over the listener's socket, if that is another one now.
    pub(super) fn follow_listener(&self, path: &ClientPath) {
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
    }

    /// True if this generation of the configuration is another one than the session has followed; it
    /// counts as followed from then on.
    pub(super) fn has_to_follow(&self, generation: u64) -> bool {
        self.generation.swap(generation, Ordering::AcqRel) != generation
    }

    /// The session's claim to its path, where another client has proved to be. The table's lock of
    /// the path must be held.
    pub(crate) fn occupancy(&self, now: Timestamp) -> Occupancy {
        let occupant = Occupant {
            is_assisted: self.is_assisted(),
            heard: self.claim.heard(),
            asked: self.claim.asked(),
            is_mutual: self.is_mutual(),
            answered: self.server_side.answered(),
            active: self.idle_since(),
        };
        self.claim.occupancy(&occupant, now)
    }

    /// The client has sealed something at its path, at this time.
    pub(crate) fn note_heard(&self, heard: Option<Timestamp>) {
        if let Some(heard) = heard {
            self.claim.note_heard(heard);
        }
    }

    /// True if the client has proved that it receives at its address: by something sealed, here or at
    /// the gateway that has its session, or by a value that its server has chosen. Only then is the session
    /// closed for no other reason than its idle timeout.
    pub(crate) fn is_assured(&self) -> bool {
        let is_proven_relay = || self.is_relay() && !self.server_side.is_unproven_relay();
        self.is_assisted() || self.evidence.is_given() || is_proven_relay()
    }

    /// Looks at what the client has sent for evidence of its address.
    pub(crate) fn look_at_received(&self, batches: &[GsoBatch<'_>]) {
        self.evidence.look(batches, AddressProof::received);
    }

    /// Looks at what the server has sent the client for the same.
    pub(crate) fn look_at_sent(&self, batches: &[GsoBatch<'_>]) {
        self.evidence.look(batches, AddressProof::sent);
    }

    /// True if client and server have both spoken twice, or the client is assured. Only then does the
    /// session last for the configured idle timeout. An attacker who forges sources, to a server
    /// that answers, has such sessions as well.
    pub(crate) fn is_mutual(&self) -> bool {
        let twice = |total: &AtomicU64| total.load(Ordering::Relaxed) >= 2;
        let Totals { to_client_datagrams, to_server_datagrams, .. } = &self.totals;
        (twice(to_client_datagrams) && twice(to_server_datagrams)) || self.is_assured()
    }

    pub(crate) fn is_displaced(&self) -> bool {
        self.claim.is_displaced()
    }

    /// The session's client is at its path, or another one is. The table's lock of the path must be
    /// held.
    pub(crate) fn set_displaced(&self, displaced: bool) {
        self.claim.set_displaced(displaced);
    }

    /// Another session has displaced this one, which has no assistance. The table's lock of the path
    /// must be held.
    pub(crate) fn set_successor(&self, successor: &Arc<Self>) {
        self.claim.set_successor(successor);
    }

    /// The session whose client is at the path that was this one's, as long as it is there.
    pub(crate) fn successor(&self) -> Option<Arc<Self>> {
        let successor = self.claim.successor()?;
        let is_there = !successor.is_displaced() && successor.network() == self.network();
        is_there.then_some(successor)
    }

    /// True if the engine assists this session.
    pub(crate) fn is_assisted(&self) -> bool {
        self.engine_side.is_assisted()
    }

    pub(crate) fn upstream(&self) -> Arc<Upstream> {
        self.server_side.upstream()
    }

    /// True if another gateway has the session of the client: all datagrams of the client go there
    /// unchanged, and that gateway's datagrams go to the client.
    pub(crate) fn is_relay(&self) -> bool {
        self.server_side.is_relay()
    }

    /// Notes that a datagram goes to the server.
    pub(crate) fn note_question(&self) {
        self.server_side.note_question(|| self.route.environment.now());
    }

    /// Notes that something has come from the server.
    pub(crate) fn note_answer(&self, now: Timestamp) {
        if let Some(microseconds) = self.server_side.note_answer(now) {
            self.route.metrics.levels.add_far_round_trip(microseconds);
            self.route.metrics.record(Distribution::FarRoundTrip, microseconds);
        }
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

    pub(crate) fn touch(&self, now: Timestamp) {
        self.last_activity.fetch_max(now.as_micros(), Ordering::Relaxed);
    }

    pub(crate) fn idle_since(&self) -> Timestamp {
        Timestamp::from_micros(self.last_activity.load(Ordering::Relaxed))
    }

    /// The time after which the session has been idle for too long. Of one that is displaced, and
    /// has no assistance, the client never speaks again.
    pub(crate) fn idle_timeout(&self) -> Duration {
        let configured = self.route.settings().config.idle_timeout();
        let lasts = self.is_mutual() && (self.is_assisted() || !self.is_displaced());
        if lasts { configured } else { configured.min(ONE_SIDED_IDLE_TIMEOUT) }
    }

    pub(crate) fn remember_ecn(&self, ecn: Ecn) {
        let ecn = ecn.of_sender(self.ecn());
        self.ecn.store(ecn.traffic_class(), Ordering::Relaxed);
    }

    /// The mark that the server's datagrams have had last, but for networks' reports of congestion.
    pub(super) fn ecn(&self) -> Ecn {
        Ecn::from_traffic_class(self.ecn.load(Ordering::Relaxed))
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

    /// Writes a line about this session.
    pub(crate) fn log<const N: usize>(
        &self,
        event: Event,
        fields: impl FnOnce() -> [(&'static str, Value); N],
    ) {
        self.route.environment.logger.about(event, self, fields);
    }
}

impl LogSubject for Session {
    fn describe(&self, line: &mut Map<String, Value>, logger: &Logger) {
        self.route.describe(line, logger);
        line.insert("session".to_owned(), self.id.into());
        line.insert("client".to_owned(), logger.client(self.client().get()));
    }
}
