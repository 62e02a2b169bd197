//! Conversion of a datagram to the two byte strings that are coded.
//!
//! ```text
//!   framed:      length (2) | datagram ...............................
//!   coded as:   [          first half: 770 bytes          ][ second half ]
//! ```
//!
//! The length is coded like content (RFC 8680, section 3.2), so that a recovered datagram ends where
//! it ended. A repair symbol of a whole datagram of full size would not fit the path that the
//! datagram fits, as it has a header of its own; so each symbol covers one half of every datagram.
//! The halves are two codes, side by side: a symbol costs the multiplications of its own half, and
//! the system to be solved has as many unknowns as datagrams are missing, not twice as many. A
//! datagram that fits the first half has an empty second one.

/// Bytes of the longest datagram that can be coded.
pub const MAXIMUM_DATAGRAM_BYTES: usize = 1500;
/// The longest repair symbol.
pub const MAXIMUM_SYMBOL: usize = FIRST_HALF_BYTES;

/// Bytes in front of a datagram: its length.
pub(crate) const LENGTH_PREFIX_BYTES: usize = 2;
/// Bytes of the first half: the length, and three eighths more than 512 bytes of the datagram,
/// which vectors divide without a rest.
pub(crate) const FIRST_HALF_BYTES: usize = LENGTH_PREFIX_BYTES + 768;

/// A half of all datagrams that a symbol covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// The length and the first 768 bytes.
    First,
    /// The rest.
    Second,
}

impl Half {
    /// Both, in order.
    pub const BOTH: [Self; 2] = [Self::First, Self::Second];

    /// The longest symbol of this half.
    pub const fn longest(self) -> usize {
        match self {
            Self::First => FIRST_HALF_BYTES,
            Self::Second => LENGTH_PREFIX_BYTES + MAXIMUM_DATAGRAM_BYTES - FIRST_HALF_BYTES,
        }
    }

    /// This half of a framed datagram.
    pub(crate) fn of(self, framed: &[u8]) -> &[u8] {
        let (first, second) = framed.split_at(framed.len().min(FIRST_HALF_BYTES));
        match self {
            Self::First => first,
            Self::Second => second,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// A repair symbol, with all that is needed to use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repair<'a> {
    /// The datagrams that it covers.
    pub window: crate::Window,
    /// The half of each that it covers.
    pub half: Half,
    /// Gives the coefficients; [`crate::PARITY_SEED`]: all are 1.
    pub seed: u16,
    /// The sum of the halves times their coefficients, as long as the longest of them.
    pub symbol: &'a [u8],
}
