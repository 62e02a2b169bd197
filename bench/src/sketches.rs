//! Sketches: insertion, subtraction and decoding, beside the naive way and the code of Packrat26.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

use packrat_eack::{
    CodedSymbols, Decoder, EncodedPrefix, Encoding, Identifier, PowerSums, Sketch, SketchKey,
    SketchLimits, encoding_for,
};
use packrat_instructions::callgrind;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::Fallible;
use crate::interrupt::Interrupt;
use crate::summary::{Summary, digits, digits_or_dash};

/// Modulus of the field of the power sums.
const FIELD_MODULUS: u64 = 4_294_967_291;
/// Rounds of a measurement of time.
const TIMING_ROUNDS: usize = 30;

/// Costs of the code of Packrat26 on a machine of this kind (docs/PERFORMANCE.md describes the
/// measurement): nanoseconds per insertion into 40 and 160 symbols, as published and with a key of 64
/// bits like ours, and per decode by number missing.
const PUBLISHED_INSERT: [(u8, f64); 2] = [(40, 52.0), (160, 89.0)];
const KEYED_INSERT: [(u8, f64); 2] = [(40, 139.0), (160, 184.0)];
const REFERENCE_DECODE: [(usize, f64); 4] = [(1, 97.0), (8, 680.0), (20, 1900.0), (80, 9400.0)];
const REFERENCE_POWER_SUMS: [(usize, f64); 2] = [(20, 78_000.0), (80, 1_690_000.0)];

/// Sizes of the decoded differences.
const MISSING_COUNTS: [usize; 8] = [1, 2, 5, 8, 20, 40, 80, 128];

struct Material {
    key: SketchKey,
    identifiers: Vec<Identifier>,
}

impl Material {
    fn new(count: usize) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let mut bytes = [0; 16];
        random.fill_bytes(&mut bytes);
        Self {
            key: SketchKey::new(std::array::from_fn(|_| random.next_u64())),
            identifiers: (0..count).map(|_| Identifier::from_hash(random.next_u64())).collect(),
        }
    }
}

/// Measures and reports.
pub(crate) fn run(summary: &mut Summary, counts: bool, interrupt: &Interrupt) -> Fallible {
    let material = Material::new(16_384);
    insertions(summary, &material, counts, interrupt)?;
    decodes(summary, &material, interrupt)
}

fn insertions(
    summary: &mut Summary,
    material: &Material,
    counts: bool,
    interrupt: &Interrupt,
) -> Fallible {
    let mut rows = Vec::new();
    for capacity in [40u8, 160, 191] {
        interrupt.check()?;
        eprintln!("sketches: {capacity} coded symbols");
        let mut symbols = CodedSymbols::new(material.key.clone(), capacity);
        let ours = per_identifier(&material.identifiers, |identifier| symbols.insert(identifier));
        black_box(symbols.prefix(capacity).sum::<u64>());
        let mut plain = vec![[0u64; 3]; usize::from(capacity)];
        let theirs =
            per_identifier(&material.identifiers, |identifier| plain_walk(&mut plain, identifier));
        black_box(&plain);
        let instructions = counted(counts, "symbols", capacity)?;
        keep(summary, &format!("eack.insert_{capacity}"), ours, theirs, instructions);
        let of = |costs: &[(u8, f64)]| {
            costs.iter().find(|(of, _)| *of == capacity).map(|(_, value)| *value)
        };
        let reference = [of(&PUBLISHED_INSERT), of(&KEYED_INSERT)];
        rows.push(row(&format!("{capacity} coded symbols"), ours, theirs, reference, instructions));
    }
    for capacity in [33u8, 129] {
        interrupt.check()?;
        eprintln!("sketches: {capacity} power sums");
        let mut sums = PowerSums::new(capacity);
        let ours = per_identifier(&material.identifiers, |identifier| sums.insert(identifier));
        let mut prefix = Vec::new();
        sums.prefix(capacity, &mut prefix);
        black_box(prefix);
        let mut plain = vec![0u64; usize::from(capacity)];
        let theirs = per_identifier(&material.identifiers, |identifier| {
            plain_powers(&mut plain, identifier)
        });
        black_box(&plain);
        let instructions = counted(counts, "sums", capacity)?;
        keep(summary, &format!("eack.insert_sums_{capacity}"), ours, theirs, instructions);
        rows.push(row(&format!("{capacity} power sums"), ours, theirs, [None; 2], instructions));
    }
    let header = [
        "insertion into",
        "plain ÷ ours",
        "paper's code ÷ ours",
        "the same with our keying ÷ ours",
        "ns",
        "plain, ns",
        "paper's code, ns",
        "with our keying, ns",
        "instructions",
    ];
    summary.table("Sketches: insertion of one identifier", &header, &rows);
    Ok(())
}

/// Adds the costs of an insertion to the summary.
fn keep(summary: &mut Summary, key: &str, ours: f64, plain: f64, instructions: Option<f64>) {
    summary.set(&format!("{key}_ns"), ours);
    summary.set(&format!("{key}_plain_ns"), plain);
    if let Some(instructions) = instructions {
        summary.set(&format!("{key}_instructions"), instructions);
    }
}

fn row(
    what: &str,
    ours: f64,
    plain: f64,
    [published, keyed]: [Option<f64>; 2],
    instructions: Option<f64>,
) -> Vec<String> {
    vec![
        what.to_owned(),
        digits(plain / ours),
        digits_or_dash(published.map(|reference| reference / ours)),
        digits_or_dash(keyed.map(|reference| reference / ours)),
        digits(ours),
        digits(plain),
        digits_or_dash(published),
        digits_or_dash(keyed),
        digits_or_dash(instructions),
    ]
}

/// Instructions per insertion, if `counts`.
fn counted(counts: bool, kind: &str, capacity: u8) -> Fallible<Option<f64>> {
    if !counts {
        return Ok(None);
    }
    let insertions = 4096;
    let arguments = ["workload", kind, &capacity.to_string(), &insertions.to_string()];
    Ok(Some(callgrind::count("measured_insertions", &arguments)? / f64::from(insertions)))
}

/// The workload whose instructions are counted.
pub(crate) fn workload(kind: &str, capacity: u8, insertions: usize) {
    let material = Material::new(insertions);
    if kind == "sums" {
        let mut sums = PowerSums::new(capacity);
        measured_insertions_into_sums(&mut sums, &material.identifiers);
        black_box(sums);
    } else {
        let mut symbols = CodedSymbols::new(material.key, capacity);
        measured_insertions_into_symbols(&mut symbols, &material.identifiers);
        black_box(symbols);
    }
}

#[inline(never)]
fn measured_insertions_into_sums(sums: &mut PowerSums, identifiers: &[Identifier]) {
    identifiers.iter().for_each(|identifier| sums.insert(*identifier));
}

#[inline(never)]
fn measured_insertions_into_symbols(symbols: &mut CodedSymbols, identifiers: &[Identifier]) {
    identifiers.iter().for_each(|identifier| symbols.insert(*identifier));
}

fn decodes(summary: &mut Summary, material: &Material, interrupt: &Interrupt) -> Fallible {
    let coded = SketchLimits { coded_symbols: CodedSymbols::MAX_CAPACITY, power_sums: 0 };
    let mut rows = Vec::new();
    for missing in MISSING_COUNTS {
        interrupt.check()?;
        eprintln!("sketches: {missing} missing");
        let picked = encoding_for(missing);
        let mut sums_ns = None;
        let mut symbols_ns = None;
        for encoding in [Some(picked), coded.encoding_for(missing)].into_iter().flatten() {
            if encoding.decodable() < missing {
                continue;
            }
            let nanoseconds = decode(material, missing, encoding)?;
            match encoding {
                Encoding::PowerSums { .. } => sums_ns = Some(nanoseconds),
                Encoding::CodedSymbols { .. } => symbols_ns = Some(nanoseconds),
            }
        }
        if let Some(sums) = sums_ns {
            summary.set(&format!("eack.decode_sums_{missing}_ns"), sums);
        }
        if let Some(symbols) = symbols_ns {
            summary.set(&format!("eack.decode_{missing}_ns"), symbols);
        }
        let of = |table: &[(usize, f64)]| {
            table.iter().find(|(of, _)| *of == missing).map(|(_, value)| *value)
        };
        let (reference, reference_sums) = (of(&REFERENCE_DECODE), of(&REFERENCE_POWER_SUMS));
        rows.push(vec![
            missing.to_string(),
            digits_or_dash(reference.zip(symbols_ns).map(|(theirs, ours)| theirs / ours)),
            digits_or_dash(reference_sums.zip(sums_ns).map(|(theirs, ours)| theirs / ours)),
            digits_or_dash(symbols_ns),
            digits_or_dash(sums_ns),
            digits_or_dash(reference),
            digits_or_dash(reference_sums),
            picked.encoded_len().to_string(),
        ]);
    }
    let header = [
        "missing",
        "symbols: paper's code ÷ ours",
        "sums: paper's code ÷ ours",
        "symbols, ns",
        "sums, ns",
        "paper's symbols, ns",
        "paper's sums, ns",
        "bytes of the prefix that is sent",
    ];
    summary.table("Sketches: subtraction and decoding, 256 datagrams outstanding", &header, &rows);
    Ok(())
}

/// Nanoseconds to subtract and decode, the best of several rounds over a hundred differences.
fn decode(material: &Material, missing: usize, encoding: Encoding) -> Fallible<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut below = |bound: usize| random.next_u64() as usize % bound;
    let mut cases = Vec::new();
    for _ in 0..100 {
        let window = &material.identifiers[below(material.identifiers.len() - 256)..][..256];
        let mut own = Sketch::new(material.key.clone(), SketchLimits::LARGEST);
        window.iter().for_each(|identifier| own.insert(*identifier));
        let mut theirs = own.clone();
        let mut lost = BTreeSet::new();
        while lost.len() < missing {
            lost.insert(below(window.len()));
        }
        lost.iter().for_each(|index| theirs.remove(window[*index]));
        let mut bytes = Vec::new();
        theirs.write_prefix(encoding, &mut bytes)?;
        cases.push((own, bytes, window));
    }
    let mut decoder = Decoder::new();
    let mut best = f64::INFINITY;
    for _ in 0..TIMING_ROUNDS {
        let start = Instant::now();
        for (own, bytes, candidates) in &cases {
            let theirs = EncodedPrefix::new(encoding, bytes)?;
            let _ = black_box(own.decode(theirs, candidates.iter().copied(), &mut decoder));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / cases.len() as f64);
    }
    Ok(best)
}

/// The best of several rounds over all identifiers, in nanoseconds each.
fn per_identifier(identifiers: &[Identifier], mut work: impl FnMut(Identifier)) -> f64 {
    (0..TIMING_ROUNDS)
        .map(|_| {
            let start = Instant::now();
            identifiers.iter().for_each(|identifier| work(*identifier));
            start.elapsed().as_nanos() as f64 / identifiers.len() as f64
        })
        .fold(f64::INFINITY, f64::min)
}

/// Inserts one identifier into coded symbols of sum, check and count, by the walk of Yang24: a
/// square root per step, a 64-bit seed.
fn plain_walk(symbols: &mut [[u64; 3]], identifier: Identifier) {
    let mut state =
        u64::from(identifier.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
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

/// Inserts one identifier into power sums, with a remainder for each.
fn plain_powers(sums: &mut [u64], identifier: Identifier) {
    let value = u64::from(identifier.get());
    let mut power = 1;
    for sum in sums {
        power = power * value % FIELD_MODULUS;
        *sum = (*sum + power) % FIELD_MODULUS;
    }
}
