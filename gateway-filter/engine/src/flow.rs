//! One client 4-tuple through the gateway.

use std::sync::Arc;
use std::time::Duration;

use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, GatewayParams, LossClass, RouteHint};
use packrat_wire::is_control;
use packrat_wire::message::GoodbyeReason;
use packrat_wire::number::{NumberHeader, split};
use packrat_wire::seal::session_of;
use zeroize::Zeroizing;

use crate::admission::{Network, SessionPermit};
use crate::config::GatewayConfig;
use crate::counters::{FlowCounters, FlowGauges};
use crate::event::{Event, Side};
use crate::gateway::{Begin, Gateway, HandshakeOutcome, refuse};
use crate::handshake::Handshake;
use crate::outbox::Outbox;
use crate::path_validation::{NetworkPath, PathUse};
use crate::session::{Ended, SKETCH_LIMITS, Session, Turn, granted_numbers};
use crate::sparse_copies::SparseCopies;

/// One client flow (4-tuple) through the gateway, assisted or not. Plain forwarding never depends
/// on it.
#[derive(Debug)]
pub struct Flow {
    gateway: Arc<Gateway>,
    assisted: Option<Assisted>,
    /// A session that begins once its client has sealed a message in it. Either it is newer than
    /// the assisting session, which a repeated old Init thus cannot end, or its client has not
    /// echoed a cookie.
    pending: Option<Box<Assisted>>,
    /// `None` until something is counted.
    counters: Option<Box<FlowCounters>>,
    /// True if the flow's sessions report their events.
    observed: bool,
    /// Second copies for a client without a session, if the configuration has them.
    copies: Option<Box<SparseCopies>>,
    /// Of the gateway and the server; see [`Flow::on_server_answered`].
    server_round_trip: Option<Duration>,
}

/// An assisted flow's session and how it began.
#[derive(Debug)]
struct Assisted {
    session: Box<Session>,
    handshake: Handshake,
}

impl Flow {
    /// A flow without assistance: [`Flow::forward`] is free until [`Flow::begin`].
    pub fn new(gateway: Arc<Gateway>) -> Self {
        let copies = gateway.config().sparse_copies.then(Box::default);
        Self {
            gateway,
            assisted: None,
            pending: None,
            counters: None,
            observed: false,
            copies,
            server_round_trip: None,
        }
    }

    /// Applies a changed configuration, as far as the flow does not read it on use.
    pub fn follow_config(&mut self) {
        if self.gateway.config().sparse_copies {
            self.copies.get_or_insert_default();
        } else {
            self.copies = None;
        }
    }

    /// Starts (or restarts) assistance; `seed`: 32 fresh random bytes from the operating system.
    /// The answer is in the outbox: one datagram, not longer than the client's. A question that is
    /// repeated because its answer was lost gets the same answer without other effect.
    ///
    /// A client that has echoed no cookie is sent nothing else before it has sealed a message with
    /// the answer's key. It displaces no session: on a path with a session or a pending one, which
    /// has another nonce, the client is sent a cookie.
    pub fn begin(
        &mut self,
        begin: Begin,
        seed: [u8; 32],
        now: Timestamp,
        out: &mut Outbox,
    ) -> HandshakeOutcome {
        // Checked again: assistance may have been switched off since the first check, and then this
        // flow has been closed already, or never will be.
        if !self.gateway.config().takes_clients() {
            return refuse(begin.nonce, HandshakeOutcome::RefusedDisabled, out);
        }
        self.forget_stale(now);
        for known in self.assisted.iter_mut().chain(self.pending.as_deref_mut()) {
            if known.handshake.repeat(begin.nonce, out) {
                known.session.join();
                return HandshakeOutcome::Accepted;
            }
        }
        let permit = match self.permit(&begin, now, out) {
            Ok(permit) => permit,
            Err(outcome) => return outcome,
        };
        let gateway = &self.gateway;
        let config = gateway.config();
        let expected = gateway.losses().expect(Network::of(begin.peer.ip()), now);
        let hint = RouteHint { heard: begin.heard, loss: LossClass::of(expected) };
        let grant = |client_params: &ClientParams, session, secret| {
            granted(client_params, &begin, hint, &config, session, secret)
        };
        let answered = Handshake::answer(gateway, &begin, seed, now, |_| false, grant);
        let Some((handshake, established, client_params)) = answered else {
            return HandshakeOutcome::Malformed;
        };
        handshake.send(out);
        let mut session = Box::new(Session::new(permit, established, &client_params, now));
        session.set_server_round_trip(self.server_round_trip);
        let begun = Assisted { session, handshake };
        if self.assisted.is_some() || !begin.is_validated {
            self.pending = Some(Box::new(begun));
        } else {
            // A session prepared for this address without a cookie may be another client's.
            self.pending = None;
            self.assist(begun, out);
        }
        if begin.is_validated {
            HandshakeOutcome::Accepted
        } else {
            HandshakeOutcome::AcceptedWithoutCookie
        }
    }

    /// Permit of a session that begins. Otherwise the client is answered.
    fn permit(
        &self,
        begin: &Begin,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<SessionPermit, HandshakeOutcome> {
        let source = begin.peer.ip();
        let permit = if begin.is_validated {
            SessionPermit::new(&self.gateway, source, now)
                .ok_or_else(|| refuse(begin.nonce, HandshakeOutcome::RefusedFull, out))?
        } else {
            let is_free = self.assisted.is_none() && self.pending.is_none();
            is_free
                .then(|| SessionPermit::unvalidated(&self.gateway, source, now))
                .flatten()
                .ok_or_else(|| self.gateway.offer(begin.nonce, begin.peer, now, out))?
        };
        // After the limits, so that all compared clients have met the same limits.
        if !self.gateway.holds_out(source) {
            return Ok(permit);
        }
        // Refused only if the client receives at its address: refused clients are compared.
        Err(if begin.is_validated {
            refuse(begin.nonce, HandshakeOutcome::RefusedHoldout, out)
        } else {
            self.gateway.offer(begin.nonce, begin.peer, now, out)
        })
    }

    /// Begins the pending session, unless its source has its maximum of sessions.
    fn promote(&mut self, mut pending: Assisted, now: Timestamp, out: &mut Outbox) -> bool {
        if !pending.session.validate(now) {
            return false;
        }
        self.end(Side::Client, GoodbyeReason::Done, out);
        self.assist(pending, out);
        true
    }

    /// Forgets a pending session that was not used in time.
    fn forget_stale(&mut self, now: Timestamp) {
        self.pending.take_if(|pending| pending.handshake.is_expired(now));
    }

    fn assist(&mut self, begun: Assisted, out: &mut Outbox) {
        self.counters.get_or_insert_with(FlowCounters::borrow).sessions_begun += 1;
        out.event(Event::SessionOpened { session: begun.session.id() });
        self.assisted = Some(begun);
        if let Some(copies) = &mut self.copies {
            copies.forget();
        }
        self.forget_answer();
    }

    /// Frees the answer once the client has sealed a message: it will not ask for the answer again.
    fn forget_answer(&mut self) {
        if let Some(assisted) =
            self.assisted.as_mut().filter(|assisted| assisted.session.is_proven())
        {
            assisted.handshake.forget_answer();
        }
    }

    /// Switches the events within the flow's sessions on or off ([`Event::Session`]). They are off
    /// at first, at no cost.
    pub fn observe(&mut self, observed: bool) {
        self.observed = observed;
    }

    /// True if assistance is on.
    pub fn is_assisted(&self) -> bool {
        self.assisted.is_some()
    }

    /// True if datagrams to the client are recorded: for the assisting session, or for a pending
    /// one, whose client may already have them in its set.
    pub fn records(&self) -> bool {
        self.assisted.is_some() || self.pending.is_some()
    }

    /// Makes room for `bytes` in several datagrams that are about to pass.
    pub fn expect(&mut self, bytes: usize) {
        if let Some(assisted) = &mut self.assisted {
            assisted.session.expect(bytes, self.counters.get_or_insert_with(FlowCounters::borrow));
        }
    }

    /// The server has answered the flow's first datagram after this round trip of gateway and server.
    pub fn on_server_answered(&mut self, round_trip: Duration) {
        if self.server_round_trip.replace(round_trip) != Some(round_trip) {
            for known in self.assisted.iter_mut().chain(self.pending.as_deref_mut()) {
                known.session.set_server_round_trip(Some(round_trip));
            }
        }
    }

    /// Records a datagram of the base connection from the server to the client. Returns the number
    /// to put in front of it, if both ends have agreed on numbers and it is not too long for one.
    #[inline]
    pub fn forward(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        self.forward_marked(datagram, false, now)
    }

    /// As [`Self::forward`]. `congested`: the datagram came with the mark CE, which leaves with it
    /// and with each of its repairs ([`Outbox::is_congested`]).
    #[inline]
    pub fn forward_marked(
        &mut self,
        datagram: &[u8],
        congested: bool,
        now: Timestamp,
    ) -> Option<NumberHeader> {
        if self.assisted.is_none()
            && let Some(copies) = self.copies.as_mut()
        {
            copies.forward(datagram, now);
            // Its copy would lose the report.
            if congested {
                copies.forget();
            }
        }
        // A server's datagram that looks like control is hidden from the client's transport:
        // repairing it would be in vain.
        if (self.assisted.is_none() && self.pending.is_none()) || is_control(datagram) {
            return None;
        }
        let number = self.assisted.as_mut().and_then(|assisted| {
            assisted.session.forward(
                datagram,
                congested,
                now,
                self.counters.get_or_insert_with(FlowCounters::borrow),
            )
        });
        if self.pending.is_some() {
            self.forward_to_pending(datagram, congested, now);
        }
        number
    }

    /// Records a datagram of the base connection from the client to the server, without a number.
    /// Only a flow without a session uses it, if the configuration has second copies.
    pub fn hear(&mut self, datagram: &[u8], now: Timestamp) {
        if let Some(copies) = &mut self.copies {
            copies.hear(datagram, now);
        }
    }

    /// Receives a numbered datagram from the client, along its path ([`packrat_wire::number`]). The
    /// outbox then has the datagrams for the server, without numbers: this one, others that have
    /// waited for it, or none if it waits itself. `mark` belongs to the datagram, and leaves with
    /// it.
    ///
    /// False if the datagram has no number, or belongs to a session without agreed numbers.
    pub fn receive_upward(
        &mut self,
        datagram: &[u8],
        mark: u8,
        now: Timestamp,
        out: &mut Outbox,
    ) -> bool {
        let Some((number, base)) = split(datagram) else { return false };
        // Without a session, the number is from a session that has ended.
        let Some(assisted) = self.assisted.as_mut() else {
            out.send_to_server(base, mark);
            return true;
        };
        let (session, counters) =
            (&mut assisted.session, self.counters.get_or_insert_with(FlowCounters::borrow));
        if !session.takes_numbers() {
            return false;
        }
        let mut turn = Turn::new(now, counters, out).observing(self.observed, session.id());
        session.receive_upward(number, base, mark, &mut turn);
        true
    }

    /// Puts datagrams that wait for a missing datagram of the client into the outbox, for the
    /// server. For a flow that has failed, and is dropped afterwards.
    pub fn release_upward(&mut self, out: &mut Outbox) {
        if let Some(assisted) = &mut self.assisted {
            assisted.session.release_upward(out);
        }
    }

    /// Makes datagrams of this length and longer go plain from here on: the link to the client does
    /// not carry them with a number in front.
    pub fn refuse_numbers(&mut self, length: usize) {
        if let Some(assisted) = &mut self.assisted {
            assisted.session.refuse_numbers(length);
        }
    }

    /// Records a datagram for the pending session as well.
    #[cold]
    fn forward_to_pending(&mut self, datagram: &[u8], congested: bool, now: Timestamp) {
        self.forget_stale(now);
        if let Some(pending) = &mut self.pending {
            // Counted once.
            let mut uncounted = FlowCounters::default();
            let counters = if self.assisted.is_some() {
                &mut uncounted
            } else {
                self.counters.get_or_insert_with(FlowCounters::borrow)
            };
            pending.session.forward(datagram, congested, now, counters);
        }
    }

    /// A control datagram that [`Gateway::receive`] gave to this flow.
    pub fn control(&mut self, datagram: &[u8], now: Timestamp, out: &mut Outbox) {
        let named = session_of(datagram);
        if let Some(mut pending) = self
            .pending
            .take_if(|pending| named.is_some_and(|name| pending.session.answers_to(name)))
        {
            let counters = self.counters.get_or_insert_with(FlowCounters::borrow);
            let session = &mut pending.session;
            let turn = Turn::new(now, counters, out).observing(self.observed, session.id());
            let ended = session.control(datagram, &mut { turn });
            if !pending.session.is_proven() {
                self.pending = Some(pending);
                return;
            }
            match (self.promote(*pending, now, out), ended) {
                (true, Some(Ended(reason))) => self.end(Side::Client, reason, out),
                (true, None) => {}
                // The client will begin again, and be refused for lack of room.
                (false, _) => {
                    self.gateway.refuse_session(datagram, out);
                }
            }
            return;
        }
        let Some(assisted) = self
            .assisted
            .as_mut()
            .filter(|assisted| named.is_some_and(|name| assisted.session.answers_to(name)))
        else {
            self.gateway.refuse_session(datagram, out);
            return;
        };
        let counters = self.counters.get_or_insert_with(FlowCounters::borrow);
        let session = &mut assisted.session;
        let turn = Turn::new(now, counters, out).observing(self.observed, session.id());
        let ended = session.control(datagram, &mut { turn });
        self.forget_answer();
        if let Some(Ended(reason)) = ended {
            self.end(Side::Client, reason, out);
        }
    }

    /// Receives a sealed datagram that names this flow's session but came along another path: from
    /// a client that a NAT has moved, or from an attacker that replays. Only a challenge is sent
    /// along that path until the answer has come from there; the challenge is in the outbox and
    /// goes back along `from`.
    ///
    /// `random`: eight fresh random bytes from the operating system. The client must not be able to
    /// predict them: it could answer a challenge that it never received, and have all datagrams
    /// sent to a victim. `decide` is called when the client has proved that it receives there, and
    /// returns whether the session may have the path.
    pub fn control_on_new_path(
        &mut self,
        datagram: &[u8],
        from: NetworkPath,
        random: impl FnOnce() -> [u8; 8],
        decide: impl FnOnce() -> PathUse,
        now: Timestamp,
        out: &mut Outbox,
    ) -> PathEvent {
        let named = session_of(datagram);
        if let Some(mut pending) = self
            .pending
            .take_if(|pending| named.is_some_and(|name| pending.session.answers_to(name)))
        {
            let counters = self.counters.get_or_insert_with(FlowCounters::borrow);
            let session = &mut pending.session;
            let mut turn = Turn::new(now, counters, out).observing(self.observed, session.id());
            let event = session.control_on_new_path(datagram, from, random, decide, &mut turn);
            drop(turn);
            if pending.session.is_proven() {
                self.promote(*pending, now, out);
            } else {
                self.pending = Some(pending);
            }
            return event;
        }
        let Some(assisted) = self
            .assisted
            .as_mut()
            .filter(|assisted| named.is_some_and(|name| assisted.session.answers_to(name)))
        else {
            return PathEvent::Rejected;
        };
        let (session, counters) =
            (&mut assisted.session, self.counters.get_or_insert_with(FlowCounters::borrow));
        let mut turn = Turn::new(now, counters, out).observing(self.observed, session.id());
        session.control_on_new_path(datagram, from, random, decide, &mut turn)
    }

    /// Time of the client's last authentic message along its own path.
    pub fn heard(&self) -> Option<Timestamp> {
        self.assisted.as_ref().and_then(|assisted| assisted.session.heard())
    }

    /// Asks the client whether it still receives on its path: another session's client has proved
    /// that it does. [`Self::heard`] has the answer. `random`: as for
    /// [`Self::control_on_new_path`].
    pub fn ask(&mut self, random: [u8; 8], now: Timestamp, out: &mut Outbox) {
        if let Some(assisted) = &mut self.assisted {
            let (session, counters) =
                (&mut assisted.session, self.counters.get_or_insert_with(FlowCounters::borrow));
            let mut turn = Turn::new(now, counters, out).observing(self.observed, session.id());
            session.ask(random, &mut turn);
        }
    }

    /// True if a sealed datagram that names this session (`packrat_wire::seal::session_of`) is for
    /// [`Flow::control`], as the session assists the flow or is pending.
    pub fn answers_to(&self, session: SessionId) -> bool {
        self.names().any(|name| name == session)
    }

    /// The sessions that this flow answers to: the assisting one and the pending one, if any.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.assisted.iter().chain(self.pending.as_deref()).map(|assisted| assisted.session.id())
    }

    /// The names of [`Self::sessions`], each of which may be in a sealed datagram. A session's
    /// first name is its ID.
    pub fn names(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.assisted
            .iter()
            .chain(self.pending.as_deref())
            .flat_map(|assisted| assisted.session.names())
    }

    /// Time of the next call of [`Flow::handle_timeout`], if one is due. Only the other calls
    /// change it.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let stale = self.pending.as_ref().map(|pending| pending.handshake.expires());
        let session = match (&self.assisted, &self.copies) {
            (Some(assisted), _) => assisted.session.next_timeout(),
            (None, Some(copies)) => copies.next_timeout(),
            (None, None) => None,
        };
        stale.into_iter().chain(session).min()
    }

    /// Sends the datagrams that are due by now: tail probes, spaced copies of repairs; without a
    /// session, copies of a sparse flow's datagrams.
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut Outbox) {
        self.forget_stale(now);
        if let Some(assisted) = &mut self.assisted {
            let counters = self.counters.get_or_insert_with(FlowCounters::borrow);
            let session = &mut assisted.session;
            let mut turn = Turn::new(now, counters, out).observing(self.observed, session.id());
            session.handle_timeout(&mut turn);
        } else if let Some(copies) = &mut self.copies {
            copies.handle_timeout(now, self.counters.get_or_insert_with(FlowCounters::borrow), out);
        }
    }

    /// Ends the flow (idle, drained): frees the cache and, when assisted, sends the client a
    /// Goodbye.
    pub fn close(&mut self, reason: GoodbyeReason, out: &mut Outbox) {
        self.pending = None;
        if let Some(assisted) = &mut self.assisted {
            assisted.session.say_goodbye(reason, out);
        }
        self.end(Side::Gateway, reason, out);
    }

    /// Counters since the last call.
    pub fn take_counters(&mut self) -> FlowCounters {
        self.counters.take().map(FlowCounters::give_back).unwrap_or_default()
    }

    /// Levels now.
    pub fn gauges(&self) -> FlowGauges {
        self.assisted.as_ref().map(|assisted| assisted.session.gauges()).unwrap_or_default()
    }

    fn end(&mut self, side: Side, reason: GoodbyeReason, out: &mut Outbox) {
        if let Some(mut assisted) = self.assisted.take() {
            assisted.session.release_upward(out);
            let session = &assisted.session;
            out.event(Event::SessionClosed {
                session: session.id(),
                side,
                reason,
                totals: session.totals(),
            });
        }
    }
}

/// Outcome of a sealed datagram along another path than its client's (RFC 9000, section 8.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathEvent {
    /// Forged, replayed, shorter than an answer, or for no session of this flow: drop it.
    Rejected,
    /// Authentic: that path has been challenged.
    Challenged,
    /// A challenge is answered: that path is the client's now.
    Validated,
    /// A challenge is answered, but another session is known on that path, whose client is being
    /// asked. Nothing has changed; the next answer decides anew.
    Held,
    /// The client receives there, but so does another session's client, which has answered: refuse
    /// the session there ([`crate::Gateway::refuse_session`]), and the client begins a new one.
    Refused,
}

/// Parameters of a session that begins: what its client wishes, within the limits.
fn granted(
    client_params: &ClientParams,
    begin: &Begin,
    hint: RouteHint,
    config: &GatewayConfig,
    session: SessionId,
    secret: [u8; 32],
) -> GatewayParams {
    let numbered = granted_numbers(client_params.numbered, begin.peer.ip(), config);
    GatewayParams {
        session,
        scheme: client_params.scheme,
        limits: client_params.limits.within(SKETCH_LIMITS),
        cache_bytes: u32::try_from(config.cache_bytes_per_flow).unwrap_or(u32::MAX),
        secret: Zeroizing::new(secret),
        stream: None,
        symbols: None,
        numbered,
        hint,
        ticket: begin.ticket,
        bundles: client_params.bundles,
        distinct: numbered.is_some_and(|numbered| numbered.to_client),
    }
}
