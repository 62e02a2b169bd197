//! What insertion and decoding cost, in nanoseconds, and how that compares to the plain way.
//!
//! ```text
//! cargo run --release -p packrat-eack --example cost
//! ```
//!
//! The plain way: coded symbols by the walk of the Rateless IBLT paper (a square root per step, a 64-bit seed), power
//! sums by a multiplication and a remainder per identifier and sum.
#![allow(clippy::expect_used)]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

use packrat_eack::{
    CodedSymbols, Decoder, EncodedPrefix, Encoding, Identifier, PowerSums, Sketch, SketchKey, SketchLimits,
    encoding_for,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MODULUS: u64 = 4_294_967_291;

fn main() {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let identifiers: Vec<Identifier> = (0..16_384).map(|_| Identifier::from_hash(random.random())).collect();
    let key = SketchKey::new(random.random());

    println!("| insertion into | ns | the plain way, ns | ratio |");
    println!("|---|---|---|---|");
    for capacity in [40, 160, 191] {
        let mut symbols = CodedSymbols::new(key.clone(), capacity);
        let ours = per_item(&identifiers, |identifier| symbols.insert(identifier));
        black_box(symbols.prefix(capacity).sum::<u64>());
        let mut plain = vec![[0u64; 3]; usize::from(capacity)];
        let theirs = per_item(&identifiers, |identifier| plain_walk(&mut plain, identifier));
        black_box(&plain);
        print_row(&format!("{capacity} coded symbols"), ours, theirs);
    }
    for capacity in [8, 33, 129, 255] {
        let mut sums = PowerSums::new(capacity);
        let ours = per_item(&identifiers, |identifier| sums.insert(identifier));
        black_box(&sums);
        let mut plain = vec![0u64; usize::from(capacity)];
        let theirs = per_item(&identifiers, |identifier| plain_powers(&mut plain, identifier));
        black_box(&plain);
        print_row(&format!("{capacity} power sums"), ours, theirs);
    }
    for limits in [SketchLimits { coded_symbols: 160, power_sums: 33 }, SketchLimits::LARGEST] {
        let mut sketch = Sketch::new(key.clone(), limits);
        let ours = per_item(&identifiers, |identifier| sketch.insert(identifier));
        black_box(&sketch);
        println!(
            "| a sketch of {} coded symbols and {} power sums | {ours:.1} | | |",
            limits.coded_symbols, limits.power_sums
        );
    }

    println!("\n| decode | missing | ns with 256 candidates | ns without | ns with one in ten only there |");
    println!("|---|---|---|---|---|");
    let coded = SketchLimits { coded_symbols: 191, power_sums: 0 };
    for difference in [1, 2, 5, 8, 20, 40, 80, 128] {
        for encoding in [Some(encoding_for(difference)), coded.encoding_for(difference)].into_iter().flatten()
        {
            if encoding.decodable() < difference {
                continue;
            }
            let with = decode_cost(&key, &identifiers, difference, encoding, 256, 0);
            let without = decode_cost(&key, &identifiers, difference, encoding, 0, 0);
            let both_ways =
                decode_cost(&key, &identifiers, difference, encoding, 256, difference.div_ceil(10));
            println!("| {encoding} | {difference} | {with:.0} | {without:.0} | {both_ways:.0} |");
        }
    }
}

fn print_row(what: &str, ours: f64, theirs: f64) {
    println!("| {what} | {ours:.1} | {theirs:.1} | {:.1} |", theirs / ours);
}

/// The best of several rounds over all identifiers, in nanoseconds each.
fn per_item(identifiers: &[Identifier], mut work: impl FnMut(Identifier)) -> f64 {
    (0..20)
        .map(|_| {
            let start = Instant::now();
            identifiers.iter().for_each(|identifier| work(*identifier));
            start.elapsed().as_nanos() as f64 / identifiers.len() as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Decodes many different differences; every tenth of the first 256 identifiers or so is missing.
fn decode_cost(
    key: &SketchKey,
    identifiers: &[Identifier],
    difference: usize,
    encoding: Encoding,
    candidates: usize,
    only_there: usize,
) -> f64 {
    let mut decoder = Decoder::new();
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut best = f64::INFINITY;
    let cases: Vec<_> = (0..100)
        .map(|_| {
            let window = &identifiers[random.random_range(0..identifiers.len() - 256)..][..256];
            let mut own = Sketch::new(key.clone(), SketchLimits::LARGEST);
            window.iter().for_each(|identifier| own.insert(*identifier));
            let mut theirs = own.clone();
            let mut missing: BTreeSet<usize> = BTreeSet::new();
            while missing.len() < difference - only_there {
                missing.insert(random.random_range(0..window.len()));
            }
            missing.iter().for_each(|index| theirs.remove(window[*index]));
            for _ in 0..only_there {
                theirs.insert(Identifier::from_hash(random.random()));
            }
            let mut bytes = Vec::new();
            theirs.write_prefix(encoding, &mut bytes).expect("within the limits");
            (own, bytes, &window[..candidates])
        })
        .collect();
    for _ in 0..10 {
        let start = Instant::now();
        for (own, bytes, candidates) in &cases {
            let theirs = EncodedPrefix::new(encoding, bytes).expect("just written");
            let _ = black_box(own.decode(theirs, candidates.iter().copied(), &mut decoder));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / cases.len() as f64);
    }
    best
}

/// One identifier into coded symbols of sum, check and count, walking as the paper does.
fn plain_walk(symbols: &mut [[u64; 3]], identifier: Identifier) {
    let mut state = u64::from(identifier.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    state ^= state >> 32;
    let check = state;
    let mut index = 0u64;
    while let Some([sum, checks, count]) = symbols.get_mut(index as usize) {
        *sum ^= u64::from(identifier.get());
        *checks ^= check;
        *count = count.wrapping_add(1);
        state = state.wrapping_mul(0xda94_2042_e4dd_58b5);
        let uniform = (state as f64 + 1.0) / 18_446_744_073_709_551_616.0;
        index += (((index as f64) + 1.5) * (1.0 / uniform.sqrt() - 1.0)).ceil().max(1.0) as u64;
    }
}

/// One identifier into power sums, a remainder each.
fn plain_powers(sums: &mut [u64], identifier: Identifier) {
    let value = u64::from(identifier.get());
    let mut power = 1;
    for sum in sums {
        power = power * value % MODULUS;
        *sum = (*sum + power) % MODULUS;
    }
}
