//! Events of a session that an operator may want in the log.

use packrat_wire::message::{GoodbyeReason, ResetReason, Totals};
use packrat_wire::{Epoch, SessionId};

use crate::session_event::SessionEvent;

/// The end that caused an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Side {
    /// The client.
    Client,
    /// The gateway.
    Gateway,
}

impl Side {
    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gateway => "gateway",
        }
    }
}

/// Something an operator may want a log line for, or a step of a session that is observed.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Assistance of a flow has begun.
    SessionOpened {
        /// The session.
        session: SessionId,
    },
    /// A new epoch has begun.
    Reset {
        /// The session.
        session: SessionId,
        /// The end that asked for it.
        side: Side,
        /// The reason.
        reason: ResetReason,
        /// The epoch that begins.
        epoch: Epoch,
    },
    /// A session's client has another address now (NAT rebinding, roaming).
    ClientMoved {
        /// The session.
        session: SessionId,
    },
    /// Assistance of a flow has ended.
    SessionClosed {
        /// The session.
        session: SessionId,
        /// The end that ended it.
        side: Side,
        /// The reason.
        reason: GoodbyeReason,
        /// Totals of the session.
        totals: Totals,
    },
    /// The route's sessions begin in another way from here on: their findings about their senders
    /// have tipped.
    SendersJudged {
        /// The session that has tipped it.
        session: SessionId,
        /// Sessions begin without repairs, because senders tolerate losses.
        tolerant: bool,
    },
    /// A step within a session; only while it is observed.
    Session {
        /// The session.
        session: SessionId,
        /// The step.
        event: SessionEvent,
    },
}
