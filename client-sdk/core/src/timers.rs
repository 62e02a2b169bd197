//! The timers of one connection.

/// Timers of a connection; [`Assist::deadline`](crate::Assist) is the one table of their deadlines.
/// Timers that are due at the same time are handled in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The server is to hear from this client: due at once.
    Remind,
    /// A hole's hold ends.
    Hold,
    /// A doubted session is believed to be gone.
    Doubt,
    /// The server is reminded of this client, between two gateways.
    Reminder,
    /// No datagram has come for a while: the gateway is asked for an echo.
    Quiet,
    /// An echo is overdue.
    Echo,
    /// The gateway has not reported the last datagram sent.
    Tail,
    /// The copy of a datagram that was sent.
    Copy,
    /// The next question to a gateway.
    Handshake,
    /// The next eACK, or bundle without one.
    Eack,
}

impl Timer {
    /// All timers, in the order in which they are handled.
    pub(crate) const ALL: [Self; 10] = [
        Self::Remind,
        Self::Hold,
        Self::Doubt,
        Self::Reminder,
        Self::Quiet,
        Self::Echo,
        Self::Tail,
        Self::Copy,
        Self::Handshake,
        Self::Eack,
    ];
}
