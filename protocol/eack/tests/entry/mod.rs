//! What the fuzz targets and the corpus test run: arbitrary bytes as the other end's sketch.
//!
//! Input: byte 0 is the count of sums or symbols, byte 1 the number of identifiers in the own sketch (its upper bit: in
//! which way to read the rest), then the serialised prefix itself (padded with zeros) or the identifiers of the other
//! end's set, four bytes each. Whatever decodes must turn the own sketch into exactly the prefix.

use packrat_eack::{Decoder, EncodedPrefix, Encoding, Identifier, Sketch, SketchKey, SketchLimits};

/// Coded symbols.
pub(crate) fn coded_symbols(data: &[u8]) {
    run(data, |count| Encoding::CodedSymbols { count });
}

/// Power sums.
pub(crate) fn power_sums(data: &[u8]) {
    run(data, |count| Encoding::PowerSums { count });
}

fn run(data: &[u8], encoding: impl Fn(u8) -> Encoding) {
    let [count, own_size, rest @ ..] = data else { return };
    let encoding = encoding(*count);
    let mut own = Sketch::new(SketchKey::new([1, 2]), SketchLimits::LARGEST);
    let mut theirs = own.clone();
    let own_set: Vec<Identifier> = (1..=u64::from(*own_size & 127))
        .map(|index| Identifier::from_hash(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    own_set.iter().for_each(|identifier| own.insert(*identifier));
    let mut bytes = Vec::new();
    if own_size & 128 == 0 {
        bytes.extend_from_slice(rest);
        if rest.len() < encoding.encoded_len() {
            bytes.resize(encoding.encoded_len(), 0);
        }
    } else {
        for value in rest.as_chunks::<4>().0 {
            // Small values are indices of own identifiers, so that the sets overlap.
            let value = u32::from_be_bytes(*value);
            let shared = own_set.get(value as usize).copied();
            shared
                .or_else(|| Identifier::new(value))
                .into_iter()
                .for_each(|identifier| theirs.insert(identifier));
        }
        if theirs.write_prefix(encoding, &mut bytes).is_err() {
            return;
        }
    }
    let Ok(prefix) = EncodedPrefix::new(encoding, &bytes) else { return };
    let mut decoder = Decoder::new();
    let candidates = own_set.iter().copied().filter(|identifier| identifier.get() % 4 != 0);
    let Ok(difference) = own.decode(prefix, candidates, &mut decoder) else { return };
    let mut turned = own.clone();
    difference.only_here.iter().for_each(|identifier| turned.remove(*identifier));
    difference.only_there.iter().for_each(|identifier| turned.insert(*identifier));
    let mut again = Vec::new();
    assert!(turned.write_prefix(encoding, &mut again).is_ok());
    assert_eq!(again, bytes, "{difference:?} does not explain the prefix");
}
