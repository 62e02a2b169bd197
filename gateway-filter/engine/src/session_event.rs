//! Events within a session, which show why a missing datagram was not repaired.
//!
//! They are made only while [`crate::Flow::observe`] is on.

use core::time::Duration;

use packrat_wire::message::ResetReason;
use packrat_wire::{Epoch, MessageCounter};

use crate::event::Side;
use crate::sequence::Sequence;

/// A step of a session's reconciliation and repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "event", rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The first eACK of an epoch has shown the beginning of the client's set.
    EpochAnchored {
        /// The epoch.
        epoch: Epoch,
        /// The first datagram that the epoch is about.
        first: Sequence,
    },
    /// An eACK was decoded.
    EackDecoded {
        /// The eACK's counter.
        eack: MessageCounter,
        /// Datagrams recorded so far.
        recorded: u64,
        /// The newest datagram that the eACK names.
        newest: Option<Sequence>,
        /// Datagrams that the eACK shows to be missing for the first time.
        newly_missing: u64,
        /// Datagrams missing now.
        missing: u64,
    },
    /// An eACK could not be decoded: its prefix is shorter than the difference.
    EackFailed {
        /// The eACK's counter.
        eack: MessageCounter,
        /// Symbols of the eACK's prefix.
        symbols: u8,
        /// True if a Reset follows, false if the client is asked for a longer prefix.
        resets: bool,
    },
    /// An eACK was ignored.
    EackIgnored {
        /// The eACK's counter.
        eack: MessageCounter,
        /// The reason.
        reason: EackIgnoredReason,
    },
    /// A datagram is missing.
    DatagramMissing {
        /// The datagram.
        datagram: Sequence,
        /// Time since it was forwarded.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "age_microseconds", serialize_with = "microseconds")
        )]
        age: Duration,
    },
    /// A missing datagram was sent again.
    RepairSent {
        /// The datagram.
        datagram: Sequence,
        /// The number of this transmission of the datagram, from 1.
        transmission: u32,
        /// Time since the datagram was forwarded.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "age_microseconds", serialize_with = "microseconds")
        )]
        age: Duration,
    },
    /// A repair was wanted, and not sent. The next eACK that shows the datagram missing, or the
    /// next copy, tries again.
    RepairRefused {
        /// The datagram.
        datagram: Sequence,
        /// The reason.
        reason: RepairRefusedReason,
    },
    /// The newest datagram was sent again after silence.
    TailProbeSent {
        /// The datagram.
        datagram: Sequence,
    },
    /// A missing datagram is not missing any more.
    MissingArrived {
        /// The datagram.
        datagram: Sequence,
        /// Number of its repairs; 0: it was only late.
        transmissions: u32,
        /// Time since it was forwarded.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "age_microseconds", serialize_with = "microseconds")
        )]
        age: Duration,
    },
    /// A Report about an eACK was sent to the client.
    ReportSent {
        /// The eACK's counter.
        eack: MessageCounter,
        /// A datagram that the client has; no datagram before it is being repaired any more, and
        /// the client holds no datagrams for a hole below it.
        settled: Option<Sequence>,
        /// Symbols of the prefix that the next eACK should have.
        wanted_symbols: Option<u8>,
        /// True if losses are left to the sender: a queue stands on the last mile, repairs pause,
        /// or the sender tolerates losses.
        queue_stands: bool,
    },
    /// Repairs pause: most never arrived.
    RepairsPaused {
        /// Duration of the pause.
        #[cfg_attr(
            feature = "serde",
            serde(rename = "pause_microseconds", serialize_with = "microseconds")
        )]
        pause: Duration,
    },
    /// The pause is over.
    RepairsResumed,
    /// A new epoch begins with empty sets.
    Reset {
        /// The epoch that begins.
        epoch: Epoch,
        /// The end that asks for it.
        side: Side,
        /// The reason.
        reason: ResetReason,
    },
    /// The client may have another address, which is asked to prove it.
    PathChallenged,
    /// The client has another address now.
    PathValidated,
    /// A missing datagram is not repaired any more.
    GivenUp {
        /// The datagram; `None`: the history has forgotten it.
        datagram: Option<Sequence>,
        /// Number of its repairs.
        transmissions: u32,
        /// The reason.
        reason: GiveUpReason,
    },
}

/// Reason for ignoring an eACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum EackIgnoredReason {
    /// A newer eACK was decoded before.
    Stale,
    /// The eACK is of another epoch.
    OtherEpoch,
    /// The client sends more than its credit covers.
    Limited,
}

impl EackIgnoredReason {
    /// The name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::OtherEpoch => "other_epoch",
            Self::Limited => "limited",
        }
    }
}

/// Reason for not sending a repair now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum RepairRefusedReason {
    /// A repair budget is used up: the flow's, its source's or the gateway's.
    BudgetEmpty,
    /// The cache has no bytes of the datagram any more.
    BytesGone,
    /// Repairs pause: most never arrived.
    Paused,
}

impl RepairRefusedReason {
    /// The name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BudgetEmpty => "budget_empty",
            Self::BytesGone => "bytes_gone",
            Self::Paused => "paused",
        }
    }
}

/// Reason for giving up a missing datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum GiveUpReason {
    /// A queue stands on the last mile: the sender must see the loss.
    QueueStands,
    /// The sender tolerates this much loss.
    Tolerated,
    /// Repairs pause: the sender must see the loss.
    RepairsPaused,
    /// The cache has no bytes of the datagram any more.
    BytesGone,
    /// The datagram is older than a live stream's window.
    WindowOver,
    /// The loss was found longer ago than a client waits.
    TooOld,
    /// The datagram was sent so often that another repair would not help.
    TooManyRepairs,
    /// The maximum number of datagrams under repair is missing already.
    TooManyMissing,
    /// The flow fell quiet.
    Quiet,
    /// The history has forgotten the datagram.
    Forgotten,
}

impl GiveUpReason {
    /// The name in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueStands => "queue_stands",
            Self::Tolerated => "tolerated",
            Self::RepairsPaused => "repairs_paused",
            Self::BytesGone => "bytes_gone",
            Self::WindowOver => "window_over",
            Self::TooOld => "too_old",
            Self::TooManyRepairs => "too_many_repairs",
            Self::TooManyMissing => "too_many_missing",
            Self::Quiet => "quiet",
            Self::Forgotten => "forgotten",
        }
    }
}

#[cfg(feature = "serde")]
fn microseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}
