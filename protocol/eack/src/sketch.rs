//! Both forms of sketch together, as the gateway and the client keep them per session.

use alloc::vec::Vec;
use core::fmt;

use crate::coded_symbols::Peeler;
use crate::power_sums::Solver;
use crate::{
    CodedSymbols, EncodedPrefix, Encoding, Identifier, PowerSums, SketchKey, SketchLimits,
};

/// A set of identifiers as coded symbols and as power sums.
///
/// No allocation happens after [`Sketch::new`], except for the output of [`Sketch::write_prefix`].
#[derive(Clone, Debug)]
pub struct Sketch {
    coded_symbols: CodedSymbols,
    power_sums: PowerSums,
}

impl Sketch {
    /// An empty sketch that can give every prefix within the limits.
    pub fn new(key: SketchKey, limits: SketchLimits) -> Self {
        Self {
            coded_symbols: CodedSymbols::new(key, limits.coded_symbols),
            power_sums: PowerSums::new(limits.power_sums),
        }
    }

    /// The prefixes that this sketch can give.
    pub fn limits(&self) -> SketchLimits {
        SketchLimits {
            coded_symbols: self.coded_symbols.capacity(),
            power_sums: self.power_sums.capacity(),
        }
    }

    /// Adds an identifier. One that is added twice counts twice, so the caller must leave out
    /// duplicates.
    #[inline]
    pub fn insert(&mut self, identifier: Identifier) {
        #[cfg(feature = "count-operations")]
        let _insertion = crate::operations::Insertion::begin();
        self.coded_symbols.insert(identifier);
        self.power_sums.insert(identifier);
    }

    /// Removes an identifier, whether or not it was added before.
    pub fn remove(&mut self, identifier: Identifier) {
        self.coded_symbols.remove(identifier);
        self.power_sums.remove(identifier);
    }

    /// Removes all of these identifiers, whether or not they were added before: quicker than one by
    /// one.
    pub fn remove_all(&mut self, identifiers: &[Identifier]) {
        #[cfg(feature = "count-operations")]
        let _insertion = crate::operations::Insertion::begin();
        identifiers.iter().for_each(|identifier| self.coded_symbols.remove(*identifier));
        self.power_sums.remove_all(identifiers);
    }

    /// Adds a whole set, given as the longest prefix of power sums. Returns false, with the sketch
    /// unchanged, for any other prefix, and for a sketch with coded symbols, which would then
    /// describe another set.
    pub fn add_power_sums(&mut self, set: &[u8]) -> bool {
        self.coded_symbols.capacity() == 0 && self.power_sums.add(set)
    }

    /// Empties the set, for a new epoch.
    pub fn clear(&mut self) {
        self.coded_symbols.clear();
        self.power_sums.clear();
    }

    /// Insertions minus removals since the set was empty, modulo 2^16.
    pub fn size(&self) -> u16 {
        self.power_sums.size()
    }

    /// Appends the serialised prefix, [`Encoding::encoded_len`] bytes, to `out`.
    ///
    /// # Errors
    /// [`BeyondLimits`] when this sketch is too short for it; `out` is as before.
    pub fn write_prefix(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<(), BeyondLimits> {
        self.check(encoding)?;
        match encoding {
            Encoding::PowerSums { count } => self.power_sums.write_prefix(count, out),
            Encoding::CodedSymbols { count } => self.coded_symbols.write_prefix(count, out),
        }
        Ok(())
    }

    /// Decodes the identifiers that are only in this sketch and those only in the other end's.
    ///
    /// `candidates` are identifiers of this sketch that may be only here, each once: the datagrams
    /// forwarded and not yet known to have arrived. They make the decode of power sums quicker; 32
    /// differences on either side are found without. The sketch itself does not change.
    ///
    /// # Errors
    /// [`DecodeError`]; no difference is reported then.
    pub fn decode<'a>(
        &self,
        theirs: EncodedPrefix<'_>,
        candidates: impl IntoIterator<Item = Identifier>,
        scratch: &'a mut Decoder,
    ) -> Result<Difference<'a>, DecodeError> {
        self.decode_among(theirs, candidates, [], scratch)
    }

    /// Decodes as [`Self::decode`] does, with candidates for either side: `here` as in
    /// `decode`, and `there` identifiers that may be only in the other end's sketch. Iterators are
    /// read as far as they are needed.
    ///
    /// # Errors
    /// [`DecodeError`]; no difference is reported then.
    pub fn decode_among<'a>(
        &self,
        theirs: EncodedPrefix<'_>,
        here: impl IntoIterator<Item = Identifier>,
        there: impl IntoIterator<Item = Identifier>,
        scratch: &'a mut Decoder,
    ) -> Result<Difference<'a>, DecodeError> {
        self.check(theirs.encoding())?;
        let (only_here, only_there) = match theirs.encoding() {
            Encoding::PowerSums { .. } => {
                let solver = &mut scratch.solver;
                self.power_sums.decode(theirs.bytes(), here, there, solver)?;
                (&mut solver.only_here, &mut solver.only_there)
            }
            Encoding::CodedSymbols { .. } => {
                let peeler = &mut scratch.peeler;
                self.coded_symbols.decode(theirs.bytes(), peeler)?;
                (&mut peeler.only_here, &mut peeler.only_there)
            }
        };
        only_here.sort_unstable();
        only_there.sort_unstable();
        // Only a multiset or a hostile prefix can report the same identifier twice.
        if !is_ascending(only_here) || !is_ascending(only_there) || intersect(only_here, only_there)
        {
            return Err(DecodeError::DifferenceTooLarge);
        }
        Ok(Difference { only_here, only_there })
    }

    fn check(&self, encoding: Encoding) -> Result<(), BeyondLimits> {
        let limits = self.limits();
        if limits.allow(encoding) { Ok(()) } else { Err(BeyondLimits { encoding, limits }) }
    }
}

/// True if each identifier is greater than the one before.
fn is_ascending(identifiers: &[Identifier]) -> bool {
    identifiers.is_sorted_by(|left, right| left < right)
}

/// True if two sorted lists have an identifier in common.
fn intersect(left: &[Identifier], right: &[Identifier]) -> bool {
    let (mut left, mut right) = (left, right);
    while let ([first, left_rest @ ..], [second, right_rest @ ..]) = (left, right) {
        match first.cmp(second) {
            core::cmp::Ordering::Less => left = left_rest,
            core::cmp::Ordering::Greater => right = right_rest,
            core::cmp::Ordering::Equal => return true,
        }
    }
    false
}

/// The working memory of [`Sketch::decode`], about 20 KB: one per thread is enough for any number
/// of sketches.
#[derive(Clone, Debug)]
pub struct Decoder {
    peeler: Peeler,
    solver: Solver,
}

impl Decoder {
    /// Allocates the memory that every decode needs.
    pub fn new() -> Self {
        Self { peeler: Peeler::new(), solver: Solver::new() }
    }

    /// Work of all decodes since the last call, including failed ones. The unit is a multiplication
    /// in the field, about a nanosecond; operations are counted where they are executed, so that
    /// the result is the same on every machine.
    pub fn take_work(&mut self) -> u64 {
        self.solver.take_work() + core::mem::take(&mut self.peeler.work)
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// The difference of two sets, each side in ascending order and without duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference<'a> {
    /// Identifiers in the sketch that decoded, but not in the prefix: at the gateway, the datagrams
    /// that the client is missing.
    pub only_here: &'a [Identifier],
    /// Identifiers in the prefix, but not in the sketch that decoded.
    pub only_there: &'a [Identifier],
}

impl Difference<'_> {
    /// Number of identifiers on both sides together.
    pub fn len(&self) -> usize {
        self.only_here.len() + self.only_there.len()
    }

    /// True if both sets are the same.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A prefix is longer than the sketch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeyondLimits {
    /// The requested prefix.
    pub encoding: Encoding,
    /// The limits of the sketch.
    pub limits: SketchLimits,
}

impl fmt::Display for BeyondLimits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} were asked for, but the sketch has {} power sums and {} coded symbols; stay within the session's limits",
            self.encoding, self.limits.power_sums, self.limits.coded_symbols
        )
    }
}

impl core::error::Error for BeyondLimits {}

/// The reason why a difference could not be decoded. Neither sketch has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The prefix is longer than the own sketch: the other end exceeds the negotiated limits.
    BeyondLimits(BeyondLimits),
    /// More differences than the prefix can tell apart, or a prefix that fits no set. A longer
    /// prefix may decode.
    DifferenceTooLarge,
}

impl From<BeyondLimits> for DecodeError {
    fn from(error: BeyondLimits) -> Self {
        Self::BeyondLimits(error)
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeyondLimits(error) => error.fmt(formatter),
            Self::DifferenceTooLarge => formatter.write_str(
                "the sets differ by more than the prefix can tell; ask for a longer one",
            ),
        }
    }
}

impl core::error::Error for DecodeError {}
