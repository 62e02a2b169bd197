//! Control datagrams: from a client to the engine, and its answer back.
//!
//! ```text
//!   Control::receive --> engine's Gateway: what is it?
//!     a question without a session ----------------------------> its answer, to the same address
//!     the beginning of a session: begin ---+ (or, after many others, put off)
//!     a sealed datagram: sealed            |
//!       of this path's session ------------+--> run: engine --> outbox: repairs, Reports
//!       of another session: sealed_on_new_path --> path validation --> the client moves
//!       of a session that another gateway has: relay ------------> that gateway, as it is
//!       of no session here: ask_peers ---------------------------> Inquiry to the other gateways,
//!                           or refuse ---------------------------> Refusal
//!     a message of another gateway: peer_message ----------------> answer, relay or refuse
//! ```

use std::sync::Arc;

use packrat_engine::{
    Begin, Flow, HandshakeOutcome, MOST_SERVERS_UNPROVEN, NetworkPath, Outbox, PathEvent, Received,
    TICKET_NONCE_BYTES,
};
use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::ServerTicket;
use packrat_wire::peer::{PeerKind, PeerMessage};
use packrat_wire::seal::session_of;

use super::forwarder::Forwarder;
use super::mailbox::Command;
use super::put_off::PutOff;
use crate::context::Arm;
use crate::log::Event;
use crate::metrics::{Distribution, Metric, Stopwatch, handshake};
use crate::route::{Answered, GATEWAY_SILENCE, Moved, Route, Step};
use crate::session::{ClientPath, RelayName, Session, guarded};
use crate::socket::{ClientAddress, Ecn, EndpointAddress, GsoBatch, WhenFull};
use crate::sync::atomic::Ordering;
use packrat_api::token::TokenPolicy;

/// Answers a handshake that was put off. `outbox`: memory for the answer.
pub(crate) fn answer_put_off(
    forwarder: &mut Forwarder,
    handshake: &PutOff,
    outbox: &mut Outbox,
    now: Timestamp,
) {
    let PutOff { route, path, datagram, .. } = handshake;
    Control { route, forwarder, outbox, path, now }.dispatch(datagram);
}

/// Refuses the client at a path about whose session the other gateways have been asked, if one of
/// them has not answered in time. `outbox`: memory for the answer.
pub(crate) fn refuse_unanswered(
    forwarder: &mut Forwarder,
    route: &Arc<Route>,
    network: NetworkPath,
    outbox: &mut Outbox,
    now: Timestamp,
) {
    if let Some(Answered { path, datagram }) = route.inquiries.unanswered(network, now) {
        Control { route, forwarder, outbox, path: &path, now }.refuse(&datagram);
    }
}

/// One control datagram on its way.
pub(super) struct Control<'a> {
    pub(super) route: &'a Arc<Route>,
    pub(super) forwarder: &'a mut Forwarder,
    /// Memory for the engine's answers; empty between datagrams.
    pub(super) outbox: &'a mut Outbox,
    /// The sender, and the way back to it.
    pub(super) path: &'a ClientPath,
    pub(super) now: Timestamp,
}

impl Control<'_> {
    /// Takes the datagram, and measures the time until it is answered.
    pub(super) fn receive(&mut self, datagram: &[u8]) {
        let stopwatch = Stopwatch::start();
        let engine = &self.route.context.engine;
        if engine.has_to_wait(datagram, self.path.client.get(), self.now) {
            self.put_off(datagram);
        } else {
            self.dispatch(datagram);
        }
        let nanoseconds = stopwatch.nanoseconds();
        let metrics = self.route.metrics();
        metrics.add(Metric::ControlReceived, 1);
        metrics.add(Metric::ControlNanoseconds, nanoseconds);
        metrics.record(Distribution::Control, nanoseconds);
    }

    /// Has the I/O thread answer a handshake when it has time.
    fn put_off(&self, datagram: &[u8]) {
        self.route.metrics().add(Metric::HandshakesPutOff, 1);
        let Self { route, forwarder, path, now, .. } = self;
        let handshake = PutOff {
            route: Arc::clone(route),
            path: (*path).clone(),
            datagram: datagram.into(),
            since: *now,
        };
        forwarder.mailboxes.post(forwarder.worker, Command::PutOff(handshake));
    }

    fn dispatch(&mut self, datagram: &[u8]) {
        let (route, now) = (&self.route.context, self.now);
        route.try_again(now);
        let engine = &route.engine;
        if route.settings().config.tokens != TokenPolicy::Off {
            engine.set_unix_origin(route.environment.unix_origin());
        }
        // When there is no randomness to be had, the old secret serves on.
        if engine.is_cookie_secret_old(now)
            && let Ok(secret) = route.environment.random.bytes()
        {
            engine.rotate_cookie_secret(secret, now);
        }
        if let Some(stream) = self.route.stream() {
            stream.control(self.path, datagram, &mut self.forwarder.sender, now);
            return;
        }
        // A panic leaves no state that is used again: `receive` is stateless, and the outbox is
        // cleared.
        self.outbox.clear();
        if let Some(message) = engine.peer_message(datagram) {
            return self.peer_message(message);
        }
        let client = self.path.client.get();
        match guarded(route, || engine.receive(datagram, client, now, self.outbox)) {
            Some(Received::Done(outcome)) => {
                route.metrics.add(handshake(outcome), 1);
                if let Some(session) = self.route.sessions.peek(self.path.network()) {
                    session.engine_side.note_outcome(outcome);
                }
                self.answer();
            }
            Some(Received::Begin(begin)) => self.begin(begin),
            Some(Received::ForFlow) => self.sealed(datagram),
            None => self.discard("fault in assistance"),
        }
        self.outbox.clear();
    }

    fn random<const N: usize>(&self) -> Result<[u8; N], getrandom::Error> {
        self.route.context.environment.random.bytes()
    }

    /// Begins a session.
    fn begin(&mut self, begin: Begin) {
        let shown = self.shown_ticket(&begin);
        if !begin.is_validated() && (self.is_dear(shown) || !self.has_time()) {
            return self.ask_for_cookie(&begin);
        }
        let seed = match self.random() {
            Ok(seed) => seed,
            Err(error) => return self.discard(&format!("no random bytes: {error}")),
        };
        let now = self.now;
        let known = shown.and_then(|shown| self.known_endpoint(shown));
        let session = match self.forwarder.find(self.route, self.path, now) {
            Some(session) => session,
            None => {
                let Some(opened) = self.forwarder.open(self.route, self.path, known, None, now)
                else {
                    self.route.metrics().add(Metric::ControlDropped, 1);
                    return;
                };
                self.route.metrics().add(Metric::SessionsTakenOver, known.is_some().into());
                opened
            }
        };
        // The client's datagrams were here before its ticket, its path was another client's, or the
        // gateway that it was relayed to refuses it, or does not answer.
        let known = known.filter(|known| *known != session.upstream().endpoint());
        if known.is_some() || session.is_relay() {
            if !begin.is_validated() {
                return self.ask_for_cookie(&begin);
            }
            let has_moved = match known {
                Some(known) => session.resume_endpoint(known),
                None => session.stop_relaying(),
            };
            if has_moved {
                self.route.metrics().add(Metric::SessionsTakenOver, known.is_some().into());
                self.forwarder.mailboxes.reconnect(&session);
            } else if session.is_relay() {
                return self.discard("there is no server for a client that was relayed");
            }
        }
        let mut begin = begin.after(session.totals.to_server_datagrams.load(Ordering::Relaxed));
        let route = &self.route.context;
        if route.settings().shares_clients()
            && let Ok(nonce) = self.random::<TICKET_NONCE_BYTES>()
        {
            begin =
                begin.with_ticket(route.engine.ticket(session.upstream().endpoint().get(), nonce));
        }
        let outcome = self.run(&session, |flow, outbox| flow.begin(begin, seed, now, outbox));
        if let Some(outcome) = outcome {
            self.route.metrics().add(handshake(outcome), 1);
            session.engine_side.note_outcome(outcome);
            if outcome == HandshakeOutcome::RefusedHoldout {
                session.transfer.set_arm(Arm::Holdout);
            }
        }
    }

    /// Answers with a cookie if a client's address has to be proved, as it may be forged.
    fn ask_for_cookie(&mut self, begin: &Begin) {
        let route = &self.route.context;
        self.outbox.clear();
        let outcome = route.engine.ask_for_cookie(begin, self.now, self.outbox);
        route.metrics.add(handshake(outcome), 1);
        self.answer();
    }

    /// True if a handshake may be answered now.
    fn has_time(&self) -> bool {
        let client = self.path.client.get().ip();
        self.route.context.engine.has_time_for_handshake(client, self.now)
    }

    /// The ticket that a client shows, if there may be other gateways.
    fn shown_ticket(&self, begin: &Begin) -> Option<ServerTicket> {
        let shares_clients = self.route.context.settings().shares_clients();
        shares_clients.then(|| begin.shown_ticket()).flatten()
    }

    /// True if there is a ticket and it takes long to find its server.
    fn is_dear(&self, shown: Option<ServerTicket>) -> bool {
        let servers = self.route.context.settings().config.endpoints.len();
        shown.is_some() && servers > MOST_SERVERS_UNPROVEN
    }

    /// The server that the client has had through another gateway, according to its ticket.
    fn known_endpoint(&self, shown: ServerTicket) -> Option<EndpointAddress> {
        let route = &self.route.context;
        let settings = route.settings();
        let endpoints = settings.config.endpoints.iter().copied();
        let client = self.path.client.get().ip();
        route.engine.server_of(shown, client, endpoints, self.now).map(EndpointAddress::new)
    }

    /// Passes a sealed datagram to the session of the path that it came by, or to one that may be
    /// moving there.
    fn sealed(&mut self, datagram: &[u8]) {
        let Some(id) = session_of(datagram) else { return self.discard("malformed") };
        let now = self.now;
        // The client of another session is no sign of life of the one that is known here.
        let known = self.route.sessions.peek(self.path.network());
        if let Some(session) = &known {
            let heard = self.run(session, |flow, outbox| {
                flow.answers_to(id).then(|| {
                    flow.control(datagram, now, outbox);
                    flow.heard()
                })
            });
            match heard {
                Some(Some(heard)) => {
                    session.note_heard(heard);
                    session.touch(now);
                    self.forwarder.follow(session, self.path);
                    return;
                }
                Some(None) => {}
                None => return self.discard("fault in assistance, or session at its end"),
            }
        }
        let named = self.route.sessions.assisted.with_id(id);
        if named.is_empty() {
            match known {
                Some(relay) if relay.is_relay() => return self.relay(&relay, datagram),
                // Datagrams at this path may be another client's: without a proof the session stays
                // as it is.
                Some(_) => {}
                None => {
                    if self.route.context.settings().expects_clients_of_others() {
                        self.route.pending.expect_arrivals(now);
                        self.route.pending.note_stranger(self.path.network(), now);
                    }
                    if self.ask_peers(id, datagram) {
                        return;
                    }
                }
            }
            return self.refuse(datagram);
        }
        // Ids are random numbers; among several sessions with one id only the right one can open
        // the datagram.
        if !named
            .iter()
            .any(|session| self.sealed_on_new_path(session, id, datagram, known.is_some()))
        {
            self.discard("forged, or replayed from another address");
        }
    }

    /// Passes a sealed datagram on to the gateway that has its session.
    fn relay(&mut self, session: &Arc<Session>, datagram: &[u8]) {
        session.touch(self.now);
        self.forwarder.follow(session, self.path);
        self.forwarder.send_upstream(session, &[GsoBatch::single(datagram, Ecn::NOT_CAPABLE)]);
        // The datagram may be the proof that the other gateway has waited for.
        if let Some((nonce, id)) = session.server_side.unproven_relay() {
            self.outbox.clear();
            let message = PeerMessage { kind: PeerKind::Arrival, nonce, session: id };
            self.route.context.engine.tell_peer(&message, self.outbox);
            for message in self.outbox.datagrams() {
                let batch = GsoBatch::single(message, Ecn::NOT_CAPABLE);
                self.forwarder.send_upstream(session, &[batch]);
            }
        }
    }

    /// Asks the other gateways for the session that a client has named. True if they have been asked:
    /// then the client gets no answer yet.
    fn ask_peers(&mut self, id: SessionId, datagram: &[u8]) -> bool {
        let settings = self.route.context.settings();
        let here = self.path.network().gateway;
        let peers: Vec<_> =
            settings.config.peers.iter().copied().filter(|peer| *peer != here).collect();
        if peers.is_empty() {
            return false;
        }
        let Ok(nonce) = self.random().map(u64::from_be_bytes) else { return false };
        let inquiries = &self.route.inquiries;
        let budget = &self.route.context.environment.inquiries;
        match inquiries.begin(self.path, datagram, (peers.len(), budget), nonce, self.now) {
            Step::Refuse => return false,
            Step::Wait => return true,
            Step::Ask => {}
        }
        self.route.metrics().add(Metric::Inquiries, 1);
        self.forwarder.plan_path_check(self.route, self.path.network(), self.now + GATEWAY_SILENCE);
        let message = PeerMessage { kind: PeerKind::Inquiry, nonce, session: id };
        let way = |peer| {
            let client = ClientAddress::new(peer);
            ClientPath { client, local: None, ..self.path.clone() }
        };
        let ways: Vec<_> = peers.into_iter().map(way).collect();
        self.tell_peers(&ways, &message);
        true
    }

    fn tell_peers(&mut self, ways: &[ClientPath], message: &PeerMessage) {
        let route = &self.route.context;
        self.outbox.clear();
        route.engine.tell_peer(message, self.outbox);
        let sender = &mut self.forwarder.sender;
        for way in ways {
            way.send_outbox(route, sender, self.outbox, Ecn::NOT_CAPABLE, WhenFull::Drop);
        }
        self.outbox.clear();
    }

    /// Answers another gateway, or takes its answer. Messages of other senders than the configured
    /// gateways are dropped.
    fn peer_message(&mut self, message: PeerMessage) {
        let PeerMessage { kind, nonce, session } = message;
        let peer = self.path.client.get();
        let settings = self.route.context.settings();
        // A relay has a port of its own.
        let is_relay = || settings.config.peers.iter().any(|known| known.ip() == peer.ip());
        let is_peer = settings.is_peer(peer) || kind == PeerKind::Arrival && is_relay();
        if !is_peer {
            return self.discard("from no gateway of this address");
        }
        match kind {
            PeerKind::Inquiry => {
                let is_here = !self.route.sessions.assisted.with_id(session).is_empty();
                let kind = if is_here { PeerKind::Mine } else { PeerKind::NotMine };
                let way = std::slice::from_ref(self.path);
                self.tell_peers(way, &PeerMessage { kind, ..message });
            }
            PeerKind::Mine => {
                if let Some(asked) = self.route.inquiries.found(nonce) {
                    self.begin_relay(&asked, EndpointAddress::new(peer), (nonce, session));
                }
            }
            PeerKind::Arrival => {
                let there = self.route.sessions.peek(self.path.network());
                let answers = |flow: &mut Flow| flow.answers_to(session);
                if there.is_some_and(|there| there.assist(answers) == Some(true)) {
                    let way = std::slice::from_ref(self.path);
                    self.tell_peers(way, &PeerMessage { kind: PeerKind::Moved, ..message });
                }
            }
            // Comes along a relay's upstream.
            PeerKind::Moved => self.discard("out of place"),
            PeerKind::NotMine => {
                if let Some(Answered { path, datagram }) = self.route.inquiries.denied(nonce) {
                    let Self { route, now, .. } = *self;
                    let Self { forwarder, outbox, .. } = self;
                    Control { route, forwarder, outbox, path: &path, now }.refuse(&datagram);
                }
            }
        }
    }

    /// Another gateway has the session of a client that is here now. That gateway gets the client's
    /// sealed datagrams, beginning with the one that has made this gateway ask, and all datagrams
    /// once the client has proved to be here.
    fn begin_relay(&mut self, asked: &Answered, peer: EndpointAddress, name: RelayName) {
        let Answered { path, datagram } = asked;
        let session = self.forwarder.find_or_open(self.route, path, Some(peer), None, self.now);
        // By now its datagrams may have waited for too long, and have got a server. The client asks
        // again, is refused, and proves which server it has had.
        let Some(session) = session.filter(|session| session.is_relay()) else { return };
        session.server_side.name_relay(name);
        self.route.metrics().add(Metric::SessionsRelayed, 1);
        let sealed = GsoBatch::single(datagram, Ecn::NOT_CAPABLE);
        self.forwarder.send_upstream(&session, &[sealed]);
    }

    /// Notifies the client that no session has this id, so that it may begin a new one.
    fn refuse(&mut self, datagram: &[u8]) {
        let route = &self.route.context;
        self.outbox.clear();
        match guarded(route, || route.engine.refuse_session(datagram, self.outbox)) {
            Some(outcome) => {
                route.metrics.add(handshake(outcome), 1);
                self.answer();
            }
            None => self.discard("fault in assistance"),
        }
    }

    /// Passes a sealed datagram to a session whose client had another path; true if it is
    /// authentic. Answers go back along the path that it came by, and are never larger.
    fn sealed_on_new_path(
        &mut self,
        session: &Arc<Session>,
        id: SessionId,
        datagram: &[u8],
        is_known: bool,
    ) -> bool {
        let Ok(random) = self.random() else { return false };
        let (path, now) = (self.path, self.now);
        let network = path.network();
        let Self { route, forwarder, outbox, .. } = self;
        outbox.clear();
        let mut moved = None;
        let result = session.assist(|flow| {
            if !flow.answers_to(id) {
                return None;
            }
            // Another thread may have moved it here by now.
            if session.network() == network && !session.is_displaced() {
                flow.control(datagram, now, outbox);
                return Some((None, flow.next_timeout()));
            }
            // Under the lock of the session's assistance, so that two moves cannot overtake each
            // other.
            let decide = || moved.insert(route.sessions.move_client(session, path, now)).path_use();
            let random = || random;
            let event = flow.control_on_new_path(datagram, network, random, decide, now, outbox);
            Some((Some(event), flow.next_timeout()))
        });
        let Some(Some((event, deadline))) = result else { return false };
        forwarder.mailboxes.request_deadline(session, deadline);
        match event {
            None => forwarder.send_outbox(session, outbox, WhenFull::Drop),
            Some(PathEvent::Rejected) => return false,
            Some(PathEvent::Refused) => self.refuse_path(datagram),
            Some(_) => self.answer(),
        }
        session.record_events(self.outbox);
        match moved {
            Some(Moved::From(from, displaced)) => self.moved(session, from, displaced),
            Some(Moved::Held(occupant)) => self.ask(&occupant),
            Some(Moved::Closed | Moved::Refused) | None => {}
        }
        if event == Some(PathEvent::Challenged) && !is_known {
            session.touch(now);
            if let Some(until) = self.route.pending.note_challenged(path, now) {
                self.forwarder.plan_path_check(self.route, network, until);
            }
        }
        true
    }

    /// A session has followed its client to this path.
    fn moved(
        &mut self,
        session: &Arc<Session>,
        from: NetworkPath,
        displaced: Option<Arc<Session>>,
    ) {
        session.touch(self.now);
        if let Some(displaced) = displaced {
            self.forwarder.mailboxes.post(displaced.worker, Command::Close(displaced));
        }
        session.log(Event::ClientMoved, || {
            [("from", session.route.environment.logger.client(from.client))]
        });
        self.forwarder.claim_pending(self.route, session);
    }

    /// Asks the client of a session whether it is still at its path: another one has proved to be
    /// there.
    fn ask(&mut self, occupant: &Arc<Session>) {
        let Ok(random) = self.random() else { return };
        let now = self.now;
        self.run(occupant, |flow, outbox| flow.ask(random, now, outbox));
    }

    /// Notifies the client of a session that it has no session at this path, so that it may begin
    /// one: the path belongs to another session, which speaks.
    fn refuse_path(&mut self, datagram: &[u8]) {
        let (route, outbox) = (&self.route.context, &mut *self.outbox);
        guarded(route, || route.engine.refuse_session(datagram, outbox));
        self.answer();
    }

    /// Calls the engine for a session and sends its answer.
    fn run<R>(
        &mut self,
        session: &Arc<Session>,
        action: impl FnOnce(&mut Flow, &mut Outbox) -> R,
    ) -> Option<R> {
        let outbox = &mut *self.outbox;
        outbox.clear();
        let result = session.assist(|flow| (action(flow, outbox), flow.next_timeout()));
        let (result, deadline) = result.unzip();
        self.forwarder.mailboxes.request_deadline(session, deadline.flatten());
        self.forwarder.send_outbox(session, outbox, WhenFull::Drop);
        result
    }

    /// Sends the contents of the outbox to the address that the datagram came from.
    fn answer(&mut self) {
        let (route, sender) = (&self.route.context, &mut self.forwarder.sender);
        self.path.send_outbox(route, sender, self.outbox, Ecn::NOT_CAPABLE, WhenFull::Drop);
    }

    fn discard(&self, reason: &str) {
        let route = &self.route.context;
        route.metrics.add(Metric::ControlDropped, 1);
        route.log(Event::ControlDropped, || {
            let client = route.environment.logger.client(self.path.client.get());
            [("client", client), ("reason", reason.into())]
        });
    }
}
