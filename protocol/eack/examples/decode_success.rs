//! Measures the share of differences that a prefix decodes: a markdown table.
//!
//! ```text
//! cargo run --release -p packrat-eack --example decode_success [trials per row] [table]
//! ```
//!
//! Differences of 1 to 128 identifiers, 90 % of them only here (missing at the client) and 10 %
//! only there, on top of sets that are otherwise the same. With `table`, prints instead the number
//! of coded symbols that each difference needs, the source of the table in `encoding.rs`.
#![allow(clippy::expect_used)]

use packrat_eack::{
    Decoder, EncodedPrefix, Encoding, Identifier, MAX_EXPECTED_DIFFERENCE, Sketch, SketchKey,
    SketchLimits, encoding_for,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CODED: SketchLimits = SketchLimits { coded_symbols: 191, power_sums: 33 };

fn main() {
    let trials = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    if std::env::args().any(|argument| argument == "table") {
        return coded_symbols_needed(trials);
    }
    println!(
        "| difference | prefix | bytes | decoded of {trials} | with at most {} sums | bytes | decoded |",
        CODED.power_sums
    );
    println!("|---|---|---|---|---|---|---|");
    for difference in 1..=MAX_EXPECTED_DIFFERENCE {
        let first = encoding_for(difference);
        let decoded = Pair::new(SketchLimits::LARGEST).successes(difference, first, trials);
        let row = format!(
            "| {difference} | {first} | {} | {:.3} % |",
            first.encoded_len(),
            percent(decoded, trials)
        );
        match CODED.encoding_for(difference).filter(|encoding| encoding.decodable() >= difference) {
            Some(second) => {
                let decoded = Pair::new(CODED).successes(difference, second, trials);
                println!(
                    "{row} {second} | {} | {:.3} % |",
                    second.encoded_len(),
                    percent(decoded, trials)
                );
            }
            None => println!("{row} | | |"),
        }
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

/// Two sketches whose difference is redrawn for every trial; a few identifiers in both are also
/// inserted.
struct Pair {
    random: ChaCha8Rng,
    limits: SketchLimits,
    decoder: Decoder,
    bytes: Vec<u8>,
}

impl Pair {
    fn new(limits: SketchLimits) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(1),
            limits,
            decoder: Decoder::new(),
            bytes: Vec::new(),
        }
    }

    fn identifier(&mut self) -> Identifier {
        Identifier::from_hash(self.random.random())
    }

    /// Draws a difference, with a new key.
    fn draw(&mut self, difference: usize) -> (Sketch, Sketch, Vec<Identifier>) {
        let key = SketchKey::new(self.random.random());
        let mut own = Sketch::new(key.clone(), self.limits);
        let mut theirs = Sketch::new(key, self.limits);
        let mut candidates = Vec::new();
        for _ in 0..difference {
            let identifier = self.identifier();
            if self.random.random_ratio(9, 10) {
                own.insert(identifier);
                candidates.push(identifier);
            } else {
                theirs.insert(identifier);
            }
        }
        for _ in 0..3 {
            let identifier = self.identifier();
            own.insert(identifier);
            theirs.insert(identifier);
            candidates.push(identifier);
        }
        (own, theirs, candidates)
    }

    fn decodes(
        &mut self,
        own: &Sketch,
        theirs: &Sketch,
        candidates: &[Identifier],
        encoding: Encoding,
    ) -> Option<usize> {
        self.bytes.clear();
        theirs.write_prefix(encoding, &mut self.bytes).expect("within the limits");
        let prefix = EncodedPrefix::new(encoding, &self.bytes).expect("just written");
        own.decode(prefix, candidates.iter().copied(), &mut self.decoder)
            .ok()
            .map(|difference| difference.len())
    }

    fn successes(&mut self, difference: usize, encoding: Encoding, trials: usize) -> usize {
        (0..trials)
            .filter(|_| {
                let (own, theirs, candidates) = self.draw(difference);
                self.decodes(&own, &theirs, &candidates, encoding) == Some(difference)
            })
            .count()
    }
}

/// The 99.93rd percentile of the shortest prefix that decodes: a margin over 99.9 % for the
/// sampling error.
fn coded_symbols_needed(trials: usize) {
    let mut pair = Pair::new(SketchLimits { coded_symbols: 191, power_sums: 0 });
    for difference in 1..=MAX_EXPECTED_DIFFERENCE {
        let mut needed: Vec<u8> = (0..trials)
            .map(|_| {
                let (own, theirs, _) = pair.draw(difference);
                // A longer prefix decodes every difference that a shorter one does: bisect.
                let (mut fails, mut decodes) = (3u8, 192u8);
                while decodes - fails > 1 {
                    let count = fails + (decodes - fails) / 2;
                    let encoding = Encoding::CodedSymbols { count };
                    if pair.decodes(&own, &theirs, &[], encoding).is_some() {
                        decodes = count
                    } else {
                        fails = count
                    }
                }
                decodes
            })
            .collect();
        needed.sort_unstable();
        let at = |per_hundred_thousand: usize| {
            needed[(trials * per_hundred_thousand / 100_000).min(trials - 1)]
        };
        println!(
            "{difference}: median {}, 99 % {}, 99.9 % {}, table {}",
            at(50_000),
            at(99_000),
            at(99_900),
            at(99_930)
        );
        if at(99_930) > 191 {
            return;
        }
    }
}
