//! The mapping from identifiers to coded symbols, and the keyed check.
//!
//! In a rateless IBLT (Yang24) symbol `i` contains an identifier with probability `1 / (1 + i/2)`.
//! Yang24 walks from one symbol to the next with a square root and a division each. Here all
//! memberships come from 14 bytes of one keyed hash:
//!
//! ```text
//! symbol  0      1 2 3 4 5 6 7 8      9 ............ 190
//!         always one byte each,       six ranges of about equal weight, one byte each:
//!                independent          exactly one symbol of each range
//! ```
//!
//! Every symbol keeps the probability of Yang24 (to 1/256). Having exactly one symbol per range
//! instead of an independent draw makes short prefixes decode a little more reliably (no identifier
//! is in too few symbols), and an insertion is sixteen additions at most, without a branch that
//! depends on the identifier.

/// Number of symbols that the mapping covers, and so the longest prefix.
pub(crate) const MAPPED_SYMBOLS: usize = 191;

/// Number of symbols that are drawn independently: `1..=INDEPENDENT_SYMBOLS`.
const INDEPENDENT_SYMBOLS: usize = 8;

/// Number of ranges behind the independent symbols.
pub(crate) const SYMBOL_RANGES: usize = 6;

/// Bounds of the hash byte, by symbol: symbol `i` contains the identifier if the byte is below
/// `HASH_THRESHOLDS[i - 1]`, `256 / (1 + i/2)`.
const HASH_THRESHOLDS: [u8; INDEPENDENT_SYMBOLS] = {
    let mut table = [0u8; INDEPENDENT_SYMBOLS];
    let mut index = 0;
    while index < INDEPENDENT_SYMBOLS {
        table[index] = ((512 + (index + 3) / 2) / (index + 3)) as u8;
        index += 1;
    }
    table
};

/// First symbol of each range, and the end of the last one.
const RANGE_STARTS: [usize; SYMBOL_RANGES + 1] = {
    let total = weight(INDEPENDENT_SYMBOLS + 1, MAPPED_SYMBOLS);
    let mut starts = [INDEPENDENT_SYMBOLS + 1; SYMBOL_RANGES + 1];
    let mut range = 1;
    while range < SYMBOL_RANGES {
        let mut end = starts[range - 1];
        while weight(INDEPENDENT_SYMBOLS + 1, end) * (SYMBOL_RANGES as u64) < total * range as u64 {
            end += 1;
        }
        starts[range] = end;
        range += 1;
    }
    starts[SYMBOL_RANGES] = MAPPED_SYMBOLS;
    starts
};

/// `RANGE_SYMBOLS[range][byte]`: the symbol of the range that the hash byte selects.
static RANGE_SYMBOLS: [[u8; 256]; SYMBOL_RANGES] = {
    let mut table = [[0u8; 256]; SYMBOL_RANGES];
    let mut range = 0;
    while range < SYMBOL_RANGES {
        let (start, end) = (RANGE_STARTS[range], RANGE_STARTS[range + 1]);
        let total = weight(start, end);
        let mut symbol = start;
        let mut byte = 0;
        while byte < 256 {
            // The byte stands for the middle of its 1/256 of the weight.
            while weight(start, symbol + 1) * 512 < total * (2 * byte as u64 + 1) {
                symbol += 1;
            }
            table[range][byte] = symbol as u8;
            byte += 1;
        }
        range += 1;
    }
    table
};

/// Sum of `1 / (1 + i/2)` over `start..end`, in units of 2^-32.
const fn weight(start: usize, end: usize) -> u64 {
    let mut sum = 0;
    let mut index = start;
    while index < end {
        sum += (2u64 << 32) / (index as u64 + 2);
        index += 1;
    }
    sum
}

/// Per-session key of the rateless IBLT's mapping and check.
///
/// Both ends derive the same one from their session. An attacker without it cannot craft
/// identifiers that share their symbols, which would make every decode fail.
#[derive(Clone, PartialEq, Eq)]
pub struct SketchKey {
    words: [u64; 6],
}

impl core::fmt::Debug for SketchKey {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("SketchKey(..)")
    }
}

impl SketchKey {
    /// Expands 128 secret, uniformly random bits.
    pub const fn new(secret: [u64; 2]) -> Self {
        let mut words = [0; 6];
        let mut state = secret[0];
        let mut index = 0;
        while index < 6 {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15)
                ^ secret[1].rotate_left(11 * index as u32);
            let word = folded_multiply(state, 0xd6e8_feb8_6659_fd93);
            // Odd words are multipliers: never zero.
            words[index] = word | (index as u64 & 1);
            index += 1;
        }
        Self { words }
    }

    /// The memberships and the check of an identifier.
    #[inline(always)]
    pub(crate) const fn map(&self, identifier: u32) -> Mapping {
        let [
            offset,
            multiplier,
            offset_independent,
            multiplier_independent,
            offset_ranges,
            multiplier_ranges,
        ] = self.words;
        let spread = identifier as u64 | (identifier as u64) << 32;
        let seed = folded_multiply(spread ^ offset, multiplier);
        let independent = folded_multiply(seed ^ offset_independent, multiplier_independent);
        let ranges = folded_multiply(seed ^ offset_ranges, multiplier_ranges);
        // 4 bits of count, 12 bits of check, 32 bits of identifier; see `coded_symbols`.
        let value = 1 << 60 | (ranges >> 52) << 48 | (identifier as u64) << 16;
        Mapping { independent, ranges, value }
    }
}

/// Both halves of a 128-bit product, folded onto each other.
#[inline(always)]
const fn folded_multiply(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    (product >> 64) as u64 ^ product as u64
}

/// The memberships and the check value of one identifier.
#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    independent: u64,
    ranges: u64,
    /// The number to add to each symbol that contains the identifier.
    pub(crate) value: u64,
}

/// Number of ranges that a prefix of `capacity` symbols reaches into.
pub(crate) const fn ranges_for(capacity: usize) -> usize {
    let mut range = 0;
    while range < SYMBOL_RANGES && RANGE_STARTS[range] < capacity {
        range += 1;
    }
    range
}

impl Mapping {
    /// Adds `value` to every symbol that contains the identifier, up to the end of range number
    /// `ranges`.
    #[inline(always)]
    pub(crate) fn add_to(self, symbols: &mut [u64; 256], ranges: usize, value: u64) {
        symbols[0] = symbols[0].wrapping_add(value);
        for (index, threshold) in HASH_THRESHOLDS.iter().enumerate() {
            let byte = (self.independent >> (8 * index)) as u8;
            let mask = u64::from(byte < *threshold).wrapping_neg();
            symbols[index + 1] = symbols[index + 1].wrapping_add(value & mask);
        }
        for (range, table) in RANGE_SYMBOLS.iter().enumerate().take(ranges) {
            let symbol = table[usize::from((self.ranges >> (8 * range)) as u8)];
            symbols[usize::from(symbol)] = symbols[usize::from(symbol)].wrapping_add(value);
        }
    }

    /// Calls `visit` with the index of every symbol that contains the identifier, in ascending
    /// order.
    #[inline(always)]
    pub(crate) fn for_each_symbol(self, ranges: usize, mut visit: impl FnMut(u8)) {
        visit(0);
        for (index, threshold) in HASH_THRESHOLDS.iter().enumerate() {
            if ((self.independent >> (8 * index)) as u8) < *threshold {
                visit(index as u8 + 1);
            }
        }
        for (range, table) in RANGE_SYMBOLS.iter().enumerate().take(ranges) {
            visit(table[usize::from((self.ranges >> (8 * range)) as u8)]);
        }
    }

    /// True if the symbol contains the identifier.
    #[inline(always)]
    pub(crate) fn contains(self, symbol: u8) -> bool {
        match usize::from(symbol) {
            0 => true,
            index @ 1..=INDEPENDENT_SYMBOLS => {
                ((self.independent >> (8 * (index - 1))) as u8) < HASH_THRESHOLDS[index - 1]
            }
            index => {
                let range = RANGE_STARTS[1..].iter().take_while(|end| **end <= index).count();
                RANGE_SYMBOLS.get(range).is_some_and(|table| {
                    table[usize::from((self.ranges >> (8 * range)) as u8)] == symbol
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    #[test]
    fn ranges_have_about_equal_weight_and_cover_every_symbol() {
        assert_eq!((RANGE_STARTS[0], RANGE_STARTS[SYMBOL_RANGES]), (9, 191));
        for range in 0..SYMBOL_RANGES {
            let weight =
                weight(RANGE_STARTS[range], RANGE_STARTS[range + 1]) as f64 / (1u64 << 32) as f64;
            assert!((0.8..1.15).contains(&weight), "{range}: {weight}");
            let mut symbols = RANGE_SYMBOLS[range].to_vec();
            symbols.dedup();
            let expected: Vec<u8> =
                (RANGE_STARTS[range]..RANGE_STARTS[range + 1]).map(|s| s as u8).collect();
            assert_eq!(symbols, expected);
        }
    }

    #[test]
    fn symbols_contain_an_identifier_as_often_as_in_the_paper() {
        let key = SketchKey::new([1, 2]);
        let trials = 100_000u32;
        let mut counts = vec![0u32; MAPPED_SYMBOLS];
        for identifier in 1..=trials {
            key.map(identifier)
                .for_each_symbol(SYMBOL_RANGES, |symbol| counts[usize::from(symbol)] += 1);
        }
        for (index, count) in counts.iter().enumerate() {
            let expected = 1.0 / (1.0 + index as f64 / 2.0);
            let measured = f64::from(*count) / f64::from(trials);
            // One 256th of a range, its weight's distance from one, and the sampling error.
            let tolerance = 0.12 * expected + 0.5 / 256.0 + 0.004;
            assert!(
                (measured - expected).abs() < tolerance,
                "{index}: {measured} and not {expected}"
            );
        }
    }

    #[test]
    fn the_three_views_of_a_mapping_agree() {
        let key = SketchKey::new([3, 4]);
        for identifier in 1..500 {
            let mapping = key.map(identifier);
            let mut added = [0u64; 256];
            mapping.add_to(&mut added, SYMBOL_RANGES, mapping.value);
            let mut visited = [0u64; 256];
            mapping.for_each_symbol(SYMBOL_RANGES, |symbol| {
                visited[usize::from(symbol)] = mapping.value
            });
            assert_eq!(added, visited);
            for (symbol, value) in visited.iter().enumerate().take(MAPPED_SYMBOLS) {
                assert_eq!(mapping.contains(symbol as u8), *value != 0, "{identifier} in {symbol}");
            }
            assert!(!mapping.contains(MAPPED_SYMBOLS as u8) && !mapping.contains(255));
        }
    }

    #[test]
    fn another_key_is_another_mapping_and_another_check() {
        let (one, other) = (SketchKey::new([5, 6]), SketchKey::new([5, 7]));
        let same = (1..1000u32)
            .filter(|identifier| one.map(*identifier).ranges == other.map(*identifier).ranges)
            .count();
        assert_eq!(same, 0);
        let same_check = (1..=4096u32)
            .filter(|identifier| one.map(*identifier).value == other.map(*identifier).value)
            .count();
        assert!(same_check < 10, "{same_check} of 4096 with 12 bits");
    }
}
