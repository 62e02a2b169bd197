//! Set sketches over packet identifiers: small summaries of sets that grow forever, from which a small difference of
//! two sets can be decoded, in both directions.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod coded_symbols;
mod encoding;
mod field;
mod identifier;
mod mapping;
mod power_sums;
mod roots;
mod sketch;

pub use coded_symbols::CodedSymbols;
pub use encoding::{
    EncodedPrefix, Encoding, MAX_ENCODED_LENGTH, MAX_EXPECTED_DIFFERENCE, PrefixError, SketchLimits,
    encoding_for, longer,
};
pub use identifier::Identifier;
pub use mapping::SketchKey;
pub use power_sums::PowerSums;
pub use sketch::{BeyondLimits, DecodeError, Decoder, Difference, Sketch};
