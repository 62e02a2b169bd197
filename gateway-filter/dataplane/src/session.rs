//! Sessions: one client of one route each, with an upstream socket of its own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use packrat_engine::{Event, Flow, Outbox};
use packrat_estimate::Timestamp;

use serde_json::Value;

use crate::assistance::{Assistance, Names};
use crate::backend::choose_endpoint;
use crate::capacity::Place;
use crate::dataplane::Environment;
use crate::deadlines::Armed;
use crate::downstream::Slot;
use crate::log;
use crate::metrics::{Distribution, Metric, reset};
use crate::route::{Route, Settings};
use crate::snapshot::SessionSnapshot;
use crate::socket::{Ecn, Piece, SendReport, Sender};
use crate::upstream::Upstream;
use crate::worker::Command;

/// How long a server that is not configured any more may leave its client without an answer until another one is tried.
const UNANSWERED: Duration = Duration::from_secs(3);

/// What [`Session::astray`] holds when the endpoint is configured...
const AT_HOME: u64 = 0;
/// ...and when it is not, but nothing waits for its answer.
const ANSWERED: u64 = 1;

/// Where a client is and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct ClientPath {
    /// The address that its datagrams come from, in canonical form.
    pub(crate) client: SocketAddr,
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
    /// Unique in the process; names the session in its worker's poller.
    pub(crate) number: u64,
    /// The worker whose I/O thread reads the upstream socket.
    pub(crate) worker: usize,
    pub(crate) totals: Totals,
    pub(crate) opened: Timestamp,
    /// The client in it changes under the locks of the table only, see [`crate::table`].
    path: RwLock<ClientPath>,
    /// Another client has proved to be at this client's address: nothing is sent there until this one shows up elsewhere.
    displaced: AtomicBool,
    /// Taken out of the table for good.
    closed: AtomicBool,
    upstream: RwLock<Arc<Upstream>>,
    /// [`AT_HOME`], [`ANSWERED`], or when the client said something that its server, which is not configured any more, has not
    /// answered since, in microseconds.
    astray: AtomicU64,
    generation: AtomicU64,
    assistance: Mutex<Assistance>,
    /// Whether the engine assists this session; known without the lock of `assistance`.
    assisted: AtomicBool,
    last_activity: AtomicU64,
    /// When the I/O thread will look at this session next; others ask for an earlier time.
    pub(crate) armed: Armed,
    ecn: AtomicU8,
    /// When the first datagram went to the server, in microseconds; 0: none has.
    asked: AtomicU64,
    /// The first round trip to the server, in microseconds; 0: not known.
    far_round_trip: AtomicU64,
    /// The right to the descriptor and the port of `upstream`.
    _place: Place,
}

impl Session {
    pub(crate) fn open(
        environment: &Environment,
        route: &Arc<Route>,
        settings: &Settings,
        path: &ClientPath,
        worker: usize,
        now: Timestamp,
    ) -> io::Result<Self> {
        let place = environment.capacity.take().ok_or_else(|| {
            io::Error::new(io::ErrorKind::QuotaExceeded, environment.capacity.reason().to_owned())
        })?;
        let endpoint = choose_endpoint(&settings.config.endpoints, path.client)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the route has no endpoints"))?;
        Ok(Self {
            route: Arc::clone(route),
            number: environment.next_number(),
            worker,
            totals: Totals::default(),
            opened: now,
            path: RwLock::new(path.clone()),
            displaced: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            upstream: RwLock::new(Arc::new(Upstream::open(endpoint, path.client)?)),
            astray: AtomicU64::new(AT_HOME),
            generation: AtomicU64::new(route.generation()),
            assistance: Mutex::new(Assistance::new(Arc::clone(&settings.engine))),
            assisted: AtomicBool::new(false),
            last_activity: AtomicU64::new(now.as_micros()),
            armed: Armed::default(),
            ecn: AtomicU8::new(0),
            asked: AtomicU64::new(0),
            far_round_trip: AtomicU64::new(0),
            _place: place,
        })
    }

    pub(crate) fn upstream(&self) -> Arc<Upstream> {
        Arc::clone(&self.upstream.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn path(&self) -> ClientPath {
        self.path.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where the client is now.
    pub(crate) fn client(&self) -> SocketAddr {
        self.path.read().unwrap_or_else(PoisonError::into_inner).client
    }

    /// Another place; the table's locks of the old and the new client address must be held.
    pub(crate) fn set_path(&self, path: &ClientPath) {
        *self.path.write().unwrap_or_else(PoisonError::into_inner) = path.clone();
    }

    pub(crate) fn is_displaced(&self) -> bool {
        self.displaced.load(Ordering::Relaxed)
    }

    /// The table's lock of the client address must be held.
    pub(crate) fn set_displaced(&self, displaced: bool) {
        self.displaced.store(displaced, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The table's lock of the client address must be held.
    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether the engine assists this session.
    pub(crate) fn is_assisted(&self) -> bool {
        self.assisted.load(Ordering::Relaxed)
    }

    /// Calls the engine for this session, and keeps the index of assisted sessions up to date; `None` after a fault in it, or
    /// when the session has ended.
    pub(crate) fn assist<R>(
        self: &Arc<Self>,
        environment: &Environment,
        action: impl FnOnce(&mut Flow) -> R,
    ) -> Option<R> {
        let mut assistance = self.assistance.lock().unwrap_or_else(PoisonError::into_inner);
        let result = assistance.run(&self.route, &environment.logger, action);
        self.index(&mut assistance);
        result
    }

    /// The last thing that the engine does for this session.
    pub(crate) fn end_assistance(
        self: &Arc<Self>,
        environment: &Environment,
        action: impl FnOnce(&mut Flow),
    ) {
        let mut assistance = self.assistance.lock().unwrap_or_else(PoisonError::into_inner);
        assistance.run(&self.route, &environment.logger, action);
        assistance.finish(&self.route, &environment.logger);
        self.index(&mut assistance);
    }

    /// What can be said about this session to an operator.
    pub(crate) fn snapshot(&self, environment: &Environment) -> SessionSnapshot {
        let assistance = self.assistance.lock().unwrap_or_else(PoisonError::into_inner);
        let (counters, gauges, name) = assistance.figures();
        drop(assistance);
        let total = |value: &AtomicU64| value.load(Ordering::Relaxed);
        SessionSnapshot {
            session: self.number,
            client: environment.logger.client(self.client()),
            endpoint: self.upstream().endpoint(),
            assistance: name,
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
        }
    }

    fn index(self: &Arc<Self>, assistance: &mut Assistance) {
        if let Some((before, now)) = assistance.renamed() {
            self.route.assisted.rename(self, before, now);
            self.assisted.store(now != Names::default(), Ordering::Relaxed);
        }
    }

    pub(crate) fn touch(&self, now: Timestamp) {
        self.last_activity.fetch_max(now.as_micros(), Ordering::Relaxed);
    }

    pub(crate) fn idle_since(&self) -> Timestamp {
        Timestamp::from_micros(self.last_activity.load(Ordering::Relaxed))
    }

    /// A datagram goes to the server; the first one begins the measurement of the far round trip.
    pub(crate) fn note_question(&self, environment: &Environment) {
        if self.astray.load(Ordering::Relaxed) == ANSWERED {
            self.astray.store(environment.now().as_micros().max(ANSWERED + 1), Ordering::Relaxed);
        }
        if self.asked.load(Ordering::Relaxed) == 0 {
            self.asked.store(environment.now().as_micros().max(1), Ordering::Relaxed);
        }
    }

    /// Something has come from the server; the first time this ends the measurement of the far round trip.
    pub(crate) fn note_answer(&self, now: Timestamp) {
        if self.astray.load(Ordering::Relaxed) > ANSWERED {
            self.astray.store(ANSWERED, Ordering::Relaxed);
        }
        let asked = self.asked.load(Ordering::Relaxed);
        if self.far_round_trip.load(Ordering::Relaxed) == 0 && asked != 0 {
            let microseconds = now.as_micros().saturating_sub(asked).max(1);
            self.far_round_trip.store(microseconds, Ordering::Relaxed);
            self.route.metrics().add_far_round_trip(microseconds);
            self.route.metrics().record(Distribution::FarRoundTrip, microseconds);
        }
    }

    /// The first round trip to the server, in microseconds, with the server's time to answer.
    pub(crate) fn far_round_trip(&self) -> Option<u64> {
        Some(self.far_round_trip.load(Ordering::Relaxed)).filter(|microseconds| *microseconds > 0)
    }

    /// Writes a line about this session.
    pub(crate) fn log<const N: usize>(
        &self,
        environment: &Environment,
        event: log::Event,
        fields: impl FnOnce() -> [(&'static str, Value); N],
    ) {
        environment.logger.about_session(event, self, fields);
    }

    pub(crate) fn remember_ecn(&self, ecn: Ecn) {
        self.ecn.store(ecn.traffic_class(), Ordering::Relaxed);
    }

    /// Makes the I/O thread look at this session at `deadline`, when it would have done so later only.
    pub(crate) fn request_deadline(self: &Arc<Self>, environment: &Environment, deadline: Option<Timestamp>) {
        if let Some(deadline) = deadline
            && self.armed.is_later_than(deadline)
        {
            environment.command(self.worker, Command::Deadline(Arc::clone(self)));
        }
    }

    /// Follows a client that now comes through another listener, and a configuration that has changed.
    pub(crate) fn follow(self: &Arc<Self>, environment: &Environment, path: &ClientPath) {
        let unchanged = {
            let current = self.path.read().unwrap_or_else(PoisonError::into_inner);
            let is_same = Arc::ptr_eq(&current.slot, &path.slot)
                || (current.slot.listener() == path.slot.listener() && current.slot.is_filled());
            is_same && current.local == path.local
        };
        if !unchanged {
            let mut current = self.path.write().unwrap_or_else(PoisonError::into_inner);
            // It may just have moved, on the word of another thread.
            if current.client == path.client {
                *current = path.clone();
            }
        }
        self.follow_route(environment);
    }

    /// Takes over a configuration that has changed.
    pub(crate) fn follow_route(self: &Arc<Self>, environment: &Environment) {
        let generation = self.route.generation();
        if self.generation.swap(generation, Ordering::AcqRel) != generation {
            self.follow_configuration(environment);
            return;
        }
        let asked = self.astray.load(Ordering::Relaxed);
        if asked > ANSWERED && environment.now().saturating_since(Timestamp::from_micros(asked)) > UNANSWERED
        {
            self.leave_endpoint(environment);
        }
    }

    /// The server can't be reached, as the network says: when it is not configured any more, there is nothing to wait for.
    pub(crate) fn note_unreachable(self: &Arc<Self>, environment: &Environment) {
        if self.astray.load(Ordering::Relaxed) != AT_HOME {
            self.leave_endpoint(environment);
        }
    }

    /// Keeps the endpoint while it is configured, and after that for as long as it answers: a server that is taken from the list may be
    /// ending, or have been lost sight of for a moment, and no other one knows its connections.
    fn follow_configuration(self: &Arc<Self>, environment: &Environment) {
        let settings = self.route.settings();
        let mut outbox = Outbox::default();
        {
            let mut assistance = self.assistance.lock().unwrap_or_else(PoisonError::into_inner);
            assistance.use_engine(&settings.engine, &self.route, &environment.logger, &mut outbox);
            self.index(&mut assistance);
        }
        self.send_outbox(environment, &mut Sender::default(), &mut outbox, false);
        if settings.config.endpoints.contains(&self.upstream().endpoint()) {
            self.astray.store(AT_HOME, Ordering::Relaxed);
            return;
        }
        self.astray.store(ANSWERED, Ordering::Relaxed);
        if self.far_round_trip().is_none() {
            self.leave_endpoint(environment);
        }
    }

    /// Moves to the next choice among the endpoints that are configured. Nothing happens when another thread has done so.
    fn leave_endpoint(self: &Arc<Self>, environment: &Environment) {
        if self.astray.swap(AT_HOME, Ordering::AcqRel) == AT_HOME {
            return;
        }
        let settings = self.route.settings();
        let old = self.upstream().endpoint();
        if settings.config.endpoints.contains(&old) {
            return;
        }
        let client = self.client();
        let Some(new) = choose_endpoint(&settings.config.endpoints, client) else { return };
        match Upstream::open(new, client) {
            Ok(upstream) => {
                let upstream = Arc::new(upstream);
                *self.upstream.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&upstream);
                environment.command(self.worker, Command::Register(Arc::clone(self), upstream));
                self.route.metrics().add(Metric::SessionsMoved, 1);
                self.log(environment, log::Event::SessionMoved, || {
                    [("from", old.to_string().into()), ("to", new.to_string().into())]
                });
            }
            Err(error) => {
                // The old socket still exists; the next change of the configuration tries again.
                self.route.metrics().add(Metric::UpstreamErrors, 1);
                self.log(environment, log::Event::UpstreamError, || {
                    [("endpoint", new.to_string().into()), ("error", error.to_string().into())]
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
        if self.is_displaced() {
            let dropped = pieces.iter().map(|piece| piece.datagrams().count() as u64).sum();
            self.route.metrics().add(Metric::DownstreamDropped, dropped);
            return SendReport { dropped, ..SendReport::default() };
        }
        send_to_client(environment, &self.route, &self.path(), sender, pieces, may_wait)
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
        if !self.is_displaced() {
            let repairs = send_outbox(environment, &self.route, &self.path(), ecn, sender, outbox, may_wait);
            self.totals.repairs.fetch_add(repairs, Ordering::Relaxed);
        }
        self.take_over(environment, outbox);
        outbox.clear();
    }

    /// Writes what has happened in the engine to the log, and what it has measured to the metrics.
    pub(crate) fn take_over(&self, environment: &Environment, outbox: &mut Outbox) {
        self.route.metrics().record_samples(outbox.samples());
        for event in outbox.take_events() {
            self.log_event(environment, &event);
        }
    }

    fn log_event(&self, environment: &Environment, event: &Event) {
        match event {
            Event::SessionOpened { session } => {
                self.log(environment, log::Event::AssistanceBegun, || [("assistance", (*session).into())])
            }
            Event::Reset { session, side, reason, epoch } => {
                self.route.metrics().add(reset(*side, *reason), 1);
                self.log(environment, log::Event::Reset, || {
                    [
                        ("assistance", (*session).into()),
                        ("side", side.name().into()),
                        ("reason", reason.name().into()),
                        ("epoch", (*epoch).into()),
                    ]
                })
            }
            Event::SessionClosed { session, side, reason, totals } => {
                self.log(environment, log::Event::AssistanceEnded, || {
                    [
                        ("assistance", (*session).into()),
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
            // The table says from where to where.
            Event::SessionMoved { .. } => {}
            other => {
                self.log(environment, log::Event::Assistance, || [("detail", format!("{other:?}").into())])
            }
        }
    }
}

/// Sends pieces to a client and counts what could not be sent.
pub(crate) fn send_to_client(
    environment: &Environment,
    route: &Route,
    path: &ClientPath,
    sender: &mut Sender,
    pieces: &[Piece<'_>],
    may_wait: bool,
) -> SendReport {
    let report = path.slot.with(|downstream| {
        let destination = downstream.destination(path.client, path.local, may_wait);
        sender.send(downstream.socket(), &downstream.offload, &destination, pieces)
    });
    let report = report.unwrap_or_else(|| SendReport {
        dropped: pieces.iter().map(|piece| piece.datagrams().count() as u64).sum(),
        error: Some(io::Error::new(io::ErrorKind::NotConnected, "the listener is gone")),
        ..SendReport::default()
    });
    count_unsent(environment, route, path, &report);
    report
}

/// Counts what could not be sent to a client, and says why.
pub(crate) fn count_unsent(environment: &Environment, route: &Route, path: &ClientPath, report: &SendReport) {
    route.metrics().add(Metric::DownstreamDropped, report.dropped);
    route.metrics().add(Metric::TooLarge, report.too_large);
    if report.offload_refused {
        environment.logger.about(log::Event::SegmentationUnavailable, route, || {
            [("listener", path.slot.listener().to_string().into())]
        });
    }
    if let Some(error) = &report.error {
        environment.logger.about(log::Event::DownstreamError, route, || {
            [
                ("client", environment.logger.client(path.client)),
                ("dropped", (report.dropped + report.too_large).into()),
                ("error", error.to_string().into()),
            ]
        });
    }
}

/// Sends the datagrams of an outbox; returns how many of them were repairs.
pub(crate) fn send_outbox(
    environment: &Environment,
    route: &Route,
    path: &ClientPath,
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
    send_to_client(environment, route, path, sender, &pieces, may_wait);
    route.metrics().add(Metric::ControlSent, controls);
    repairs
}
