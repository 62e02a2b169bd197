//! Arbitrary bytes as the other end's sketch.
//!
//! Input: byte 0 is the count of sums or symbols, byte 1 the number of identifiers in the own
//! sketch (its upper bit selects the form of the rest), then the serialised prefix itself (padded
//! with zeros) or the identifiers of the other end's set, four bytes each. Every decoded difference
//! must turn the own sketch into exactly the prefix. Power sums of a set must equal a naive
//! field's, and decode to the difference of the two sets.

use packrat_eack::{Decoder, EncodedPrefix, Encoding, Identifier, Sketch, SketchKey, SketchLimits};

/// Differences of one side that decode without being candidates.
const MOST_UNKNOWN: usize = 32;

/// Coded symbols.
pub fn coded_symbols(data: &[u8]) {
    run(data, |count| Encoding::CodedSymbols { count });
}

/// Power sums.
pub fn power_sums(data: &[u8]) {
    run(data, |count| Encoding::PowerSums { count });
}

/// The prefix of the other end's set, which has some of `own_set`, and that set; `None` if it has no
/// such prefix.
fn prefix_of_set(
    values: &[u8],
    own_set: &[Identifier],
    mut theirs: Sketch,
    encoding: Encoding,
) -> Option<(Vec<u8>, Vec<Identifier>)> {
    let (mut bytes, mut set) = (Vec::new(), Vec::new());
    for value in values.as_chunks::<4>().0 {
        // Small values are indices of own identifiers, so that the sets overlap.
        let value = u32::from_be_bytes(*value);
        let shared = own_set.get(value as usize).copied();
        shared.or_else(|| Identifier::new(value)).into_iter().for_each(|identifier| {
            theirs.insert(identifier);
            set.push(identifier);
        });
    }
    theirs.write_prefix(encoding, &mut bytes).ok()?;
    if let Encoding::PowerSums { count } = encoding {
        assert_eq!(bytes, naive_power_sums(&set, count), "not the sums of {set:?}");
    }
    set.sort_unstable();
    Some((bytes, set))
}

fn run(data: &[u8], encoding: impl Fn(u8) -> Encoding) {
    let [count, own_size, rest @ ..] = data else { return };
    let encoding = encoding(*count);
    let mut own = Sketch::new(SketchKey::new([1, 2]), SketchLimits::LARGEST);
    let theirs = own.clone();
    let own_set: Vec<Identifier> = (1..=u64::from(*own_size & 127))
        .map(|index| Identifier::from_hash(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    own_set.iter().for_each(|identifier| own.insert(*identifier));
    let (bytes, their_set) = if own_size & 128 == 0 {
        let mut bytes = rest.to_vec();
        bytes.resize(rest.len().max(encoding.encoded_len()), 0);
        (bytes, None)
    } else {
        let Some((bytes, set)) = prefix_of_set(rest, &own_set, theirs, encoding) else { return };
        (bytes, Some(set))
    };
    let Ok(prefix) = EncodedPrefix::new(encoding, &bytes) else { return };
    let mut decoder = Decoder::new();
    let is_known = |identifier: &Identifier| !identifier.get().is_multiple_of(4);
    let candidates = own_set.iter().copied().filter(is_known);
    // Sketches cannot represent a set that contains an identifier twice.
    let their_set = their_set.filter(|set| set.windows(2).all(|pair| pair[0] != pair[1]));
    let expected =
        their_set.filter(|_| matches!(encoding, Encoding::PowerSums { .. })).map(|theirs| {
            let only = |these: &[Identifier], those: &[Identifier]| {
                let mut only: Vec<_> =
                    these.iter().filter(|one| !those.contains(one)).copied().collect();
                only.sort_unstable();
                only
            };
            (only(&own_set, &theirs), only(&theirs, &own_set))
        });
    let Ok(difference) = own.decode(prefix, candidates, &mut decoder) else {
        if let Some((here, there)) = expected {
            let unknown = here.iter().filter(|identifier| !is_known(identifier)).count();
            assert!(
                here.len() + there.len() >= usize::from(*count)
                    || unknown.max(there.len()) > MOST_UNKNOWN,
                "{here:?} and {there:?} were not decoded"
            );
        }
        return;
    };
    if let Some((here, there)) = expected
        && here.len() + there.len() < usize::from(*count)
    {
        assert_eq!(
            (difference.only_here, difference.only_there),
            (here.as_slice(), there.as_slice())
        );
    }
    let mut turned = own.clone();
    difference.only_here.iter().for_each(|identifier| turned.remove(*identifier));
    difference.only_there.iter().for_each(|identifier| turned.insert(*identifier));
    let mut again = Vec::new();
    assert!(turned.write_prefix(encoding, &mut again).is_ok());
    assert_eq!(again, bytes, "{difference:?} does not explain the prefix");
}

/// The prefix by the definition: plain integers, one power after the other, divided by the modulus
/// with a remainder.
fn naive_power_sums(set: &[Identifier], count: u8) -> Vec<u8> {
    const MODULUS: u128 = (1 << 32) - 5;
    let mut bytes = (set.len() as u16).to_be_bytes().to_vec();
    let mut powers = vec![1u128; set.len()];
    for _ in 0..count {
        let mut sum = 0;
        for (power, identifier) in powers.iter_mut().zip(set) {
            *power = *power * u128::from(identifier.get()) % MODULUS;
            sum += *power;
        }
        bytes.extend_from_slice(&((sum % MODULUS) as u32).to_be_bytes());
    }
    bytes
}
