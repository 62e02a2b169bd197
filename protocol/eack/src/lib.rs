//! Set sketches over packet identifiers: small summaries of sets that grow forever, from which a
//! small difference of two sets can be decoded, in both directions.
//!
//! ```text
//!   gateway                                              client
//!   forwarded: a b c d e f                               received: a b d f x
//!        |  insert each                                       |  insert each
//!        v                                                    v
//!   own sketch                       prefix              own sketch
//!        |        <--------- (a few dozen bytes) ------------ |  write_prefix
//!        v
//!   own - theirs  --decode-->  only here: c e   (missing at the client: repair)
//!                              only there: x    (forwarded before the epoch, or evicted: fold in)
//! ```
//!
//! The common elements cancel, whatever their number. The length of the prefix depends on the size
//! of the difference alone. The client knows the approximate number of its missing datagrams and
//! picks the prefix with [`encoding_for`], and after a failed decode the gateway asks for a
//! [`longer`] one.
//!
//! Two forms, kept side by side in a [`Sketch`]:
//!
//! | | [`PowerSums`] | [`CodedSymbols`] |
//! |---|---|---|
//! | idea | sums of the identifiers' powers in a prime field; the difference is a rational function | rateless IBLT: sums over pseudo-random subsets; peeling |
//! | bytes for `d` differences | `6 + 4 d` | 6 per symbol: 126 for 2, 384 for 20, 1086 for 80 |
//! | decodes | always | 999 times in 1000 |
//! | insertion | per sum | the same for every length |
//! | decoding | quadratic | linear |
//!
//! ```
//! use packrat_eack::{Decoder, EncodedPrefix, Identifier, Sketch, SketchKey, SketchLimits, encoding_for};
//!
//! let key = SketchKey::new([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]); // of the session, both ends
//! let mut gateway = Sketch::new(key.clone(), SketchLimits::DEFAULT);
//! let mut client = Sketch::new(key, SketchLimits::DEFAULT);
//! let forwarded: Vec<Identifier> = (1..=1000).filter_map(Identifier::new).collect();
//! for identifier in &forwarded {
//!     gateway.insert(*identifier);
//!     if identifier.get() % 400 != 0 {
//!         client.insert(*identifier);
//!     }
//! }
//!
//! let encoding = encoding_for(2);
//! let mut bytes = Vec::new();
//! client.write_prefix(encoding, &mut bytes)?;
//! assert_eq!(bytes.len(), 14);
//!
//! let mut decoder = Decoder::new();
//! let theirs = EncodedPrefix::new(encoding, &bytes)?;
//! let difference = gateway.decode(theirs, forwarded.iter().copied(), &mut decoder)?;
//! assert_eq!(difference.only_here.iter().map(|missing| missing.get()).collect::<Vec<_>>(), [400, 800]);
//! assert!(difference.only_there.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A decode never changes a sketch, and only reports a difference that explains the whole prefix.
//! Bytes from the network cause errors at worst: every loop is bounded by the prefix's length (see
//! the fuzz targets next to this crate), and [`Decoder::take_work`] returns the cost of a decode.
//! The most expensive inputs are 32 identifiers outside the candidates, and thousands of candidates
//! without a match: some tenths of a millisecond. Larger ones are refused.
//!
//! # Sources
//!
//! The keys refer to docs/REFERENCES.md.
//!
//! - eACKs: Packrat26, section 5, from the quACK (Sidekick24, section 3), which uses power sums of
//!   a subset.
//! - Rateless IBLT: Yang24.
//!   The mapping here is seeded by all of the identifier and a secret key, costs a fixed number of
//!   additions and has the density of Yang24.
//! - Rational functions: Minsky03.
//! - Splitting of polynomials: Cantor81.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "count-operations")]
extern crate std;

mod coded_symbols;
mod encoding;
mod field;
mod identifier;
mod lanes;
mod mapping;
#[cfg(feature = "count-operations")]
pub mod operations;
mod power_sums;
mod recurrence;
mod roots;
mod sketch;

pub use coded_symbols::CodedSymbols;
pub use encoding::{
    EncodedPrefix, Encoding, MAX_ENCODED_LENGTH, MAX_EXPECTED_DIFFERENCE, PrefixError,
    SketchLimits, encoding_for, longer,
};
pub use identifier::Identifier;
pub use mapping::SketchKey;
pub use power_sums::PowerSums;
pub use sketch::{BeyondLimits, DecodeError, Decoder, Difference, Sketch};
