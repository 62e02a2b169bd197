//! The datagrams that a repair symbol covers, and their coefficients.

use core::num::NonZeroU8;

/// The datagrams that a repair symbol covers: `count` places, `step` apart.
///
/// A step of 1 covers neighbours. A greater one spreads the places, so that a burst of losses meets
/// several symbols: interleaved parities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    first: u64,
    count: NonZeroU8,
    step: NonZeroU8,
}

impl Window {
    /// The window that begins with `first`. `None` if it would be empty, or exceed the last place.
    pub fn new(first: u64, count: u8, step: u8) -> Option<Self> {
        let window = Self { first, count: NonZeroU8::new(count)?, step: NonZeroU8::new(step)? };
        first.checked_add(window.span()).map(|_| window)
    }

    /// The `count` newest datagrams, of which `newest` is the last. Fewer, if there are fewer.
    /// `None` if `count` is zero.
    pub fn newest(newest: u64, count: u8) -> Option<Self> {
        let count = u64::from(count).min(newest.saturating_add(1)) as u8;
        Self::new((newest + 1).checked_sub(u64::from(count))?, count, 1)
    }

    /// The window of a message that has the lower 32 bits of its first place: next to `expected`.
    pub fn received(first: u32, count: u8, step: u8, expected: u64) -> Option<Self> {
        let ahead = first.wrapping_sub(expected as u32);
        let behind = (expected as u32).wrapping_sub(first);
        let first = if ahead < behind {
            expected.checked_add(u64::from(ahead))?
        } else {
            // There are no places before the first.
            match expected.checked_sub(u64::from(behind)) {
                Some(first) => first,
                None => expected.checked_add(u64::from(ahead))?,
            }
        };
        Self::new(first, count, step)
    }

    /// The first place.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// Number of places.
    pub const fn count(self) -> u8 {
        self.count.get()
    }

    /// Distance of the places.
    pub const fn step(self) -> u8 {
        self.step.get()
    }

    /// The last place.
    pub fn last(self) -> u64 {
        self.first + self.span() - 1
    }

    /// Places from the first to the last.
    pub(crate) fn span(self) -> u64 {
        u64::from(self.count() - 1) * u64::from(self.step()) + 1
    }

    /// The places with the coefficients that a seed gives them: `x^i + x^j`, or `x^i` if the two
    /// are equal. A factor of two bits costs two additions; random ones of all 255 values would
    /// cost twice as much, and recover hardly more often.
    pub fn coefficients(self, seed: u16) -> impl Iterator<Item = (u64, u8)> {
        let (mut group, mut word) = (None, 0);
        (0..u64::from(self.count())).map(move |index| {
            let place = self.first + index * u64::from(self.step());
            if seed == PARITY_SEED {
                return (place, 1);
            }
            if group != Some(place >> 3) {
                group = Some(place >> 3);
                word = random_word(seed, (place as u32) >> 3);
            }
            let byte = (word >> (8 * (place & 7))) as u8;
            (place, 1 << (byte & 7) | 1 << (byte >> 3 & 7))
        })
    }
}

/// Seed that makes every coefficient 1: the symbol is a parity.
pub const PARITY_SEED: u16 = 0;

/// The bytes from which the eight coefficients of a group of places follow: the generator SplitMix64, at the position that seed
/// and group name.
fn random_word(seed: u16, group: u32) -> u64 {
    let position = (u64::from(seed) << 32 | u64::from(group)) + 1;
    let mut word = position.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// SplitMix64's own first words, of the seed 0.
    #[test]
    fn the_generator_is_splitmix64() {
        assert_eq!(random_word(0, 0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random_word(0, 1), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn a_window_holds_places_and_ends_before_there_are_none() {
        assert_eq!(Window::new(7, 0, 1), None);
        assert_eq!(Window::new(7, 1, 0), None);
        assert_eq!(Window::new(u64::MAX - 3, 3, 2), None);
        assert_eq!(Window::new(u64::MAX - 3, 2, 2).map(Window::last), Some(u64::MAX - 1));
        let places = |window: Window| window.coefficients(9).map(|(place, _)| place);
        let newest = Window::newest(100, 4).unwrap();
        assert_eq!(places(newest).collect::<Vec<_>>(), [97, 98, 99, 100]);
        assert_eq!((Window::newest(1, 64).unwrap().count(), Window::newest(1, 0)), (2, None));
        assert_eq!(places(Window::new(5, 3, 4).unwrap()).collect::<Vec<_>>(), [5, 9, 13]);
    }

    #[test]
    fn coefficients_are_those_of_their_places_and_never_zero() {
        let (mut seen, mut counts) = (Vec::new(), [0; 256]);
        for (place, coefficient) in Window::new(1000, 255, 1).unwrap().coefficients(77) {
            seen.push((place, coefficient));
        }
        for (place, coefficient) in Window::new(1003, 60, 4).unwrap().coefficients(77) {
            assert!(seen.contains(&(place, coefficient)), "{place} depends on the window");
        }
        for seed in 1..1000 {
            for (_, coefficient) in Window::new(0, 255, 1).unwrap().coefficients(seed) {
                counts[usize::from(coefficient)] += 1;
            }
        }
        // 254,745 draws: one bit in 8 of 64 cases, two bits in 56.
        for (value, count) in counts.iter().enumerate() {
            let expected = match value.count_ones() {
                1 => 3700..4250,
                2 => 7600..8350,
                _ => 0..1,
            };
            assert!(expected.contains(count), "{value}: {count}");
        }
        assert!(Window::new(0, 255, 1).unwrap().coefficients(PARITY_SEED).all(|(_, one)| one == 1));
    }

    proptest! {
        #[test]
        fn the_first_place_is_found_again_next_to_the_expected_one(
            first in 0..u64::MAX / 2, distance in -(1i64 << 31) + 1..1 << 31,
        ) {
            if let Some(expected) = first.checked_add_signed(distance) {
                let window = Window::received(first as u32, 3, 1, expected);
                prop_assert_eq!(window.map(Window::first), Some(first));
            }
        }

        #[test]
        fn any_message_is_a_window_or_none(first: u32, count: u8, step: u8, expected: u64) {
            if let Some(window) = Window::received(first, count, step, expected) {
                prop_assert_eq!(window.first() as u32, first);
                prop_assert_eq!(window.coefficients(5).last().map(|(place, _)| place), Some(window.last()));
            }
        }
    }
}
