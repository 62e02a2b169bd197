//! Numbering of the base connection's packets.

/// Number of a packet as its transport counts: a QUIC 1-RTT packet number, or an extended RTP
/// sequence number. Each is one more than the packet sent before; a gap is a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(u64);

impl PacketNumber {
    /// Above all others.
    pub const MAX: Self = Self(u64::MAX);

    /// The packet number with this value.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of the packet that is sent `count` packets later, at most [`Self::MAX`].
    pub(crate) const fn saturating_add(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}
