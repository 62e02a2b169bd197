//! The I/O thread of a worker: reads the upstream sockets of its sessions and its listeners, and
//! keeps the time of its sessions.

mod streams;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use packrat_engine::{NetworkPath, Outbox};
use packrat_wire::estimate::Timestamp;
use packrat_wire::message::GoodbyeReason;

use super::listener_reader::ListenerReader;
use super::unassured::{Places, Room, Unassured};
use super::wake_coalescing::WakeCoalescing;
use crate::context::Environment;
use crate::listener::{
    Command, Forwarder, Ingress, MESSAGES_PER_RECEIVE, Mailbox, Mailboxes, PutOffHandshakes,
    answer_put_off, forward_to_client, refuse_unanswered,
};
use crate::log::Event;
use crate::metrics::{Distribution, Metric};
use crate::route::{Route, RouteStream, StreamUpstream};
use crate::session::{Deadlines, FlowId, Session, Upstream};
use crate::socket::{ReceiveBatch, Slot, WhenFull, use_precise_timers};
use crate::sync::atomic::{AtomicU64, Ordering};

/// Shortest time until a session whose deadline was just served is looked at again: an engine that
/// asks for the past must not keep the thread busy.
const SHORTEST_SLEEP: Duration = Duration::from_micros(100);
/// Retry delay after a panic in a session's deadline.
const AFTER_A_PANIC: Duration = Duration::from_secs(1);

/// Starts the I/O thread of a worker.
pub(super) fn spawn(
    worker: usize,
    environment: Arc<Environment>,
    mailboxes: Arc<Mailboxes>,
) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("packrat-io-{worker}")).spawn(move || {
        use_precise_timers();
        let mut thread = IoThread::new(worker, Arc::clone(&environment), Arc::clone(&mailboxes));
        let Some(mailbox) = mailboxes.of(worker) else { return };
        // A fault of one session must not end the forwarding of all the others.
        while catch_unwind(AssertUnwindSafe(|| thread.run(mailbox))).is_err() {
            environment.logger.log(Event::WorkerError, || {
                [
                    ("message", "an I/O thread recovered from a panic".into()),
                    ("worker", worker.into()),
                ]
            });
            std::thread::sleep(SHORTEST_SLEEP);
        }
    })
}

fn report(environment: &Environment, message: &'static str, error: &io::Error) {
    environment.logger.log(Event::WorkerError, || {
        [("message", message.into()), ("error", error.to_string().into())]
    });
}

/// A session whose upstream socket is read here.
pub(super) struct Served {
    route: Arc<Route>,
    pub(super) session: Arc<Session>,
    pub(super) upstream: Arc<Upstream>,
}

pub(super) struct IoThread {
    environment: Arc<Environment>,
    /// Commands that were taken out of the mailbox and not carried out yet; a panic in one of them
    /// costs no other.
    commands: VecDeque<Command>,
    /// [`Command::Stop`] has come.
    stopping: bool,
    /// The sessions of this thread; at the poller, an upstream socket has the number of its flow.
    pub(super) sessions: HashMap<FlowId, Served>,
    listeners: HashMap<u64, ListenerReader>,
    streams: HashMap<u64, (Arc<RouteStream>, Arc<StreamUpstream>)>,
    /// Routes whose stream is to be tried again, and when.
    stream_retries: Vec<(Timestamp, Arc<Route>)>,
    deadlines: Deadlines,
    /// Sessions of this thread that leave when there is no room.
    unassured: Unassured,
    /// Paths by the time of their next check, and a number that distinguishes equal times.
    path_checks: BTreeMap<(Timestamp, u64), (Arc<Route>, NetworkPath)>,
    put_off: PutOffHandshakes,
    wake_coalescing: WakeCoalescing,
    pub(super) forwarder: Forwarder,
    received: ReceiveBatch,
    outbox: Outbox,
}

impl IoThread {
    pub(super) fn new(
        worker: usize,
        environment: Arc<Environment>,
        mailboxes: Arc<Mailboxes>,
    ) -> Self {
        Self {
            environment,
            commands: VecDeque::new(),
            stopping: false,
            sessions: HashMap::new(),
            listeners: HashMap::new(),
            streams: HashMap::new(),
            stream_retries: Vec::new(),
            deadlines: Deadlines::default(),
            unassured: Unassured::default(),
            path_checks: BTreeMap::new(),
            put_off: PutOffHandshakes::default(),
            wake_coalescing: WakeCoalescing::default(),
            forwarder: Forwarder::new(mailboxes, worker),
            received: ReceiveBatch::new(MESSAGES_PER_RECEIVE),
            outbox: Outbox::default(),
        }
    }

    /// Works until it is stopped. May be called again after a panic: all state that outlives a call
    /// is whole at any time.
    pub(super) fn run(&mut self, mailbox: &Mailbox) {
        let mut ready = Vec::new();
        loop {
            self.run_due(mailbox);
            if self.stopping {
                return self.stop(mailbox);
            }
            let streams = self.run_streams();
            let next = self.next_deadline(streams);
            let until =
                |now: Timestamp| next.map_or(Duration::MAX, |next| next.saturating_since(now));
            let now = self.environment.now();
            if let Some(pause) = self.wake_coalescing.pause(now) {
                std::thread::sleep(pause.min(until(now)));
            }
            let timeout = next.map(|_| until(self.environment.now()));
            if let Err(error) = mailbox.poller.wait(timeout, &mut ready, || mailbox.is_empty()) {
                self.report("waiting for sockets failed", &error);
                std::thread::sleep(SHORTEST_SLEEP);
            }
            let mut messages = 0;
            for &number in &ready {
                messages += self.read(mailbox, number);
            }
            self.forwarder.send_gathered();
            self.wake_coalescing.note(messages, self.environment.now());
            self.read_coalesced(mailbox, &mut ready);
        }
    }

    /// Carries out the commands, and all work that is due.
    pub(super) fn run_due(&mut self, mailbox: &Mailbox) {
        self.commands.extend(mailbox.take());
        while !self.stopping
            && let Some(command) = self.commands.pop_front()
        {
            self.carry_out(mailbox, command);
        }
        if !self.stopping {
            self.run_deadlines(mailbox);
            self.run_path_checks();
            self.run_put_off();
            self.retry_streams();
        }
    }

    fn carry_out(&mut self, mailbox: &Mailbox, command: Command) {
        match command {
            Command::Open(route, session) => self.open(mailbox, route, session),
            Command::Reconnect(session) => self.reconnect(mailbox, &session),
            Command::Deadline(session) => self.plan(&session, Timestamp::ZERO),
            Command::Close(session) => {
                let now = self.environment.now();
                self.close(mailbox, &session, "displaced", None, now);
            }
            Command::Listen(route, slot) => self.listen(mailbox, route, slot),
            Command::CheckPath(route, path, until) => self.plan_path_check(route, path, until),
            Command::PutOff(handshake) => self.put_off.add(handshake),
            Command::FollowRoutes => self.follow_routes(),
            Command::Stream(change) => self.change_stream(mailbox, change),
            Command::RetryStream(route, at) => self.stream_retries.push((at, route)),
            Command::Stop => self.stopping = true,
        }
    }

    /// Reads the source that the poller knows by this number. Returns about how many messages of a
    /// server were there.
    fn read(&mut self, mailbox: &Mailbox, number: u64) -> usize {
        if let Some(Served { route, session, upstream, .. }) =
            self.sessions.get(&FlowId::new(number))
        {
            let relaying = upstream.is_relay().then(|| Arc::clone(route));
            let (session, upstream) = (Arc::clone(session), Arc::clone(upstream));
            let (forwarder, received) = (&mut self.forwarder, &mut self.received);
            let relaying = relaying.as_deref();
            let deadline = forward_to_client(forwarder, received, relaying, &session, &upstream);
            self.plan_for(&session, deadline, Timestamp::ZERO);
            return self.received.messages().len();
        }
        self.forwarder.send_gathered();
        if let Some((stream, upstream)) = self.streams.get(&number) {
            stream.forward(upstream, &mut self.received, &mut self.forwarder.sender);
        } else if self.listeners.contains_key(&number) {
            self.read_listener(mailbox, number);
        } else if let Err(error) = mailbox.poller.forget(number) {
            // A source that is not read would keep the thread busy forever.
            self.report("a closed socket is still watched", &error);
        }
        0
    }

    /// The earliest time at which the thread has work. `streams`: the earliest time of the streams.
    pub(super) fn next_deadline(&self, streams: Option<Timestamp>) -> Option<Timestamp> {
        let check = self.path_checks.first_key_value().map(|((until, _), _)| *until);
        let reads = self.listeners.values().filter_map(|reader| reader.coalescing.deadline());
        let retries = self.stream_retries.iter().map(|(at, _)| *at);
        let put_off = self.put_off.next_deadline();
        let others = check.into_iter().chain(streams).chain(put_off).chain(reads).chain(retries);
        self.deadlines.next().into_iter().chain(others).min()
    }

    fn report(&self, message: &'static str, error: &io::Error) {
        report(&self.environment, message, error);
    }

    fn open(&mut self, mailbox: &Mailbox, route: Arc<Route>, session: Arc<Session>) {
        // The order to close it may have overtaken this one.
        if session.is_closed() {
            return;
        }
        let upstream = session.upstream();
        if let Err(error) = mailbox.poller.add(upstream.socket(), session.id.get()) {
            self.report("an upstream socket cannot be watched", &error);
        }
        let served = Served { route: Arc::clone(&route), session: Arc::clone(&session), upstream };
        self.sessions.insert(session.id, served);
        self.plan(&session, Timestamp::ZERO);
        if !session.is_assured() {
            self.unassured.insert(number_of(&route), session.id);
            // The session itself must not be held here while others are looked at.
            drop(session);
            self.make_room(mailbox, &route);
        }
    }

    fn places(&self, route: &Route) -> Places {
        let limit = route.context.settings().config.maximum_sessions;
        let capacity = &self.environment.capacity;
        Places {
            in_route: Room { taken: route.sessions.count(), limit },
            in_process: Room { taken: capacity.taken(), limit: capacity.sessions() },
            threads: self.forwarder.mailboxes.workers() as u64,
        }
    }

    /// A session that is listed as not assured is assured, or has a lasting place now: true.
    fn settle(&mut self, route: &Arc<Route>, session: &Session) -> bool {
        let number = number_of(route);
        if session.is_assured() {
            self.unassured.remove(number, session.id);
            return true;
        }
        session.is_mutual() && self.unassured.settle(number, session.id, self.places(route))
    }

    /// Closes sessions that are not assured, while there are too many of them.
    fn make_room(&mut self, mailbox: &Mailbox, route: &Arc<Route>) {
        while let Some((number, id)) = self.unassured.surplus(number_of(route), self.places(route))
        {
            let Some(Served { route, session, .. }) = self.sessions.get(&id) else {
                self.unassured.remove(number, id);
                continue;
            };
            let (route, session) = (Arc::clone(route), Arc::clone(session));
            if self.settle(&route, &session) {
                continue;
            }
            self.unassured.remove(number, id);
            let now = self.environment.now();
            if route.sessions.remove(&session, now, None) {
                route.metrics().add(Metric::SessionsEvicted, 1);
                self.close(mailbox, &session, "evicted", None, now);
            }
        }
    }

    fn reconnect(&mut self, mailbox: &Mailbox, session: &Arc<Session>) {
        // A session that is not opened here yet will be, with the socket that it has then.
        let Some(served) = self.sessions.remove(&session.id) else { return };
        self.stop_reading(mailbox, &served);
        self.open(mailbox, served.route, served.session);
    }

    fn stop_reading(&self, mailbox: &Mailbox, served: &Served) {
        if let Err(error) = mailbox.poller.remove(served.upstream.socket(), served.session.id.get())
        {
            self.report("an upstream socket could not be given back", &error);
        }
    }

    fn listen(&mut self, mailbox: &Mailbox, route: Arc<Route>, slot: Arc<Slot>) {
        // The listener that was in this place before has gone.
        let former = self.listeners.iter().find(|(_, known)| Arc::ptr_eq(known.slot(), &slot));
        if let Some(former) = former.map(|(number, _)| *number) {
            self.listeners.remove(&former);
            // Its descriptor is closed already.
            let _ = mailbox.poller.forget(former);
        }
        let number = self.environment.next_number();
        match slot.with(|downstream| mailbox.poller.add(downstream.socket(), number)) {
            Some(Ok(())) => {
                let Forwarder { mailboxes, worker, .. } = &self.forwarder;
                let ingress = Ingress::new(Arc::clone(mailboxes), route, slot, *worker);
                self.listeners.insert(number, ListenerReader::new(ingress));
            }
            Some(Err(error)) => self.report("a listener cannot be watched", &error),
            None => {}
        }
    }

    /// Reads the listeners that are not waited for, if it is time. `numbers`: room for theirs.
    fn read_coalesced(&mut self, mailbox: &Mailbox, numbers: &mut Vec<u64>) {
        if self.listeners.values().all(|reader| !reader.coalescing.is_on()) {
            return;
        }
        let now = self.environment.now();
        numbers.clear();
        let due = self.listeners.iter().filter(|(_, reader)| reader.coalescing.is_due(now));
        numbers.extend(due.map(|(number, _)| *number));
        for &number in &*numbers {
            self.read_listener(mailbox, number);
        }
    }

    /// Reads clients' datagrams, and forgets the listener when its socket is gone. The listener
    /// stays in its place while it is read, so that a panic does not lose it.
    fn read_listener(&mut self, mailbox: &Mailbox, number: u64) {
        let Some(reader) = self.listeners.get_mut(&number) else { return };
        let environment = &self.environment;
        let read = reader.read(
            &mailbox.poller,
            number,
            &mut self.received,
            || environment.now(),
            |message, error| report(environment, message, error),
        );
        if read.is_err() {
            self.listeners.remove(&number);
        }
    }

    /// Makes sure that the session is looked at when its engine or its idle timeout wants it, not
    /// before `earliest`.
    fn plan(&mut self, session: &Arc<Session>, earliest: Timestamp) {
        let engine = session.assist(|flow| flow.next_timeout()).flatten();
        self.plan_for(session, engine, earliest);
    }

    /// Plans a session whose engine wants to be called at this time.
    pub(super) fn plan_for(
        &mut self,
        session: &Arc<Session>,
        engine: Option<Timestamp>,
        earliest: Timestamp,
    ) {
        let idle = session.idle_since() + session.idle_timeout();
        let deadline = engine.map_or(idle, |engine| engine.min(idle)).max(earliest);
        // Mostly it is looked at earlier in any case, and the clock need not be read.
        if session.armed.is_later_than(deadline) {
            self.deadlines.plan(session.id, &session.armed, deadline, self.environment.now());
        }
    }

    fn run_deadlines(&mut self, mailbox: &Mailbox) {
        let now = self.environment.now();
        while let Some(entry @ (_, id)) = self.deadlines.due(now) {
            let Some(Served { route, session, .. }) = self.sessions.get(&id) else {
                self.deadlines.discard(entry);
                continue;
            };
            let (route, session) = (Arc::clone(route), Arc::clone(session));
            self.deadlines.forget(id, &session.armed);
            // Should the rest panic, the session is still looked at some time.
            self.deadlines.plan(id, &session.armed, now + AFTER_A_PANIC, now);
            self.run_engine_deadline(&session, now);
            let idle_timeout = session.idle_timeout();
            self.settle(&route, &session);
            if session.idle_since() + idle_timeout <= now
                && route.sessions.remove(&session, now, Some(idle_timeout))
            {
                self.close(mailbox, &session, "idle", Some(GoodbyeReason::Idle), now);
                continue;
            }
            self.deadlines.forget(id, &session.armed);
            self.plan(&session, now + SHORTEST_SLEEP);
        }
    }

    fn run_engine_deadline(&mut self, session: &Arc<Session>, now: Timestamp) {
        let outbox = &mut self.outbox;
        session.assist(|flow| {
            if flow.next_timeout().is_some_and(|timeout| timeout <= now) {
                flow.handle_timeout(now, outbox);
            }
        });
        self.forwarder.send_outbox(session, outbox, WhenFull::Wait);
    }

    /// Plans to look at a path.
    fn plan_path_check(&mut self, route: Arc<Route>, path: NetworkPath, until: Timestamp) {
        let number = self.environment.next_number();
        self.path_checks.insert((until, number), (route, path));
    }

    /// Looks at the paths about which other gateways may have left a question unanswered, or whose
    /// pending datagrams have waited long enough.
    fn run_path_checks(&mut self) {
        let now = self.environment.now();
        while let Some(entry) = self.path_checks.first_entry()
            && entry.key().0 <= now
        {
            let (route, path) = entry.remove();
            refuse_unanswered(&mut self.forwarder, &route, path, &mut self.outbox, now);
            if let Some(until) = self.forwarder.expire_pending(&route, path, now) {
                self.plan_path_check(route, path, until);
            }
        }
    }

    /// Answers handshakes that were put off, as far as there is time.
    fn run_put_off(&mut self) {
        let now = self.environment.now();
        while let Some(handshake) = self.put_off.due(now) {
            answer_put_off(&mut self.forwarder, &handshake, &mut self.outbox, now);
        }
    }

    fn follow_routes(&mut self) {
        for Served { session, .. } in self.sessions.values() {
            self.forwarder.follow_route(session);
        }
    }

    /// Ends a session that was taken out of the table. Without a `goodbye` its client is not
    /// notified.
    fn close(
        &mut self,
        mailbox: &Mailbox,
        session: &Arc<Session>,
        reason: &'static str,
        goodbye: Option<GoodbyeReason>,
        now: Timestamp,
    ) {
        // First, so that a panic in the rest does not leave it here forever.
        let served = self.sessions.remove(&session.id);
        self.deadlines.forget(session.id, &session.armed);
        if let Some(served) = &served {
            self.unassured.remove(number_of(&served.route), session.id);
            self.stop_reading(mailbox, served);
        }
        let outbox = &mut self.outbox;
        session.end_assistance(|flow| {
            if let Some(goodbye) = goodbye {
                flow.close(goodbye, outbox);
            }
        });
        self.forwarder.send_outbox(session, outbox, WhenFull::Wait);
        if count_closed(session, now) {
            // All sessions of the route, of every thread.
            self.forwarder.mailboxes.post_to_all(|| Command::FollowRoutes);
        }
        let totals = &session.totals;
        let total = |value: &AtomicU64| value.load(Ordering::Relaxed).into();
        session.log(Event::SessionClosed, || {
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

    pub(super) fn stop(&mut self, mailbox: &Mailbox) {
        for (stream, _) in self.streams.values() {
            stream.close(&mut self.forwarder.sender);
        }
        let now = self.environment.now();
        let sessions: Vec<_> = self
            .sessions
            .values()
            .map(|served| (Arc::clone(&served.route), Arc::clone(&served.session)))
            .collect();
        for (route, session) in sessions {
            route.sessions.remove(&session, now, None);
            self.close(mailbox, &session, "draining", Some(GoodbyeReason::Draining), now);
        }
    }
}

/// The number that identifies a route; routes live as long as the process.
fn number_of(route: &Arc<Route>) -> usize {
    Arc::as_ptr(route).addr()
}

/// Counts a session that has ended. True if that changes settings that the route's sessions have to
/// follow.
fn count_closed(session: &Session, now: Timestamp) -> bool {
    let metrics = &session.route.metrics;
    metrics.subtract(Metric::Sessions, 1);
    if let Some(microseconds) = session.server_side.far_round_trip() {
        metrics.levels.subtract_far_round_trip(microseconds);
    }
    metrics.add(Metric::SessionsClosed, 1);
    metrics.record(Distribution::SessionDuration, now.saturating_since(session.opened).as_secs());
    let bytes = session.totals.to_client_bytes.load(Ordering::Relaxed);
    metrics.record(Distribution::SessionBytes, bytes);
    let transferred = session.transfer.count(bytes, session.losses(), metrics);
    transferred.is_some_and(|transferred| session.route.compare(&transferred, session.origin, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Level, LogSink, Logger};
    use crate::session::ClientPath;
    use crate::socket::{Capacity, ClientAddress, ListenerAddress};
    use packrat_api::route::RouteConfig;
    use std::sync::atomic::AtomicBool;

    /// Panics at the end of the first session.
    struct Faulty(AtomicBool);

    impl LogSink for Faulty {
        fn write(&self, _level: Level, fields: serde_json::Map<String, serde_json::Value>) {
            if fields["event"] == Event::SessionClosed.name()
                && !self.0.swap(true, Ordering::SeqCst)
            {
                panic!("deliberate, in a test");
            }
        }
    }

    #[test]
    fn a_panic_in_one_command_costs_no_other() {
        let capacity = Capacity::limited(10, String::new());
        let config = RouteConfig::new("web", ["127.0.0.1:9".parse().unwrap()]).unwrap();
        let logger = Logger::new(Box::new(Faulty(AtomicBool::new(false))));
        let environment = Arc::new(Environment::new(logger, capacity));
        let route = Arc::new(Route::new(config, Arc::clone(&environment)).unwrap());
        let mailboxes = Arc::new(Mailboxes::new(1).unwrap());
        let mailbox = mailboxes.of(0).unwrap();
        let now = environment.now();
        let open = |port: u16| {
            let slot = route.slot(ListenerAddress::new("127.0.0.1:1".parse().unwrap()), 0);
            let client = ClientAddress::new(([192, 0, 2, 1], port).into());
            let path = ClientPath { client, slot, local: None };
            let mut forwarder = Forwarder::new(Arc::clone(&mailboxes), 0);
            forwarder.find_or_open(&route, &path, None, None, now).unwrap()
        };
        let first = open(1);
        mailbox.post(Command::Close(first));
        open(2);
        open(3);
        let mut thread = IoThread::new(0, Arc::clone(&environment), Arc::clone(&mailboxes));
        assert!(catch_unwind(AssertUnwindSafe(|| thread.run(mailbox))).is_err());
        assert_eq!(thread.commands.len(), 2, "the sessions that wait to be registered");
        mailbox.post(Command::Stop);
        thread.run(mailbox);
        assert_eq!(route.metrics().get(Metric::SessionsClosed), 3);
        assert_eq!(route.metrics().get(Metric::Sessions), 0);
        assert!(thread.sessions.is_empty() && thread.deadlines.next().is_none());
    }
}
