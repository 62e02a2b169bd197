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
//! - [`account`]: use of the shared limits by a source and its networks
//! - [`work`]: time of a thread that messages take, and their sources
//! - [`permit`]: a session's share of the gateway's limits, returned when it ends
//! - [`rate_limit`]: token buckets that fill with time

mod account;
mod permit;
mod rate_limit;
mod sources;
mod tokens;
mod work;

use std::net::IpAddr;
use std::sync::Arc;

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::estimate::Timestamp;

use crate::config::{ConfigInForce, GatewayConfig};
use crate::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use account::{Network, SOURCE_LEVELS, SourceAccount};
pub(crate) use permit::SessionPermit;
pub(crate) use rate_limit::SharedRateLimit;
use sources::Sources;
pub(crate) use tokens::TokenGate;
pub use tokens::{TokenAdmission, TokenCheck};
use work::HANDSHAKE_WORK;
pub use work::{HANDSHAKE_PAUSE, WorkBudget};
pub(crate) use work::{MESSAGE_WORK, TICKET_WORK, WorkKind};

/// The limits that all sessions of a gateway share, and their use.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) tokens: TokenGate,
    /// The limits in force.
    pub(crate) config: ConfigInForce,
    sessions: AtomicUsize,
    pub(crate) cache_bytes: AtomicUsize,
    sources: Sources,
    /// Handshakes below this rate need no cookie.
    handshakes: SharedRateLimit,
    pub(crate) work: Arc<WorkBudget>,
}

impl Admission {
    pub(crate) fn new(config: GatewayConfig, work: Arc<WorkBudget>) -> Self {
        let handshakes = SharedRateLimit::new(&rate_without_cookie(&config));
        Self {
            tokens: TokenGate::default(),
            sessions: AtomicUsize::new(0),
            cache_bytes: AtomicUsize::new(0),
            sources: Sources::default(),
            handshakes,
            work,
            config: ConfigInForce::new(config),
        }
    }

    /// Sessions of all flows and streams together.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Counts a handshake. True if there are so few that the client need not prove its address
    /// first. A flood keeps the answer at no: each attempt counts, even one that is refused.
    pub(crate) fn count_handshake(&self, now: Timestamp) -> bool {
        self.handshakes.try_acquire_strictly(&rate_without_cookie(&self.config.get()), now)
    }

    /// Number of sessions up to which some are prepared for unvalidated addresses: the rest of the
    /// room is left to validated ones.
    fn room_for_unvalidated(config: &GatewayConfig) -> usize {
        config.maximum_sessions / 2
    }

    /// True if a session may be prepared for a client of this source that has not echoed a cookie.
    /// Does not change the limits.
    pub(crate) fn may_prepare(&self, source: IpAddr, now: Timestamp) -> bool {
        let config = self.config.get();
        self.sessions() < Self::room_for_unvalidated(&config)
            && self.sources.may_begin(source, &config, now)
    }

    /// True if a handshake may be answered now, false if this thread has to forward first.
    pub(crate) fn may_answer_now(&self, source: IpAddr, now: Timestamp) -> bool {
        let account = self.sources.nearest_account(source);
        self.work.has_handshake_slice(account.as_deref(), now)
    }

    /// Charges this thread, and the source if it is known, for the handshake that is about to be
    /// answered. `false`: there is no time for it now.
    pub(crate) fn take_handshake(&self, source: Option<&SourceAccount>, now: Timestamp) -> bool {
        let admitted = self.work.admits(WorkKind::Handshake, source, 1.0, now);
        if admitted {
            self.work.charge(WorkKind::Handshake, source, HANDSHAKE_WORK, now);
        }
        admitted
    }

    /// Charges this thread, and the source if it is known, for comparing a ticket with this number
    /// of servers.
    pub(crate) fn charge_ticket(&self, source: IpAddr, servers: usize, now: Timestamp) {
        let account = self.sources.nearest_account(source);
        let units = TICKET_WORK * servers as u64;
        self.work.charge(WorkKind::Handshake, account.as_deref(), units, now);
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
    ) -> Option<Arc<SourceAccount>> {
        let config = self.config.get();
        if !self.take_room(config.maximum_sessions) {
            return None;
        }
        let charged = self.sources.begin(source, &config, now);
        if charged.is_none() {
            self.leave_room();
        }
        charged
    }

    /// Releases a subscriber of this source.
    pub(crate) fn release_subscriber(&self, source: IpAddr) {
        self.leave_room();
        self.sources.end(source);
    }
}

/// Rate of handshakes below which they need no cookie.
fn rate_without_cookie(config: &GatewayConfig) -> Rate {
    Rate::per_second(f64::from(config.handshakes_per_second_without_cookie))
}
