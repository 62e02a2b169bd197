//! What an operator may want a log line for.

use packrat_wire::message::{GoodbyeReason, ResetReason, Totals};

/// Who caused something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

/// Something an operator may want a log line for.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Assistance of a flow has begun.
    SessionOpened {
        /// Name of the session.
        session: u32,
    },
    /// A new epoch has begun.
    Reset {
        /// Name of the session.
        session: u32,
        /// Who asked for it.
        side: Side,
        /// Why.
        reason: ResetReason,
        /// The epoch that begins.
        epoch: u16,
    },
    /// A session's client has another address now (NAT rebinding, roaming).
    SessionMoved {
        /// Name of the session.
        session: u32,
    },
    /// Assistance of a flow has ended.
    SessionClosed {
        /// Name of the session.
        session: u32,
        /// Who ended it.
        side: Side,
        /// Why.
        reason: GoodbyeReason,
        /// What it did.
        totals: Totals,
    },
}
