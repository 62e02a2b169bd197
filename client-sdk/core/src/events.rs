//! Events of the client: what arrives, what is missing, what is said to the gateway and to the
//! sender, and why.
//!
//! They are made only while an [`Observer`] is set. A packet is named by its packet number. The
//! gateway's events of the same session are `packrat_engine::SessionEvent`.

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
    /// A gateway assists from here on.
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
    /// A gateway will not assist.
    Refused {
        /// Its reason.
        reason: RefusalReason,
    },
    /// A datagram of the base connection arrived, repaired or not.
    DatagramReceived {
        /// UDP payload.
        bytes: usize,
    },
    /// The datagram that arrived last had arrived before: a repair crossed the original, or another
    /// copy.
    DuplicateReceived,
    /// Packet numbers were skipped.
    HoleOpened {
        /// The first one.
        first: PacketNumber,
        /// The last one.
        last: PacketNumber,
        /// The reason for not waiting for them; `None`: what is above them waits.
        not_held: Option<NotHeldReason>,
    },
    /// A missing packet arrived: repaired, or late.
    MissingArrived {
        /// Its number.
        packet_number: PacketNumber,
        /// True if what is above it has waited until now: the transport sees no loss.
        held: bool,
        /// Time since the hole opened.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "after_microseconds", serialize_with = "microseconds")
        )]
        after: Duration,
    },
    /// A hole is not waited for any more.
    HoldEnded {
        /// The first packet number that is missing.
        first: PacketNumber,
        /// The last one.
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
        /// Its number.
        packet_number: PacketNumber,
        /// Datagrams that wait, with this one.
        waiting: usize,
    },
    /// A shim has recovered a missing datagram from the gateway's symbols.
    DatagramRecovered {
        /// Its number.
        packet_number: PacketNumber,
    },
    /// The gateway has told which datagrams towards the server are missing.
    HolesReceived {
        /// So many.
        missing: u64,
        /// True if it wants them: while a queue stands, the transport repairs its losses itself.
        wanted: bool,
    },
    /// A datagram towards the server was sent again.
    DatagramSentAgain {
        /// Its place among the numbered ones.
        place: u64,
        /// UDP payload.
        bytes: usize,
    },
    /// The copy of a datagram towards the server was sent, because the last mile is known to lose some.
    CopySent {
        /// UDP payload.
        bytes: usize,
    },
    /// An eACK left.
    EackSent {
        /// Its counter.
        eack: MessageCounter,
        /// Its epoch.
        epoch: Epoch,
        /// Symbols of its prefix.
        symbols: u8,
        /// Packet numbers that are held.
        held: u64,
        /// UDP payload.
        bytes: usize,
    },
    /// A Report arrived.
    ReportReceived {
        /// Counter of the newest eACK that the gateway had processed.
        eack: MessageCounter,
        /// Datagrams that the gateway was repairing then.
        missing: u16,
        /// Symbols of the prefix that it asks for, as it could not decode the eACK.
        wanted_symbols: Option<u8>,
        /// True if a queue stands on the last mile: what is lost there is not repaired.
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
    /// The gateway has asked this address whether it is the client's, and is answered: the client
    /// has moved.
    PathChallenged,
}

/// Reason for the end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SessionClosedReason {
    /// The gateway said goodbye.
    Goodbye,
    /// The gateway does not know the session.
    Unknown,
    /// The gateway has answered nothing for too long.
    Silent,
    /// No message can be sealed any more.
    Exhausted,
    /// The gateway is another one than the application accepts from now on.
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
    /// The client uploads: what is missing is an acknowledgement, most likely.
    Uploading,
    /// A queue stands on the last mile: the sender must know of the loss.
    QueueStands,
    /// The sender has begun with a window that no loss-based sender has, and the gateway has not been
    /// heard about it.
    LargeWindow,
    /// The gateway does not answer: no repair is to be expected.
    Silent,
}

/// Reason for ending a hold before the missing packets have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum HoldEndedReason {
    /// Its time is over.
    Expired,
    /// The gateway repairs nothing there: the sender left the numbers out, or the loss was
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
/// It is called from within the core: it must return soon, and must not call the connection.
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

/// The way of events to an observer, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Events(Option<Observer>);

impl Events {
    /// Everything is told to this observer.
    pub(crate) fn to(observer: Observer) -> Self {
        Self(Some(observer))
    }

    /// Tells of an event, which is made only if it is wanted.
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
