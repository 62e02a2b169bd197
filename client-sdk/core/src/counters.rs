//! The condition and the figures of a flow, the same in every SDK.

use crate::shim::ShimStats;
use crate::stats::{AssistState, AssistStats};

/// The condition of a flow's assistance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Condition {
    /// A gateway repairs for it.
    Assisted,
    /// A gateway is asked.
    Asking,
    /// No gateway answers; it is asked again now and then.
    NoGateway,
    /// A gateway will not assist.
    Refused,
    /// Assistance has failed on this host; the flow continues without it.
    Failed,
}

impl Condition {
    /// All conditions.
    pub const ALL: [Self; 5] =
        [Self::Assisted, Self::Asking, Self::NoGateway, Self::Refused, Self::Failed];

    /// Name of the condition, in JSON and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Assisted => "assisted",
            Self::Asking => "asking",
            Self::NoGateway => "no_gateway",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl From<AssistStats> for Condition {
    fn from(stats: AssistStats) -> Self {
        match stats.state {
            AssistState::Established => Self::Assisted,
            AssistState::NoGateway => Self::NoGateway,
            AssistState::Refused => Self::Refused,
            _ => Self::Asking,
        }
    }
}

macro_rules! counters {
    ($($(#[doc = $text:literal])* $name:ident,)*) => {
        /// Counters of a flow, or sums of flows: the same in every SDK.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $text])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds the counters of another flow.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Name, meaning and value of each.
            pub fn described(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($text),*), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Datagrams of the program.
    sent_datagrams,
    /// Bytes of the program's datagrams (UDP payload).
    sent_bytes,
    /// Datagrams to the program.
    delivered_datagrams,
    /// Bytes of datagrams to the program (UDP payload).
    delivered_bytes,
    /// Sessions begun with gateways.
    sessions,
    /// Datagrams missing when a later one arrived.
    holes,
    /// Missing datagrams repaired before the program could notice.
    repaired_in_time,
    /// Missing datagrams repaired after a later one had been passed on.
    repaired_late,
    /// Missing datagrams whose wait ended without a repair.
    given_up,
    /// Datagrams recovered from repair symbols.
    recovered,
    /// Datagrams that waited for a repair of an earlier one.
    kept,
    /// Datagrams that came more than once.
    duplicates,
    /// Control datagrams dropped: malformed, forged or replayed.
    control_dropped,
    /// eACKs to gateways.
    eacks,
    /// Bytes of eACKs to gateways (UDP payload).
    eack_bytes,
    /// Bytes of all control datagrams to gateways (UDP payload).
    control_bytes_sent,
    /// Bytes of all control datagrams from gateways (UDP payload).
    control_bytes_received,
    /// Datagrams of the program sent with a number.
    upward_numbered,
    /// Numbered datagrams that the gateway missed when a later one arrived.
    upward_missing,
    /// Datagrams of the program sent again, repetitions included.
    upward_repairs,
}

impl Counters {
    /// Adds the shim's counters.
    pub(crate) fn with(self, assist: &AssistStats, shim: &ShimStats) -> Self {
        Self {
            sessions: assist.sessions,
            holes: assist.holes,
            repaired_in_time: assist.filled_in_time,
            repaired_late: assist.filled_late,
            given_up: assist.expired,
            recovered: shim.recovered,
            kept: shim.kept,
            duplicates: assist.duplicates,
            control_dropped: assist.control_dropped,
            eacks: assist.eacks,
            eack_bytes: assist.eack_bytes,
            control_bytes_sent: assist.control_bytes_sent,
            control_bytes_received: assist.control_bytes_received,
            upward_numbered: assist.upward_numbered,
            upward_missing: assist.upward_missing,
            upward_repairs: assist.upward_repairs,
            ..self
        }
    }

    /// Missing datagrams that were repaired.
    pub const fn repaired(&self) -> u64 {
        self.repaired_in_time + self.repaired_late
    }
}
