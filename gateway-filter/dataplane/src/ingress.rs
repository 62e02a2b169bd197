//! What clients send: control datagrams go to the engine, everything else to the server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use packrat_engine::{Begin, Elsewhere, Flow, Outbox, Received};
use packrat_estimate::Timestamp;
use packrat_wire::seal::session_of;

use crate::assistance::guarded;
use crate::dataplane::Environment;
use crate::downstream::Slot;
use crate::log::Event;
use crate::metrics::{Distribution, Metric, handshake};
use crate::route::{Route, random_bytes};
use crate::session::{ClientPath, Session, send_outbox};
use crate::socket::{Ecn, Piece, Sender, canonical};
use crate::table::SessionTable;
use crate::to_server::forward_to_server;
use crate::tokens::Tokens;
use crate::waiting::{Offered, Parked, may_have_moved};
use crate::worker::Command;

/// One datagram of a client, or several of the same size (the last may be shorter) that the kernel put together.
#[derive(Debug, Clone, Copy)]
pub struct ClientDatagrams<'a> {
    /// Who sent them.
    pub client: SocketAddr,
    /// The address that they were sent to; needed when the listener is bound to a wildcard address.
    pub local: Option<IpAddr>,
    /// Their ECN mark.
    pub ecn: Ecn,
    /// The datagrams, one after the other.
    pub data: &'a [u8],
    /// Bytes of each datagram but the last.
    pub segment_size: usize,
}

/// Whether a datagram only asks whether anybody is there: a single byte of the range that no protocol beside QUIC uses (RFC 9443,
/// section 2), which neither needs nor gets a session.
fn is_probe(datagram: &[u8]) -> bool {
    matches!(datagram, [4..=15])
}

/// The entrance of one listener on one worker. Belongs to the thread that reads the listener's socket.
#[derive(Debug)]
pub struct Ingress {
    environment: Arc<Environment>,
    route: Arc<Route>,
    pub(crate) slot: Arc<Slot>,
    worker: usize,
    outbox: Outbox,
    sender: Sender,
}

impl Ingress {
    pub(crate) fn new(
        environment: Arc<Environment>,
        route: Arc<Route>,
        slot: Arc<Slot>,
        worker: usize,
    ) -> Self {
        Self { environment, route, slot, worker, outbox: Outbox::default(), sender: Sender::default() }
    }

    /// Whether [`ClientDatagrams::local`] is needed.
    pub fn needs_local_address(&self) -> bool {
        self.slot.listener().ip().is_unspecified()
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// Takes what a client sent. Never blocks, never fails: what cannot be forwarded is counted.
    pub fn receive(&mut self, datagrams: &ClientDatagrams<'_>) {
        let now = self.environment.now();
        let local = datagrams.local.filter(|_| self.needs_local_address());
        let path = ClientPath { client: canonical(datagrams.client), slot: Arc::clone(&self.slot), local };
        let piece = Piece { data: datagrams.data, segment_size: datagrams.segment_size, ecn: datagrams.ecn };
        if !piece.datagrams().any(packrat_wire::is_control) {
            self.forward(&path, piece, now);
            return;
        }
        for datagram in piece.datagrams() {
            if packrat_wire::is_control(datagram) {
                self.control(&path, datagram, now);
            } else {
                self.forward(&path, Piece::single(datagram, datagrams.ecn), now);
            }
        }
    }

    /// Takes what a client has sent in a row, and an I/O thread has read.
    pub(crate) fn receive_run(&mut self, client: SocketAddr, local: Option<IpAddr>, pieces: &[Piece<'_>]) {
        if let [Piece { data: [byte @ 4..=15], .. }] = pieces {
            self.slot.note_probe(client.port(), *byte);
        }
        let is_control = |piece: &Piece<'_>| piece.datagrams().any(packrat_wire::is_control);
        if pieces.len() > 1 && !pieces.iter().any(is_control) {
            let now = self.environment.now();
            let used = local.filter(|_| self.needs_local_address());
            let path = ClientPath { client: canonical(client), slot: Arc::clone(&self.slot), local: used };
            if let Some(session) = self.route.sessions.find(&self.environment, &path, now) {
                forward_to_server(&self.environment, &session, &mut self.sender, pieces);
                return;
            }
        }
        for piece in pieces {
            let Piece { data, segment_size, ecn } = *piece;
            self.receive(&ClientDatagrams { client, local, ecn, data, segment_size });
        }
    }

    fn forward(&mut self, path: &ClientPath, piece: Piece<'_>, now: Timestamp) {
        if self.route.is_stream_only() {
            // A stream that nobody can be asked about.
            self.route.metrics().add(Metric::StreamRefused, piece.datagrams().count() as u64);
            return;
        }
        let session = match self.route.sessions.find(&self.environment, path, now) {
            Some(session) => Some(session),
            None if piece.datagrams().all(is_probe) => return,
            None => match self.offer(path, piece, now) {
                Offered::Open => self.open(path, now),
                Offered::Claimed(session) => {
                    session.touch(now);
                    self.route.metrics().add(Metric::DatagramsClaimed, piece.datagrams().count() as u64);
                    Some(session)
                }
                Offered::Kept(_) => None,
            },
        };
        if let Some(session) = session {
            forward_to_server(&self.environment, &session, &mut self.sender, &[piece]);
        }
    }

    /// The session of a client that has none, with what it has sent so far; counted and logged when it is refused.
    fn open(&mut self, path: &ClientPath, now: Timestamp) -> Option<Arc<Session>> {
        let session = SessionTable::find_or_open(&self.environment, &self.route, path, self.worker, now)?;
        if !self.route.waiting.is_empty() {
            for parked in self.route.waiting.leave(path.client) {
                forward_to_server(&self.environment, &session, &mut self.sender, &[parked.piece()]);
            }
        }
        Some(session)
    }

    /// Asks the waiting room about an address without a session.
    fn offer(&self, path: &ClientPath, piece: Piece<'_>, now: Timestamp) -> Offered {
        let route = &self.route;
        let may_wait = !route.assisted.is_empty() && piece.datagrams().next().is_some_and(may_have_moved);
        if !may_wait && route.waiting.is_empty() {
            return Offered::Open;
        }
        let offered = route.waiting.offer(path, piece, may_wait, now);
        if let Offered::Kept(first) = &offered {
            route.metrics().add(Metric::DatagramsWaited, piece.datagrams().count() as u64);
            if let Some(until) = *first {
                self.look_at(path.client, until);
                let logger = &self.environment.logger;
                logger.about(Event::ClientWaiting, route, || [("client", logger.client(path.client))]);
            }
        }
        offered
    }

    /// Lets the I/O thread look at an address of the waiting room at `until`.
    fn look_at(&self, client: SocketAddr, until: Timestamp) {
        let command = Command::Waiting(Arc::clone(&self.route), client, until);
        self.environment.command(self.worker, command);
    }

    /// Forwards what has waited until its session was known.
    fn release(&mut self, session: &Arc<Session>, parked: &[Parked]) {
        self.route.metrics().add(Metric::DatagramsClaimed, parked.len() as u64);
        for parked in parked {
            forward_to_server(&self.environment, session, &mut self.sender, &[parked.piece()]);
        }
    }

    fn control(&mut self, path: &ClientPath, datagram: &[u8], now: Timestamp) {
        let begun = Instant::now();
        self.answer_control(path, datagram, now);
        let metrics = self.route.metrics();
        metrics.add(Metric::ControlReceived, 1);
        let nanoseconds = nanoseconds_since(begun);
        metrics.add(Metric::ControlNanoseconds, nanoseconds);
        metrics.record(Distribution::Control, nanoseconds);
    }

    fn answer_control(&mut self, path: &ClientPath, datagram: &[u8], now: Timestamp) {
        let route = Arc::clone(&self.route);
        let environment = Arc::clone(&self.environment);
        let settings = route.settings();
        self.outbox.clear();
        // A panic leaves nothing behind that is used again: `receive` keeps no state, the outbox is cleared.
        let engine = Arc::clone(&settings.engine);
        if settings.config.tokens != Tokens::Off {
            engine.set_unix_origin(environment.unix_origin());
        }
        // When there is no randomness to be had, the old secret serves on.
        if engine.is_cookie_secret_old(now)
            && let Ok(secret) = random_bytes()
        {
            engine.rotate_cookie_secret(secret, now);
        }
        if let Some(stream) = route.stream() {
            stream.control(&environment, &route, path, datagram, &mut self.sender, now);
            return;
        }
        let outbox = &mut self.outbox;
        let received =
            guarded(&route, &environment.logger, || engine.receive(datagram, path.client, now, outbox));
        match received {
            Some(Received::Done(outcome)) => {
                route.metrics().add(handshake(outcome), 1);
                self.answer(path);
            }
            Some(Received::Begin(begin)) => self.begin(path, begin, now),
            Some(Received::ForFlow) => self.sealed(path, datagram, now),
            None => self.drop_control(path.client, "fault in assistance"),
        }
        self.outbox.clear();
    }

    /// Sends what is in the outbox to an address, whoever is there.
    fn answer(&mut self, path: &ClientPath) {
        let ecn = Ecn::NOT_CAPABLE;
        send_outbox(&self.environment, &self.route, path, ecn, &mut self.sender, &self.outbox, false);
    }

    fn begin(&mut self, path: &ClientPath, begin: Begin, now: Timestamp) {
        let seed = match random_bytes() {
            Ok(seed) => seed,
            Err(error) => return self.drop_control(path.client, &format!("no random bytes: {error}")),
        };
        let known = self.route.sessions.find(&self.environment, path, now);
        let Some(session) = known.or_else(|| self.open(path, now)) else {
            self.route.metrics().add(Metric::ControlDropped, 1);
            return;
        };
        if let Some(outcome) = self.run(&session, |flow, outbox| flow.begin(begin, seed, now, outbox)) {
            self.route.metrics().add(handshake(outcome), 1);
        }
    }

    /// A sealed datagram: for the session of the address that it came from, or for one that may be moving there.
    fn sealed(&mut self, path: &ClientPath, datagram: &[u8], now: Timestamp) {
        let Some(name) = session_of(datagram) else {
            return self.drop_control(path.client, "malformed");
        };
        let known = self.route.sessions.find(&self.environment, path, now);
        if let Some(session) = &known {
            let is_its_own = self.run(session, |flow, outbox| {
                let is_its_own = flow.answers_to(name);
                if is_its_own {
                    flow.control(datagram, now, outbox);
                }
                is_its_own
            });
            match is_its_own {
                Some(true) => return,
                Some(false) => {}
                None => return self.drop_control(path.client, "fault in assistance, or session at its end"),
            }
        }
        let named = self.route.assisted.named(name);
        if named.is_empty() {
            return self.refuse(path, datagram);
        }
        // Names are random numbers; among several sessions of one name only its own can open the datagram.
        if !named
            .iter()
            .any(|session| self.sealed_elsewhere(session, name, path, datagram, known.is_some(), now))
        {
            self.drop_control(path.client, "forged, or replayed from another address");
        }
    }

    /// No session of this name exists; its client may begin a new one.
    fn refuse(&mut self, path: &ClientPath, datagram: &[u8]) {
        let (route, environment) = (Arc::clone(&self.route), Arc::clone(&self.environment));
        let engine = Arc::clone(&route.settings().engine);
        let outbox = &mut self.outbox;
        outbox.clear();
        let outcome = guarded(&route, &environment.logger, || engine.refuse_session(datagram, outbox));
        match outcome {
            Some(outcome) => {
                route.metrics().add(handshake(outcome), 1);
                self.answer(path);
            }
            None => self.drop_control(path.client, "fault in assistance"),
        }
    }

    /// A sealed datagram that names `session` came from another address than that of its client: whether it is authentic. Answers
    /// go to the address that it came from, and are never larger.
    fn sealed_elsewhere(
        &mut self,
        session: &Arc<Session>,
        name: u32,
        path: &ClientPath,
        datagram: &[u8],
        is_known: bool,
        now: Timestamp,
    ) -> bool {
        let environment = Arc::clone(&self.environment);
        let outbox = &mut self.outbox;
        outbox.clear();
        let result = session.assist(&environment, |flow| {
            if !flow.answers_to(name) {
                return None;
            }
            // Another thread may have moved it here meanwhile.
            if session.client() == path.client && !session.is_displaced() {
                flow.control(datagram, now, outbox);
                return Some((None, flow.next_timeout()));
            }
            let elsewhere = flow.control_from_elsewhere(datagram, path.client, now, outbox);
            if elsewhere == Elsewhere::Moved {
                // Under the lock of the session's assistance, so that two moves cannot overtake each other.
                session.route.sessions.move_client(&environment, session, path);
            }
            Some((Some(elsewhere), flow.next_timeout()))
        });
        let Some(Some((elsewhere, deadline))) = result else { return false };
        session.request_deadline(&environment, deadline);
        let bytes: usize = self.outbox.datagrams().map(<[u8]>::len).sum();
        match elsewhere {
            None => session.send_outbox(&environment, &mut self.sender, &mut self.outbox, false),
            Some(Elsewhere::Refused) => return false,
            Some(Elsewhere::Challenged | Elsewhere::Moved) if bytes <= datagram.len() => self.answer(path),
            // Not before it has proved that it is there; the next message is longer.
            Some(Elsewhere::Challenged | Elsewhere::Moved) => {}
        }
        session.take_over(&environment, &mut self.outbox);
        match elsewhere {
            Some(Elsewhere::Challenged) if !is_known => {
                session.touch(now);
                let (parked, until) = self.route.waiting.claim(path.client, session, now);
                self.release(session, &parked);
                if let Some(until) = until {
                    self.look_at(path.client, until);
                }
            }
            Some(Elsewhere::Moved) => {
                session.touch(now);
                let parked = self.route.waiting.leave(path.client);
                self.release(session, &parked);
            }
            _ => {}
        }
        true
    }

    /// Calls the engine for a session and sends what it has to say.
    fn run<R>(
        &mut self,
        session: &Arc<Session>,
        action: impl FnOnce(&mut Flow, &mut Outbox) -> R,
    ) -> Option<R> {
        let outbox = &mut self.outbox;
        outbox.clear();
        let result = session.assist(&self.environment, |flow| (action(flow, outbox), flow.next_timeout()));
        let (result, deadline) = result.unzip();
        session.request_deadline(&self.environment, deadline.flatten());
        session.send_outbox(&self.environment, &mut self.sender, outbox, false);
        result
    }

    fn drop_control(&self, client: SocketAddr, reason: &str) {
        self.route.metrics().add(Metric::ControlDropped, 1);
        let logger = &self.environment.logger;
        logger.about(Event::ControlDropped, &self.route, || {
            [("client", logger.client(client)), ("reason", reason.into())]
        });
    }
}

/// Time since `begun`, in nanoseconds.
pub(crate) fn nanoseconds_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
