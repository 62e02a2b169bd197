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
    /// A newer session that takes over when the client has proven that it has it: a repeated old Init can then not end a running one.
    pending: Option<Assisted>,
    counters: FlowCounters,
}

/// An assisted flow's session and how it began.
#[derive(Debug)]
struct Assisted {
    session: Box<Session>,
    nonce: u64,
    init_ack: Vec<u8>,
    since: Timestamp,
}

/// A pending session that nobody uses is forgotten after this.
const PENDING_LIFETIME: Duration = Duration::from_secs(5);

impl Flow {
    /// A flow without assistance: [`Flow::forward`] costs nothing until [`Flow::begin`].
    pub fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, assisted: None, pending: None, counters: FlowCounters::default() }
    }

    /// Starts (or restarts) assistance; `seed`: 32 fresh random bytes from the operating system. The answer is in the outbox. An Init
    /// that is repeated because its answer was lost gets the same answer and changes nothing.
    pub fn begin(
        &mut self,
        begin: Begin,
        seed: [u8; 32],
        now: Timestamp,
        out: &mut Outbox,
    ) -> HandshakeOutcome {
        for known in self.assisted.iter().chain(&self.pending) {
            if known.nonce == begin.nonce {
                out.send(|bytes| bytes.extend_from_slice(&known.init_ack));
                return HandshakeOutcome::Accepted;
            }
        }
        let Some(share) = Share::new(&self.gateway, begin.peer.ip(), now) else {
            return refuse(begin.nonce, HandshakeOutcome::RefusedFull, out);
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
        if self.assisted.is_some() {
            self.pending = Some(begun);
        } else {
            self.assist(begun, out);
        }
        HandshakeOutcome::Accepted
    }

    fn assist(&mut self, begun: Assisted, out: &mut Outbox) {
        self.counters.sessions_begun += 1;
        out.event(Event::SessionOpened { session: begun.session.name() });
        self.assisted = Some(begun);
    }

    /// Whether assistance is on.
    pub fn is_assisted(&self) -> bool {
        self.assisted.is_some()
    }

    /// A datagram of the base connection passes from the server to the client.
    #[inline]
    pub fn forward(&mut self, datagram: &[u8], now: Timestamp) {
        let Some(assisted) = &mut self.assisted else { return };
        // A server's datagram that looks like control is hidden from the client's transport: repairing it would be in vain.
        if is_control(datagram) {
            return;
        }
        assisted.session.forward(datagram, now, &mut self.counters);
        if let Some(pending) = &mut self.pending {
            if now.saturating_since(pending.since) > PENDING_LIFETIME {
                self.pending = None;
            } else {
                // Counted once.
                pending.session.forward(datagram, now, &mut FlowCounters::default());
            }
        }
    }

    /// A control datagram that [`Gateway::receive`] gave to this flow.
    pub fn control(&mut self, datagram: &[u8], now: Timestamp, out: &mut Outbox) {
        let named = session_of(datagram);
        if let Some(mut pending) = self.pending.take_if(|pending| named == Some(pending.session.name())) {
            let ended = pending.session.control(datagram, now, &mut self.counters, out);
            if !pending.session.is_proven() {
                self.pending = Some(pending);
                return;
            }
            self.end(Side::Client, GoodbyeReason::Done, out);
            self.assist(pending, out);
            if let Some(Ended(reason)) = ended {
                self.end(Side::Client, reason, out);
            }
            return;
        }
        let Some(assisted) = self.assisted.as_mut().filter(|assisted| named == Some(assisted.session.name()))
        else {
            self.gateway.refuse_session(datagram, out);
            return;
        };
        if let Some(Ended(reason)) = assisted.session.control(datagram, now, &mut self.counters, out) {
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
            let elsewhere =
                pending.session.control_from_elsewhere(datagram, from, now, &mut self.counters, out);
            if pending.session.is_proven() {
                self.end(Side::Client, GoodbyeReason::Done, out);
                self.assist(pending, out);
            } else {
                self.pending = Some(pending);
            }
            return elsewhere;
        }
        match self.assisted.as_mut().filter(|assisted| named == Some(assisted.session.name())) {
            Some(assisted) => {
                assisted.session.control_from_elsewhere(datagram, from, now, &mut self.counters, out)
            }
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
        self.assisted.iter().chain(&self.pending).map(|assisted| assisted.session.name())
    }

    /// When [`Flow::handle_timeout`] wants to be called, if at all. Changes only by the other calls.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.assisted.as_ref()?.session.next_timeout()
    }

    /// Time has passed: tail probes, spaced copies of repairs.
    pub fn handle_timeout(&mut self, now: Timestamp, out: &mut Outbox) {
        if let Some(assisted) = &mut self.assisted {
            assisted.session.handle_timeout(now, &mut self.counters, out);
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
        core::mem::take(&mut self.counters)
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
    cache_bytes: usize,
}

impl Share {
    /// `None` when there is no room for another session, of this source or at all.
    pub(crate) fn new(gateway: &Arc<Gateway>, source: IpAddr, now: Timestamp) -> Option<Self> {
        let limit = gateway.config.maximum_sessions;
        let room = |sessions: usize| (sessions < limit).then_some(sessions + 1);
        gateway.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        if !gateway.sources.begin(source, now) {
            gateway.sessions.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self { gateway: Arc::clone(gateway), source, cache_bytes: 0 })
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
        self.gateway.sources.end(self.source);
        self.gateway.cache_bytes.fetch_sub(self.cache_bytes, Ordering::Relaxed);
    }
}
