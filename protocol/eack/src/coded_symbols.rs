//! Coded symbols of a rateless IBLT: cheap to insert into, cheap to decode, about one and a half
//! per difference.
//!
//! A coded symbol is the sum, modulo 2^48, of one number per identifier in it:
//!
//! ```text
//!  47      44 43           32 31                           0
//! +----------+---------------+------------------------------+
//! | 1: count | keyed check   | identifier                   |   6 bytes on the wire, big-endian
//! +----------+---------------+------------------------------+
//! ```
//!
//! One addition updates all three. Subtracting two sketches symbol by symbol leaves the sum of the
//! only-here identifiers minus the sum of the only-there identifiers. A symbol that equals plus or
//! minus the number of a single identifier that the keyed mapping puts there is *pure*: the
//! identifier is reported, taken out of all its other symbols, and new pure symbols appear
//! (peeling). At the end every symbol must be zero, or the decode fails.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::mapping::{MAPPED_SYMBOLS, Mapping, ranges_for};
use crate::{DecodeError, Identifier, SketchKey};

/// Bytes of a coded symbol on the wire.
pub(crate) const SYMBOL_BYTES: usize = 6;

/// A set of identifiers as coded symbols of a rateless IBLT.
///
/// The first `n` symbols of a longer sketch are the sketch of length `n`. Insertions and removals
/// commute, and a removal may come first. An identifier that was inserted twice counts twice.
#[derive(Clone, Debug)]
pub struct CodedSymbols {
    /// `None` for a capacity of zero, so that a session without coded symbols costs no memory.
    filled: Option<Box<Filled>>,
    capacity: u8,
    /// Ranges of the mapping to fill. The last may reach beyond the capacity; those symbols are
    /// never read.
    ranges: u8,
}

/// The symbols, and the key of their mapping.
#[derive(Clone, Debug)]
struct Filled {
    key: SketchKey,
    /// The symbols, in the upper 48 bits, so that the arithmetic wraps by itself. Always 256, so
    /// that a byte is a valid index.
    symbols: [u64; 256],
}

impl CodedSymbols {
    /// The largest capacity: the symbols that fit a prefix of 1150 bytes.
    pub const MAX_CAPACITY: u8 = MAPPED_SYMBOLS as u8;

    /// Creates an empty sketch of `capacity` symbols, at most [`Self::MAX_CAPACITY`]. With zero,
    /// insertions are free.
    pub fn new(key: SketchKey, capacity: u8) -> Self {
        let capacity = capacity.min(Self::MAX_CAPACITY);
        let ranges = ranges_for(usize::from(capacity)) as u8;
        let filled = (capacity > 0).then(|| Box::new(Filled { key, symbols: [0; 256] }));
        Self { filled, capacity, ranges }
    }

    /// Number of symbols that can be read.
    pub fn capacity(&self) -> u8 {
        self.capacity
    }

    /// Adds an identifier.
    #[inline]
    pub fn insert(&mut self, identifier: Identifier) {
        if let Some(Filled { key, symbols }) = self.filled.as_deref_mut() {
            let mapping = key.map(identifier.get());
            mapping.add_to(symbols, usize::from(self.ranges), mapping.value);
        }
    }

    /// Removes an identifier, whether or not it was added before.
    #[inline]
    pub fn remove(&mut self, identifier: Identifier) {
        if let Some(Filled { key, symbols }) = self.filled.as_deref_mut() {
            let mapping = key.map(identifier.get());
            mapping.add_to(symbols, usize::from(self.ranges), mapping.value.wrapping_neg());
        }
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        if let Some(filled) = &mut self.filled {
            filled.symbols.fill(0);
        }
    }

    /// The first `count` symbols, at most the capacity, each in the lower 48 bits.
    pub fn prefix(&self, count: u8) -> impl Iterator<Item = u64> {
        let count = usize::from(count.min(self.capacity));
        self.filled
            .iter()
            .flat_map(move |filled| &filled.symbols[..count])
            .map(|symbol| symbol >> 16)
    }

    /// Appends the first `count` symbols to `out`.
    pub(crate) fn write_prefix(&self, count: u8, out: &mut Vec<u8>) {
        for symbol in self.prefix(count) {
            out.extend_from_slice(&symbol.to_be_bytes()[2..]);
        }
    }

    /// Decodes the identifiers that are only here and those only in the serialised prefix `theirs`,
    /// whose length gives the number of symbols.
    pub(crate) fn decode(&self, theirs: &[u8], peeler: &mut Peeler) -> Result<(), DecodeError> {
        let Some(Filled { key, symbols }) = self.filled.as_deref() else {
            return Err(DecodeError::DifferenceTooLarge);
        };
        let (theirs, _) = theirs.as_chunks::<SYMBOL_BYTES>();
        let count = theirs.len().min(MAPPED_SYMBOLS);
        // A mixture of identifiers passes for pure once in some thousands of decodes; the close
        // look settles these.
        [Look::Quick, Look::Close]
            .into_iter()
            .map(|look| {
                for (index, bytes) in theirs[..count].iter().enumerate() {
                    let [a, b, c, d, e, f] = *bytes;
                    let symbol = u64::from_be_bytes([a, b, c, d, e, f, 0, 0]);
                    peeler.symbols[index] = symbols[index].wrapping_sub(symbol);
                }
                peeler.peel(key, count, look)
            })
            .find(Result::is_ok)
            .unwrap_or(Err(DecodeError::DifferenceTooLarge))
    }
}

/// Work of reading a symbol, and of looking closely at one.
const LOOK_WORK: u64 = 4;
const PEEL_WORK: u64 = 32;

/// Depth of the check of a symbol that seems to be pure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Checks the identifier's check and its mapping.
    Quick,
    /// Also checks the identifier's other symbols: if it is in the difference, all of them are
    /// non-empty.
    Close,
}

/// Peels the difference of two sketches. Holds the working memory, to be used again.
#[derive(Clone, Debug)]
pub(crate) struct Peeler {
    /// Work since the caller has last taken it, in multiplications of the power sums' field.
    pub(crate) work: u64,
    symbols: Box<[u64; 256]>,
    /// Symbols to look at, each at most once.
    pending: Vec<u8>,
    is_pending: [bool; 256],
    pub(crate) only_here: Vec<Identifier>,
    pub(crate) only_there: Vec<Identifier>,
}

impl Peeler {
    pub(crate) fn new() -> Self {
        Self {
            work: 0,
            symbols: Box::new([0; 256]),
            pending: Vec::with_capacity(256),
            is_pending: [false; 256],
            only_here: Vec::with_capacity(256),
            only_there: Vec::with_capacity(256),
        }
    }

    /// Peels the first `count` symbols.
    fn peel(&mut self, key: &SketchKey, count: usize, look: Look) -> Result<(), DecodeError> {
        self.only_here.clear();
        self.only_there.clear();
        self.pending.clear();
        self.is_pending.fill(false);
        let ranges = ranges_for(count);
        for index in (0..count).rev() {
            self.look_at_later(index as u8);
        }
        // An honest difference peels each identifier once, and each from a symbol of its own. Only
        // a hostile prefix can go around in circles.
        let mut peeled = 0;
        self.work += count as u64 * LOOK_WORK;
        while let Some(index) = self.pending.pop() {
            self.work += PEEL_WORK;
            self.is_pending[usize::from(index)] = false;
            let symbol = self.symbols[usize::from(index)];
            let Some((identifier, here, mapping)) = pure(key, symbol, index) else { continue };
            if look == Look::Close && !self.is_everywhere(mapping, count, ranges) {
                continue;
            }
            peeled += 1;
            if peeled > count {
                return Err(DecodeError::DifferenceTooLarge);
            }
            if here {
                self.only_here.push(identifier);
            } else {
                self.only_there.push(identifier);
            }
            mapping.for_each_symbol(ranges, |other| {
                let value = &mut self.symbols[usize::from(other)];
                *value = value.wrapping_sub(symbol);
                if usize::from(other) < count {
                    self.look_at_later(other);
                }
            });
        }
        if self.symbols[..count].iter().any(|symbol| *symbol != 0) {
            return Err(DecodeError::DifferenceTooLarge);
        }
        Ok(())
    }

    /// True if all of the identifier's symbols are non-empty.
    fn is_everywhere(&self, mapping: Mapping, count: usize, ranges: usize) -> bool {
        let mut holds = true;
        mapping.for_each_symbol(ranges, |symbol| {
            let symbol = usize::from(symbol);
            holds &= symbol >= count || self.symbols[symbol] != 0;
        });
        holds
    }

    #[inline(always)]
    fn look_at_later(&mut self, index: u8) {
        // Cheap first look: the count of a pure symbol is one or minus one (modulo 16; the check's
        // carry included).
        let symbol = self.symbols[usize::from(index)];
        let might_be_pure = symbol >> 60 == 1 || symbol.wrapping_neg() >> 60 == 1;
        if might_be_pure && !self.is_pending[usize::from(index)] {
            self.is_pending[usize::from(index)] = true;
            self.pending.push(index);
        }
    }
}

/// The identifier of a pure symbol, and true if it is only here.
#[inline(always)]
fn pure(key: &SketchKey, symbol: u64, index: u8) -> Option<(Identifier, bool, Mapping)> {
    let here = symbol >> 60 == 1;
    let value = if here { symbol } else { symbol.wrapping_neg() };
    let identifier = Identifier::new((value >> 16) as u32)?;
    let mapping = key.map(identifier.get());
    (mapping.value == value && mapping.contains(index)).then_some((identifier, here, mapping))
}
