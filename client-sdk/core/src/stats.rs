//! State and counters of assistance.

use core::time::Duration;

use packrat_wire::control::RefusalReason;
use packrat_wire::message::Totals;

/// State of assistance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum AssistState {
    /// Looking for a gateway.
    #[default]
    Discovering,
    /// A gateway has sent an Offer; the handshake is in progress.
    Initiating,
    /// Assisted.
    Established,
    /// No gateway answers; asked again now and then.
    NoGateway,
    /// A gateway answered that it will not assist.
    Refused,
}

/// Accumulated counters of assistance for one base connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssistStats {
    /// State of assistance.
    pub state: AssistState,
    /// Why a gateway will not assist; known while the state is [`AssistState::Refused`].
    pub refusal: Option<RefusalReason>,
    /// Handshakes finished.
    pub sessions: u64,
    /// Static public key of the gateway, once it is known.
    pub gateway_key: Option<[u8; 32]>,
    /// Datagrams received that are not control datagrams, authentic or not.
    pub datagrams: u64,
    /// Bytes of these received datagrams (UDP payload).
    pub bytes: u64,
    /// Datagrams received more than once (repairs that crossed the original, probes, spaced
    /// copies).
    pub duplicates: u64,
    /// Datagrams whose identifier another datagram had before them: their loss can't be noticed.
    pub identifier_collisions: u64,
    /// eACKs sent.
    pub eacks: u64,
    /// Bytes of eACKs sent (UDP payload).
    pub eack_bytes: u64,
    /// Bytes of all control datagrams sent (UDP payload).
    pub control_bytes_sent: u64,
    /// Bytes of all control datagrams received (UDP payload).
    pub control_bytes_received: u64,
    /// Control datagrams dropped: malformed, forged, replayed, or not expected.
    pub control_dropped: u64,
    /// Reports received.
    pub reports: u64,
    /// Resets that the gateway has asked for.
    pub resets: u64,
    /// Packet numbers that were missing when a later one arrived.
    pub holes: u64,
    /// Missing packet numbers that arrived before the sender could notice.
    pub filled_in_time: u64,
    /// Missing packet numbers that arrived after the wait for them had ended.
    pub filled_late: u64,
    /// Missing packet numbers whose hold time was over.
    pub expired: u64,
    /// Missing packet numbers whose wait ended because the gateway reported that it has no repair
    /// for them.
    pub settled: u64,
    /// Sum of the hold that the holes had, for their mean.
    pub hold_sum: Duration,
    /// Datagrams towards the server that got a number.
    pub upward_numbered: u64,
    /// Numbered datagrams that the gateway was missing when a later one had arrived.
    pub upward_missing: u64,
    /// Datagrams sent again towards the server, repetitions included.
    pub upward_repairs: u64,
    /// Bytes of datagrams sent again towards the server (UDP payload).
    pub upward_repair_bytes: u64,
    /// Copies of datagrams towards the server ([`ClientConfig::with_copies`](crate::ClientConfig::with_copies)).
    pub copies: u64,
    /// Bytes of the copies (UDP payload).
    pub copy_bytes: u64,
    /// Datagrams towards the server that left with others ([`Shim::bundle`](crate::Shim::bundle)).
    pub bundled: u64,
    /// Datagrams recovered from the symbols that a gateway sends to all subscribers of a stream.
    pub recovered_from_group: u64,
    /// Smoothed last-mile round trip, as measured here.
    pub round_trip: Option<Duration>,
    /// The gateway's totals, as of its last report.
    pub gateway: Totals,
}
