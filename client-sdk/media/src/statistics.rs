//! A receiver's statistics, in three parts as SRT's: since the beginning, since the last query,
//! now.

use core::time::Duration;

/// Counted events; since the beginning, or of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Packets received, duplicates and repairs among them, retransmissions not.
    pub packets: u64,
    /// Bytes of payload of them.
    pub bytes: u64,
    /// Packets that a later one showed to be missing.
    pub lost: u64,
    /// Lost units that came because the next packet repeats them.
    pub recovered_by_repetition: u64,
    /// Lost packets that came after all without having been asked for: the gateway's repairs.
    pub recovered_by_gateway: u64,
    /// Lost units that the sender sent again.
    pub recovered_end_to_end: u64,
    /// Packets that were overtaken by others, within the tolerance.
    pub reordered: u64,
    /// Packets of units that were there already.
    pub duplicates: u64,
    /// Packets that came after their unit's window was over.
    pub belated: u64,
    /// Units that were never released: they did not arrive in time.
    pub dropped: u64,
    /// Units released.
    pub released: u64,
    /// Messages in which the sender was asked for units.
    pub asked_messages: u64,
    /// Units asked for, each time counted.
    pub asked_units: u64,
    /// Retransmissions received from the sender.
    pub retransmissions: u64,
    /// Retransmissions of units that had arrived before, or were not needed any more.
    pub spurious_retransmissions: u64,
    /// Number of restarts of the stream's numbers.
    pub restarts: u64,
}

/// The way in which a unit came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    None,
    Reordered,
    Repetition,
    Gateway,
    EndToEnd,
}

impl Counts {
    pub(crate) fn recovered(&mut self, recovery: Recovery, lost: bool) {
        match recovery {
            Recovery::None => {}
            Recovery::Reordered => self.reordered += 1,
            Recovery::Repetition => self.recovered_by_repetition += u64::from(lost),
            Recovery::Gateway => self.recovered_by_gateway += u64::from(lost),
            Recovery::EndToEnd => self.recovered_end_to_end += u64::from(lost),
        }
    }
}

/// Statistics of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Counts since the beginning.
    pub accumulated: Counts,
    /// Counts since the last query.
    pub interval: Counts,
    /// Round trip to the sender, from answered requests; `None` before the first answer.
    pub round_trip: Option<Duration>,
    /// Deviation of the packets' travel (RFC 3550 section 6.4.1).
    pub jitter: Duration,
    /// Units in the buffer.
    pub buffered_units: usize,
    /// Time that they cover.
    pub buffered: Duration,
    /// Bits of payload per second, over the last second.
    pub receive_rate: f64,
}
