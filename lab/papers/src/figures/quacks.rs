//! Figures of Sidekick24's section 3, quACKs and their strawmen, and table 2 of Packrat26: their
//! costs in bytes and time, and the frequency of colliding identifiers.

use super::plan::{Bench, Plan, Settings};
use super::sketches::{best_nanos, decoding};
use crate::failure::Failure;
use crate::quack::{HashQuack, Missing, SlidingWindow, Sums, Width, collision, with_modulus};
use packrat_eack::{Encoding, Identifier, Sketch, SketchKey, SketchLimits};
use packrat_lab::drawing::{Axis, Bar, Figure, Panel, Point, Series, Subject};
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashMap;
use std::hint::black_box;

/// Number of packets of a quACK (Sidekick24, table 3).
const QUACK_PACKETS: usize = 25;
/// Number of missing packets, and of sums, of a quACK (Sidekick24, table 3).
const QUACK_THRESHOLD: usize = 10;
/// Rounds of a measurement of time; the best one counts.
const TIMING_ROUNDS: usize = 40;
/// Identifiers in a quACK of strawman 1b; the paper leaves it open.
const WINDOW_IDENTIFIERS: usize = 5;
/// Bytes of UDP and IP headers, and of TCP and IP with timestamps.
const HEADER_BYTES: [usize; 2] = [28, 52];

fn bar(label: &str, subject: Subject, value: f64, paper: Option<f64>) -> Bar {
    Bar::new(label, subject, Point::exact(0.0, value), paper)
}

fn hashes(random: &mut ChaCha8Rng, count: usize) -> Vec<u64> {
    (0..count).map(|_| random.random()).collect()
}

/// Nanoseconds to insert each of these packets into `threshold` sums.
fn insertion<const MODULUS: u64>(hashes: &[u64], threshold: usize) -> f64 {
    let identifiers: Vec<u64> = hashes.iter().map(|hash| hash % MODULUS).collect();
    best_nanos(TIMING_ROUNDS, identifiers.len(), || {
        let mut sums = Sums::<MODULUS>::new(threshold);
        identifiers.iter().for_each(|identifier| sums.insert(*identifier));
        black_box(&sums);
    })
}

/// Microseconds to decode which of these packets are missing, with as many sums as are.
fn candidates<const MODULUS: u64>(hashes: &[u64], missing: usize) -> f64 {
    let sent: Vec<u64> = hashes.iter().map(|hash| hash % MODULUS).collect();
    let (mut all, mut received) = (Sums::<MODULUS>::new(missing), Sums::<MODULUS>::new(missing));
    sent.iter().for_each(|identifier| all.insert(*identifier));
    sent[missing..].iter().for_each(|identifier| received.insert(*identifier));
    let nanos = best_nanos(TIMING_ROUNDS, 1, || {
        let decoded: Option<Missing> = all.decode(&received, &sent);
        black_box(decoded);
    });
    nanos * 1e-3
}

/// Cost of the product's sketch for the same: nanoseconds to insert a packet, microseconds to decode.
fn product(random: &mut ChaCha8Rng, count: usize, missing: usize, threshold: usize) -> (f64, f64) {
    let key = SketchKey::new(random.random());
    let limits = SketchLimits { coded_symbols: 0, power_sums: threshold as u8 + 1 };
    let identifiers: Vec<Identifier> =
        hashes(random, count).into_iter().map(Identifier::from_hash).collect();
    let insert = best_nanos(TIMING_ROUNDS, count, || {
        let mut sketch = Sketch::new(key.clone(), limits);
        identifiers.iter().for_each(|identifier| sketch.insert(*identifier));
        black_box(&sketch);
    });
    let encoding = Encoding::PowerSums { count: missing as u8 + 1 };
    let decode = decoding(random, limits, encoding, count, missing).unwrap_or(f64::NAN);
    (insert, decode * 1e-3)
}

/// Milliseconds to decode a hash of packets of which some are missing.
fn hash_decoding(identifiers: &[u32]) -> f64 {
    // The answer is the 816th subset of the millions, of which half are tried on average.
    let mut sorted = identifiers.to_vec();
    sorted.sort_unstable();
    let quack = HashQuack::new(sorted[QUACK_THRESHOLD - 3..QUACK_PACKETS - 3].to_vec());
    let (_, tried) = quack.decode(identifiers.to_vec());
    let nanos = best_nanos(TIMING_ROUNDS, tried as usize, || {
        black_box(quack.decode(identifiers.to_vec()));
    });
    let subsets = (1..=QUACK_THRESHOLD)
        .fold(1.0, |product, k| product * (QUACK_PACKETS - QUACK_THRESHOLD + k) as f64 / k as f64);
    nanos * 1e-6 * subsets / 2.0
}

fn costs(random: &mut ChaCha8Rng, bench: &Bench) -> Vec<Panel> {
    let packets = hashes(random, QUACK_PACKETS);
    let identifiers: Vec<u32> = packets.iter().map(|hash| *hash as u32).collect();
    let window = |length| {
        best_nanos(TIMING_ROUNDS, QUACK_PACKETS, || {
            let (mut window, mut out) =
                (SlidingWindow::new(length), Vec::with_capacity(4 * length));
            for identifier in &identifiers {
                out.clear();
                window.quack(*identifier, &mut out);
                black_box(&out);
            }
        })
    };
    let [echo, list] = [1, WINDOW_IDENTIFIERS].map(window);
    let hash = best_nanos(TIMING_ROUNDS, QUACK_PACKETS, || {
        black_box(HashQuack::new(identifiers.clone()));
    });
    let sums = insertion::<{ (1 << 32) - 5 }>(&packets, QUACK_THRESHOLD);
    let decode = candidates::<{ (1 << 32) - 5 }>(&packets, QUACK_THRESHOLD);
    let (ours, ours_decode) = product(random, QUACK_PACKETS, QUACK_THRESHOLD, QUACK_THRESHOLD);
    let (batched, _) = product(random, 4096, QUACK_THRESHOLD, QUACK_THRESHOLD);
    bench.tick();
    let hash_decode = hash_decoding(&identifiers);
    bench.tick();
    vec![
        Panel::bars(
            "a) Time for a packet, 25 packets, 10 sums",
            "nanoseconds",
            1,
            vec![
                bar("strawman 1a, 1c: echo", Subject::EndToEnd, echo, Some(1.0)),
                bar("1b: the last 5", Subject::EndToEnd, list, Some(51.0)),
                bar("2: hash", Subject::EndToEnd, hash, Some(27.0)),
                bar("power sums, as there", Subject::Variant, sums, Some(33.0)),
                bar("Packrat, 11 sums", Subject::Packrat, ours, None),
                bar("the same, of 4096 packets", Subject::Packrat, batched, None),
            ],
        ),
        Panel::bars(
            "b) Time to decode 10 missing of 25",
            "microseconds (strawman 2: milliseconds)",
            2,
            vec![
                bar("2: hash of half of the subsets", Subject::EndToEnd, hash_decode, Some(830.0)),
                bar("power sums, as there", Subject::Variant, decode, Some(2.82)),
                bar("Packrat", Subject::Packrat, ours_decode, None),
            ],
        ),
    ]
}

/// Sidekick24, table 6: the work on a packet beside reading it and finding its connection, at 2.3 GHz.
fn work(random: &mut ChaCha8Rng, bench: &Bench) -> Panel {
    const CONSTRUCTION_CASES: [(usize, f64); 2] = [(25, 23.0), (1468, 22.0)];
    const CYCLES_PER_NANOSECOND: f64 = 2.3;
    let key = IdentifierKey::new(std::array::from_fn(|_| random.random()));
    let mut all: Vec<Bar> = CONSTRUCTION_CASES
        .into_iter()
        .map(|(length, cycles)| {
            let datagrams: Vec<Vec<u8>> =
                (0..64).map(|_| (0..length).map(|_| random.random()).collect()).collect();
            let nanos = best_nanos(TIMING_ROUNDS, datagrams.len(), || {
                for datagram in &datagrams {
                    black_box(key.identify(IdentifierScheme::Trailer, datagram));
                }
            });
            let label = format!("identifier, {length} bytes");
            bar(&label, Subject::Packrat, nanos, Some(cycles / CYCLES_PER_NANOSECOND))
        })
        .collect();
    let (insertion, _) = product(random, 4096, QUACK_THRESHOLD, QUACK_THRESHOLD);
    all.push(bar(
        "insertion into 11 sums",
        Subject::Packrat,
        insertion,
        Some(74.0 / CYCLES_PER_NANOSECOND),
    ));
    bench.tick();
    Panel::bars("h) Work on a packet at the proxy", "nanoseconds", 1, all)
}

/// Sidekick24, table 2, for the packets of table 3: bytes with headers.
fn sizes() -> Panel {
    let [udp, tcp] = HEADER_BYTES;
    let sealed = packrat_wire::seal::SEAL_OVERHEAD_BYTES;
    let prefix = |missing: usize| Encoding::PowerSums { count: missing as u8 + 1 }.encoded_len();
    let each = |bytes: usize| (QUACK_PACKETS * bytes) as f64;
    Panel::bars(
        "c) Bytes for 25 packets, IP headers included",
        "bytes",
        0,
        vec![
            bar("1a: 25 datagrams", Subject::EndToEnd, each(udp + 4), None),
            bar("1b: 25 datagrams", Subject::EndToEnd, each(udp + 4 * WINDOW_IDENTIFIERS), None),
            bar("1c: 25 segments", Subject::EndToEnd, each(tcp + 4), None),
            bar("2: a datagram", Subject::EndToEnd, (udp + HashQuack::LENGTH) as f64, None),
            bar(
                "power sums, as there",
                Subject::Variant,
                (udp + 4 + 4 + 4 * QUACK_THRESHOLD) as f64,
                None,
            ),
            bar(
                "Packrat: sums, sealed",
                Subject::Packrat,
                (udp + sealed + prefix(QUACK_THRESHOLD)) as f64,
                None,
            ),
            bar("the same, 1 missing", Subject::Packrat, (udp + sealed + prefix(1)) as f64, None),
        ],
    )
}

/// Each width has its colour.
const fn subject(width: Width) -> Subject {
    match width {
        Width::Bits16 => Subject::EndToEnd,
        Width::Bits24 => Subject::Split,
        Width::Bits32 => Subject::Variant,
        Width::Bits64 => Subject::Bound,
    }
}

/// Sidekick24, figure 2.
fn widths(random: &mut ChaCha8Rng, bench: &Bench) -> Vec<Panel> {
    const SENT_PACKETS: [usize; 6] = [25, 50, 100, 200, 300, 400];
    const MISSING_PACKETS: [usize; 5] = [1, 5, 10, 20, 40];
    const THRESHOLD_STEPS: [usize; 5] = [1, 5, 10, 20, 40];
    type Time = dyn Fn(Width, usize, &mut ChaCha8Rng) -> f64;
    type Ours = dyn Fn(usize, &mut ChaCha8Rng) -> f64;
    let mut panel = |title: &str, x: &str, y: &str, at: &[usize], time: &Time, ours: &Ours| {
        let mut series: Vec<Series> = Width::ALL
            .into_iter()
            .map(|width| {
                let points = at.iter().map(|x| Point::exact(*x as f64, time(width, *x, random)));
                Series::line(
                    format!("{} bits", 8 * width.bytes()),
                    subject(width),
                    points.collect(),
                )
            })
            .collect();
        let points = at.iter().map(|x| Point::exact(*x as f64, ours(*x, random)));
        series.push(Series::line("Packrat, 32 bits", Subject::Packrat, points.collect()));
        bench.tick();
        let ticks: Vec<f64> = at.iter().map(|x| *x as f64).collect();
        Panel::lines(
            title,
            Axis::linear(x).with_ticks(&ticks),
            Axis::logarithmic(y).with_ticks(&[0.1, 1.0, 10.0, 100.0, 1000.0]),
            series,
        )
    };
    vec![
        panel(
            "d) Decoding 10 missing",
            "packets sent",
            "microseconds",
            &SENT_PACKETS,
            &|width, sent, random| {
                with_modulus!(width, candidates(&hashes(random, sent), QUACK_THRESHOLD))
            },
            &|sent, random| product(random, sent, QUACK_THRESHOLD, QUACK_THRESHOLD).1,
        ),
        panel(
            "e) Decoding of 300 packets",
            "missing",
            "microseconds",
            &MISSING_PACKETS,
            &|width, missing, random| {
                with_modulus!(width, candidates(&hashes(random, 300), missing))
            },
            &|missing, random| product(random, 300, missing, missing).1,
        ),
        panel(
            "f) Inserting a packet, of 1000",
            "sums",
            "nanoseconds",
            &THRESHOLD_STEPS,
            &|width, sums, random| with_modulus!(width, insertion(&hashes(random, 1000), sums)),
            &|sums, random| product(random, 1000, 1, sums).0,
        ),
    ]
}

/// The share of identifiers of this many bytes that equal another one, in lists of `count`.
fn collided(random: &mut ChaCha8Rng, bytes: u8, count: usize, lists: usize) -> f64 {
    let mut times: HashMap<u64, usize> = HashMap::with_capacity(count);
    let collided: usize = (0..lists)
        .map(|_| {
            times.clear();
            for _ in 0..count {
                // The product's own identifier has four bytes, and is never zero.
                let hash: u64 = random.random();
                let identifier = match bytes {
                    4 => u64::from(Identifier::from_hash(hash).get()),
                    _ => hash >> (64 - 8 * u32::from(bytes)),
                };
                *times.entry(identifier).or_default() += 1;
            }
            times.values().filter(|times| **times > 1).sum::<usize>()
        })
        .sum();
    collided as f64 / (lists * count) as f64
}

/// Sidekick24, table 1, with more packets if collisions are too rare to be measured with 25.
fn collisions(random: &mut ChaCha8Rng, bench: &Bench) -> Vec<Panel> {
    const DECODING_CASES: [(u8, usize, usize, Option<f64>); 6] = [
        (1, 25, 40_000, Some(0.090)),
        (2, 25, 200_000, Some(0.0004)),
        (3, 25, 2_000_000, None),
        (3, 256, 100_000, None),
        (4, 256, 400_000, None),
        (4, 4096, 20_000, None),
    ];
    let mut both = Vec::new();
    for (bytes, count, lists, paper) in DECODING_CASES {
        let plural = if bytes == 1 { "" } else { "s" };
        let label = format!("{bytes} byte{plural}, {count} packets");
        let measured = collided(random, bytes, count, lists);
        both.push(bar(
            &format!("{label}: measured"),
            Subject::Packrat,
            measured * 1e6,
            paper.map(|it| it * 1e6),
        ));
        both.push(bar(
            &format!("{label}: formula"),
            Subject::Bound,
            collision(bytes, count) * 1e6,
            None,
        ));
        bench.tick();
    }
    vec![Panel::bars("g) Identifiers that are another packet's, too", "in a million", 3, both)]
}

/// Sidekick24, section 3: tables 1 to 3 and figure 2, and some of table 6.
pub(super) fn encodings(_: Settings) -> Result<Plan, Failure> {
    Ok(Plan::new(2 + 3 + 6 + 1, |bench| {
        let mut random = ChaCha8Rng::seed_from_u64(1001);
        let mut panels = costs(&mut random, bench);
        panels.push(sizes());
        panels.extend(widths(&mut random, bench));
        panels.extend(collisions(&mut random, bench));
        panels.push(work(&mut random, bench));
        Ok(Figure::new(
            "quacks",
            "QuACKs, their strawmen, and identifiers of other widths",
            format!(
                "Times: the best of {TIMING_ROUNDS} rounds on one core. Diamonds: Sidekick24, on a Xeon of 2.3 GHz."
            ),
            panels,
        ))
    }))
}

/// Packrat26, table 2: Mbit/s, loss in percent, milliseconds between eACKs, and how many times as fast
/// coded symbols decode as power sums.
const PAPER_CONDITIONS: [(f64, f64, f64, [f64; 2]); 5] = [
    (20.0, 1.0, 10.0, [1.77, 2.15]),
    (20.0, 15.0, 10.0, [1.0, 1.0]),
    (50.0, 50.0, 10.0, [2.03, 2.03]),
    (20.0, 10.0, 100.0, [8.09, 8.09]),
    (100.0, 1.0, 100.0, [44.3, 476.3]),
];

/// Packets outstanding and missing on such a path.
fn outstanding(mbps: f64, loss: f64, milliseconds: f64) -> (usize, usize) {
    let packets = mbps * 1e3 / 8.0 * milliseconds / 1500.0;
    ((packets.round() as usize).max(1), ((packets * loss / 100.0).round() as usize).max(1))
}

/// Packrat26, table 2: the time of decoding with either encoding.
pub(super) fn decoding_gain(_: Settings) -> Result<Plan, Failure> {
    Ok(Plan::new(PAPER_CONDITIONS.len() as u64, |bench| {
        let mut random = ChaCha8Rng::seed_from_u64(1001);
        let [mut there, mut here, mut times] = [Vec::new(), Vec::new(), Vec::new()];
        for (mbps, loss, milliseconds, [low, high]) in PAPER_CONDITIONS {
            let (packets, missing) = outstanding(mbps, loss, milliseconds);
            let label =
                format!("{mbps} Mbit/s, {loss} %, {milliseconds} ms: {missing} of {packets}");
            let all = SketchLimits::LARGEST;
            let [sums, symbols] = [
                (all, Encoding::PowerSums { count: missing as u8 + 1 }),
                (SketchLimits { power_sums: 0, ..all }, all_symbols(missing)),
            ]
            .map(|(limits, encoding)| {
                decoding(&mut random, limits, encoding, packets, missing).unwrap_or(f64::NAN)
            });
            let naive = {
                let hashes = hashes(&mut random, packets);
                candidates::<{ (1 << 32) - 5 }>(&hashes, missing) * 1e3
            };
            bench.tick();
            let paper = Some((low * high).sqrt());
            there.push(bar(&label, Subject::Variant, naive / symbols, paper));
            here.push(bar(&label, Subject::Packrat, sums / symbols, None));
            times.push(bar(&format!("{label}, symbols"), Subject::Split, symbols * 1e-3, None));
            times.push(bar(&format!("{label}, sums"), Subject::Packrat, sums * 1e-3, None));
            times.push(bar(
                &format!("{label}, sums as there"),
                Subject::Variant,
                naive * 1e-3,
                None,
            ));
        }
        Ok(Figure::new(
            "table2",
            "What decoding takes with power sums and with coded symbols",
            "The best of 12 rounds on one core. Diamonds: Packrat26, table 2 (of an interval, its geometric mean). Missing: the rate times the interval times the loss.",
            vec![
                Panel::bars(
                    "Power sums decoded as there ÷ coded symbols here",
                    "times as long",
                    2,
                    there,
                ),
                Panel::bars("Power sums here ÷ coded symbols here", "times as long", 2, here),
                Panel::bars("Time to decode", "microseconds", 2, times),
            ],
        ))
    }))
}

/// Symbols that nearly always decode this number of missing datagrams.
fn all_symbols(missing: usize) -> Encoding {
    let symbols = SketchLimits { power_sums: 0, ..SketchLimits::LARGEST };
    symbols.encoding_for(missing).unwrap_or(Encoding::CodedSymbols { count: 191 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collisions_follow_the_formula() {
        let mut random = ChaCha8Rng::seed_from_u64(1001);
        for (bytes, count, lists) in [(1, 25, 4000), (2, 256, 10_000)] {
            let ratio = collided(&mut random, bytes, count, lists) / collision(bytes, count);
            assert!((0.9..1.1).contains(&ratio), "{bytes} bytes: {ratio}");
        }
    }

    #[test]
    fn paths_have_as_many_packets_under_way_as_they_carry() {
        assert_eq!(outstanding(20.0, 1.0, 10.0), (17, 1));
        assert_eq!(outstanding(100.0, 1.0, 100.0), (833, 8));
        assert_eq!(outstanding(50.0, 50.0, 10.0), (42, 21));
    }
}
