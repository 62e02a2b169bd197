//! Numbering of epochs.

/// Number of an epoch, the time in which both ends' sets grow. Epochs begin with 0, grow by one with
/// each Reset or Baseline, and are compared on a circle of 2^16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Epoch(u16);

impl Epoch {
    /// The first epoch of a session.
    pub const FIRST: Self = Self(0);

    /// The epoch with this number.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number, as it is on the wire.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The epoch that follows.
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// True if this epoch comes after `other`.
    pub fn is_newer_than(self, other: Self) -> bool {
        (1..=u16::MAX / 2).contains(&self.0.wrapping_sub(other.0))
    }
}

impl core::fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_compared_on_a_circle() {
        assert!(
            Epoch::new(1).is_newer_than(Epoch::FIRST) && !Epoch::FIRST.is_newer_than(Epoch::new(1))
        );
        assert!(Epoch::FIRST.is_newer_than(Epoch::new(u16::MAX)));
        assert_eq!(Epoch::new(u16::MAX).next(), Epoch::FIRST);
        assert!(!Epoch::new(7).is_newer_than(Epoch::new(7)));
    }
}
