//! The I/O thread of a worker: reads the upstream sockets of its sessions (and, on sockets of our own, the listeners), and
//! keeps the time of its sessions.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packrat_engine::Outbox;
use packrat_estimate::Timestamp;
use packrat_wire::message::GoodbyeReason;

use crate::dataplane::Environment;
use crate::deadlines::Deadlines;
use crate::gathering::Gathering;
use crate::ingress::{Ingress, nanoseconds_since};
use crate::log::Event;
use crate::metrics::{Distribution, Metric};
use crate::poller::{Poller, use_precise_timers};
use crate::route::Route;
use crate::session::Session;
use crate::socket::{Message, Piece, ReceiveBatch, Sender};
use crate::stream::StreamUpstream;
use crate::table::SessionTable;
use crate::to_server::forward_to_server;
use crate::upstream::Upstream;
use crate::waiting::Expired;

/// Messages (each up to 64 KiB of datagrams) that one receive call takes.
const MESSAGES_PER_RECEIVE: usize = 32;
/// Receive calls for one socket before the others get their turn.
const RECEIVES_PER_TURN: usize = 4;
/// Errors of one socket that are taken in one turn.
const ERRORS_PER_TURN: usize = 8;
/// A session whose deadline was just served is looked at again after this time at the earliest: an engine that asks for the
/// past must not keep the thread busy.
const SHORTEST_SLEEP: Duration = Duration::from_micros(100);
/// A stream without subscribers is looked at again after this time.
const STREAM_INTERVAL: Duration = Duration::from_secs(1);
/// A session at whose deadline the thread has panicked is looked at again after this time.
const AFTER_A_PANIC: Duration = Duration::from_secs(1);

/// What other threads ask of an I/O thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Read this upstream socket for the session, instead of its former one if it had one.
    Register(Arc<Session>, Arc<Upstream>),
    /// The engine wants to be called earlier than planned.
    Deadline(Arc<Session>),
    /// Read what clients send to this listener.
    Listen(Box<Ingress>),
    /// Another client is where this session's was; it was taken out of the table.
    Close(Arc<Session>),
    /// Look at this address of the route's waiting room at this time.
    Waiting(Arc<Route>, SocketAddr, Timestamp),
    /// The configuration of routes has changed in a way that every session has to hear of now.
    FollowRoutes,
    /// Read this stream.
    OpenStream(Arc<StreamUpstream>),
    /// Do not read the stream of this number any more.
    CloseStream(u64),
    /// End all sessions and the thread.
    Stop,
}

/// How other threads reach an I/O thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    commands: Mutex<Vec<Command>>,
    poller: Poller,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { commands: Mutex::default(), poller: Poller::new()? })
    }

    pub(crate) fn post(&self, command: Command) {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.poller.wake();
    }

    fn take(&self) -> Vec<Command> {
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_empty(&self) -> bool {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// Starts the I/O thread of a worker.
pub(crate) fn spawn(worker: usize, environment: Arc<Environment>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("packrat-io-{worker}")).spawn(move || {
        use_precise_timers();
        let mut thread = IoThread::new(worker, Arc::clone(&environment));
        let Some(mailbox) = environment.mailbox(worker) else { return };
        // A fault of one session must not end the forwarding of all the others.
        while catch_unwind(AssertUnwindSafe(|| thread.run(mailbox))).is_err() {
            environment.logger.log(Event::WorkerError, || {
                [("message", "an I/O thread recovered from a panic".into()), ("worker", worker.into())]
            });
            std::thread::sleep(SHORTEST_SLEEP);
        }
    })
}

fn report(environment: &Environment, message: &'static str, error: &io::Error) {
    environment
        .logger
        .log(Event::WorkerError, || [("message", message.into()), ("error", error.to_string().into())]);
}

/// A listener that is read here.
struct Listener {
    ingress: Box<Ingress>,
    gathering: Gathering,
}

struct IoThread {
    environment: Arc<Environment>,
    /// Commands that were taken out of the mailbox and not carried out yet; a panic in one of them costs no other.
    commands: VecDeque<Command>,
    /// [`Command::Stop`] has come.
    stopping: bool,
    sessions: HashMap<u64, (Arc<Session>, Arc<Upstream>)>,
    listeners: HashMap<u64, Listener>,
    streams: HashMap<u64, Arc<StreamUpstream>>,
    deadlines: Deadlines,
    /// Addresses in waiting rooms by the time they are looked at, and a number that tells equal times apart.
    waiting: BTreeMap<(Timestamp, u64), (Arc<Route>, SocketAddr)>,
    worker: usize,
    batch: ReceiveBatch,
    sender: Sender,
    outbox: Outbox,
}

impl IoThread {
    fn new(worker: usize, environment: Arc<Environment>) -> Self {
        Self {
            environment,
            commands: VecDeque::new(),
            stopping: false,
            sessions: HashMap::new(),
            listeners: HashMap::new(),
            streams: HashMap::new(),
            deadlines: Deadlines::default(),
            waiting: BTreeMap::new(),
            worker,
            batch: ReceiveBatch::new(MESSAGES_PER_RECEIVE),
            sender: Sender::default(),
            outbox: Outbox::default(),
        }
    }

    /// Works until it is stopped. May be called again after a panic: all state that outlives a call is whole at any time.
    fn run(&mut self, mailbox: &Mailbox) {
        let mut ready = Vec::new();
        loop {
            self.commands.extend(mailbox.take());
            while !self.stopping
                && let Some(command) = self.commands.pop_front()
            {
                match command {
                    Command::Register(session, upstream) => self.register(mailbox, session, upstream),
                    Command::Deadline(session) => self.plan(&session, Timestamp::ZERO),
                    Command::Listen(ingress) => self.listen(mailbox, ingress),
                    Command::Close(session) => {
                        let now = self.environment.now();
                        self.close(mailbox, &session, "displaced", None, now);
                    }
                    Command::Waiting(route, client, until) => self.wait_for(route, client, until),
                    Command::FollowRoutes => self.follow_routes(),
                    Command::OpenStream(upstream) => self.open_stream(mailbox, upstream),
                    Command::CloseStream(number) => self.close_stream(mailbox, number),
                    Command::Stop => self.stopping = true,
                }
            }
            if self.stopping {
                return self.stop(mailbox);
            }
            self.run_deadlines(mailbox);
            self.run_waiting();
            let streams = self.run_streams();
            let now = self.environment.now();
            let waiting = self.waiting.first_key_value().map(|((until, _), _)| *until);
            let next =
                self.deadlines.next().into_iter().chain(waiting).chain(streams).chain(self.next_read()).min();
            let timeout = next.map(|next| next.saturating_since(now));
            if let Err(error) = mailbox.poller.wait(timeout, &mut ready, || mailbox.is_empty()) {
                self.report("waiting for sockets failed", &error);
                std::thread::sleep(SHORTEST_SLEEP);
            }
            for &number in &ready {
                if let Some((session, upstream)) = self.sessions.get(&number) {
                    let (session, upstream) = (Arc::clone(session), Arc::clone(upstream));
                    self.forward_to_client(&session, &upstream);
                } else if let Some(upstream) = self.streams.get(&number) {
                    let upstream = Arc::clone(upstream);
                    let (batch, sender) = (&mut self.batch, &mut self.sender);
                    upstream.stream.forward(&self.environment, &upstream, batch, sender);
                } else if self.listeners.contains_key(&number) {
                    self.read_clients(mailbox, number);
                } else if let Err(error) = mailbox.poller.forget(number) {
                    // A source that nobody reads would keep the thread busy for ever.
                    self.report("a socket that belongs to nobody is still watched", &error);
                }
            }
            self.read_gathered(mailbox, &mut ready);
        }
    }

    fn report(&self, message: &'static str, error: &io::Error) {
        report(&self.environment, message, error);
    }

    fn register(&mut self, mailbox: &Mailbox, session: Arc<Session>, upstream: Arc<Upstream>) {
        // The order to close it may have overtaken this one.
        if session.is_closed() {
            return;
        }
        if let Some((_, former)) = self.sessions.remove(&session.number)
            && let Err(error) = mailbox.poller.remove(former.socket(), session.number)
        {
            self.report("an upstream socket could not be given back", &error);
        }
        if let Err(error) = mailbox.poller.add(upstream.socket(), session.number) {
            self.report("an upstream socket cannot be watched", &error);
        }
        self.sessions.insert(session.number, (Arc::clone(&session), upstream));
        self.plan(&session, Timestamp::ZERO);
    }

    fn listen(&mut self, mailbox: &Mailbox, ingress: Box<Ingress>) {
        // What was in this place before has gone.
        let former = self.listeners.iter().find(|(_, known)| Arc::ptr_eq(&known.ingress.slot, &ingress.slot));
        if let Some(former) = former.map(|(number, _)| *number) {
            self.listeners.remove(&former);
            // Its descriptor is closed already.
            let _ = mailbox.poller.forget(former);
        }
        let number = self.environment.next_number();
        match ingress.slot.with(|downstream| mailbox.poller.add(downstream.socket(), number)) {
            Some(Ok(())) => {
                self.listeners.insert(number, Listener { ingress, gathering: Gathering::default() });
            }
            Some(Err(error)) => self.report("a listener cannot be watched", &error),
            None => {}
        }
    }

    fn open_stream(&mut self, mailbox: &Mailbox, upstream: Arc<StreamUpstream>) {
        match mailbox.poller.add(upstream.socket(), upstream.number) {
            Ok(()) => {
                self.streams.insert(upstream.number, upstream);
            }
            Err(error) => self.report("a stream cannot be watched", &error),
        }
    }

    fn close_stream(&mut self, mailbox: &Mailbox, number: u64) {
        if let Some(upstream) = self.streams.remove(&number)
            && let Err(error) = mailbox.poller.remove(upstream.socket(), number)
        {
            self.report("a stream's socket could not be given back", &error);
        }
    }

    /// Lets the streams look at their subscribers when it is time; when they want it next.
    fn run_streams(&mut self) -> Option<Timestamp> {
        let now = self.environment.now();
        let mut next = None;
        for upstream in self.streams.values() {
            upstream.stream.handle_timeout(&self.environment, &upstream.route, &mut self.sender, now);
            next = upstream.stream.next_timeout().into_iter().chain(next).min();
        }
        // Somebody may subscribe on another thread while this one sleeps.
        if self.streams.is_empty() { None } else { next.or(Some(now + STREAM_INTERVAL)) }
    }

    /// Reads what the server sent and forwards it.
    fn forward_to_client(&mut self, session: &Arc<Session>, upstream: &Upstream) {
        let environment = Arc::clone(&self.environment);
        let metrics = session.route.metrics();
        let mut errors = 0;
        let mut turns = 0;
        let mut deadline = None;
        while turns < RECEIVES_PER_TURN {
            if let Err(error) = self.batch.receive(upstream.socket()) {
                if error.kind() == io::ErrorKind::WouldBlock {
                    break;
                }
                metrics.add(Metric::UpstreamErrors, 1);
                session.log(&environment, Event::UpstreamError, || {
                    [
                        ("endpoint", upstream.endpoint().to_string().into()),
                        ("error", error.to_string().into()),
                    ]
                });
                session.note_unreachable(&environment);
                errors += 1;
                if errors >= ERRORS_PER_TURN {
                    break;
                }
                continue;
            }
            turns += 1;
            let now = environment.now();
            session.touch(now);
            session.note_answer(now);
            let mut pieces = Vec::with_capacity(MESSAGES_PER_RECEIVE);
            for message in self.batch.messages() {
                if message.truncated {
                    metrics.add(Metric::Truncated, 1);
                    continue;
                }
                session.remember_ecn(message.ecn);
                pieces.push(Piece {
                    data: message.data,
                    segment_size: message.segment_size,
                    ecn: message.ecn,
                });
            }
            // The engine first: an eACK for these datagrams may arrive on another thread while they are being sent.
            if session.is_assisted() {
                let begun = Instant::now();
                deadline = session.assist(&environment, |flow| {
                    for datagram in pieces.iter().flat_map(|piece| piece.datagrams()) {
                        flow.forward(datagram, now);
                    }
                    flow.next_timeout()
                });
                metrics.add(Metric::ForwardNanoseconds, nanoseconds_since(begun));
            }
            let report = session.send_to_client(&environment, &mut self.sender, &pieces, true);
            metrics.add(Metric::DownstreamDatagrams, report.datagrams);
            metrics.add(Metric::DownstreamBytes, report.bytes);
            if report.datagrams > 0 {
                metrics.record(Distribution::Batch, report.datagrams);
            }
            session.totals.to_client_datagrams.fetch_add(report.datagrams, Ordering::Relaxed);
            session.totals.to_client_bytes.fetch_add(report.bytes, Ordering::Relaxed);
            if !self.batch.was_filled() {
                break;
            }
        }
        self.plan_for(session, deadline.flatten(), Timestamp::ZERO);
    }

    /// When a listener that gathers has to be read.
    fn next_read(&self) -> Option<Timestamp> {
        self.listeners.values().filter_map(|listener| listener.gathering.deadline()).min()
    }

    /// Reads the listeners that gather, if it is time. `numbers`: room for theirs.
    fn read_gathered(&mut self, mailbox: &Mailbox, numbers: &mut Vec<u64>) {
        if self.listeners.values().all(|listener| !listener.gathering.is_on()) {
            return;
        }
        let now = self.environment.now();
        numbers.clear();
        let due = self.listeners.iter().filter(|(_, listener)| listener.gathering.is_due(now));
        numbers.extend(due.map(|(number, _)| *number));
        for &number in &*numbers {
            self.read_clients(mailbox, number);
        }
    }

    /// Reads what clients sent, and forgets the listener when its socket is gone.
    fn read_clients(&mut self, mailbox: &Mailbox, number: u64) {
        let read = self.read_listener(number);
        let Some(listener) = self.listeners.get_mut(&number) else { return };
        let (messages, has_more) = match read {
            Some(read) => read,
            None => {
                self.listeners.remove(&number);
                return;
            }
        };
        if !listener.gathering.note(messages, has_more, self.environment.now()) {
            return;
        }
        let is_watched = !listener.gathering.is_on();
        let watched = listener
            .ingress
            .slot
            .with(|downstream| mailbox.poller.watch(downstream.socket(), number, is_watched));
        if let Some(Err(error)) = watched {
            self.report("a listener cannot be watched", &error);
        }
    }

    /// Reads what clients sent; how many messages there were, and whether more may be there. `None` when the listener's socket is gone. The
    /// listener stays in its place meanwhile, so that a panic does not lose it.
    fn read_listener(&mut self, number: u64) -> Option<(usize, bool)> {
        let Listener { ingress, .. } = self.listeners.get_mut(&number)?;
        let slot = Arc::clone(&ingress.slot);
        let mut found = 0;
        for _ in 0..RECEIVES_PER_TURN {
            let result = slot.with(|downstream| self.batch.receive(downstream.socket()))?;
            if let Err(error) = result {
                if error.kind() != io::ErrorKind::WouldBlock {
                    report(&self.environment, "receiving from clients failed", &error);
                }
                return Some((found, false));
            }
            found += self.batch.messages().len();
            let mut messages = self.batch.messages().peekable();
            let mut run = Vec::with_capacity(MESSAGES_PER_RECEIVE);
            while let Some(message) = messages.next() {
                let Some(client) = message.source else { continue };
                if message.truncated {
                    ingress.route().metrics().add(Metric::Truncated, 1);
                    continue;
                }
                run.push(Piece { data: message.data, segment_size: message.segment_size, ecn: message.ecn });
                // What one client has sent in a row is forwarded with one call.
                let goes_on = |next: &Message<'_>| {
                    next.source == message.source && next.local == message.local && !next.truncated
                };
                if !messages.peek().is_some_and(goes_on) {
                    ingress.receive_run(client, message.local, &run);
                    run.clear();
                }
            }
            if !self.batch.was_filled() {
                return Some((found, false));
            }
        }
        Some((found, true))
    }

    /// Makes sure that the session is looked at when its engine or its idle timeout wants it, not before `earliest`.
    fn plan(&mut self, session: &Arc<Session>, earliest: Timestamp) {
        let engine = session.assist(&self.environment, |flow| flow.next_timeout()).flatten();
        self.plan_for(session, engine, earliest);
    }

    /// The same when it is known what the engine wants.
    fn plan_for(&mut self, session: &Arc<Session>, engine: Option<Timestamp>, earliest: Timestamp) {
        let idle = session.idle_since() + session.route.settings().config.idle_timeout();
        let deadline = engine.map_or(idle, |engine| engine.min(idle)).max(earliest);
        self.deadlines.plan(session.number, &session.armed, deadline);
    }

    fn run_deadlines(&mut self, mailbox: &Mailbox) {
        let now = self.environment.now();
        while let Some(entry @ (_, number)) = self.deadlines.due(now) {
            let Some((session, _)) = self.sessions.get(&number) else {
                self.deadlines.discard(entry);
                continue;
            };
            let session = Arc::clone(session);
            self.deadlines.forget(number, &session.armed);
            // Should the rest panic, the session is still looked at some time.
            self.deadlines.plan(number, &session.armed, now + AFTER_A_PANIC);
            self.run_engine_deadline(&session, now);
            let idle_timeout = session.route.settings().config.idle_timeout();
            if session.idle_since() + idle_timeout <= now
                && session.route.sessions.remove(&session, now, Some(idle_timeout))
            {
                self.close(mailbox, &session, "idle", Some(GoodbyeReason::Idle), now);
                continue;
            }
            self.deadlines.forget(number, &session.armed);
            self.plan(&session, now + SHORTEST_SLEEP);
        }
    }

    fn run_engine_deadline(&mut self, session: &Arc<Session>, now: Timestamp) {
        let environment = Arc::clone(&self.environment);
        let outbox = &mut self.outbox;
        session.assist(&environment, |flow| {
            if flow.next_timeout().is_some_and(|timeout| timeout <= now) {
                flow.handle_timeout(now, outbox);
            }
        });
        session.send_outbox(&environment, &mut self.sender, outbox, true);
    }

    /// Plans to look at an address of a waiting room.
    fn wait_for(&mut self, route: Arc<Route>, client: SocketAddr, until: Timestamp) {
        let number = self.environment.next_number();
        self.waiting.insert((until, number), (route, client));
    }

    /// Looks at the addresses of waiting rooms whose time is over: those that nobody has claimed get a session.
    fn run_waiting(&mut self) {
        let now = self.environment.now();
        while let Some(entry) = self.waiting.first_entry()
            && entry.key().0 <= now
        {
            let (route, client) = entry.remove();
            match route.waiting.expire(client, now) {
                Expired::Gone => {}
                Expired::Later(until) => self.wait_for(route, client, until),
                Expired::Unclaimed(path) => {
                    // The session first: what arrives meanwhile must find it, or it would wait in turn.
                    let session =
                        SessionTable::find_or_open(&self.environment, &route, &path, self.worker, now);
                    let waited = route.waiting.leave(client);
                    route.metrics().add(Metric::DatagramsWaitedInVain, waited.len() as u64);
                    let logger = &self.environment.logger;
                    logger.about(Event::ClientWaitedInVain, &route, || {
                        [("client", logger.client(client)), ("datagrams", waited.len().into())]
                    });
                    let Some(session) = session else { continue };
                    for parked in waited {
                        forward_to_server(&self.environment, &session, &mut self.sender, &[parked.piece()]);
                    }
                }
            }
        }
    }

    fn follow_routes(&mut self) {
        let environment = Arc::clone(&self.environment);
        let sessions: Vec<_> = self.sessions.values().map(|(session, _)| Arc::clone(session)).collect();
        for session in sessions {
            session.follow_route(&environment);
        }
    }

    /// Ends a session that was taken out of the table. Without a `goodbye` its client is told nothing.
    fn close(
        &mut self,
        mailbox: &Mailbox,
        session: &Arc<Session>,
        reason: &'static str,
        goodbye: Option<GoodbyeReason>,
        now: Timestamp,
    ) {
        let environment = Arc::clone(&self.environment);
        // First, so that a panic in the rest does not leave it here for ever.
        let upstream = self.sessions.remove(&session.number);
        self.deadlines.forget(session.number, &session.armed);
        if let Some((_, upstream)) = &upstream
            && let Err(error) = mailbox.poller.remove(upstream.socket(), session.number)
        {
            self.report("an upstream socket could not be given back", &error);
        }
        let outbox = &mut self.outbox;
        session.end_assistance(&environment, |flow| {
            if let Some(goodbye) = goodbye {
                flow.close(goodbye, outbox);
            }
        });
        session.send_outbox(&environment, &mut self.sender, outbox, true);
        session.route.metrics().subtract(Metric::Sessions, 1);
        if let Some(microseconds) = session.far_round_trip() {
            session.route.metrics().subtract_far_round_trip(microseconds);
        }
        let metrics = session.route.metrics();
        metrics.add(Metric::SessionsClosed, 1);
        metrics.record(Distribution::SessionDuration, now.saturating_since(session.opened).as_secs());
        metrics.record(Distribution::SessionBytes, session.totals.to_client_bytes.load(Ordering::Relaxed));
        let totals = &session.totals;
        let total = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed).into();
        session.log(&environment, Event::SessionClosed, || {
            [
                ("reason", reason.into()),
                ("seconds", now.saturating_since(session.opened).as_secs_f64().into()),
                ("to_client_datagrams", total(&totals.to_client_datagrams)),
                ("to_client_bytes", total(&totals.to_client_bytes)),
                ("to_server_datagrams", total(&totals.to_server_datagrams)),
                ("to_server_bytes", total(&totals.to_server_bytes)),
                ("repairs", total(&totals.repairs)),
            ]
        });
    }

    fn stop(&mut self, mailbox: &Mailbox) {
        for upstream in self.streams.values() {
            upstream.stream.close(&self.environment, &upstream.route, &mut self.sender);
        }
        let now = self.environment.now();
        let sessions: Vec<_> = self.sessions.values().map(|(session, _)| Arc::clone(session)).collect();
        for session in sessions {
            session.route.sessions.remove(&session, now, None);
            self.close(mailbox, &session, "draining", Some(GoodbyeReason::Draining), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;
    use crate::configuration::RouteConfig;
    use crate::log::{Level, LogSink, Logger};
    use crate::session::ClientPath;
    use std::sync::atomic::AtomicBool;

    /// Panics at the end of the first session.
    struct Faulty(AtomicBool);

    impl LogSink for Faulty {
        fn write(&self, _level: Level, fields: serde_json::Map<String, serde_json::Value>) {
            if fields["event"] == Event::SessionClosed.name() && !self.0.swap(true, Ordering::SeqCst) {
                panic!("deliberate, in a test");
            }
        }
    }

    #[test]
    fn a_panic_in_one_command_costs_no_other() {
        let capacity = Capacity::limited(10, String::new());
        let config = RouteConfig::new("web", ["127.0.0.1:9".parse().unwrap()]).unwrap();
        let route = Arc::new(Route::new(config, Arc::clone(&capacity)).unwrap());
        let logger = Logger::new(Box::new(Faulty(AtomicBool::new(false))));
        let environment = Arc::new(Environment::new(1, logger, capacity).unwrap());
        let mailbox = environment.mailbox(0).unwrap();
        let now = environment.now();
        let open = |port: u16| {
            let slot = route.slot("127.0.0.1:1".parse().unwrap(), 0);
            let path = ClientPath { client: ([192, 0, 2, 1], port).into(), slot, local: None };
            SessionTable::find_or_open(&environment, &route, &path, 0, now).unwrap()
        };
        let first = open(1);
        mailbox.post(Command::Close(first));
        open(2);
        open(3);
        let mut thread = IoThread::new(0, Arc::clone(&environment));
        assert!(catch_unwind(AssertUnwindSafe(|| thread.run(mailbox))).is_err());
        assert_eq!(thread.commands.len(), 2, "the sessions that wait to be registered");
        mailbox.post(Command::Stop);
        thread.run(mailbox);
        assert_eq!(route.metrics().get(Metric::SessionsClosed), 3);
        assert_eq!(route.metrics().get(Metric::Sessions), 0);
        assert!(thread.sessions.is_empty() && thread.deadlines.next().is_none());
    }
}
