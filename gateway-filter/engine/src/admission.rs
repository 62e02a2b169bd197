//! Admission: the decision whether a source may begin or keep a session, and at what price.
//!
//! ```text
//!   Discover, Init ---> tokens ---> rate of handshakes ---> sources ---> room ---> SessionPermit
//!                         |            | (cookie first)        |           |            |
//!                         v            v                       v           v            | dropped with
//!                      refused      an Offer                refused     refused         v the session
//!                                                                                    returned
//! ```
//!
//! - [`tokens`]: permissions that an issuer gave
//! - [`sources`]: sessions and handshakes by source address
//! - [`permit`]: a session's share of the gateway's limits, returned when it ends
//! - [`rate_limit`]: token buckets that fill with time

mod permit;
mod rate_limit;
mod sources;
mod tokens;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::estimate::Timestamp;

use crate::budget::SourceBudget;
use crate::config::GatewayConfig;
pub(crate) use permit::SessionPermit;
pub(crate) use rate_limit::{RateLimit, SharedRateLimit};
use sources::Sources;
pub(crate) use tokens::TokenGate;
pub use tokens::{TokenAdmission, TokenCheck};

/// Costly decodes of all flows together, at most about a millisecond each.
const COSTLY_DECODES: Rate = Rate::per_second(200.0);
/// An eACK that can't be decoded counts as so many where its source has had too many of them: its
/// session is not listened to for ten seconds.
const MANY_FAILURES_FACTOR: u16 = 500;

/// The limits that all sessions of a gateway share, and what is used of them.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) tokens: TokenGate,
    maximum_sessions: usize,
    sessions: AtomicUsize,
    maximum_cache_bytes: usize,
    cache_bytes: AtomicUsize,
    sources: Sources,
    /// Handshakes below this rate need no cookie.
    handshakes: SharedRateLimit,
    costly_decodes: SharedRateLimit,
}

impl Admission {
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        let without_cookie = f64::from(config.handshakes_per_second_without_cookie);
        Self {
            tokens: TokenGate::default(),
            maximum_sessions: config.maximum_sessions,
            sessions: AtomicUsize::new(0),
            maximum_cache_bytes: config.cache_bytes_total,
            cache_bytes: AtomicUsize::new(0),
            sources: Sources::new(config),
            handshakes: SharedRateLimit::new(Rate::per_second(without_cookie)),
            costly_decodes: SharedRateLimit::new(COSTLY_DECODES),
        }
    }

    /// Sessions of all flows and streams together.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Counts a handshake. True if there are so few that the client need not prove its address
    /// first. A flood keeps the answer at no: each attempt counts, even one that is refused.
    pub(crate) fn count_handshake(&self, now: Timestamp) -> bool {
        self.handshakes.try_acquire_strictly(now)
    }

    /// True if a decode may be tried that is only needed when more is missing than a sketch holds,
    /// or when a client sends garbage. Shared by all flows, as their processors are.
    pub(crate) fn allows_costly_decode(&self, now: Timestamp) -> bool {
        self.costly_decodes.try_acquire(now)
    }

    /// Sessions up to which some are prepared for unvalidated addresses: the rest of the room is
    /// left to validated ones.
    fn room_for_unvalidated(&self) -> usize {
        self.maximum_sessions / 2
    }

    /// True if a session may be prepared for a client of this source that has not echoed a cookie.
    /// Changes nothing.
    pub(crate) fn may_prepare(&self, source: IpAddr, now: Timestamp) -> bool {
        self.sessions() < self.room_for_unvalidated() && self.sources.may_begin(source, now)
    }

    /// Counts another session, if there are fewer than `limit`.
    fn take_room(&self, limit: usize) -> bool {
        let room = |sessions: usize| (sessions < limit).then_some(sessions + 1);
        self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    fn leave_room(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a subscriber of a stream, and charges its source. Every success is followed by one
    /// [`Self::release_subscriber`]: a subscriber keeps no permit of its own, as there are
    /// thousands.
    pub(crate) fn admit_subscriber(
        &self,
        source: IpAddr,
        now: Timestamp,
    ) -> Option<Arc<SourceBudget>> {
        if !self.take_room(self.maximum_sessions) {
            return None;
        }
        let charged = self.sources.begin(source, now);
        if charged.is_none() {
            self.leave_room();
        }
        charged
    }

    /// Counts a subscriber that was another gateway's, whatever the limits.
    pub(crate) fn adopt_subscriber(&self, source: IpAddr) -> Arc<SourceBudget> {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        self.sources.adopt(source)
    }

    /// A subscriber of this source has gone.
    pub(crate) fn release_subscriber(&self, source: IpAddr) {
        self.leave_room();
        self.sources.end(source);
    }

    /// Counts an eACK of this source that could not be decoded, and says how many times its cost
    /// is to be charged. A source with many sessions, each within its limit, could else keep the
    /// gateway at work with nothing but such eACKs.
    pub(crate) fn failure_factor(&self, source: IpAddr, now: Timestamp) -> u16 {
        if self.sources.decode_failed(source, now) { 1 } else { MANY_FAILURES_FACTOR }
    }
}
