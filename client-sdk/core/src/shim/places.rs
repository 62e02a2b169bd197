//! Places in the gateway's forwarding order, from the numbers in front of datagrams.
//!
//! ```text
//!            0 .................. expected - 1024 ...... expected ...... expected + 1024 ..........
//!    far: believed once they go on      |<------------ believed ------------->|      far, likewise
//! ```

use packrat_wire::number::{MaskedNumber, NumberKey};

use packrat_eack::Identifier;

use crate::packet_number::PacketNumber;

/// A number that leads further away than this is forged, of another session, or the first one after
/// a long outage.
const MAXIMUM_JUMP: u64 = 1024;
/// Far numbers, each a little above the one before it, that are believed.
const FAR_IN_A_ROW: u32 = 8;

/// The places of one session after the other, as packet numbers that go on from session to session.
#[derive(Debug)]
pub(super) struct Places {
    /// Counted from 1.
    session: u64,
    key: NumberKey,
    /// Packet number of the session's first place.
    base: u64,
    /// The place behind the highest that was believed.
    expected: u64,
    /// The place of the last far number, and how many there were in a row.
    far: (u64, u32),
}

impl Places {
    pub(super) fn new(session: u64, key: NumberKey) -> Self {
        Self { session, key, base: 0, expected: 0, far: (0, 0) }
    }

    /// The place behind the highest that was believed.
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    /// The place in this session that a packet number stands for.
    pub(super) fn place_of(&self, number: PacketNumber) -> Option<u64> {
        number.get().checked_sub(self.base)
    }

    /// The packet number that stands for a place in this session.
    pub(super) fn number_of(&self, place: u64) -> PacketNumber {
        PacketNumber::new(self.base + place)
    }

    /// The session that the places are of.
    pub(super) fn session(&self) -> u64 {
        self.session
    }

    /// A new session has begun: its places follow.
    pub(super) fn follow(&mut self, session: u64, key: NumberKey) {
        *self = Self { base: self.base + self.expected, ..Self::new(session, key) };
    }

    /// The packet number that stands for the place of a datagram; `None`: its number is not
    /// believed.
    pub(super) fn read(
        &mut self,
        number: MaskedNumber,
        identifier: Identifier,
    ) -> Option<PacketNumber> {
        let place = self.key.place(number, identifier, self.expected);
        if place.abs_diff(self.expected) > MAXIMUM_JUMP {
            let (last, count) = self.far;
            let place = self.key.place(number, identifier, last);
            let goes_on = place > last && place - last <= MAXIMUM_JUMP;
            self.far = (place, if goes_on { count + 1 } else { 1 });
            if self.far.1 < FAR_IN_A_ROW {
                return None;
            }
            self.expected = place;
        }
        self.far.1 = 0;
        self.expected = self.expected.max(place + 1);
        Some(PacketNumber::new(self.base + place))
    }
}

#[cfg(test)]
mod tests {
    use packrat_wire::number::split;

    use super::*;

    fn identifier(number: u64) -> Identifier {
        Identifier::from_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    struct Gateway(NumberKey);

    impl Gateway {
        fn read(&self, places: &mut Places, place: u64) -> Option<u64> {
            let identifier = identifier(place);
            let header = self.0.header(place, identifier);
            let (number, _) = split(&header).unwrap();
            places.read(number, identifier).map(PacketNumber::get)
        }
    }

    fn session(key: u64) -> (Gateway, u64, NumberKey) {
        let key = NumberKey::new([key, 0x1234_5678_9abc_def1]);
        (Gateway(key), 1, key)
    }

    #[test]
    fn places_are_found_in_any_order_and_beyond_24_bits() {
        let (gateway, id, key) = session(7);
        let mut places = Places::new(id, key);
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
    fn far_numbers_are_believed_when_they_go_on() {
        let (gateway, id, key) = session(7);
        let mut places = Places::new(id, key);
        gateway.read(&mut places, 10);
        for place in 5000..5007 {
            assert_eq!(gateway.read(&mut places, place), None);
        }
        assert_eq!(gateway.read(&mut places, 11), Some(11), "one of before begins the row anew");
        for place in 5000..5007 {
            assert_eq!(gateway.read(&mut places, 2 * place), None);
        }
        assert_eq!(gateway.read(&mut places, 10_014), Some(10_014));
        assert_eq!(gateway.read(&mut places, 10_016), Some(10_016));
    }

    #[test]
    fn invented_numbers_are_seldom_believed_and_never_in_a_row() {
        let (gateway, id, key) = session(7);
        let (forger, ..) = session(8);
        let mut places = Places::new(id, key);
        let believed = (0..100_000).filter(|&at| forger.read(&mut places, at).is_some()).count();
        // 2049 of 2^24 numbers, 12 of 100,000, and each makes the window go on by 512.
        assert!(believed < 40, "{believed}");
        let before = places.expected;
        assert!(before <= 40 * MAXIMUM_JUMP);
        assert_eq!(gateway.read(&mut places, before + 3), Some(before + 3));
    }

    #[test]
    fn the_places_of_the_next_session_follow() {
        let (gateway, id, key) = session(7);
        let mut places = Places::new(id, key);
        gateway.read(&mut places, 99);
        let (next, _, key) = session(9);
        places.follow(2, key);
        assert_eq!(next.read(&mut places, 0), Some(100));
        assert_eq!(gateway.read(&mut places, 100), None, "one of the session before is late");
    }
}
