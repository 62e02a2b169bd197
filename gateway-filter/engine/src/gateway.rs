//! The gateway: limits and keys that all flows share, and the first, stateless check of a control
//! datagram.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use packrat_wire::control::{Control, PROTOCOL_VERSION, RefusalReason, session_nonce};
use packrat_wire::cookie::CookieKey;
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::{ServerTicket, client_params_in};
use packrat_wire::registry::{choose_version, gateway_versions};

use crate::admission::{Admission, TokenAdmission, WorkBudget};
use crate::budget::GatewayBudget;
use crate::config::GatewayConfig;
use crate::holdout::HoldoutKey;
use crate::keys::Keys;
use crate::loss_memory::LossMemory;
use crate::outbox::Outbox;
use crate::sender_memory::SenderMemory;
use crate::sync::{RwLock, RwLockReadGuard};

/// Lifetime of a cookie secret.
pub const COOKIE_SECRET_LIFETIME: Duration = Duration::from_secs(3600);

/// Shared state of all flows and streams: static key, cookie key, limits, admission, repair budget.
pub struct Gateway {
    pub(crate) keys: RwLock<Keys>,
    pub(crate) budget: GatewayBudget,
    pub(crate) admission: Admission,
    pub(crate) senders: Arc<SenderMemory>,
    cookies: RwLock<Cookies>,
    holdout: RwLock<HoldoutKey>,
}

/// The current cookie secret, the previous one, and the time of their exchange.
struct Cookies {
    current: CookieKey,
    previous: Option<CookieKey>,
    since: Timestamp,
}

impl core::fmt::Debug for Gateway {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Gateway").field("config", &self.config()).finish_non_exhaustive()
    }
}

/// Outcome of [`Gateway::receive`]: what the caller has to do with a control datagram.
#[derive(Debug)]
pub enum Received {
    /// The datagram was answered (the answer is in the outbox) or dropped.
    Done(HandshakeOutcome),
    /// An Init with a valid cookie, or a Discover that may do without: find or create the flow of
    /// this client address and call [`crate::Flow::begin`].
    Begin(Begin),
    /// A sealed datagram: call [`crate::Flow::control`] of the flow of this client address; if it
    /// names another flow's session, call that flow's [`crate::Flow::control_on_new_path`]; without
    /// either flow: [`Gateway::refuse_session`].
    ForFlow,
}

/// Outcome of a handshake datagram; the label of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HandshakeOutcome {
    /// A Discover was answered with an Offer.
    Offered,
    /// Refusal sent: no version in common.
    RefusedVersion,
    /// Refusal sent: this route is not assisted.
    RefusedDisabled,
    /// Refusal sent: the cookie is not valid (any more).
    RefusedCookie,
    /// Refusal sent: no room for another session.
    RefusedFull,
    /// Refusal sent: the required token is missing.
    RefusedTokenMissing,
    /// Refusal sent: the token has expired.
    RefusedTokenExpired,
    /// Refusal sent: the token is malformed, forged, or made with a key that is not in force.
    RefusedTokenForged,
    /// Refusal sent: the token is for another route or another network.
    RefusedTokenElsewhere,
    /// Refusal sent: the client is in the holdout, which is left without assistance.
    RefusedHoldout,
    /// Refusal sent: the sealed datagram names a session that does not exist.
    RefusedSession,
    /// Dropped: malformed.
    Malformed,
    /// A session has begun (or an Init was repeated): the answer is in the outbox.
    Accepted,
    /// A session was prepared for a client that has not echoed a cookie: the answer is in the
    /// outbox.
    AcceptedWithoutCookie,
}

impl HandshakeOutcome {
    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Offered => "offered",
            Self::RefusedVersion => "refused_version",
            Self::RefusedDisabled => "refused_disabled",
            Self::RefusedCookie => "refused_cookie",
            Self::RefusedFull => "refused_full",
            Self::RefusedTokenMissing => "refused_token_missing",
            Self::RefusedTokenExpired => "refused_token_expired",
            Self::RefusedTokenForged => "refused_token_forged",
            Self::RefusedTokenElsewhere => "refused_token_elsewhere",
            Self::RefusedHoldout => "refused_holdout",
            Self::RefusedSession => "refused_session",
            Self::Malformed => "malformed",
            Self::Accepted => "accepted",
            Self::AcceptedWithoutCookie => "accepted_without_cookie",
        }
    }

    /// Reason in the Refusal that the client is sent.
    const fn refusal(self) -> Option<RefusalReason> {
        Some(match self {
            Self::RefusedVersion => RefusalReason::Version,
            Self::RefusedDisabled => RefusalReason::Disabled,
            Self::RefusedCookie => RefusalReason::Cookie,
            Self::RefusedFull => RefusalReason::Full,
            Self::RefusedHoldout => RefusalReason::Holdout,
            Self::RefusedSession => RefusalReason::Session,
            Self::RefusedTokenMissing
            | Self::RefusedTokenExpired
            | Self::RefusedTokenForged
            | Self::RefusedTokenElsewhere => RefusalReason::Token,
            Self::Offered | Self::Malformed | Self::Accepted | Self::AcceptedWithoutCookie => {
                return None;
            }
        })
    }
}

/// A client's first Noise message, with a valid token if one is required.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    pub(crate) peer: SocketAddr,
    /// True if a cookie proves that the client receives at this address. Otherwise the first sealed
    /// message must prove it.
    pub(crate) is_validated: bool,
    pub(crate) nonce: u64,
    pub(crate) noise: Vec<u8>,
    /// Number of datagrams of the base connection that came from the client before, if set.
    pub(crate) heard: Option<u8>,
    /// Ticket that names the client's server, if set.
    pub(crate) ticket: Option<ServerTicket>,
}

impl Begin {
    fn new(peer: SocketAddr, is_validated: bool, nonce: u64, noise: &[u8]) -> Self {
        Self { peer, is_validated, nonce, noise: noise.to_vec(), heard: None, ticket: None }
    }

    /// Sets the number of datagrams of the base connection that have come along the client's path
    /// before this. The client learns it, and resends its first datagrams if some have not arrived.
    #[must_use]
    pub fn after(mut self, datagrams: u64) -> Self {
        self.heard = Some(u8::try_from(datagrams).unwrap_or(u8::MAX));
        self
    }

    /// Gives the client a ticket for its server ([`Gateway::ticket`]).
    #[must_use]
    pub fn with_ticket(mut self, ticket: ServerTicket) -> Self {
        self.ticket = Some(ticket);
        self
    }

    /// True if a cookie has proved that the client receives at its address.
    pub fn is_validated(&self) -> bool {
        self.is_validated
    }

    /// The ticket that the client shows, from its previous gateway. Anyone can write one; see
    /// [`Gateway::server_of`].
    pub fn shown_ticket(&self) -> Option<ServerTicket> {
        client_params_in(&self.noise).ok()?.ticket
    }
}

impl Gateway {
    /// `static_key`: the 32-byte X25519 private key that clients may pin; `secret`: 32 random bytes
    /// for cookies.
    pub fn new(config: GatewayConfig, static_key: [u8; 32], secret: [u8; 32]) -> Arc<Self> {
        Self::sharing(config, static_key, secret, Arc::default())
    }

    /// A gateway that shares its threads and its clock with other gateways. `work`: the common
    /// budget of these threads' work for messages of all clients.
    pub fn sharing(
        config: GatewayConfig,
        static_key: [u8; 32],
        secret: [u8; 32],
        work: Arc<WorkBudget>,
    ) -> Arc<Self> {
        Self::remembering(config, static_key, secret, work, Arc::default())
    }

    /// Like [`Self::sharing`], with the memory of the route's senders.
    pub fn remembering(
        config: GatewayConfig,
        static_key: [u8; 32],
        secret: [u8; 32],
        work: Arc<WorkBudget>,
        senders: Arc<SenderMemory>,
    ) -> Arc<Self> {
        Arc::new(Self {
            budget: GatewayBudget::new(),
            senders,
            admission: Admission::new(config, work),
            holdout: RwLock::new(HoldoutKey::new(secret)),
            keys: RwLock::new(Keys::new(static_key, &[])),
            cookies: RwLock::new(Cookies {
                current: CookieKey::new(secret),
                previous: None,
                since: Timestamp::ZERO,
            }),
        })
    }

    /// Puts a token admission in force ([`TokenAdmission::Off`] until then), for example with a new
    /// key; existing sessions continue. Tokens expire by the calendar: call
    /// [`Self::set_unix_origin`] as well.
    pub fn set_tokens(&self, admission: TokenAdmission) {
        self.admission.tokens.set(admission);
    }

    /// Sets the calendar's time at [`Timestamp::ZERO`], as time since 1970; call it again when the
    /// clock is corrected. Before the first call every token counts as expired.
    pub fn set_unix_origin(&self, origin: Duration) {
        self.admission.tokens.set_unix_origin(origin);
    }

    /// The limits and policies in force.
    pub fn config(&self) -> GatewayConfig {
        self.admission.config.get()
    }

    /// Puts other limits and policies in force, also for running sessions. A smaller number of
    /// sessions ends none of them, a cache that is too large gives up its oldest datagrams within a
    /// second, and the next eACK applies the new repair budget. If assistance is switched off, the
    /// shell closes the flows ([`crate::Flow::close`]).
    pub fn reconfigure(&self, config: GatewayConfig) {
        self.admission.config.set(config);
    }

    /// Chooses the clients of the holdout ([`GatewayConfig::holdout`]) with this secret; the
    /// default is the cookie secret. Gateways with the same secret choose the same clients.
    pub fn set_holdout_key(&self, secret: [u8; 32]) {
        *self.holdout.write().unwrap_or_else(PoisonError::into_inner) = HoldoutKey::new(secret);
    }

    /// The losses of the clients' last miles.
    pub(crate) fn losses(&self) -> &LossMemory {
        &self.senders.losses
    }

    /// True if clients of this address are refused assistance for comparison.
    pub(crate) fn holds_out(&self, client: IpAddr) -> bool {
        let share = self.config().holdout;
        let key = self.holdout.read().unwrap_or_else(PoisonError::into_inner);
        share > 0.0 && key.chooses(client, share)
    }

    /// A number that stands for clients of this address in a comparison, of this gateway alone.
    pub fn hash_of_source(&self, client: IpAddr) -> u64 {
        self.holdout.read().unwrap_or_else(PoisonError::into_inner).hash(client)
    }

    /// A number that stands for the network of this address, which one attacker may hold as a
    /// whole: a /24 of IPv4, a /48 of IPv6.
    pub fn hash_of_network(&self, client: IpAddr) -> u64 {
        self.holdout.read().unwrap_or_else(PoisonError::into_inner).hash_of_network(client)
    }

    /// Sessions of all flows together.
    pub fn sessions(&self) -> usize {
        self.admission.sessions()
    }

    /// The work of clients' messages on each thread.
    pub fn work(&self) -> &WorkBudget {
        &self.admission.work
    }

    /// True if the cookie secret has been in use for [`COOKIE_SECRET_LIFETIME`]: time for
    /// [`Self::rotate_cookie_secret`].
    pub fn is_cookie_secret_old(&self, now: Timestamp) -> bool {
        now.saturating_since(self.cookies().since) >= COOKIE_SECRET_LIFETIME
    }

    /// Makes new cookies with `secret` (32 fresh random bytes) from now on; cookies of the previous
    /// secret remain valid for their lifetime. Does nothing if the current secret is not old:
    /// another thread was quicker.
    pub fn rotate_cookie_secret(&self, secret: [u8; 32], now: Timestamp) {
        let mut cookies = self.cookies.write().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_since(cookies.since) < COOKIE_SECRET_LIFETIME {
            return;
        }
        let previous = core::mem::replace(&mut cookies.current, CookieKey::new(secret));
        cookies.previous = Some(previous);
        cookies.since = now;
    }

    fn cookies(&self) -> RwLockReadGuard<'_, Cookies> {
        self.cookies.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cookie_right(
        &self,
        peer: SocketAddr,
        nonce: u64,
        time: u32,
        cookie: &[u8; 16],
        now: Timestamp,
    ) -> bool {
        let cookies = self.cookies();
        let mut keys = std::iter::once(&cookies.current).chain(&cookies.previous);
        keys.any(|key| key.check(peer, nonce, time, cookie, now))
    }

    /// Checks a control datagram (one for which `packrat_wire::is_control` holds). Keeps no state,
    /// and puts at most one answer into the outbox, never longer than `datagram`.
    pub fn receive(
        &self,
        datagram: &[u8],
        peer: SocketAddr,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Received {
        let begun = match Control::decode(datagram) {
            Ok(Control::Discover { nonce, .. } | Control::Init { nonce, .. })
                if !self.config().takes_clients() =>
            {
                Err(refuse(nonce, HandshakeOutcome::RefusedDisabled, out))
            }
            Ok(Control::Discover { nonce, versions, noise }) => self
                .check_discover(nonce, versions, noise, peer, now, out)
                .map(|()| Begin::new(peer, false, nonce, noise)),
            Ok(Control::Init { nonce, cookie_time, cookie, noise }) => {
                let is_cookie_right = self.is_cookie_right(peer, nonce, cookie_time, &cookie, now);
                self.check_init(nonce, is_cookie_right, noise, peer, now, out)
                    .map(|()| Begin::new(peer, true, nonce, noise))
            }
            Ok(Control::Sealed { .. }) => return Received::ForFlow,
            Ok(Control::Offer { .. } | Control::InitAck { .. } | Control::Refusal { .. })
            | Err(_) => Err(HandshakeOutcome::Malformed),
        };
        begun.map_or_else(Received::Done, Received::Begin)
    }

    /// Checks a first message, and answers it unless a session may begin with it.
    fn check_discover(
        &self,
        nonce: u64,
        versions: &[u8],
        noise: &[u8],
        peer: SocketAddr,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<(), HandshakeOutcome> {
        if choose_version(versions).is_none() {
            return Err(refuse(nonce, HandshakeOutcome::RefusedVersion, out));
        }
        if noise.is_empty() || !self.admission.count_handshake(now) {
            return Err(self.offer(nonce, peer, now, out));
        }
        self.check_token(nonce, noise, peer, now, out)?;
        // Checked here, so that the shell opens no flow just to send a cookie. A client of the
        // holdout is compared: it must receive at its address.
        if !self.admission.may_prepare(peer.ip(), now) || self.holds_out(peer.ip()) {
            return Err(self.offer(nonce, peer, now, out));
        }
        Ok(())
    }

    /// Checks a message with a cookie, and answers it unless a session may begin with it.
    fn check_init(
        &self,
        nonce: u64,
        is_cookie_right: bool,
        noise: &[u8],
        peer: SocketAddr,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<(), HandshakeOutcome> {
        if !is_cookie_right {
            return Err(refuse(nonce, HandshakeOutcome::RefusedCookie, out));
        }
        self.check_token(nonce, noise, peer, now, out)?;
        // A client that has echoed a cookie need not do so again.
        self.admission.count_handshake(now);
        Ok(())
    }

    /// Checks the token of a first Noise message.
    fn check_token(
        &self,
        nonce: u64,
        noise: &[u8],
        peer: SocketAddr,
        now: Timestamp,
        out: &mut Outbox,
    ) -> Result<(), HandshakeOutcome> {
        let checked = self.admission.tokens.check(noise, peer.ip(), now);
        checked.map_err(|refusal| refuse(nonce, refusal.outcome(), out))
    }

    /// True if this thread has time to answer a handshake from this address. Otherwise it has to
    /// forward first, and has time again after [`crate::HANDSHAKE_PAUSE`].
    pub fn has_time_for_handshake(&self, client: IpAddr, now: Timestamp) -> bool {
        self.admission.may_answer_now(client, now)
    }

    /// True if a datagram begins a session of a client that has proven its address, and this thread
    /// has no time for it: the shell keeps the datagram until then. Changes no state, and reads
    /// state of all threads for handshakes only, which are few of the control datagrams.
    pub fn has_to_wait(&self, datagram: &[u8], peer: SocketAddr, now: Timestamp) -> bool {
        matches!(
            Control::decode(datagram),
            Ok(Control::Init { nonce, cookie_time, cookie, .. })
                if !self.has_time_for_handshake(peer.ip(), now)
                    && self.is_cookie_right(peer, nonce, cookie_time, &cookie, now)
        )
    }

    /// Answers a client that has echoed no cookie with one, before an action for which the client
    /// must have proven its address.
    pub fn ask_for_cookie(
        &self,
        begin: &Begin,
        now: Timestamp,
        out: &mut Outbox,
    ) -> HandshakeOutcome {
        self.offer(begin.nonce, begin.peer, now, out)
    }

    /// Answers with a cookie: the client has to come again with it.
    pub(crate) fn offer(
        &self,
        nonce: u64,
        peer: SocketAddr,
        now: Timestamp,
        out: &mut Outbox,
    ) -> HandshakeOutcome {
        let (cookie_time, cookie) = self.cookies().current.make(peer, nonce, now);
        out.send(|bytes| {
            Control::Offer { nonce, version: PROTOCOL_VERSION, cookie_time, cookie }.encode(bytes);
        });
        HandshakeOutcome::Offered
    }

    /// Sends a Refusal to the sender of a sealed datagram whose session does not exist (any more):
    /// this gateway may have restarted.
    pub fn refuse_session(&self, datagram: &[u8], out: &mut Outbox) -> HandshakeOutcome {
        match Control::decode(datagram) {
            // The answer is never longer than the datagram.
            Ok(Control::Sealed { session, counter, ciphertext }) if ciphertext.len() >= 16 => {
                refuse(session_nonce(session, counter), HandshakeOutcome::RefusedSession, out)
            }
            _ => HandshakeOutcome::Malformed,
        }
    }
}

/// Sends the client a Refusal.
pub(crate) fn refuse(nonce: u64, outcome: HandshakeOutcome, out: &mut Outbox) -> HandshakeOutcome {
    if let Some(reason) = outcome.refusal() {
        let versions = &gateway_versions(nonce);
        out.send(|bytes| Control::Refusal { nonce, reason, versions }.encode(bytes));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_wire::{MessageCounter, SessionId};

    fn gateway(assist: bool) -> Arc<Gateway> {
        Gateway::new(GatewayConfig { assist, ..GatewayConfig::default() }, [1; 32], [2; 32])
    }

    fn client() -> SocketAddr {
        "192.0.2.1:5000".parse().unwrap()
    }

    fn discover(versions: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Control::Discover { nonce: 5, versions, noise: &[] }.encode(&mut bytes);
        bytes
    }

    #[test]
    fn nothing_answers_with_more_than_it_was_sent() {
        let mut out = Outbox::new();
        for (assist, versions) in
            [(true, &[PROTOCOL_VERSION][..]), (true, &[9][..]), (false, &[PROTOCOL_VERSION][..])]
        {
            let question = discover(versions);
            out.clear();
            gateway(assist).receive(&question, client(), Timestamp::ZERO, &mut out);
            let answers: Vec<_> = out.datagrams().collect();
            assert!(answers.len() == 1 && answers[0].len() <= question.len());
        }
        let mut init = Vec::new();
        Control::Init { nonce: 1, cookie_time: 0, cookie: [0; 16], noise: &[0; 48] }
            .encode(&mut init);
        out.clear();
        let received = gateway(true).receive(&init, client(), Timestamp::ZERO, &mut out);
        assert!(matches!(received, Received::Done(HandshakeOutcome::RefusedCookie)));
        assert!(out.datagrams().map(<[u8]>::len).sum::<usize>() <= init.len());
    }

    #[test]
    fn only_the_address_that_got_the_cookie_can_begin() {
        let (gateway, mut out) = (gateway(true), Outbox::new());
        gateway.receive(&discover(&[PROTOCOL_VERSION]), client(), Timestamp::ZERO, &mut out);
        let offer = out.datagrams().next().unwrap().to_vec();
        let Ok(Control::Offer { nonce, cookie_time, cookie, .. }) = Control::decode(&offer) else {
            panic!()
        };
        let mut init = Vec::new();
        Control::Init { nonce, cookie_time, cookie, noise: &[7; 40] }.encode(&mut init);
        out.clear();
        assert!(matches!(
            gateway.receive(&init, client(), Timestamp::ZERO, &mut out),
            Received::Begin(_)
        ));
        let other = "192.0.2.2:5000".parse().unwrap();
        let received = gateway.receive(&init, other, Timestamp::ZERO, &mut out);
        assert!(matches!(received, Received::Done(HandshakeOutcome::RefusedCookie)));
    }

    #[test]
    fn a_session_that_does_not_exist_is_refused_in_fewer_bytes() {
        let mut sealed = Vec::new();
        Control::Sealed {
            session: SessionId::new(3),
            counter: MessageCounter::new(9),
            ciphertext: &[0; 17],
        }
        .encode(&mut sealed);
        let (gateway, mut out) = (gateway(true), Outbox::new());
        assert_eq!(gateway.refuse_session(&sealed, &mut out), HandshakeOutcome::RefusedSession);
        let answer = out.datagrams().next().unwrap();
        assert!(answer.len() <= sealed.len());
        let nonce = session_nonce(SessionId::new(3), MessageCounter::new(9));
        assert!(
            matches!(Control::decode(answer), Ok(Control::Refusal { nonce: told, .. }) if told == nonce)
        );
    }

    #[test]
    fn a_cookie_outlives_one_rotation_of_the_secret() {
        let (gateway, mut out) = (gateway(true), Outbox::new());
        let offer = |gateway: &Gateway, out: &mut Outbox| {
            out.clear();
            gateway.receive(&discover(&[PROTOCOL_VERSION]), client(), Timestamp::ZERO, out);
            out.datagrams().next().unwrap().to_vec()
        };
        let offered = offer(&gateway, &mut out);
        let Ok(Control::Offer { nonce, cookie_time, cookie, .. }) = Control::decode(&offered)
        else {
            panic!()
        };
        let mut init = Vec::new();
        Control::Init { nonce, cookie_time, cookie, noise: &[7; 40] }.encode(&mut init);
        assert!(!gateway.is_cookie_secret_old(Timestamp::from_millis(1000)));
        assert!(gateway.is_cookie_secret_old(Timestamp::ZERO + COOKIE_SECRET_LIFETIME));
        gateway.rotate_cookie_secret([3; 32], Timestamp::ZERO);
        assert_eq!(offer(&gateway, &mut out), offered, "too early");
        let later = Timestamp::ZERO + COOKIE_SECRET_LIFETIME;
        gateway.rotate_cookie_secret([3; 32], later);
        assert_ne!(offer(&gateway, &mut out), offered);
        out.clear();
        assert!(matches!(
            gateway.receive(&init, client(), Timestamp::ZERO, &mut out),
            Received::Begin(_)
        ));
        gateway.rotate_cookie_secret([4; 32], later + COOKIE_SECRET_LIFETIME);
        let received = gateway.receive(&init, client(), Timestamp::ZERO, &mut out);
        assert!(matches!(received, Received::Done(HandshakeOutcome::RefusedCookie)));
    }

    #[test]
    fn garbage_is_counted_and_not_answered() {
        let mut out = Outbox::new();
        for length in 5..200usize {
            let mut garbage: Vec<u8> = (0..length).map(|i| (i * 7 + length) as u8).collect();
            garbage[..4].copy_from_slice(&[packrat_wire::control::FIRST_BYTE, b'P', b'k', b'r']);
            garbage[4] = PROTOCOL_VERSION << 4 | 15;
            let received = gateway(true).receive(&garbage, client(), Timestamp::ZERO, &mut out);
            assert!(matches!(received, Received::Done(HandshakeOutcome::Malformed)));
        }
        assert!(out.is_empty());
    }
}
