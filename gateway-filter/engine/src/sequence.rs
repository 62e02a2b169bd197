//! Numbering of forwarded datagrams.

/// Position of a datagram in forwarding order: the number of datagrams that the session had
/// recorded before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(transparent))]
pub struct Sequence(u64);

impl Sequence {
    /// The sequence number with this value.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, as it is in logs.
    pub const fn get(self) -> u64 {
        self.0
    }
}
