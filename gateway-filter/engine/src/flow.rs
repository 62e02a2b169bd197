//! One client 4-tuple through the gateway.

use std::sync::Arc;

use packrat_wire::SessionId;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ClientParams, GatewayParams, LossClass, RouteHint};
use packrat_wire::is_control;
use packrat_wire::message::GoodbyeReason;
use packrat_wire::number::{NumberHeader, split};
use packrat_wire::seal::session_of;
use zeroize::Zeroizing;

use crate::admission::{Network, SessionPermit};
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
    /// A session that begins when the client has proven that it has it: by sealing something in
    /// it. Either a newer one than the one that assists (a repeated old Init can then not end
    /// that), or one whose client has not echoed a cookie.
    pending: Option<Box<Assisted>>,
    /// None while there is nothing to count.
    counters: Option<Box<FlowCounters>>,
    /// True if its sessions tell of each step.
    observed: bool,
    /// Second copies for a client without a session, if the configuration has them.
    copies: Option<Box<SparseCopies>>,
}

/// An assisted flow's session and how it began.
#[derive(Debug)]
struct Assisted {
    session: Box<Session>,
    handshake: Handshake,
}

impl Flow {
    /// A flow without assistance: [`Flow::forward`] costs nothing until [`Flow::begin`].
    pub fn new(gateway: Arc<Gateway>) -> Self {
        let copies = gateway.config().sparse_copies.then(Box::default);
        Self { gateway, assisted: None, pending: None, counters: None, observed: false, copies }
    }

    /// Takes over a configuration that has changed, as far as the flow does not read it where it needs
    /// it.
    pub fn follow_config(&mut self) {
        if self.gateway.config().sparse_copies {
            self.copies.get_or_insert_default();
        } else {
            self.copies = None;
        }
    }

    /// Starts (or restarts) assistance; `seed`: 32 fresh random bytes from the operating system.
    /// The answer is in the outbox: one datagram, not longer than the client's. A question that
    /// is repeated because its answer was lost gets the same answer and changes nothing.
    ///
    /// A client that has echoed no cookie gets nothing else before it has sealed something with the
    /// key that the answer brings. It displaces no session: on a path where one is or is about to
    /// be, under way with a nonce of its own, the client is sent a cookie.
    pub fn begin(
        &mut self,
        begin: Begin,
        seed: [u8; 32],
        now: Timestamp,
        out: &mut Outbox,
    ) -> HandshakeOutcome {
        // Looked at once more: it may have been switched off since the first look, and then this flow has
        // been closed already, or never will be.
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
        let source = begin.peer.ip();
        let permit = if begin.is_validated {
            match SessionPermit::new(&self.gateway, source, now) {
                Some(permit) => permit,
                None => return refuse(begin.nonce, HandshakeOutcome::RefusedFull, out),
            }
        } else {
            let is_free = self.assisted.is_none() && self.pending.is_none();
            match is_free.then(|| SessionPermit::unvalidated(&self.gateway, source, now)).flatten()
            {
                Some(permit) => permit,
                None => return self.gateway.offer(begin.nonce, begin.peer, now, out),
            }
        };
        // After the limits, so that those who are compared have all met the same ones.
        if self.gateway.holds_out(source) {
            // Told to clients that receive at their address only: they are compared.
            if !begin.is_validated {
                return self.gateway.offer(begin.nonce, begin.peer, now, out);
            }
            return refuse(begin.nonce, HandshakeOutcome::RefusedHoldout, out);
        }
        let gateway = &self.gateway;
        let config = gateway.config();
        let expected = gateway.losses().expect(Network::of(source), now);
        let hint = RouteHint { heard: begin.heard, loss: LossClass::of(expected) };
        let ticket = begin.ticket;
        let numbered =
            |client_params: &ClientParams| granted_numbers(client_params.numbered, source, &config);
        let grant = |client_params: &ClientParams, session, secret| GatewayParams {
            session,
            scheme: client_params.scheme,
            limits: client_params.limits.within(SKETCH_LIMITS),
            cache_bytes: u32::try_from(config.cache_bytes_per_flow).unwrap_or(u32::MAX),
            secret: Zeroizing::new(secret),
            stream: None,
            symbols: None,
            numbered: numbered(client_params),
            hint,
            ticket,
            bundles: client_params.bundles,
            distinct: numbered(client_params).is_some_and(|numbered| numbered.to_client),
        };
        let answered = Handshake::answer(gateway, &begin, seed, now, |_| false, grant);
        let Some((handshake, established, client_params)) = answered else {
            return HandshakeOutcome::Malformed;
        };
        handshake.send(out);
        let session = Box::new(Session::new(permit, established, &client_params, now));
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

    /// The session that was pending begins, unless its source has as many as it may have.
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

    /// A client that has sealed something has the answer: it will not ask for it again.
    fn forget_answer(&mut self) {
        if let Some(assisted) =
            self.assisted.as_mut().filter(|assisted| assisted.session.is_proven())
        {
            assisted.handshake.forget_answer();
        }
    }

    /// Switches the events within its sessions on or off ([`Event::Session`]). Off at first, and
    /// then they cost nothing.
    pub fn observe(&mut self, observed: bool) {
        self.observed = observed;
    }

    /// True if assistance is on.
    pub fn is_assisted(&self) -> bool {
        self.assisted.is_some()
    }

    /// True if what passes to the client is recorded: for the session that assists, or for one that begins
    /// when the client seals something in it. Its client may have what passes meanwhile in its set.
    pub fn records(&self) -> bool {
        self.assisted.is_some() || self.pending.is_some()
    }

    /// So many bytes are about to pass, in several datagrams: makes room for all of them at once.
    pub fn expect(&mut self, bytes: usize) {
        if let Some(assisted) = &mut self.assisted {
            assisted.session.expect(bytes, self.counters.get_or_insert_with(FlowCounters::borrow));
        }
    }

    /// A datagram of the base connection passes from the server to the client. Returns what goes in
    /// front of it, if both ends have agreed on numbers and it is not too long for one.
    #[inline]
    pub fn forward(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        if self.assisted.is_none()
            && let Some(copies) = &mut self.copies
        {
            copies.forward(datagram, now);
        }
        // A server's datagram that looks like control is hidden from the client's transport:
        // repairing it would be in vain.
        if (self.assisted.is_none() && self.pending.is_none()) || is_control(datagram) {
            return None;
        }
        let number = self.assisted.as_mut().and_then(|assisted| {
            assisted.session.forward(
                datagram,
                now,
                self.counters.get_or_insert_with(FlowCounters::borrow),
            )
        });
        if self.pending.is_some() {
            self.forward_to_pending(datagram, now);
        }
        number
    }

    /// A datagram of the base connection passes from the client to the server, without a number. Only
    /// a flow without a session wants to know, where the configuration has second copies.
    pub fn hear(&mut self, datagram: &[u8], now: Timestamp) {
        if let Some(copies) = &mut self.copies {
            copies.hear(datagram, now);
        }
    }

    /// A numbered datagram has come from the client, along its path ([`packrat_wire::number`]). What
    /// the server is to have now is in the outbox, without numbers: this datagram, others that have
    /// waited for it, or nothing, if it waits itself. `mark` belongs to the datagram, and comes out
    /// with it.
    ///
    /// False if it is no numbered datagram, or one of a session in which such were not agreed.
    pub fn receive_upward(
        &mut self,
        datagram: &[u8],
        mark: u8,
        now: Timestamp,
        out: &mut Outbox,
    ) -> bool {
        let Some((number, base)) = split(datagram) else { return false };
        // Without a session, the number is one of a session that is over.
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

    /// Puts what waits for a missing datagram of the client's into the outbox, for the server. For a flow
    /// that has failed, and is dropped afterwards.
    pub fn release_upward(&mut self, out: &mut Outbox) {
        if let Some(assisted) = &mut self.assisted {
            assisted.session.release_upward(out);
        }
    }

    /// The link to the client does not carry a datagram of this length with a number in front: from
    /// here on, such datagrams go plain.
    pub fn refuse_numbers(&mut self, length: usize) {
        if let Some(assisted) = &mut self.assisted {
            assisted.session.refuse_numbers(length);
        }
    }

    /// A datagram passes, for the session that may begin soon, too.
    #[cold]
    fn forward_to_pending(&mut self, datagram: &[u8], now: Timestamp) {
        self.forget_stale(now);
        if let Some(pending) = &mut self.pending {
            // Counted once.
            let mut uncounted = FlowCounters::default();
            let counters = if self.assisted.is_some() {
                &mut uncounted
            } else {
                self.counters.get_or_insert_with(FlowCounters::borrow)
            };
            pending.session.forward(datagram, now, counters);
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
                // It will ask again, and be told that there is no room.
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

    /// A sealed datagram that names this flow's session but came by another path than its client's:
    /// a client behind a NAT that has moved it, or an attacker that replays. Nothing but a challenge
    /// is ever sent there before the answer has come from there; the challenge is in the outbox and
    /// goes back along `from`.
    ///
    /// `random`: eight fresh random bytes from the operating system. They must not follow from
    /// anything that the client knows: it could answer a challenge that it never received, and
    /// have everything sent to a victim. `decide` is called when the client has proved to be there,
    /// and says whether the session may have the path.
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

    /// When its client last said something authentic from its own path.
    pub fn heard(&self) -> Option<Timestamp> {
        self.assisted.as_ref().and_then(|assisted| assisted.session.heard())
    }

    /// Asks the client whether it is still at its path: another session's client has proved to be
    /// there. [`Self::heard`] has the answer. `random`: as for [`Self::control_on_new_path`].
    pub fn ask(&mut self, random: [u8; 8], now: Timestamp, out: &mut Outbox) {
        if let Some(assisted) = &mut self.assisted {
            let (session, counters) =
                (&mut assisted.session, self.counters.get_or_insert_with(FlowCounters::borrow));
            let mut turn = Turn::new(now, counters, out).observing(self.observed, session.id());
            session.ask(random, &mut turn);
        }
    }

    /// True if a sealed datagram that names this session (`packrat_wire::seal::session_of`) is for
    /// [`Flow::control`]: the one that assists the flow, or the one that will when the client
    /// has proven that it has it.
    pub fn answers_to(&self, session: SessionId) -> bool {
        self.names().any(|name| name == session)
    }

    /// The sessions that this flow answers to: one, none, or two while a new one is to take over.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.assisted.iter().chain(self.pending.as_deref()).map(|assisted| assisted.session.id())
    }

    /// The names of [`Self::sessions`], each of which may be in a sealed datagram. The first name of
    /// each is its id.
    pub fn names(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.assisted
            .iter()
            .chain(self.pending.as_deref())
            .flat_map(|assisted| assisted.session.names())
    }

    /// When [`Flow::handle_timeout`] wants to be called, if at all. Changes only by the other
    /// calls.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let stale = self.pending.as_ref().map(|pending| pending.handshake.expires());
        let session = match (&self.assisted, &self.copies) {
            (Some(assisted), _) => assisted.session.next_timeout(),
            (None, Some(copies)) => copies.next_timeout(),
            (None, None) => None,
        };
        stale.into_iter().chain(session).min()
    }

    /// Time has passed: tail probes, spaced copies of repairs; without a session, copies of what a sparse
    /// flow brings.
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

    /// The flow ends (idle, drained): frees the cache and, when assisted, says goodbye to the
    /// client.
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

/// Outcome of a sealed datagram by another path than its client's (RFC 9000, section 8.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathEvent {
    /// Forged, replayed, too short to be answered, or for no session of this flow: drop it.
    Rejected,
    /// Authentic: that path has been challenged.
    Challenged,
    /// It answers a challenge: that path is the client's now.
    Validated,
    /// It answers a challenge, but another session is known at that path, whose client is being
    /// asked. Nothing has changed; the next answer decides anew.
    Held,
    /// The client is there, but so is another session's, which speaks: tell it that it has no
    /// session there ([`crate::Gateway::refuse_session`]), and it begins a new one.
    Refused,
}
