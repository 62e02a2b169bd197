//! Numbering of sealed messages.

/// Number of a sealed message in its direction, from 0. It is also the AEAD's nonce, so that a key
/// never seals two messages with the same nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MessageCounter(u32);

impl MessageCounter {
    /// The first message of a direction.
    pub const FIRST: Self = Self(0);

    /// The counter with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number, as it is on the wire.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The counter that follows; `None`: all are used up.
    pub(crate) fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl core::fmt::Display for MessageCounter {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(formatter)
    }
}
