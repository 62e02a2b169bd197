//! The serialised form of a sketch prefix, and the choice of the prefix to send.

use core::fmt;

use crate::coded_symbols::SYMBOL_BYTES;
use crate::power_sums::{SIZE_BYTES, SUM_BYTES};
use crate::{CodedSymbols, PowerSums, field};

/// The longest serialised prefix in bytes. With the message around it, it fits every path of the
/// Internet.
pub const MAX_ENCODED_LENGTH: usize = 1150;

/// Work of an insertion into coded symbols.
const SYMBOLS_WORK: u64 = 16;

/// The largest difference that [`encoding_for`] has a row for.
pub const MAX_EXPECTED_DIFFERENCE: usize = 128;

/// The form and the length of a sketch prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The set's size modulo 2^16 and the first `count` power sums: decodes up to `count - 1`
    /// differences, always.
    PowerSums {
        /// Number of sums.
        count: u8,
    },
    /// The first `count` coded symbols: decodes about `count / 1.5` differences, usually.
    CodedSymbols {
        /// Number of symbols.
        count: u8,
    },
}

impl Encoding {
    /// The fewest sums: one difference and one sum of redundancy.
    pub const MIN_POWER_SUMS: u8 = 2;
    /// The fewest symbols: with less, a wrong decode could pass as zero.
    pub const MIN_CODED_SYMBOLS: u8 = 4;

    /// Number of sums or symbols.
    pub const fn count(self) -> u8 {
        match self {
            Self::PowerSums { count } | Self::CodedSymbols { count } => count,
        }
    }

    /// Length of the serialised prefix in bytes.
    pub const fn encoded_len(self) -> usize {
        match self {
            Self::PowerSums { count } => SIZE_BYTES + SUM_BYTES * count as usize,
            Self::CodedSymbols { count } => SYMBOL_BYTES * count as usize,
        }
    }

    /// Two bytes for a message: the form (1: power sums, 2: coded symbols) and the count.
    pub const fn to_wire(self) -> [u8; 2] {
        match self {
            Self::PowerSums { count } => [1, count],
            Self::CodedSymbols { count } => [2, count],
        }
    }

    /// Reads [`Self::to_wire`]; `None` for an unknown form or a count out of range.
    pub const fn from_wire(bytes: [u8; 2]) -> Option<Self> {
        match bytes {
            [1, count] if count >= Self::MIN_POWER_SUMS => Some(Self::PowerSums { count }),
            [2, count]
                if count >= Self::MIN_CODED_SYMBOLS && count <= CodedSymbols::MAX_CAPACITY =>
            {
                Some(Self::CodedSymbols { count })
            }
            _ => None,
        }
    }

    /// The largest difference that decodes at least 999 times in 1000.
    pub const fn decodable(self) -> usize {
        match self {
            Self::PowerSums { count } => (count as usize).saturating_sub(1),
            Self::CodedSymbols { count } => {
                let mut difference = 0;
                while difference < CODED_SYMBOLS_FOR.len() && CODED_SYMBOLS_FOR[difference] <= count
                {
                    difference += 1;
                }
                difference
            }
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerSums { count } => write!(formatter, "{count} power sums"),
            Self::CodedSymbols { count } => write!(formatter, "{count} coded symbols"),
        }
    }
}

/// Coded symbols and power sums that a sketch can give, negotiated per session. Both ends need the
/// same limits, or a client must not ask its own sketch for more than the gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SketchLimits {
    /// Coded symbols, at most [`CodedSymbols::MAX_CAPACITY`]. Their number hardly changes the cost
    /// of an insertion.
    pub coded_symbols: u8,
    /// Power sums. Each adds the same cost to an insertion.
    pub power_sums: u8,
}

impl Default for SketchLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl SketchLimits {
    /// Every row of the table, and a second try after each.
    pub const LARGEST: Self =
        Self { coded_symbols: CodedSymbols::MAX_CAPACITY, power_sums: PowerSums::MAX_CAPACITY };

    /// Cheap insertion: power sums for up to 32 differences, coded symbols for up to 86. An
    /// insertion costs about a third of one with [`Self::LARGEST`].
    pub const DEFAULT: Self = Self { coded_symbols: CodedSymbols::MAX_CAPACITY, power_sums: 33 };

    /// The smaller of both limits, for each form.
    pub const fn within(self, other: Self) -> Self {
        Self {
            coded_symbols: if self.coded_symbols < other.coded_symbols {
                self.coded_symbols
            } else {
                other.coded_symbols
            },
            power_sums: if self.power_sums < other.power_sums {
                self.power_sums
            } else {
                other.power_sums
            },
        }
    }

    /// Work of inserting this number of identifiers into a sketch of these limits, or of removing
    /// them by [`crate::Sketch::remove_all`], in the unit of [`crate::Decoder::take_work`].
    pub const fn work_of(self, identifiers: usize) -> u64 {
        let symbols = if self.coded_symbols > 0 { SYMBOLS_WORK } else { 0 };
        identifiers as u64 * (self.power_sums as u64 / 3 + symbols + 1)
    }

    /// True if a sketch of these limits can give this prefix.
    pub const fn allow(self, encoding: Encoding) -> bool {
        match encoding {
            Encoding::PowerSums { count } => count <= self.power_sums,
            Encoding::CodedSymbols { count } => count <= self.coded_symbols,
        }
    }

    /// The shortest prefix within these limits that decodes `expected_difference` at least 999
    /// times in 1000, or the one that decodes most if there is no such prefix. `None` if both
    /// limits are too small for any prefix.
    pub fn encoding_for(self, expected_difference: usize) -> Option<Encoding> {
        let expected = expected_difference.max(1);
        let sums = (expected + 1).try_into().ok().map(|count| Encoding::PowerSums { count });
        let symbols = CODED_SYMBOLS_FOR
            .get(expected - 1)
            .map(|count| Encoding::CodedSymbols { count: *count });
        [sums, symbols]
            .into_iter()
            .flatten()
            .filter(|encoding| self.allow(*encoding))
            .min_by_key(|encoding| encoding.encoded_len())
            .or_else(|| self.largest())
    }

    /// The prefix to request after `encoding` failed to decode: one that decodes at least twice the
    /// difference, or the one that decodes most. `None` if there is no longer prefix.
    pub fn longer(self, encoding: Encoding) -> Option<Encoding> {
        let longer = self.encoding_for(2 * encoding.decodable().max(1))?;
        (longer.decodable() > encoding.decodable()).then_some(longer)
    }

    /// The prefix that decodes the largest difference.
    fn largest(self) -> Option<Encoding> {
        let sums = Encoding::PowerSums { count: self.power_sums };
        let symbols =
            Encoding::CodedSymbols { count: self.coded_symbols.min(CodedSymbols::MAX_CAPACITY) };
        let sendable = |encoding: &Encoding| Encoding::from_wire(encoding.to_wire()).is_some();
        [symbols, sums].into_iter().filter(sendable).max_by_key(|encoding| encoding.decodable())
    }
}

/// The client's table: the shortest prefix that decodes at least 999 times in 1000 when the true
/// symmetric difference is `expected_difference` (0 counts as 1). Never longer than
/// [`MAX_ENCODED_LENGTH`]. Beyond [`MAX_EXPECTED_DIFFERENCE`]: the longest prefix at the latest.
///
/// Every row is power sums: at 4 bytes per difference and 6 bytes of overhead they are shorter than
/// coded symbols (6 bytes each, two to ten per difference) for every difference. Their cost is
/// insertion time, per sum. A session that limits the power sums for that reason uses
/// [`SketchLimits::encoding_for`].
pub fn encoding_for(expected_difference: usize) -> Encoding {
    let count = expected_difference.clamp(1, usize::from(u8::MAX) - 1) + 1;
    Encoding::PowerSums { count: count as u8 }
}

/// The prefix to request after a failed decode; `None` when `encoding` is the largest already.
pub fn longer(encoding: Encoding) -> Option<Encoding> {
    SketchLimits::LARGEST.longer(encoding)
}

/// `CODED_SYMBOLS_FOR[difference - 1]`: symbols that decode it 999 times in 1000. The 99.93rd percentile of 100,000
/// trials each (`--example decode_success 100000 table`), made monotone.
#[rustfmt::skip]
const CODED_SYMBOLS_FOR: [u8; 86] = [
    4, 21, 25, 31, 34, 36, 38, 40, 41, 47, 47, 51, 52, 54, 55, 56, 59, 60, 60, 63,
    64, 66, 66, 69, 69, 72, 74, 77, 83, 83, 86, 88, 91, 91, 96, 98, 104, 104, 104, 109,
    109, 109, 109, 109, 109, 112, 112, 112, 113, 114, 121, 122, 122, 123, 126, 128, 137, 137, 143, 147,
    152, 152, 156, 156, 176, 177, 177, 177, 177, 177, 177, 177, 177, 177, 177, 177, 181, 181, 181, 181,
    188, 188, 188, 188, 188, 188,
];

/// A serialised prefix of the other end's sketch, checked to be of its encoding's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedPrefix<'a> {
    encoding: Encoding,
    bytes: &'a [u8],
}

impl<'a> EncodedPrefix<'a> {
    /// Checks the length, and that power sums are field elements.
    ///
    /// # Errors
    /// [`PrefixError`] names the fault. The caller drops the message that contained the prefix.
    pub fn new(encoding: Encoding, bytes: &'a [u8]) -> Result<Self, PrefixError> {
        let [form, count] = encoding.to_wire();
        if Encoding::from_wire([form, count]).is_none() {
            return Err(PrefixError::Count { encoding });
        }
        if bytes.len() != encoding.encoded_len() {
            return Err(PrefixError::Length { encoding, length: bytes.len() });
        }
        if let Encoding::PowerSums { .. } = encoding
            && let Some(sums) = bytes.get(SIZE_BYTES..)
            && let Some(position) = sums
                .as_chunks::<SUM_BYTES>()
                .0
                .iter()
                .position(|sum| u64::from(u32::from_be_bytes(*sum)) >= field::FIELD_MODULUS)
        {
            return Err(PrefixError::NotAFieldElement { position });
        }
        Ok(Self { encoding, bytes })
    }

    /// The form and the length of the prefix.
    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The serialised prefix.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The reason why bytes are not a sketch prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixError {
    /// The count is out of range.
    Count {
        /// The announced encoding.
        encoding: Encoding,
    },
    /// The length does not fit the encoding.
    Length {
        /// The announced encoding.
        encoding: Encoding,
        /// Bytes received.
        length: usize,
    },
    /// A power sum is not below the field's modulus.
    NotAFieldElement {
        /// Index of the sum, from zero.
        position: usize,
    },
}

impl fmt::Display for PrefixError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { encoding } => {
                write!(
                    formatter,
                    "a sketch prefix of {encoding} is too short or too long to be sent; drop the message"
                )
            }
            Self::Length { encoding, length } => write!(
                formatter,
                "a sketch prefix of {encoding} takes {} bytes and not {length}; drop the message",
                encoding.encoded_len()
            ),
            Self::NotAFieldElement { position } => {
                write!(
                    formatter,
                    "power sum number {position} of a sketch prefix is not below 2^32-5; drop the message"
                )
            }
        }
    }
}

impl core::error::Error for PrefixError {}
