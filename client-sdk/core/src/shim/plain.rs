//! Belief in datagrams without a number.
//!
//! ```text
//!              two Resets of the gateway within 10 s, or one where numbers arrive
//!   Believed ----------------------------------------> Doubted: 100 a second
//!      ^                                                  |
//!      +--------------------------------------------------+ 10 s without a Reset; twice as long each
//!                                                           time that belief ends within a minute
//! ```
//!
//! The transport does not reveal which datagrams are authentic. Forged datagrams in the set prevent
//! the decoding of an eACK.

use core::time::Duration;

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::RateLimit;
use packrat_wire::estimate::Timestamp;

/// Datagrams that are recorded per second while there is doubt, and at once.
const DOUBTED_RATE: Rate = Rate { per_second: 100.0, burst: 24.0 };
/// Duration of the first doubt after a Reset. It begins with the second Reset within this time,
/// since one may happen by chance. If forwarded datagrams have numbers, the first Reset is enough;
/// but not if datagrams longer than the numbered ones arrive, for which the path may have no room
/// for a number.
const FIRST_DOUBT: Duration = Duration::from_secs(10);
/// Longest doubt: a persistent attacker causes two Resets in this time.
const LONGEST_DOUBT: Duration = Duration::from_secs(640);
/// Duration of belief after which the next doubt is short again.
const RELIABLE_TIME: Duration = Duration::from_secs(60);
/// Believed numbers since the last Reset that show that the gateway numbers.
const BELIEVED_NUMBERS: u64 = 64;

/// The judge of plain datagrams.
#[derive(Debug)]
pub(super) struct Plain {
    /// Resets of the gateway that have been seen, and when the last one was.
    resets: u64,
    last_reset: Option<Timestamp>,
    /// Numbers that were believed since then.
    numbered: u64,
    /// Length of the longest datagram with one.
    longest: usize,
    /// Set if a longer unnumbered datagram was recorded since the last Reset.
    has_longer: bool,
    doubted_until: Option<Timestamp>,
    /// Length of the next doubt.
    doubt: Duration,
    limit: RateLimit,
}

impl Default for Plain {
    fn default() -> Self {
        Self {
            resets: 0,
            last_reset: None,
            numbered: 0,
            longest: 0,
            has_longer: false,
            doubted_until: None,
            doubt: FIRST_DOUBT,
            limit: RateLimit::new(0.0, Timestamp::ZERO),
        }
    }
}

impl Plain {
    /// The number of a datagram of this length was believed.
    pub(super) fn on_number(&mut self, length: usize) {
        self.numbered += 1;
        self.longest = self.longest.max(length);
    }

    /// Records the number of Resets that the gateway has asked for so far.
    pub(super) fn on_resets(&mut self, resets: u64, now: Timestamp) {
        if resets == self.resets {
            return;
        }
        self.resets = resets;
        let soon = self.last_reset.replace(now).is_some_and(|last| now < last + FIRST_DOUBT);
        let has_longer = core::mem::take(&mut self.has_longer);
        let has_numbers = core::mem::take(&mut self.numbered) >= BELIEVED_NUMBERS && !has_longer;
        match self.doubted_until {
            // The doubt continues.
            Some(until) if now < until => self.doubted_until = Some(until.max(now + FIRST_DOUBT)),
            _ if !soon && !has_numbers => {}
            before => {
                let is_again =
                    !has_longer && before.is_some_and(|until| now < until + RELIABLE_TIME);
                self.doubt =
                    if is_again { (self.doubt * 2).min(LONGEST_DOUBT) } else { FIRST_DOUBT };
                self.doubted_until = Some(now + self.doubt);
            }
        }
    }

    /// True if a plain datagram of this length is to be recorded.
    pub(super) fn admits(&mut self, length: usize, now: Timestamp) -> bool {
        let is_believed = self.doubted_until.is_none_or(|until| now >= until)
            || self.limit.try_acquire(&DOUBTED_RATE, now);
        self.has_longer |= is_believed && length > self.longest;
        is_believed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_two_resets_few_are_believed_for_a_while() {
        let mut plain = Plain::default();
        let at = Timestamp::from_millis;
        let admitted = |plain: &mut Plain, from: u64| {
            (from..from + 1000).filter(|millis| plain.admits(1000, at(*millis))).count()
        };
        (0..10).for_each(|_| plain.on_number(1000));
        plain.on_resets(1, at(1000));
        assert_eq!(admitted(&mut plain, 1000), 1000, "one happens");
        plain.on_resets(2, at(20_000));
        assert_eq!(admitted(&mut plain, 20_000), 1000, "and another one, much later");
        plain.on_resets(3, at(22_000));
        let few = admitted(&mut plain, 22_000);
        assert!((90..=130).contains(&few), "{few}");
        plain.on_resets(3, at(31_000));
        assert_eq!(admitted(&mut plain, 32_000), 1000);
        (0..BELIEVED_NUMBERS).for_each(|_| plain.on_number(900));
        plain.on_resets(4, at(90_000));
        assert!(admitted(&mut plain, 90_000) < 130, "where numbers arrive, one says enough");
        // A path that has no room for the numbers of long datagrams.
        (0..BELIEVED_NUMBERS).for_each(|_| plain.on_number(900));
        assert!(plain.admits(1001, at(150_000)));
        plain.on_resets(5, at(151_000));
        assert_eq!(admitted(&mut plain, 151_000), 1000, "longer than all that have numbers");
    }

    #[test]
    fn an_attacker_who_goes_on_is_believed_ever_more_rarely() {
        let mut plain = Plain::default();
        let (mut resets, mut believed) = (0, 0);
        // It forges as soon as it is believed: the gateway asks for a Reset a tenth of a second later.
        for tenth in 0..36_000 {
            let now = Timestamp::from_millis(1000 + tenth * 100);
            if plain.doubted_until.is_none_or(|until| now >= until) {
                (resets, believed) = (resets + 1, believed + 1);
                plain.on_resets(resets, now);
            }
        }
        assert!(believed < 25, "{believed} tenths of a second in an hour");
        // After a while without an attacker a doubt is short again.
        let now = plain.doubted_until.unwrap() + RELIABLE_TIME;
        plain.on_resets(resets + 1, now);
        plain.on_resets(resets + 2, now + Duration::from_millis(100));
        assert_eq!(plain.doubted_until, Some(now + Duration::from_millis(100) + FIRST_DOUBT));
    }
}
