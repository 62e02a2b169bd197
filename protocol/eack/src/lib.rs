//! Set sketches over packet identifiers (stub of the interface; being written).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

/// Four bytes that stand for one encrypted datagram. Always in `1..=P-1` with `P = 2^32 - 5` (see [`Identifier::from_hash`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identifier(u32);

impl Identifier {
    /// Maps 64 hash bits onto the domain, near-uniformly.
    pub fn from_hash(hash: u64) -> Self {
        Self(((hash >> 32) * (u64::from(4_294_967_291u32) - 1) >> 32) as u32 + 1)
    }
    /// From the wire; `None` outside the domain.
    pub fn new(value: u32) -> Option<Self> {
        (value != 0 && value < 4_294_967_291).then_some(Self(value))
    }
    /// The four bytes as a number.
    pub fn get(self) -> u32 {
        self.0
    }
}
