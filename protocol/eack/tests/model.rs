//! The sketches against a naive model: two plain sets.

use std::collections::{BTreeMap, BTreeSet};

use packrat_eack::{
    DecodeError, Decoder, EncodedPrefix, Encoding, Identifier, Sketch, SketchKey, SketchLimits,
    encoding_for,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

const LIMITS: SketchLimits = SketchLimits::LARGEST;

fn identifier() -> impl Strategy<Value = Identifier> {
    // Small values, large values and random ones: neighbours must not be weaker than random bytes.
    prop_oneof![1u32..200, 4_294_967_100u32..4_294_967_291, 1u32..4_294_967_291]
        .prop_filter_map("outside of the field", Identifier::new)
}

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![
        (2u8..=255).prop_map(|count| Encoding::PowerSums { count }),
        (4u8..=191).prop_map(|count| Encoding::CodedSymbols { count }),
    ]
}

fn sketch_of<'a>(key: &SketchKey, identifiers: impl IntoIterator<Item = &'a Identifier>) -> Sketch {
    let mut sketch = Sketch::new(key.clone(), LIMITS);
    for identifier in identifiers {
        sketch.insert(*identifier);
    }
    sketch
}

fn prefix(sketch: &Sketch, encoding: Encoding) -> Vec<u8> {
    let mut bytes = Vec::new();
    sketch.write_prefix(encoding, &mut bytes).expect("within the limits");
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn power_sums_decode_every_difference_that_fits(
        both in btree_set(identifier(), 0..300),
        here in btree_set(identifier(), 0..32),
        there in btree_set(identifier(), 0..12),
        surplus in 0usize..3,
        known in any::<u64>(),
        secret in any::<[u64; 2]>(),
    ) {
        let key = SketchKey::new(secret);
        let own_set: BTreeSet<_> = both.union(&here).copied().collect();
        let their_set: BTreeSet<_> = both.union(&there).copied().collect();
        let only_here: Vec<_> = own_set.difference(&their_set).copied().collect();
        let only_there: Vec<_> = their_set.difference(&own_set).copied().collect();
        let (own, theirs) = (sketch_of(&key, &own_set), sketch_of(&key, &their_set));
        let encoding = encoding_for(only_here.len() + only_there.len() + surplus);
        let bytes = prefix(&theirs, encoding);
        let candidates = own_set.iter().enumerate().filter(|(index, _)| known >> (index % 64) & 1 == 1);
        let mut decoder = Decoder::new();
        let difference = own
            .decode(EncodedPrefix::new(encoding, &bytes)?, candidates.map(|(_, identifier)| *identifier), &mut decoder);
        let difference = difference?;
        prop_assert_eq!(difference.only_here, only_here);
        prop_assert_eq!(difference.only_there, only_there);
    }

    #[test]
    fn what_decodes_is_the_difference(
        both in btree_set(identifier(), 0..300),
        here in btree_set(identifier(), 0..60),
        there in btree_set(identifier(), 0..60),
        known in any::<bool>(),
        encoding in encoding(),
        secret in any::<[u64; 2]>(),
    ) {
        let key = SketchKey::new(secret);
        let own_set: BTreeSet<_> = both.union(&here).copied().collect();
        let their_set: BTreeSet<_> = both.union(&there).copied().collect();
        let (own, theirs) = (sketch_of(&key, &own_set), sketch_of(&key, &their_set));
        let bytes = prefix(&theirs, encoding);
        let mut decoder = Decoder::new();
        let candidates = there.iter().copied().filter(|_| known);
        match own.decode_among(EncodedPrefix::new(encoding, &bytes)?, here.iter().copied(), candidates, &mut decoder) {
            Ok(difference) => {
                prop_assert_eq!(difference.only_here.to_vec(), own_set.difference(&their_set).copied().collect::<Vec<_>>());
                prop_assert_eq!(difference.only_there.to_vec(), their_set.difference(&own_set).copied().collect::<Vec<_>>());
            }
            Err(error) => {
                prop_assert_eq!(error, DecodeError::DifferenceTooLarge);
                let size = own_set.symmetric_difference(&their_set).count();
                prop_assert!(size > 0, "equal sets must decode with every prefix");
                let unknown = if known { 0 } else { there.len() };
                if let Encoding::PowerSums { count } = encoding && unknown <= 32 {
                    prop_assert!(size >= usize::from(count), "{} differences with {} sums", size, count);
                }
            }
        }
    }

    #[test]
    fn insertions_and_removals_commute(
        operations in vec((identifier(), any::<bool>()), 0..200),
        seed in any::<u64>(),
        encoding in encoding(),
    ) {
        let key = SketchKey::new([1, 2]);
        let mut sketch = Sketch::new(key.clone(), LIMITS);
        let mut multiset: BTreeMap<Identifier, i32> = BTreeMap::new();
        for (identifier, insert) in &operations {
            if *insert { sketch.insert(*identifier) } else { sketch.remove(*identifier) }
            *multiset.entry(*identifier).or_default() += if *insert { 1 } else { -1 };
        }
        // The same in another order, and only the net effect of each identifier.
        let mut net: Vec<_> = multiset.into_iter().collect();
        net.sort_by_key(|(identifier, _)| u64::from(identifier.get()).wrapping_mul(seed | 1));
        let mut other = Sketch::new(key, LIMITS);
        for (identifier, count) in net {
            for _ in 0..count.abs() {
                if count > 0 { other.insert(identifier) } else { other.remove(identifier) }
            }
        }
        prop_assert_eq!(prefix(&sketch, encoding), prefix(&other, encoding));
        prop_assert_eq!(sketch.size(), other.size());
        sketch.clear();
        prop_assert!(prefix(&sketch, encoding).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_shorter_sketch_is_the_prefix_of_a_longer_one(
        identifiers in vec(identifier(), 0..100),
        encoding in encoding(),
        longer_by in 0u8..100,
    ) {
        let key = SketchKey::new([3, 4]);
        let (limits, longer) = match encoding {
            Encoding::PowerSums { count } => (
                SketchLimits { coded_symbols: 0, power_sums: count },
                Encoding::PowerSums { count: count.saturating_add(longer_by) },
            ),
            Encoding::CodedSymbols { count } => (
                SketchLimits { coded_symbols: count, power_sums: 0 },
                Encoding::CodedSymbols { count: count.saturating_add(longer_by).min(191) },
            ),
        };
        let mut short = Sketch::new(key.clone(), limits);
        for identifier in &identifiers {
            short.insert(*identifier);
        }
        let long = sketch_of(&key, &identifiers);
        let bytes = prefix(&short, encoding);
        prop_assert_eq!(bytes.len(), encoding.encoded_len());
        prop_assert_eq!(&bytes[..], &prefix(&long, longer)[..bytes.len()]);
        prop_assert_eq!(short.write_prefix(longer, &mut Vec::new()).is_ok(), longer == encoding);
    }

    #[test]
    fn encodings_survive_the_wire(encoding in encoding(), bytes in any::<[u8; 2]>()) {
        prop_assert_eq!(Encoding::from_wire(encoding.to_wire()), Some(encoding));
        if let Some(parsed) = Encoding::from_wire(bytes) {
            prop_assert_eq!(parsed.to_wire(), bytes);
            prop_assert!(parsed.encoded_len() <= packrat_eack::MAX_ENCODED_LENGTH);
        }
    }

    #[test]
    fn arbitrary_bytes_are_errors_and_never_a_difference(
        encoding in encoding(),
        mut bytes in vec(any::<u8>(), 1200),
        identifiers in vec(identifier(), 0..50),
        surplus in -40i16..40,
    ) {
        let own = sketch_of(&SketchKey::new([5, 6]), &identifiers);
        bytes.truncate(encoding.encoded_len());
        if let Encoding::PowerSums { .. } = encoding {
            // A plausible size, or nearly all cases would end there.
            bytes[..2].copy_from_slice(&own.size().wrapping_add_signed(surplus).to_be_bytes());
        }
        let mut decoder = Decoder::new();
        if let Ok(theirs) = EncodedPrefix::new(encoding, &bytes) {
            let result = own.decode(theirs, identifiers.iter().copied(), &mut decoder);
            // Two sums are two random numbers; every longer prefix must be recognised as nonsense.
            if encoding.encoded_len() > 14 {
                prop_assert_eq!(result, Err(DecodeError::DifferenceTooLarge));
            }
        }
    }
}

#[test]
fn the_size_may_wrap() {
    let key = SketchKey::new([7, 8]);
    let limits = SketchLimits { coded_symbols: 40, power_sums: 8 };
    let (mut own, mut theirs) = (Sketch::new(key.clone(), limits), Sketch::new(key, limits));
    let mut decoder = Decoder::new();
    let mut missing = Vec::new();
    for value in 1..140_000u32 {
        let identifier =
            Identifier::from_hash(u64::from(value).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        own.insert(identifier);
        if value % 23_456 == 0 {
            missing.push(identifier);
        } else {
            theirs.insert(identifier);
        }
    }
    missing.sort_unstable();
    for encoding in [Encoding::PowerSums { count: 7 }, Encoding::CodedSymbols { count: 40 }] {
        let bytes = prefix(&theirs, encoding);
        let prefix = EncodedPrefix::new(encoding, &bytes).expect("just written");
        let difference = own.decode(prefix, [], &mut decoder).expect("five missing");
        assert_eq!(difference.only_here, missing);
        assert_eq!(difference.only_there, []);
    }
}

/// A client that has `foreign` identifiers unknown to the gateway: returns whether its sketch
/// decodes, and the work.
fn decode_foreign(foreign: u64) -> (bool, u64) {
    let (key, count) = (SketchKey::new([9, 9]), u8::try_from(foreign + 1).expect("a prefix"));
    let limits = SketchLimits { coded_symbols: 0, power_sums: count };
    let (own, mut theirs) = (Sketch::new(key.clone(), limits), Sketch::new(key, limits));
    for number in 1..=foreign {
        theirs.insert(Identifier::from_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    let encoding = Encoding::PowerSums { count };
    let bytes = prefix(&theirs, encoding);
    let prefix = EncodedPrefix::new(encoding, &bytes).expect("just written");
    let mut decoder = Decoder::new();
    let decodes = own.decode(prefix, [], &mut decoder).is_ok();
    (decodes, decoder.take_work())
}

#[test]
fn unknown_identifiers_cost_what_they_make_the_decoder_do() {
    let (one, work_of_one) = decode_foreign(1);
    let (most, work_of_most) = decode_foreign(32);
    let (too_many, work_of_too_many) = decode_foreign(128);
    println!("1: {work_of_one}, 32: {work_of_most}, 128: {work_of_too_many}");
    assert!(one && most && !too_many);
    // The square of their number, and logarithms.
    assert!(work_of_most > 50 * work_of_one);
    // It ends before the roots, which would be another million.
    assert!(work_of_too_many < work_of_most);
}

#[test]
fn a_hundred_candidates_cost_more_than_a_hundred_times_one() {
    let key = SketchKey::new([9, 9]);
    let limits = SketchLimits { coded_symbols: 0, power_sums: 129 };
    let identifiers: Vec<_> = (1..=4096u64)
        .map(|number| Identifier::from_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    // Of the last ones, `missing` are missing; every candidate is examined before.
    let work = |missing: usize, candidates: usize| {
        let (mut own, theirs) =
            (Sketch::new(key.clone(), limits), Sketch::new(key.clone(), limits));
        let known = &identifiers[..candidates];
        let encoding = Encoding::PowerSums { count: missing as u8 + 1 };
        known[candidates - missing..].iter().for_each(|identifier| own.insert(*identifier));
        let bytes = prefix(&theirs, encoding);
        let prefix = EncodedPrefix::new(encoding, &bytes).expect("just written");
        let mut decoder = Decoder::new();
        let found =
            own.decode(prefix, known.iter().copied(), &mut decoder).map(|found| found.len());
        (found, decoder.take_work())
    };
    let (one, most, far) = (work(1, 1), work(128, 128), work(128, 3000));
    println!("{one:?} {most:?} {far:?}");
    assert_eq!((one.0, most.0, far.0), (Ok(1), Ok(128), Ok(128)));
    assert!(most.1 > 10 * one.1 && far.1 > 100 * one.1);
    // More candidates than any honest peer leaves: the examination is bounded.
    let (found, work) = work(128, 4096);
    assert!(found.is_err() || work < 1 << 20, "{found:?} {work}");
}
