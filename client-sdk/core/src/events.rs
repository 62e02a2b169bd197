//! Events of the client: received and missing datagrams, messages to the gateway, losses that the
//! sender is to detect, and the reasons.
//!
//! Events are created only while an [`Observer`] is set. A packet is identified by its packet
//! number. The gateway's events of the same session are `packrat_engine::SessionEvent`.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use packrat_wire::control::RefusalReason;
use packrat_wire::estimate::Timestamp;
use packrat_wire::message::ResetReason;
use packrat_wire::{Epoch, MessageCounter, SessionId};

use crate::packet_number::PacketNumber;

/// An event of one connection's assistance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "event", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum ClientEvent {
    /// A gateway begins to assist.
    SessionOpened {
        /// The session.
        session: SessionId,
    },
    /// A session has ended.
    SessionClosed {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: SessionClosedReason,
    },
    /// A gateway has refused to assist.
    Refused {
        /// The gateway's reason.
        reason: RefusalReason,
    },
    /// A datagram of the base connection arrived, repaired or not.
    DatagramReceived {
        /// Length of the UDP payload.
        bytes: usize,
    },
    /// The datagram that arrived last had arrived before: a repair crossed the original, or the
    /// network copied it.
    DuplicateReceived,
    /// Packet numbers were skipped.
    HoleOpened {
        /// The first skipped packet number.
        first: PacketNumber,
        /// The last skipped packet number.
        last: PacketNumber,
        /// The reason for not waiting for the missing packets; `None` if the packets above them
        /// wait.
        not_held: Option<NotHeldReason>,
    },
    /// A missing packet arrived: repaired, or late.
    MissingArrived {
        /// The number of the packet.
        packet_number: PacketNumber,
        /// True if the packets above it have waited until now: the transport sees no loss.
        held: bool,
        /// Time since the hole opened.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "after_microseconds", serialize_with = "microseconds")
        )]
        after: Duration,
    },
    /// The wait for a hole has ended.
    HoldEnded {
        /// The first packet number that is missing.
        first: PacketNumber,
        /// The last packet number that is missing.
        last: PacketNumber,
        /// The reason.
        reason: HoldEndedReason,
        /// Time since the hole opened.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "after_microseconds", serialize_with = "microseconds")
        )]
        after: Duration,
    },
    /// A shim keeps a datagram that is above a hole.
    DatagramKept {
        /// The number of the datagram.
        packet_number: PacketNumber,
        /// Number of waiting datagrams, including this one.
        waiting: usize,
    },
    /// A shim has recovered a missing datagram from the gateway's symbols.
    DatagramRecovered {
        /// The number of the datagram.
        packet_number: PacketNumber,
    },
    /// The gateway has reported missing datagrams towards the server.
    HolesReceived {
        /// Number of missing datagrams.
        missing: u64,
        /// True if the gateway wants them: while a queue stands, the transport repairs its losses
        /// itself.
        wanted: bool,
    },
    /// A datagram towards the server was sent again.
    DatagramSentAgain {
        /// The place of the datagram among the numbered ones.
        place: u64,
        /// Length of the UDP payload.
        bytes: usize,
    },
    /// A copy of a datagram towards the server was sent, because the last mile loses datagrams, or its loss
    /// is unknown.
    CopySent {
        /// Length of the UDP payload.
        bytes: usize,
    },
    /// An eACK left.
    EackSent {
        /// The counter of the eACK.
        eack: MessageCounter,
        /// The epoch of the eACK.
        epoch: Epoch,
        /// Symbols of its prefix.
        symbols: u8,
        /// Number of missing packets that are waited for.
        held: u64,
        /// Length of the UDP payload.
        bytes: usize,
    },
    /// A Report arrived.
    ReportReceived {
        /// Counter of the newest eACK that the gateway had processed.
        eack: MessageCounter,
        /// Number of datagrams that the gateway was repairing then.
        missing: u16,
        /// Symbols of the prefix that the gateway requests because it could not decode the eACK.
        wanted_symbols: Option<u8>,
        /// True if a queue stands on the last mile: losses there are not repaired.
        queue_stands: bool,
    },
    /// A new epoch begins with empty sets.
    Reset {
        /// The epoch that begins.
        epoch: Epoch,
        /// The reason.
        reason: ResetReason,
    },
    /// A new epoch begins with a set that the gateway has handed over.
    Baseline {
        /// The epoch that begins.
        epoch: Epoch,
    },
    /// The gateway has challenged this address, and this client has answered: the client has moved.
    PathChallenged,
}

/// Reason for the end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SessionClosedReason {
    /// The gateway has sent a Goodbye.
    Goodbye,
    /// The gateway does not know the session.
    Unknown,
    /// The gateway has not answered for too long.
    Silent,
    /// The message counter is used up.
    Exhausted,
    /// The application no longer accepts this gateway.
    OtherGateway,
    /// The base connection has ended.
    Done,
}

/// Reason for not waiting for a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum NotHeldReason {
    /// The maximum hold is zero.
    Disabled,
    /// There is no session.
    NoSession,
    /// More runs of losses come together than the medium has: the sender must know.
    Overflow,
    /// The gateway has settled the last hole: the sender leaves numbers out, or losses are before the gateway.
    Settled,
    /// The client uploads: the missing packets are probably acknowledgements.
    Uploading,
    /// A queue stands on the last mile: the sender must know of the loss.
    QueueStands,
    /// The sender has begun with a window that no loss-based sender has, and the gateway's verdict has not
    /// arrived.
    LargeWindow,
    /// The gateway does not answer: no repair is to be expected.
    Silent,
}

/// Reason for ending a hold before the missing packets have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum HoldEndedReason {
    /// The time of the hold is over.
    Expired,
    /// The gateway does not repair the hole: the sender left the numbers out, or the loss was
    /// elsewhere or is beyond repair.
    Settled,
    /// More runs of losses come together than the medium has: the sender must know.
    Overflow,
    /// The sender has begun with a window that no loss-based sender has.
    LargeWindow,
    /// The gateway does not answer.
    Silent,
    /// The session has ended.
    SessionClosed,
    /// There are too many holes.
    TooMany,
}

type Call = dyn Fn(Timestamp, &ClientEvent) + Send + Sync;

/// Receives the events of connections.
///
/// The observer is called from within the core: it must return soon, and must not call the
/// connection.
///
/// ```
/// use packrat_client::{Assist, ClientConfig, ClientEvent, Observer, Timestamp};
///
/// let mut assist = Assist::new(ClientConfig::default(), [7; 32], Timestamp::ZERO);
/// assist.observe(Observer::new(|at, event| {
///     if let ClientEvent::HoldEnded { first, last, reason, .. } = event {
///         println!("{} s: {first:?} to {last:?} not repaired: {reason:?}", at.as_secs_f64());
///     }
/// }));
/// ```
#[derive(Clone)]
pub struct Observer(Arc<Call>);

impl Observer {
    /// An observer that passes each event and its time to `call`.
    pub fn new(call: impl Fn(Timestamp, &ClientEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Observer")
    }
}

/// The observer of events, if one is set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(Option<Observer>);

impl Events {
    /// Reports all events to this observer.
    pub(crate) fn to(observer: Observer) -> Self {
        Self(Some(observer))
    }

    /// Reports an event, which is created only if an observer is set.
    #[inline]
    pub(crate) fn tell(&self, now: Timestamp, event: impl FnOnce() -> ClientEvent) {
        if let Some(Observer(call)) = &self.0 {
            call(now, &event());
        }
    }
}

#[cfg(feature = "serde")]
fn microseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}
