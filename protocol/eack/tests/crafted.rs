//! Identifiers chosen by an attacker so that a sketch under a known key cannot be decoded. Under
//! any other key they are as good as random ones.

use std::collections::HashMap;

use packrat_eack::{Decoder, EncodedPrefix, Encoding, Identifier, Sketch, SketchKey, SketchLimits};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Number of symbols in a prefix in which both identifiers of a crafted pair are in the same
/// symbols, so that they cannot be distinguished.
const SYMBOLS: u8 = 44;
const PAIRS: usize = 6;

fn limits() -> SketchLimits {
    SketchLimits { coded_symbols: SYMBOLS, power_sums: 0 }
}

fn prefix(key: &SketchKey, identifiers: &[Identifier]) -> Vec<u8> {
    let mut sketch = Sketch::new(key.clone(), limits());
    identifiers.iter().for_each(|identifier| sketch.insert(*identifier));
    let mut bytes = Vec::new();
    sketch
        .write_prefix(Encoding::CodedSymbols { count: SYMBOLS }, &mut bytes)
        .expect("within the limits");
    bytes
}

fn decodes(key: &SketchKey, missing: &[Identifier]) -> bool {
    let mut own = Sketch::new(key.clone(), limits());
    missing.iter().for_each(|identifier| own.insert(*identifier));
    let theirs = prefix(key, &[]);
    let theirs = EncodedPrefix::new(Encoding::CodedSymbols { count: SYMBOLS }, &theirs)
        .expect("just written");
    let mut decoder = Decoder::new();
    let found = own.decode(theirs, missing.iter().copied(), &mut decoder);
    found.is_ok_and(|found| found.len() == missing.len())
}

/// The symbols of the prefix that contain the identifier.
fn symbols(key: &SketchKey, identifier: Identifier) -> Vec<bool> {
    prefix(key, &[identifier]).chunks(6).map(|symbol| symbol != [0; 6]).collect()
}

/// Crafts pairs by trial, as an attacker with the key can.
fn craft(key: &SketchKey, random: &mut ChaCha8Rng) -> Vec<Identifier> {
    let mut known: HashMap<Vec<bool>, Identifier> = HashMap::new();
    let mut crafted = Vec::new();
    while crafted.len() < PAIRS * 2 {
        let identifier = Identifier::from_hash(random.random());
        match known.remove(&symbols(key, identifier)) {
            Some(twin) if twin != identifier => crafted.extend([twin, identifier]),
            _ => drop(known.insert(symbols(key, identifier), identifier)),
        }
    }
    crafted
}

#[test]
fn crafted_identifiers_break_only_the_sketch_whose_key_is_known() {
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let key = SketchKey::new(random.random());
    let crafted = craft(&key, &mut random);
    assert!(!decodes(&key, &crafted), "crafting does not work");
    let others: Vec<_> =
        (0..crafted.len()).map(|_| Identifier::from_hash(random.random())).collect();
    let keys = 3000;
    let (mut failed, mut failed_others) = (0, 0);
    for _ in 0..keys {
        let key = SketchKey::new(random.random());
        failed += usize::from(!decodes(&key, &crafted));
        failed_others += usize::from(!decodes(&key, &others));
    }
    println!("{failed} of {keys} sessions, {failed_others} with identifiers by chance");
    assert!(
        failed <= 9,
        "{failed} of {keys}: more than the table promises for any {} identifiers",
        crafted.len()
    );
}

#[test]
fn power_sums_decode_whatever_the_identifiers_are() {
    // Power sums have no key: crafting is pointless, as no choice of identifiers is harder than
    // another.
    let limits = SketchLimits { coded_symbols: 0, power_sums: 33 };
    let key = SketchKey::new([1, 2]);
    let encoding = Encoding::PowerSums { count: 33 };
    let of = |values: &dyn Fn(u32) -> u32| -> Vec<_> {
        (0..32).map(|at| Identifier::new(values(at)).expect("in the domain")).collect()
    };
    for missing in [
        of(&|at| at + 1),
        of(&|at| 4_294_967_290 - at),
        of(&|at| (1 << (at % 31)) + at / 31 * 4),
        of(&|at| (at + 1) * 65_536),
        of(&|at| if at % 2 == 0 { at + 1 } else { 4_294_967_291 - at }),
    ] {
        let mut own = Sketch::new(key.clone(), limits);
        missing.iter().for_each(|identifier| own.insert(*identifier));
        let mut bytes = Vec::new();
        Sketch::new(key.clone(), limits)
            .write_prefix(encoding, &mut bytes)
            .expect("within the limits");
        let theirs = EncodedPrefix::new(encoding, &bytes).expect("just written");
        let mut decoder = Decoder::new();
        let found = own.decode(theirs, missing.iter().copied(), &mut decoder).expect("it decodes");
        assert_eq!(found.len(), missing.len());
    }
}
