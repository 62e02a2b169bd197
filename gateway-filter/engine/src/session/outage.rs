//! An outage of the last mile, as the client's next eACK shows it.
//!
//! Thousands of datagrams may be missing then, and hundreds that were under way when it began have
//! arrived without an eACK: more of both than any prefix decodes. But the missing ones are one run
//! of the forwarded datagrams. Its end is known, because the client names the first datagram that
//! it has received afterwards; its beginning is guessed, and the longest prefix decodes the error
//! of the guess.
//!
//! ```text
//!   spoken of    forwarded since
//!   -----------|-----------------+-----------------------------+---------------|
//!                arrived         | lost                        | arrived       named in the first eACK
//!                            begins at one of some places      ends here
//! ```

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Number of datagrams that an eACK shows missing above which there was an outage: the newest of
/// them are repaired, as far as cache and budget of a flow reach, and the loss estimate ignores
/// them.
pub(super) const OUTAGE_DATAGRAMS: usize = 256;
/// Distance of a named datagram ahead of the reported ones, from which its client may come from an
/// outage.
const LEAST_JUMP_DATAGRAMS: u64 = 512;
/// Most places at which an outage may have begun that are tried for one eACK: the datagrams of a
/// round trip.
const MAXIMUM_BEGINNINGS: usize = 8;
/// Time, beside two round trips, for which eACKs are not decoded because the longest prefix may
/// still come.
const PREFIX_MARGIN: Duration = Duration::from_millis(20);

/// An outage that a client may come from.
#[derive(Debug)]
pub(super) struct Outage {
    end: u64,
    /// When the longest prefix was asked for.
    asked: Option<Timestamp>,
}

impl Outage {
    /// `Some` if `newest`, which the client names, is far ahead of `horizon`, below which it has
    /// reported.
    pub(super) fn of(newest: u64, horizon: u64) -> Option<Box<Self>> {
        (newest >= horizon + LEAST_JUMP_DATAGRAMS)
            .then(|| Box::new(Self { end: newest, asked: None }))
    }

    /// The first datagram that the client has named afterwards. It has most of the datagrams
    /// behind.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Records that the longest prefix is asked for.
    pub(super) fn ask(&mut self, now: Timestamp) {
        self.asked = Some(now);
    }

    /// True if the client may not know yet that the longest prefix is wanted.
    pub(super) fn awaits_longest(&self, round_trip: Duration, now: Timestamp) -> bool {
        self.asked.is_some_and(|asked| now < asked + 2 * round_trip + PREFIX_MARGIN)
    }

    /// Places below `end` at which the outage may have begun: so far apart that a prefix which
    /// decodes `decodable` differences decodes the error of the nearest one.
    pub(super) fn beginnings(end: usize, decodable: usize) -> impl Iterator<Item = usize> {
        let step = (decodable * 3 / 2).max(1);
        (step / 2..end).step_by(step).take(MAXIMUM_BEGINNINGS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_near_each_place_of_a_round_trip() {
        let tried: Vec<_> = Outage::beginnings(5000, 128).collect();
        assert_eq!(tried.len(), MAXIMUM_BEGINNINGS);
        for place in 0..1500 {
            assert!(tried.iter().any(|begin| begin.abs_diff(place) <= 100), "{place}");
        }
        assert_eq!(Outage::beginnings(50, 128).count(), 0, "the other assumptions cover it");
    }

    #[test]
    fn a_jump_is_an_outage_and_prefixes_have_two_round_trips() {
        let at = Timestamp::from_millis;
        assert!(Outage::of(511, 0).is_none());
        let mut outage = Outage::of(512, 0).unwrap();
        let round_trip = Duration::from_millis(40);
        assert!(!outage.awaits_longest(round_trip, at(5)));
        outage.ask(at(10));
        assert!(outage.awaits_longest(round_trip, at(109)));
        assert!(!outage.awaits_longest(round_trip, at(110)));
    }
}
