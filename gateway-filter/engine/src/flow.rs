//! One client 4-tuple through the gateway.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use packrat_estimate::Timestamp;
use packrat_wire::control::Control;
use packrat_wire::handshake::{Terms, respond};
use packrat_wire::is_control;
use packrat_wire::message::GoodbyeReason;
use packrat_wire::seal::session_of;

use crate::budget::{FlowBudget, SourceBudget};
use crate::counters::{FlowCounters, FlowGauges};
use crate::event::{Event, Side};
use crate::gateway::{Begin, Gateway, HandshakeOutcome, refuse};
use crate::outbox::Outbox;
use crate::session::{Ended, LIMITS, Session};

/// One client flow (4-tuple) through the gateway, assisted or not. Plain forwarding never depends on it.
#[derive(Debug)]
pub struct Flow {
    gateway: Arc<Gateway>,
    assisted: Option<Assisted>,
    /// A session that begins when the client has proven that it has it: by sealing something in it. Either a newer one than the one that
    /// assists (a repeated old Init can then not end that), or one whose client has not echoed a cookie.
    pending: Option<Box<Assisted>>,
    /// None while there is nothing to count and the flow is quiet.
    counters: Option<Box<FlowCounters>>,
}

/// An assisted flow's session and how it began.
#[derive(Debug)]
struct Assisted {
    session: Box<Session>,
    nonce: u64,
    /// The answer, until the client has shown that it has it.
    init_ack: Vec<u8>,
    since: Timestamp,
}

/// A pending session that nobody uses is forgotten after this.
const PENDING_LIFETIME: Duration = Duration::from_secs(5);

impl Flow {
    /// A flow without assistance: [`Flow::forward`] costs nothing until [`Flow::begin`].
    pub fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, assisted: None, pending: None, counters: None }
    }

    /// Starts (or restarts) assistance; `seed`: 32 fresh random bytes from the operating system. The answer is in the outbox: one datagram,
    /// not longer than the client's. A question that is repeated because its answer was lost gets the same answer and changes nothing.
    ///
    /// A client that has echoed no cookie gets nothing else before it has sealed something with the key that the answer brings. It
    /// displaces nobody: on a path where a session is or is about to be, under way with a nonce of its own, it is sent a cookie.
    pub fn begin(
        &mut self,
        begin: Begin,
        seed: [u8; 32],
        now: Timestamp,
        out: &mut Outbox,
    ) -> HandshakeOutcome {
        self.forget_stale(now);
        for known in self.assisted.iter().chain(self.pending.as_deref()) {
            if known.nonce == begin.nonce {
                out.send(|bytes| bytes.extend_from_slice(&known.init_ack));
                return HandshakeOutcome::Accepted;
            }
        }
        let source = begin.peer.ip();
        let share = if begin.is_validated {
            match Share::new(&self.gateway, source, now) {
                Some(share) => share,
                None => return refuse(begin.nonce, HandshakeOutcome::RefusedFull, out),
            }
        } else {
            let is_free = self.assisted.is_none() && self.pending.is_none();
            match is_free.then(|| Share::unvalidated(&self.gateway, source, now)).flatten() {
                Some(share) => share,
                None => return self.gateway.offer(begin.nonce, begin.peer, now, out),
            }
        };
        let gateway = &self.gateway;
        let answered = respond(seed, &gateway.static_key, begin.nonce, &begin.noise, |wishes, random| {
            let (mut session, mut secret) = ([0; 4], [0; 32]);
            random(&mut session);
            random(&mut secret);
            Terms {
                session: u32::from_be_bytes(session),
                scheme: wishes.scheme,
                limits: wishes.limits.within(LIMITS),
                cache_bytes: u32::try_from(gateway.config.cache_bytes_per_flow).unwrap_or(u32::MAX),
                secret,
                stream: None,
            }
        });
        let Ok((established, wishes, noise)) = answered else {
            return HandshakeOutcome::Malformed;
        };
        let mut init_ack = Vec::new();
        Control::InitAck { nonce: begin.nonce, noise: &noise }.encode(&mut init_ack);
        out.send(|bytes| bytes.extend_from_slice(&init_ack));
        let session = Box::new(Session::new(share, established, &wishes, now));
        let begun = Assisted { session, nonce: begin.nonce, init_ack, since: now };
        if self.assisted.is_some() || !begin.is_validated {
            self.pending = Some(Box::new(begun));
        } else {
            // What was prepared for this address without a cookie may have been for somebody else.
            self.pending = None;
            self.assist(begun, out);
        }
        if begin.is_validated { HandshakeOutcome::Accepted } else { HandshakeOutcome::AcceptedWithoutCookie }
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

    /// Forgets a pending session that nobody has used.
    fn forget_stale(&mut self, now: Timestamp) {
        self.pending.take_if(|pending| now >= pending.since + PENDING_LIFETIME);
    }

    fn assist(&mut self, begun: Assisted, out: &mut Outbox) {
        self.counters.get_or_insert_default().sessions_begun += 1;
        out.event(Event::SessionOpened { session: begun.session.name() });
        self.assisted = Some(begun);
        self.forget_answer();
    }

    /// A client that has sealed something has the answer: it will not ask for it again.
    fn forget_answer(&mut self) {
        if let Some(assisted) = self.assisted.as_mut().filter(|assisted| assisted.session.is_proven()) {
            assisted.init_ack = Vec::new();
        }
    }

    /// Whether assistance is on.
    pub fn is_assisted(&self) -> bool {
        self.assisted.is_some()
    }

    /// A datagram of the base connection passes from the server to the client.
    #[inline]
    pub fn forward(&mut self, datagram: &[u8], now: Timestamp) {
        // A server's datagram that looks like control is hidden from the client's transport: repairing it would be in vain.
        if (self.assisted.is_none() && self.pending.is_none()) || is_control(datagram) {
            return;
        }
        if let Some(assisted) = &mut self.assisted {
            assisted.session.forward(datagram, now, self.counters.get_or_insert_default());
        }
        if self.pending.is_some() {
            self.forward_to_pending(datagram, now);
        }
    }

    /// What passes is also for the session that may begin soon.
    #[cold]
    fn forward_to_pending(&mut self, datagram: &[u8], now: Timestamp) {
        self.forget_stale(now);
        if let Some(pending) = &mut self.pending {
            // Counted once.
            let mut uncounted = FlowCounters::default();
            let counters =
                if self.assisted.is_some() { &mut uncounted } else { self.counters.get_or_insert_default() };
            pending.session.forward(datagram, now, counters);
        }
    }

    /// A control datagram that [`Gateway::receive`] gave to this flow.
    pub fn control(&mut self, datagram: &[u8], now: Timestamp, out: &mut Outbox) {
        let named = session_of(datagram);
        if let Some(mut pending) = self.pending.take_if(|pending| named == Some(pending.session.name())) {
            let ended = pending.session.control(datagram, now, self.counters.get_or_insert_default(), out);
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
        let Some(assisted) = self.assisted.as_mut().filter(|assisted| named == Some(assisted.session.name()))
        else {
            self.gateway.refuse_session(datagram, out);
            return;
        };
        let ended = assisted.session.control(datagram, now, self.counters.get_or_insert_default(), out);
        self.forget_answer();
        if let Some(Ended(reason)) = ended {
            self.end(Side::Client, reason, out);
        }
    }

    /// A sealed datagram that names this flow's session but came from another address than its client's: a client behind a NAT that
    /// has moved it, or somebody who replays. Nothing but a challenge is ever sent there before the answer has come from there; the
    /// challenge is in the outbox and goes to `from`.
    pub fn control_from_elsewhere(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Elsewhere {
        let named = session_of(datagram);
        if let Some(mut pending) = self.pending.take_if(|pending| named == Some(pending.session.name())) {
            let elsewhere = pending.session.control_from_elsewhere(
                datagram,
                from,
                now,
                self.counters.get_or_insert_default(),
                out,
            );
            if pending.session.is_proven() {
                self.promote(*pending, now, out);
            } else {
                self.pending = Some(pending);
            }
            return elsewhere;
        }
        match self.assisted.as_mut().filter(|assisted| named == Some(assisted.session.name())) {
            Some(assisted) => assisted.session.control_from_elsewhere(
                datagram,
                from,
                now,
                self.counters.get_or_insert_default(),
                out,
            ),
            None => Elsewhere::Refused,
        }
    }

    /// Whether a sealed datagram that names this session (`packrat_wire::seal::session_of`) is for [`Flow::control`]: the one that assists the
    /// flow, or the one that will when the client has proven that it has it.
    pub fn answers_to(&self, session: u32) -> bool {
        self.sessions().any(|name| name == session)
    }

    /// The sessions that this flow answers to: one, none, or two while a new one is to take over.
    pub fn sessions(&self) -> impl Iterator<Item = u32> + '_ {
        self.assisted.iter().chain(self.pending.as_deref()).map(|assisted| assisted.session.name())
    }

    /// When [`Flow::handle_timeout`] wants to be called, if at all. Changes only by the other calls.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let stale = self.pending.as_ref().map(|pending| pending.since + PENDING_LIFETIME);
        let session = self.assisted.as_ref().and_then(|assisted| assisted.session.next_timeout());
        stale.into_iter().chain(session).min()
    }

    /// Time has passed: tail probes, spaced copies of repairs.
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut Outbox) {
        self.forget_stale(now);
        if let Some(assisted) = &mut self.assisted {
            assisted.session.handle_timeout(now, self.counters.get_or_insert_default(), out);
        }
    }

    /// The flow ends (idle, drained): frees the cache and, when assisted, says goodbye to the client.
    pub fn close(&mut self, reason: GoodbyeReason, out: &mut Outbox) {
        self.pending = None;
        if let Some(assisted) = &mut self.assisted {
            assisted.session.say_goodbye(reason, out);
        }
        self.end(Side::Gateway, reason, out);
    }

    /// Counters since the last call.
    pub fn take_counters(&mut self) -> FlowCounters {
        if self.assisted.as_ref().is_none_or(|assisted| assisted.session.is_quiet()) {
            return self.counters.take().map(|counters| *counters).unwrap_or_default();
        }
        self.counters.as_deref_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Levels now.
    pub fn gauges(&self) -> FlowGauges {
        self.assisted.as_ref().map(|assisted| assisted.session.gauges()).unwrap_or_default()
    }

    fn end(&mut self, side: Side, reason: GoodbyeReason, out: &mut Outbox) {
        if let Some(assisted) = self.assisted.take() {
            let session = &assisted.session;
            out.event(Event::SessionClosed {
                session: session.name(),
                side,
                reason,
                totals: session.totals(),
            });
        }
    }
}

/// What became of a sealed datagram from another address than the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elsewhere {
    /// Forged, replayed, or for no session: drop it.
    Refused,
    /// Authentic: that address was challenged. Base datagrams from there belong to this flow's upstream already.
    Challenged,
    /// The answer to the challenge: the flow's client is there now.
    Moved,
}

/// Counts a session of the gateway as long as it lives, and the cache bytes it holds.
#[derive(Debug)]
pub(crate) struct Share {
    gateway: Arc<Gateway>,
    source: IpAddr,
    /// What repairs its source may have. There is one as soon as the client is known to receive at its address, and the source has been charged
    /// for the session.
    budget: Option<Arc<SourceBudget>>,
    cache_bytes: usize,
}

/// A session whose client has not proven its address keeps no more bytes than this: a server's first flight, not its patience.
const UNVALIDATED_CACHE_BYTES: usize = 128 * 1024;

/// An eACK that can't be decoded counts as so many where its source has had too many of them: its session is not listened to for ten seconds.
pub(crate) const MANY_FAILURES_FACTOR: u16 = 500;

impl Share {
    /// `None` when there is no room for another session, of this source or at all.
    pub(crate) fn new(gateway: &Arc<Gateway>, source: IpAddr, now: Timestamp) -> Option<Self> {
        let mut share = Self::below(gateway, source, gateway.config.maximum_sessions)?;
        share.validate(now).then_some(share)
    }

    /// The same for a client that has not proven its address: who forges addresses must not use up what belongs to them, nor more
    /// than half of the room. `None`: it has to prove it first.
    pub(crate) fn unvalidated(gateway: &Arc<Gateway>, source: IpAddr, now: Timestamp) -> Option<Self> {
        if !gateway.may_prepare(source, now) {
            return None;
        }
        Self::below(gateway, source, gateway.room_for_unvalidated())
    }

    fn below(gateway: &Arc<Gateway>, source: IpAddr, limit: usize) -> Option<Self> {
        gateway.take_room(limit).then_some(())?;
        Some(Self { gateway: Arc::clone(gateway), source, budget: None, cache_bytes: 0 })
    }

    /// The client receives at its address: from now on its source is charged for the session. `false`: it may have no more.
    pub(crate) fn validate(&mut self, now: Timestamp) -> bool {
        if self.budget.is_none() {
            self.budget = self.gateway.sources.begin(self.source, now);
        }
        self.budget.is_some()
    }

    /// A flow whose repairs may take this share has forwarded `bytes`.
    pub(crate) fn earn(&self, bytes: u64, share: f64) {
        match &self.budget {
            Some(source) => self.gateway.budget.earn_for(source, bytes, share),
            None => self.gateway.budget.earn(bytes, share),
        }
    }

    /// Takes `bytes` for a repair from what the flow, its source and the gateway may send. `live`: for a live stream.
    pub(crate) fn take_repair(&self, flow: &mut FlowBudget, bytes: usize, live: bool) -> bool {
        if let Some(source) = &self.budget {
            return self.gateway.budget.take(source, flow, bytes, live);
        }
        // Its first message proves the address, and is answered before the source is charged for the session.
        let source = self.gateway.sources.budget(self.source);
        self.gateway.budget.take(&source, flow, bytes, live)
    }

    /// An eACK could not be decoded: how many times what that costs is to be charged. Who has many sessions, each within its limit, could else keep
    /// the gateway busy with nothing but such eACKs.
    pub(crate) fn failure_factor(&self, now: Timestamp) -> u16 {
        self.gateway.failure_factor(self.source, now)
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Tells the gateway how much memory this session holds now.
    pub(crate) fn hold(&mut self, bytes: usize) {
        let total = &self.gateway.cache_bytes;
        if bytes >= self.cache_bytes {
            total.fetch_add(bytes - self.cache_bytes, Ordering::Relaxed);
        } else {
            total.fetch_sub(self.cache_bytes - bytes, Ordering::Relaxed);
        }
        self.cache_bytes = bytes;
    }

    /// Takes `more` bytes of memory, if all sessions together may have them.
    pub(crate) fn try_take(&mut self, more: usize) -> bool {
        let limit = self.gateway.config.cache_bytes_total;
        if self.budget.is_none() && self.cache_bytes + more > UNVALIDATED_CACHE_BYTES {
            return false;
        }
        let within = |held: usize| held.checked_add(more).filter(|held| *held <= limit);
        let taken =
            self.gateway.cache_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok();
        if taken {
            self.cache_bytes += more;
        }
        taken
    }

    pub(crate) fn held(&self) -> usize {
        self.cache_bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.gateway.sessions.fetch_sub(1, Ordering::Relaxed);
        if self.budget.is_some() {
            self.gateway.sources.end(self.source);
        }
        self.gateway.cache_bytes.fetch_sub(self.cache_bytes, Ordering::Relaxed);
    }
}
