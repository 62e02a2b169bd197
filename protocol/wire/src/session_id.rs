//! Identity of a session on the wire.

/// Random number that names a session in its sealed datagrams. Two sessions of a gateway may have
/// the same one by chance: the key decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SessionId(u32);

impl SessionId {
    /// The id with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number, as it is on the wire.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl core::fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(formatter)
    }
}
