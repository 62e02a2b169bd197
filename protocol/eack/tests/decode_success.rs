//! Every row of the client's table decodes the difference that it is for, at least 999 times in
//! 1000.

use packrat_eack::{
    Decoder, EncodedPrefix, Encoding, Identifier, MAX_ENCODED_LENGTH, MAX_EXPECTED_DIFFERENCE,
    Sketch, SketchKey, SketchLimits, encoding_for, longer,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn failures(
    random: &mut ChaCha8Rng,
    encoding: Encoding,
    difference: usize,
    trials: usize,
) -> usize {
    let limits = match encoding {
        Encoding::PowerSums { count } => SketchLimits { coded_symbols: 0, power_sums: count },
        Encoding::CodedSymbols { count } => SketchLimits { coded_symbols: count, power_sums: 0 },
    };
    let mut decoder = Decoder::new();
    (0..trials)
        .filter(|_| {
            let key = SketchKey::new(random.random());
            let mut own = Sketch::new(key.clone(), limits);
            let mut theirs = Sketch::new(key, limits);
            let mut candidates = Vec::new();
            for _ in 0..difference {
                let identifier = Identifier::from_hash(random.random());
                if random.random_ratio(9, 10) {
                    own.insert(identifier);
                    candidates.push(identifier);
                } else {
                    theirs.insert(identifier);
                }
            }
            let mut bytes = Vec::new();
            theirs.write_prefix(encoding, &mut bytes).expect("within the limits");
            let prefix = EncodedPrefix::new(encoding, &bytes).expect("just written");
            own.decode(prefix, candidates, &mut decoder).map(|found| found.len()) != Ok(difference)
        })
        .count()
}

#[test]
fn every_row_of_the_table_decodes_and_fits() {
    let mut random = ChaCha8Rng::seed_from_u64(4);
    for difference in 1..=MAX_EXPECTED_DIFFERENCE {
        let encoding = encoding_for(difference);
        assert!(encoding.encoded_len() <= MAX_ENCODED_LENGTH);
        assert!(encoding.decodable() >= difference);
        // Power sums have no failures that more trials could find.
        assert!(matches!(encoding, Encoding::PowerSums { .. }));
        assert_eq!(failures(&mut random, encoding, difference, 100), 0, "{difference}");
    }
}

#[test]
fn every_row_of_coded_symbols_decodes_and_fits() {
    const TRIALS: usize = 3000;
    let limits = SketchLimits { coded_symbols: 191, power_sums: 0 };
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let (mut rows, mut failed) = (0, 0);
    for difference in 1..=MAX_EXPECTED_DIFFERENCE {
        let encoding = limits.encoding_for(difference).expect("there are symbols");
        assert!(encoding.encoded_len() <= MAX_ENCODED_LENGTH);
        if encoding.decodable() < difference {
            assert_eq!(encoding, Encoding::CodedSymbols { count: 191 });
            continue;
        }
        let in_row = failures(&mut random, encoding, difference, TRIALS);
        // 3 of 3000 would be 99.9 %; a row that reaches it has more than 9 with a probability of
        // 0.1 %.
        assert!(in_row <= 9, "{difference}: {encoding} failed {in_row} times of {TRIALS}");
        rows += 1;
        failed += in_row;
    }
    assert!(rows >= 80, "{rows} rows");
    assert!(failed * 1000 <= rows * TRIALS, "{failed} of {} failed", rows * TRIALS);
}

#[test]
fn asking_for_longer_ends_at_the_largest() {
    for limits in [
        SketchLimits::LARGEST,
        SketchLimits::DEFAULT,
        SketchLimits { coded_symbols: 40, power_sums: 9 },
    ] {
        for difference in [0, 1, 7, 32, 33, 90, 1000] {
            let mut encoding = limits.encoding_for(difference).expect("there are sums");
            let mut steps = 0;
            while let Some(next) = limits.longer(encoding) {
                assert!(
                    limits.allow(next) && next.decodable() > encoding.decodable(),
                    "{encoding}, then {next}"
                );
                assert!(next.encoded_len() <= MAX_ENCODED_LENGTH);
                encoding = next;
                steps += 1;
            }
            assert!(steps <= 9);
        }
    }
    assert_eq!(longer(Encoding::PowerSums { count: 5 }), Some(Encoding::PowerSums { count: 9 }));
    assert_eq!(longer(Encoding::PowerSums { count: 255 }), None);
    assert_eq!(SketchLimits { coded_symbols: 0, power_sums: 1 }.encoding_for(1), None);
}
