//! Places in a sender's order, from the numbers in front of datagrams that have arrived.
//!
//! ```text
//!            0 ................. expected - 16384 ...... expected ...... expected + jump ...........
//!    far: believed once they go on      |<-- believed if empty -->|<- believed ->|   far, likewise
//! ```
//!
//! The jump is 1024, and shorter the more numbers arrive that are not believed. Behind the expected
//! place few places are empty, so that a forged number hardly ever stands for one: there the window
//! covers all that a gateway remembers, as repairs of a fast long path are thousands of places late.

use std::collections::VecDeque;

use packrat_eack::Identifier;

use super::{MaskedNumber, NumberKey};
use crate::estimate::Timestamp;

/// A number that leads further ahead than this is forged, of another session, or the first one after
/// a long outage.
pub const MAXIMUM_JUMP: u64 = 1024;
/// A number that leads further back than this is forged, or of another session: the gateway has
/// forgotten its datagram.
pub const MAXIMUM_LATENESS: u64 = 16_384;
/// The jump while the largest possible number of forged datagrams arrives.
const MINIMUM_JUMP: u64 = 32;
/// Invented numbers that may be believed per second: the more of them arrive, the shorter is the
/// jump.
const BELIEVED_PER_SECOND: f64 = 0.1;
/// Modulus of numbers: a number is a place modulo this.
const NUMBER_MODULUS: u64 = 1 << 24;
/// Time in seconds over which numbers that are not believed are counted.
const DISBELIEF_SECONDS: f64 = 1.0;
/// Number of far numbers, each a little above the one before it, that are believed.
const FAR_NUMBERS: u32 = 8;
/// Rows to remember: a genuine one is continued among this number of forged ones.
const REMEMBERED_ROWS: usize = 64;

/// The places of successive sessions at the receiver, as numbers that continue from session to
/// session.
#[derive(Debug)]
pub struct Places {
    key: NumberKey,
    /// Number of the session's first place.
    base: u64,
    /// The place behind the highest that was believed.
    expected: u64,
    /// Rows of far numbers: the last place, and the number of places. The row continued most
    /// recently is the last.
    rows: VecDeque<(u64, u32)>,
    /// Numbers that were not believed lately.
    strange: f64,
    counted: Timestamp,
}

impl Places {
    /// Places of a session with this key, before the first datagram.
    pub fn new(key: NumberKey) -> Self {
        Self {
            key,
            base: 0,
            expected: 0,
            rows: VecDeque::new(),
            strange: 0.0,
            counted: Timestamp::ZERO,
        }
    }

    /// The place behind the highest that was believed.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// The place in this session that a number stands for.
    pub fn place_of(&self, number: u64) -> Option<u64> {
        number.checked_sub(self.base)
    }

    /// The number that stands for a place in this session.
    pub fn number_of(&self, place: u64) -> u64 {
        self.base + place
    }

    /// A new session has begun: its places follow.
    pub fn follow(&mut self, key: NumberKey) {
        *self = Self {
            base: self.base + self.expected,
            strange: self.strange,
            counted: self.counted,
            ..Self::new(key)
        };
    }

    /// The number that stands for the place next to the expected one that a datagram may have, believed
    /// or not.
    pub fn nearest(&self, number: MaskedNumber, identifier: Identifier) -> u64 {
        self.base + self.key.place(number, identifier, self.expected)
    }

    /// The number that stands for the place of a datagram; `None`: its place is not believed.
    pub fn read(
        &mut self,
        number: MaskedNumber,
        identifier: Identifier,
        now: Timestamp,
    ) -> Option<u64> {
        let mut place = self.key.place(number, identifier, self.expected);
        let is_near = match place.checked_sub(self.expected) {
            Some(ahead) => ahead <= MINIMUM_JUMP || ahead <= self.jump(now),
            None => self.expected - place <= MAXIMUM_LATENESS,
        };
        if !is_near {
            self.strange += 1.0;
            place = self.go_on(place)?;
            self.expected = place;
        }
        self.expected = self.expected.max(place + 1);
        Some(self.base + place)
    }

    /// Places ahead that are believed now. Of as many invented numbers as there are lately, a few a
    /// minute lead there.
    fn jump(&mut self, now: Timestamp) -> u64 {
        let passed = now.saturating_since(self.counted).as_secs_f64();
        self.counted = now;
        self.strange *= (-passed / DISBELIEF_SECONDS).exp();
        let per_second = self.strange / DISBELIEF_SECONDS;
        let jump = BELIEVED_PER_SECOND * NUMBER_MODULUS as f64 / per_second.max(1.0);
        (jump as u64).clamp(MINIMUM_JUMP, MAXIMUM_JUMP)
    }

    /// Begins a row with a far place, or continues one. Returns the place when the row is long
    /// enough to be believed.
    fn go_on(&mut self, place: u64) -> Option<u64> {
        let ahead = |last: u64| place.wrapping_sub(last) % NUMBER_MODULUS;
        let is_next = |&(last, _): &(u64, u32)| (1..=MAXIMUM_JUMP).contains(&ahead(last));
        let before = self.rows.iter().position(is_next).and_then(|at| self.rows.remove(at));
        let (place, count) =
            before.map_or((place, 1), |(last, count)| (last + ahead(last), count + 1));
        if count >= FAR_NUMBERS {
            self.rows.clear();
            return Some(place);
        }
        if self.rows.len() >= REMEMBERED_ROWS {
            self.rows.pop_front();
        }
        self.rows.push_back((place, count));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::split;

    fn identifier(number: u64) -> Identifier {
        Identifier::from_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    struct Gateway(NumberKey);

    impl Gateway {
        fn read(&self, places: &mut Places, place: u64) -> Option<u64> {
            let identifier = identifier(place);
            let header = self.0.header(place, identifier);
            let (number, _) = split(&header).unwrap();
            places.read(number, identifier, Timestamp::from_millis(1000))
        }
    }

    fn session(key: u64) -> (Gateway, NumberKey) {
        let key = NumberKey::new([key, 0x1234_5678_9abc_def1]);
        (Gateway(key), key)
    }

    #[test]
    fn places_are_found_in_any_order_and_beyond_24_bits() {
        let (gateway, key) = session(7);
        let mut places = Places::new(key);
        assert_eq!(gateway.read(&mut places, 2), Some(2), "the first ones are missing");
        assert_eq!(gateway.read(&mut places, 0), Some(0));
        for step in 0..40_000 {
            let place = step * 900;
            assert_eq!(gateway.read(&mut places, place), Some(place));
            assert_eq!(
                gateway.read(&mut places, place.saturating_sub(500)),
                Some(place.saturating_sub(500))
            );
        }
        assert!(places.expected > 2 << 24);
    }

    #[test]
    fn a_repair_may_be_as_late_as_the_gateway_remembers() {
        let (gateway, key) = session(7);
        let mut places = Places::new(key);
        for place in (0..40_000).step_by(1000) {
            gateway.read(&mut places, place);
        }
        let expected = places.expected;
        let earliest = expected - MAXIMUM_LATENESS;
        assert_eq!(gateway.read(&mut places, earliest), Some(earliest));
        assert_eq!(gateway.read(&mut places, earliest - 1), None);
        assert_eq!(places.expected, expected);
    }

    #[test]
    fn far_numbers_are_believed_when_they_go_on() {
        let (gateway, key) = session(7);
        let mut places = Places::new(key);
        gateway.read(&mut places, 10);
        for place in 5000..5007 {
            assert_eq!(gateway.read(&mut places, place), None);
        }
        assert_eq!(gateway.read(&mut places, 11), Some(11), "one of before is still believed");
        assert_eq!(gateway.read(&mut places, 5007), Some(5007));
        assert_eq!(gateway.read(&mut places, 5009), Some(5009));
    }

    #[test]
    fn far_numbers_are_believed_among_twenty_times_the_forged_ones() {
        let (gateway, key) = session(7);
        let (forger, _) = session(8);
        let mut places = Places::new(key);
        gateway.read(&mut places, 10);
        let mut invented = 0;
        let believed: Vec<u64> = (50_000..50_020)
            .filter(|&place| {
                invented += 20;
                for number in invented..invented + 20 {
                    assert_eq!(forger.read(&mut places, number), None);
                }
                gateway.read(&mut places, place) == Some(place)
            })
            .collect();
        assert_eq!(believed, (50_007..50_020).collect::<Vec<_>>());
    }

    #[test]
    fn any_number_of_invented_numbers_is_hardly_ever_believed() {
        let (gateway, key) = session(7);
        let (forger, _) = session(8);
        for per_millisecond in [2, 25, 100] {
            let mut places = Places::new(key);
            gateway.read(&mut places, 100_000);
            for row in 0..8 {
                gateway.read(&mut places, 100_000 + row);
            }
            let mut ahead = 0;
            for millisecond in 0..10_000 {
                let now = Timestamp::from_millis(1000 + millisecond);
                for number in 0..per_millisecond {
                    let before = places.expected;
                    let identifier = identifier(millisecond * 1000 + number);
                    let header = forger.0.header(number, identifier);
                    let (number, _) = split(&header).unwrap();
                    places.read(number, identifier, now);
                    ahead += u64::from(places.expected != before);
                }
            }
            // One in ten seconds, or as many as there are in 32 of 2^24 numbers; and those before
            // it was known how many there are.
            assert!(ahead <= 8, "{per_millisecond} each millisecond: {ahead}");
            let before = places.expected;
            assert_eq!(gateway.read(&mut places, before + 3), Some(before + 3));
        }
    }

    #[test]
    fn the_places_of_the_next_session_follow() {
        let (gateway, key) = session(7);
        let mut places = Places::new(key);
        gateway.read(&mut places, 99);
        let (next, key) = session(9);
        places.follow(key);
        assert_eq!(next.read(&mut places, 0), Some(100));
        assert_eq!(gateway.read(&mut places, 100), None, "one of the session before is late");
    }
}
