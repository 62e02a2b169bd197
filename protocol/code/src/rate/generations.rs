//! Symbols at a fixed rate, over generations that may overlap.

use crate::window::Window;

/// Symbols at a fixed rate: `redundancy` of them per generation of datagrams, each datagram in
/// `overlap` generations (rQUIC23, section 3.1).
///
/// ```text
///   generation 8, overlap 1:   [a b c d e f g h] S [i j k l m n o p] S
///   generation 8, overlap 2:   [a b c d] S [e f g h] S [i j k l] S       each S covers two blocks
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generations {
    generation: u8,
    overlap: u8,
    redundancy: u8,
    /// Datagrams since the last symbol, and in all.
    in_block: u8,
    datagrams: u64,
    /// Generations after the last datagram.
    ended: u8,
}

impl Generations {
    /// Generations of a size. `None` if a number is zero, or the overlap greater than the generation.
    pub fn new(generation: u8, overlap: u8, redundancy: u8) -> Option<Self> {
        let is_possible = overlap > 0 && overlap <= generation && redundancy > 0;
        let generations =
            Self { generation, overlap, redundancy, in_block: 0, datagrams: 0, ended: 0 };
        is_possible.then_some(generations)
    }

    /// A parity per generation, without overlap: the setting that rQUIC23 was measured with. Use it
    /// with the seed [`crate::PARITY_SEED`].
    pub fn parity(generation: u8) -> Option<Self> {
        Self::new(generation, 1, 1)
    }

    /// The datagrams of a block: a symbol follows each.
    pub fn block(&self) -> u8 {
        self.generation / self.overlap
    }

    /// Counts a datagram. At the end of a block: the window, and the number of symbols that are due.
    pub fn on_datagram(&mut self, place: u64) -> Option<(Window, u8)> {
        (self.in_block, self.datagrams) = (self.in_block + 1, self.datagrams + 1);
        if self.in_block < self.block() {
            return None;
        }
        self.in_block = 0;
        let count = u64::from(self.block() * self.overlap).min(self.datagrams) as u8;
        Some((Window::newest(place, count)?, self.redundancy))
    }

    /// The flow has ended with `last`: returns the symbols of a block that is not full, then the
    /// symbols of the generations that contain the last block, one after the other.
    pub fn on_end(&mut self, last: u64) -> Option<(Window, u8)> {
        let blocks = if self.in_block > 0 {
            self.overlap
        } else {
            self.ended += 1;
            self.overlap.checked_sub(self.ended).filter(|blocks| *blocks > 0)?
        };
        self.in_block = 0;
        let count = u64::from(self.block() * blocks).min(self.datagrams) as u8;
        Some((Window::newest(last, count)?, self.redundancy))
    }

    /// Symbols for `datagrams` in all (equation 3.3).
    pub fn symbols(&self, datagrams: u64) -> u64 {
        let blocks = datagrams.div_ceil(u64::from(self.block()));
        (blocks + u64::from(self.overlap) - 1) * u64::from(self.redundancy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The 2,000 datagrams of section 3.2.4, in its generations and overlaps, and other numbers.
    #[test]
    fn as_many_symbols_as_equation_3_3_says() {
        for (generation, overlap, datagrams, expected) in [
            (64, 1, 2000, 32),
            (64, 2, 2000, 64),
            (64, 4, 2000, 128),
            (64, 8, 2000, 257),
            (64, 16, 2000, 515),
            (10, 3, 95, 34),
            (1, 1, 7, 7),
        ] {
            for redundancy in 1..4 {
                let mut generations = Generations::new(generation, overlap, redundancy).unwrap();
                let expected = expected * u64::from(redundancy);
                assert_eq!(generations.symbols(datagrams), expected);
                let mut sent = 0;
                for place in 0..datagrams {
                    sent += generations.on_datagram(place).map_or(0, |(_, due)| u64::from(due));
                }
                while let Some((window, due)) = generations.on_end(datagrams - 1) {
                    assert_eq!(window.last(), datagrams - 1);
                    sent += u64::from(due);
                }
                assert_eq!(sent, expected, "{generation}, {overlap}, {datagrams}");
            }
        }
    }

    #[test]
    fn each_symbol_covers_its_generation() {
        let mut generations = Generations::new(8, 2, 1).unwrap();
        let windows: Vec<_> = (0..12).filter_map(|place| generations.on_datagram(place)).collect();
        let ends: Vec<_> =
            windows.iter().map(|(window, _)| (window.first(), window.last())).collect();
        assert_eq!(ends, [(0, 3), (0, 7), (4, 11)]);
        let last = generations.on_end(11).unwrap().0;
        assert_eq!((last.first(), generations.on_end(11)), (8, None));
        assert_eq!(Generations::new(4, 5, 1), None);
        assert_eq!(Generations::new(4, 0, 1), None);
        assert_eq!(Generations::new(4, 1, 0), None);
        let mut parity = Generations::parity(3).unwrap();
        assert_eq!((0..9).filter(|place| parity.on_datagram(*place).is_some()).count(), 3);
    }
}
