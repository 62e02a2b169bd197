//! Sessions: one per client address and route, in a table that outlives listeners and workers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use packrat_engine::{Event, Outbox};
use packrat_estimate::Timestamp;

use crate::assistance::Assistance;
use crate::backend::choose_endpoint;
use crate::dataplane::Environment;
use crate::downstream::Slot;
use crate::log;
use crate::metrics::Metric;
use crate::route::{Route, Settings};
use crate::socket::{Ecn, Piece, SendReport, Sender};
use crate::upstream::Upstream;
use crate::worker::Command;

const SHARDS: usize = 64;

/// Where a client is and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct ClientPath {
    pub(crate) slot: Arc<Slot>,
    /// The address that the client sends to, when the listener is bound to a wildcard address.
    pub(crate) local: Option<IpAddr>,
}

/// What a session has carried; for the log line at its end.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) to_client_datagrams: AtomicU64,
    pub(crate) to_client_bytes: AtomicU64,
    pub(crate) to_server_datagrams: AtomicU64,
    pub(crate) to_server_bytes: AtomicU64,
    pub(crate) repairs: AtomicU64,
}

/// One client of one route.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) route: Arc<Route>,
    pub(crate) client: SocketAddr,
    /// Unique in the process; names the session in its worker's poller.
    pub(crate) number: u64,
    /// The worker whose I/O thread reads the upstream socket.
    pub(crate) worker: usize,
    pub(crate) totals: Totals,
    pub(crate) opened: Timestamp,
    path: RwLock<ClientPath>,
    upstream: RwLock<Arc<Upstream>>,
    generation: AtomicU64,
    assistance: Mutex<Assistance>,
    last_activity: AtomicU64,
    /// The deadline (microseconds) that the I/O thread will look at next; others ask for an earlier one.
    armed: AtomicU64,
    ecn: AtomicU8,
}

impl Session {
    fn open(
        environment: &Environment,
        route: &Arc<Route>,
        settings: &Settings,
        client: SocketAddr,
        path: &ClientPath,
        worker: usize,
        now: Timestamp,
    ) -> io::Result<Self> {
        let endpoint = choose_endpoint(&settings.config.endpoints, client)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the route has no endpoints"))?;
        Ok(Self {
            route: Arc::clone(route),
            client,
            number: environment.next_number(),
            worker,
            totals: Totals::default(),
            opened: now,
            path: RwLock::new(path.clone()),
            upstream: RwLock::new(Arc::new(Upstream::open(endpoint, client)?)),
            generation: AtomicU64::new(route.generation()),
            assistance: Mutex::new(Assistance::new(Arc::clone(&settings.engine))),
            last_activity: AtomicU64::new(now.as_micros()),
            armed: AtomicU64::new(u64::MAX),
            ecn: AtomicU8::new(0),
        })
    }

    pub(crate) fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(&self.upstream.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn path(&self) -> ClientPath {
        self.path.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn assistance(&self) -> MutexGuard<'_, Assistance> {
        self.assistance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn touch(&self, now: Timestamp) {
        self.last_activity.fetch_max(now.as_micros(), Ordering::Relaxed);
    }

    pub(crate) fn idle_since(&self) -> Timestamp {
        Timestamp::from_micros(self.last_activity.load(Ordering::Relaxed))
    }

    pub(crate) fn remember_ecn(&self, ecn: Ecn) {
        self.ecn.store(ecn.traffic_class(), Ordering::Relaxed);
    }

    /// Remembers that the I/O thread looks at this session at `deadline`; whether that is earlier than it would have.
    pub(crate) fn arm(&self, deadline: Timestamp) -> bool {
        self.armed.fetch_min(deadline.as_micros(), Ordering::Relaxed) > deadline.as_micros()
    }

    /// The I/O thread has come to the deadline.
    pub(crate) fn disarm(&self) {
        self.armed.store(u64::MAX, Ordering::Relaxed);
    }

    /// Makes the I/O thread look at this session at `deadline`, when it would have done so later only.
    pub(crate) fn request_deadline(self: &Arc<Self>, environment: &Environment, deadline: Option<Timestamp>) {
        if let Some(deadline) = deadline
            && self.armed.load(Ordering::Relaxed) > deadline.as_micros()
        {
            environment.command(self.worker, Command::Deadline(Arc::clone(self)));
        }
    }

    /// Follows a client that now comes through another listener, and a configuration that has changed.
    fn follow(self: &Arc<Self>, environment: &Environment, path: &ClientPath) {
        let unchanged = {
            let current = self.path.read().unwrap_or_else(PoisonError::into_inner);
            current.local == path.local && current.slot.listener() == path.slot.listener()
        };
        if !unchanged {
            *self.path.write().unwrap_or_else(PoisonError::into_inner) = path.clone();
        }
        let generation = self.route.generation();
        if self.generation.swap(generation, Ordering::AcqRel) != generation {
            self.follow_configuration(environment);
        }
    }

    /// Keeps the endpoint while it is configured, else moves to the next choice.
    fn follow_configuration(self: &Arc<Self>, environment: &Environment) {
        let settings = self.route.settings();
        let mut outbox = Outbox::default();
        self.assistance().use_engine(&settings.engine, &self.route, &environment.logger, &mut outbox);
        self.send_outbox(environment, &mut Sender::default(), &mut outbox, false);
        let old = self.upstream().endpoint();
        if settings.config.endpoints.contains(&old) {
            return;
        }
        let Some(new) = choose_endpoint(&settings.config.endpoints, self.client) else { return };
        match Upstream::open(new, self.client) {
            Ok(upstream) => {
                let upstream = Arc::new(upstream);
                *self.upstream.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&upstream);
                environment.command(self.worker, Command::Register(Arc::clone(self), upstream));
                self.route.metrics().add(Metric::SessionsMoved, 1);
                environment.logger.log(log::Event::SessionMoved, || {
                    [
                        ("route", self.route.name().into()),
                        ("client", self.client.to_string().into()),
                        ("from", old.to_string().into()),
                        ("to", new.to_string().into()),
                    ]
                });
            }
            Err(error) => {
                // The old socket still exists; the next change of the configuration tries again.
                self.route.metrics().add(Metric::UpstreamErrors, 1);
                environment.logger.log(log::Event::UpstreamError, || {
                    [
                        ("route", self.route.name().into()),
                        ("client", self.client.to_string().into()),
                        ("endpoint", new.to_string().into()),
                        ("error", error.to_string().into()),
                    ]
                });
            }
        }
    }

    /// Sends datagrams of the base connection to the client.
    pub(crate) fn send_to_client(
        &self,
        environment: &Environment,
        sender: &mut Sender,
        pieces: &[Piece<'_>],
        may_wait: bool,
    ) -> SendReport {
        send_to_client(environment, &self.route, &self.path(), self.client, sender, pieces, may_wait)
    }

    /// Sends what the engine has for the client: control datagrams and repairs.
    pub(crate) fn send_outbox(
        &self,
        environment: &Environment,
        sender: &mut Sender,
        outbox: &mut Outbox,
        may_wait: bool,
    ) {
        let ecn = Ecn::from_traffic_class(self.ecn.load(Ordering::Relaxed)).for_repair();
        let path = self.path();
        let repairs =
            send_outbox(environment, &self.route, &path, self.client, ecn, sender, outbox, may_wait);
        self.totals.repairs.fetch_add(repairs, Ordering::Relaxed);
        for event in outbox.take_events() {
            self.log_event(environment, &event);
        }
        outbox.clear();
    }
}

impl Session {
    fn log_event(&self, environment: &Environment, event: &Event) {
        let (route, client) = (self.route.name(), self.client.to_string());
        match event {
            Event::SessionOpened { session } => environment.logger.log(log::Event::AssistanceBegun, || {
                [("route", route.into()), ("client", client.into()), ("session", (*session).into())]
            }),
            Event::Reset { session, side, reason, epoch } => {
                environment.logger.log(log::Event::Reset, || {
                    [
                        ("route", route.into()),
                        ("client", client.into()),
                        ("session", (*session).into()),
                        ("side", side.name().into()),
                        ("reason", reason.name().into()),
                        ("epoch", (*epoch).into()),
                    ]
                })
            }
            Event::SessionClosed { session, side, reason, totals } => {
                environment.logger.log(log::Event::AssistanceEnded, || {
                    [
                        ("route", route.into()),
                        ("client", client.into()),
                        ("session", (*session).into()),
                        ("side", side.name().into()),
                        ("reason", format!("{reason:?}").to_lowercase().into()),
                        ("repaired", totals.repaired.into()),
                        ("repair_transmissions", totals.repair_transmissions.into()),
                        ("unrepairable", totals.unrepairable.into()),
                        ("decode_failures", totals.decode_failures.into()),
                        ("resets", totals.resets.into()),
                        ("cache_high_water_bytes", totals.cache_high_water.into()),
                    ]
                });
            }
            other => environment.logger.log(log::Event::Assistance, || {
                [("route", route.into()), ("client", client.into()), ("detail", format!("{other:?}").into())]
            }),
        }
    }
}

/// Sends pieces to a client and counts what could not be sent.
pub(crate) fn send_to_client(
    environment: &Environment,
    route: &Route,
    path: &ClientPath,
    client: SocketAddr,
    sender: &mut Sender,
    pieces: &[Piece<'_>],
    may_wait: bool,
) -> SendReport {
    let report = path.slot.with(|downstream| {
        let destination = downstream.destination(client, path.local, may_wait);
        sender.send(downstream.socket(), &downstream.offload, &destination, pieces)
    });
    let report = report.unwrap_or_else(|| SendReport {
        dropped: pieces.iter().map(|piece| piece.datagrams().count() as u64).sum(),
        error: Some(io::Error::new(io::ErrorKind::NotConnected, "the listener is gone")),
        ..SendReport::default()
    });
    route.metrics().add(Metric::DownstreamDropped, report.dropped);
    route.metrics().add(Metric::TooLarge, report.too_large);
    if report.offload_refused {
        environment.logger.log(log::Event::SegmentationUnavailable, || {
            [("route", route.name().into()), ("listener", path.slot.listener().to_string().into())]
        });
    }
    if let Some(error) = &report.error {
        environment.logger.log(log::Event::DownstreamError, || {
            [
                ("route", route.name().into()),
                ("client", client.to_string().into()),
                ("dropped", (report.dropped + report.too_large).into()),
                ("error", error.to_string().into()),
            ]
        });
    }
    report
}

/// Sends the datagrams of an outbox; returns how many of them were repairs.
#[allow(clippy::too_many_arguments)] // the parts of a session, for answers that exist without one
pub(crate) fn send_outbox(
    environment: &Environment,
    route: &Route,
    path: &ClientPath,
    client: SocketAddr,
    ecn: Ecn,
    sender: &mut Sender,
    outbox: &Outbox,
    may_wait: bool,
) -> u64 {
    let (mut repairs, mut controls) = (0, 0);
    let pieces: Vec<Piece<'_>> = outbox
        .datagrams()
        .map(|datagram| {
            if packrat_wire::is_control(datagram) {
                controls += 1;
                Piece::single(datagram, Ecn::NOT_CAPABLE)
            } else {
                repairs += 1;
                Piece::single(datagram, ecn)
            }
        })
        .collect();
    if pieces.is_empty() {
        return 0;
    }
    send_to_client(environment, route, path, client, sender, &pieces, may_wait);
    route.metrics().add(Metric::ControlSent, controls);
    repairs
}

/// The sessions of one route.
#[derive(Debug)]
pub(crate) struct SessionTable {
    shards: [Mutex<HashMap<SocketAddr, Arc<Session>>>; SHARDS],
    hasher: RandomState,
    count: AtomicUsize,
}

impl Default for SessionTable {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            count: AtomicUsize::new(0),
        }
    }
}

impl SessionTable {
    #[allow(clippy::indexing_slicing)] // a remainder of SHARDS
    fn shard(&self, client: SocketAddr) -> MutexGuard<'_, HashMap<SocketAddr, Arc<Session>>> {
        let index = self.hasher.hash_one(client) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of a client, which counts as active now.
    pub(crate) fn find(
        &self,
        environment: &Environment,
        client: SocketAddr,
        path: &ClientPath,
        now: Timestamp,
    ) -> Option<Arc<Session>> {
        let session = {
            let shard = self.shard(client);
            let session = shard.get(&client)?;
            session.touch(now);
            Arc::clone(session)
        };
        session.follow(environment, path);
        Some(session)
    }

    /// The session of a client, opened when there is none. `None` when it is refused; that is counted and logged.
    pub(crate) fn find_or_open(
        environment: &Environment,
        route: &Arc<Route>,
        client: SocketAddr,
        path: &ClientPath,
        worker: usize,
        now: Timestamp,
    ) -> Option<Arc<Session>> {
        let table = &route.sessions;
        if let Some(session) = table.find(environment, client, path, now) {
            return Some(session);
        }
        let settings = route.settings();
        let refused = |reason: String| {
            route.metrics().add(Metric::SessionsRefused, 1);
            environment.logger.log(log::Event::SessionRefused, || {
                [
                    ("route", route.name().into()),
                    ("client", client.to_string().into()),
                    ("reason", reason.into()),
                ]
            });
        };
        let mut shard = table.shard(client);
        let entry = match shard.entry(client) {
            // Another worker was faster.
            Entry::Occupied(entry) => return Some(Arc::clone(entry.get())),
            Entry::Vacant(entry) => entry,
        };
        if table.count.fetch_add(1, Ordering::Relaxed) as u64 >= settings.config.maximum_sessions {
            table.count.fetch_sub(1, Ordering::Relaxed);
            refused(format!("maximum_sessions ({}) reached", settings.config.maximum_sessions));
            return None;
        }
        let session = match Session::open(environment, route, &settings, client, path, worker, now) {
            Ok(session) => Arc::new(session),
            Err(error) => {
                table.count.fetch_sub(1, Ordering::Relaxed);
                refused(format!("no upstream socket: {error}"));
                return None;
            }
        };
        entry.insert(Arc::clone(&session));
        drop(shard);
        let upstream = session.upstream();
        route.metrics().add(Metric::Sessions, 1);
        route.metrics().add(Metric::SessionsOpened, 1);
        environment.note_receive_buffer(upstream.receive_buffer_bytes());
        environment.logger.log(log::Event::SessionOpened, || {
            [
                ("route", route.name().into()),
                ("client", client.to_string().into()),
                ("endpoint", upstream.endpoint().to_string().into()),
                ("worker", worker.into()),
            ]
        });
        environment.command(worker, Command::Register(Arc::clone(&session), upstream));
        Some(session)
    }

    /// Takes the session out when it is idle since `idle_timeout` (or in any case with `None`); whether it was taken out.
    pub(crate) fn remove(&self, session: &Session, now: Timestamp, idle_timeout: Option<Duration>) -> bool {
        let mut shard = self.shard(session.client);
        // Under the lock of the table, so that a datagram that arrives now either counts as activity or opens a new session.
        if idle_timeout.is_some_and(|timeout| session.idle_since() + timeout > now) {
            return false;
        }
        if shard.get(&session.client).is_some_and(|current| current.number == session.number) {
            shard.remove(&session.client);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }
}
