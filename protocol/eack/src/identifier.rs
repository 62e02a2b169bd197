//! The four bytes that stand for one datagram.

use crate::field::FIELD_MODULUS;

/// Four bytes that stand for one encrypted datagram.
///
/// Always in `1..=P-1` with the prime `P = 2^32 - 5`, so that an identifier is a non-zero element
/// of the field in which power sums are computed. Of the 2^32 possible four-byte values six are
/// outside; [`Identifier::from_hash`] maps any bytes onto the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identifier(u32);

impl Identifier {
    /// Maps 64 hash bits onto the domain, near-uniformly (only the upper 32 bits count).
    pub const fn from_hash(hash: u64) -> Self {
        Self((((hash >> 32) * (FIELD_MODULUS - 1)) >> 32) as u32 + 1)
    }

    /// Reads the number from the wire; `None` outside the domain.
    pub const fn new(value: u32) -> Option<Self> {
        if value != 0 && (value as u64) < FIELD_MODULUS { Some(Self(value)) } else { None }
    }

    /// The four bytes as a number, in `1..=P-1`.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Converts a field element; `None` for zero, which is not an identifier.
    pub(crate) const fn from_field(value: u32) -> Option<Self> {
        Self::new(value)
    }
}
