//! Figures of the sketches alone: their cost, and the symbols that must be sent.

use super::plan::{Plan, Settings};
use crate::failure::Failure;
use packrat_eack::{
    CodedSymbols, Decoder, EncodedPrefix, Encoding, Identifier, PowerSums, Sketch, SketchKey,
    SketchLimits,
};
use packrat_lab::drawing::{Axis, Figure, Panel, Point, Series, Subject};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

/// Identifiers of one measurement.
const MEASURED_IDENTIFIERS: usize = 4096;
/// Rounds; the best one counts, as whatever else runs on the machine can only make it slower.
const TIMING_ROUNDS: usize = 12;
/// Numbers of symbols of measured sketches.
const SYMBOL_COUNTS: [u8; 6] = [8, 20, 40, 80, 160, 191];
/// Numbers of missing datagrams of measured sketches.
const MISSING_COUNTS: [usize; 7] = [1, 2, 5, 10, 20, 40, 80];
/// Datagrams in flight when a sketch is decoded.
const FLIGHT_CANDIDATES: usize = 256;

fn exact(points: &[(f64, f64)]) -> Vec<Point> {
    points.iter().map(|&(x, y)| Point::exact(x, y)).collect()
}

pub(super) fn best_nanos(rounds: usize, count: usize, mut work: impl FnMut()) -> f64 {
    let round = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64 / count as f64
    };
    (0..rounds).map(round).fold(f64::INFINITY, f64::min)
}

/// Two sketches that differ by this number of identifiers, the shorter one as it is sent.
fn difference(
    random: &mut ChaCha8Rng,
    key: &SketchKey,
    (candidates, missing): (usize, usize),
    limits: SketchLimits,
) -> (Sketch, Sketch, Vec<Identifier>) {
    let identifiers: Vec<Identifier> =
        (0..candidates).map(|_| Identifier::from_hash(random.random())).collect();
    let mut own = Sketch::new(key.clone(), limits);
    identifiers.iter().for_each(|identifier| own.insert(*identifier));
    let mut theirs = own.clone();
    let mut lost = BTreeSet::new();
    while lost.len() < missing {
        lost.insert(random.random_range(0..identifiers.len()));
    }
    lost.iter().for_each(|index| theirs.remove(identifiers[*index]));
    (own, theirs, identifiers)
}

/// Nanoseconds to decode `missing` of these candidates; `None` if the limits do not allow the
/// encoding.
pub(super) fn decoding(
    random: &mut ChaCha8Rng,
    limits: SketchLimits,
    encoding: Encoding,
    candidates: usize,
    missing: usize,
) -> Option<f64> {
    let key = SketchKey::new(random.random());
    let mut decoder = Decoder::new();
    let cases: Vec<_> = (0..32)
        .filter_map(|_| {
            let (own, theirs, identifiers) =
                difference(random, &key, (candidates, missing), limits);
            let mut bytes = Vec::new();
            theirs.write_prefix(encoding, &mut bytes).ok()?;
            Some((own, bytes, identifiers))
        })
        .collect();
    if cases.is_empty() {
        return None;
    }
    Some(best_nanos(TIMING_ROUNDS, cases.len(), || {
        for (own, bytes, identifiers) in &cases {
            if let Ok(prefix) = EncodedPrefix::new(encoding, bytes) {
                let _ = black_box(own.decode(prefix, identifiers.iter().copied(), &mut decoder));
            }
        }
    }))
}

/// Numbers of symbols, or of sums, and nanoseconds to insert an identifier into them.
fn insertion(random: &mut ChaCha8Rng) -> [[(f64, f64); SYMBOL_COUNTS.len()]; 2] {
    let identifiers: Vec<Identifier> =
        (0..MEASURED_IDENTIFIERS).map(|_| Identifier::from_hash(random.random())).collect();
    let key = SketchKey::new(random.random());
    let coded = SYMBOL_COUNTS.map(|count| {
        let mut symbols = CodedSymbols::new(key.clone(), count);
        let nanos = best_nanos(TIMING_ROUNDS, MEASURED_IDENTIFIERS, || {
            identifiers.iter().for_each(|identifier| symbols.insert(*identifier));
        });
        black_box(symbols.prefix(count).sum::<u64>());
        (f64::from(count), nanos)
    });
    let sums = SYMBOL_COUNTS.map(|count| {
        let mut sums = PowerSums::new(count);
        let nanos = best_nanos(TIMING_ROUNDS, MEASURED_IDENTIFIERS, || {
            identifiers.iter().for_each(|identifier| sums.insert(*identifier));
        });
        black_box(&sums);
        (f64::from(count), nanos)
    });
    [coded, sums]
}

/// Numbers of missing datagrams, and microseconds to decode them.
fn decoding_by_missing(random: &mut ChaCha8Rng, limits: SketchLimits) -> Vec<(f64, f64)> {
    let time = |missing: usize| {
        let encoding = match limits.power_sums {
            0 => limits.encoding_for(missing)?,
            _ => Encoding::PowerSums { count: u8::try_from(missing + 1).ok()? },
        };
        let nanos = decoding(random, limits, encoding, FLIGHT_CANDIDATES, missing)?;
        Some((missing as f64, nanos * 1e-3))
    };
    MISSING_COUNTS.into_iter().filter_map(time).collect()
}

/// Figure 3: time to insert and to decode. Unlike all others this one depends on the machine.
pub(super) fn costs(_: Settings) -> Result<Plan, Failure> {
    Ok(Plan::new(2, |bench| {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        let [insert_coded, insert_sums] = insertion(&mut random);
        bench.tick();
        let limits = SketchLimits::LARGEST;
        let coded = SketchLimits { power_sums: 0, ..limits };
        let decode_coded = decoding_by_missing(&mut random, coded);
        let decode_sums = decoding_by_missing(&mut random, limits);
        bench.tick();
        let reference = "reference code";
        Ok(Figure::new(
            "fig3",
            "What a sketch costs",
            "Best of 12 rounds on one core. Diamonds: the paper's own code, measured on two virtual cores.",
            vec![
                Panel::lines(
                    "Insert one identifier",
                    Axis::logarithmic("symbols, or sums")
                        .with_ticks(&[8.0, 20.0, 40.0, 80.0, 160.0]),
                    Axis::logarithmic("nanoseconds").with_ticks(&[1.0, 10.0, 100.0, 1000.0]),
                    vec![
                        Series::line("coded symbols", Subject::Packrat, exact(&insert_coded)),
                        Series::line("power sums", Subject::Split, exact(&insert_sums)),
                        Series::paper(
                            reference,
                            Subject::Packrat,
                            exact(&[(40.0, 52.0), (160.0, 89.0)]),
                        ),
                    ],
                ),
                Panel::lines(
                    "Decode what is missing",
                    Axis::logarithmic("datagrams missing")
                        .with_ticks(&MISSING_COUNTS.map(|missing| missing as f64)),
                    Axis::logarithmic("microseconds").with_ticks(&[0.1, 1.0, 10.0, 100.0, 1000.0]),
                    vec![
                        Series::line("coded symbols", Subject::Packrat, exact(&decode_coded)),
                        Series::line("power sums", Subject::Split, exact(&decode_sums)),
                        Series::paper(
                            reference,
                            Subject::Packrat,
                            exact(&[(1.0, 0.097), (8.0, 0.68), (20.0, 1.9), (80.0, 9.4)]),
                        ),
                        Series::paper(
                            reference,
                            Subject::Split,
                            exact(&[(20.0, 78.0), (80.0, 1690.0)]),
                        ),
                    ],
                ),
            ],
        ))
    }))
}

/// Differences tried for each number of missing datagrams.
const DIFFERENCE_TRIALS: usize = 2000;

/// Figure 4: the symbols that a difference needs.
pub(super) fn decode_success(_: Settings) -> Result<Plan, Failure> {
    // Missing, and the share that the code of Packrat26 decodes with four cells each (its
    // benchmark's identifiers are sequential, these are not).
    const DECODING_CASES: [(usize, f64, Subject); 4] = [
        (2, 0.976, Subject::Bound),
        (5, 0.955, Subject::Variant),
        (20, 0.467, Subject::Packrat),
        (40, 0.038, Subject::Split),
    ];
    Ok(Plan::new(DECODING_CASES.len() as u64, |bench| {
        let mut random = ChaCha8Rng::seed_from_u64(4);
        let limits = SketchLimits { coded_symbols: CodedSymbols::MAX_CAPACITY, power_sums: 0 };
        let mut lines = Vec::new();
        for (missing, reference, subject) in DECODING_CASES {
            let needed: Vec<f64> = (0..DIFFERENCE_TRIALS)
                .map(|_| {
                    let key = SketchKey::new(random.random());
                    let (own, theirs, _) =
                        difference(&mut random, &key, (FLIGHT_CANDIDATES, missing), limits);
                    fewest_symbols(&own, &theirs, missing) / missing as f64
                })
                .collect();
            bench.tick();
            let multipliers = (0..=60).map(|step| 1.0 + f64::from(step) * 0.1);
            let share = |multiplier: f64| {
                let enough = needed.iter().filter(|needed| **needed <= multiplier + 1e-9).count();
                enough as f64 / needed.len() as f64
            };
            let points =
                multipliers.map(|multiplier| Point::exact(multiplier, share(multiplier))).collect();
            lines.push(Series::curve(format!("{missing} missing"), subject, points));
            lines.push(Series::paper("reference code", subject, exact(&[(4.0, reference)])));
        }
        Ok(Figure::new(
            "fig4",
            "Symbols that a difference needs",
            format!("{DIFFERENCE_TRIALS} differences each. Diamonds: the paper's own code."),
            vec![Panel::lines(
                "Share of differences decoded",
                Axis::linear("coded symbols ÷ missing")
                    .with_ticks(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]),
                Axis::linear("share").with_ticks(&[0.0, 0.25, 0.5, 0.75, 1.0]),
                lines,
            )],
        ))
    }))
}

/// The shortest prefix that decodes; infinite if there is no such prefix.
fn fewest_symbols(own: &Sketch, theirs: &Sketch, missing: usize) -> f64 {
    let mut decoder = Decoder::new();
    let least = missing.max(usize::from(Encoding::MIN_CODED_SYMBOLS)) as u8;
    let decodes = |count: &u8| {
        let encoding = Encoding::CodedSymbols { count: *count };
        let mut bytes = Vec::new();
        theirs.write_prefix(encoding, &mut bytes).is_ok()
            && EncodedPrefix::new(encoding, &bytes)
                .is_ok_and(|prefix| own.decode(prefix, std::iter::empty(), &mut decoder).is_ok())
    };
    (least..=CodedSymbols::MAX_CAPACITY).find(decodes).map_or(f64::INFINITY, f64::from)
}
