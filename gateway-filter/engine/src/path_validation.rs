//! Path validation: proof that a session's client receives at an address it has not used before
//! (RFC 9000, sections 8.2 and 9).
//!
//! ```text
//!                  authentic message                right PathResponse,
//!                  from a new address               from that address, in time
//!   Unvalidated ----------------------> Challenged ---------------------------> Validated
//!        ^                                |   ^  |
//!        |   lifetime over, or a message  |   |  | another message, an interval later:
//!        +---- from the known address ----+   +--+ one more challenge, with data of its own
//! ```
//!
//! Challenge data is random and used once: the client holds every other secret of its session, so
//! nothing that it could compute proves anything. An unvalidated address receives challenges only,
//! and none of them is longer than the message it answers.

use core::time::Duration;
use std::net::SocketAddr;

use packrat_wire::estimate::Timestamp;
use packrat_wire::message::Message;
use packrat_wire::seal::OVERHEAD;

/// Length of a sealed challenge; a shorter message is not answered.
pub(crate) const CHALLENGE_LENGTH: usize = OVERHEAD + 9;
/// Distance between two challenges of one address.
pub(crate) const CHALLENGE_INTERVAL: Duration = Duration::from_millis(20);
/// Time in which a challenge may be answered.
pub const CHALLENGE_LIFETIME: Duration = Duration::from_secs(3);
/// Challenges that a session remembers: when there are more, the oldest is forgotten.
const MAXIMUM_OUTSTANDING: usize = 8;

/// Result of an authentic message from an address that is not the session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing is sent: a challenge is under way already.
    Wait,
    /// A challenge with this data is due.
    Challenge(u64),
    /// The message answers a challenge: its source is the session's address now.
    Validated,
    /// The message is too short to be answered.
    Ignore,
}

#[derive(Debug, Clone, Copy)]
struct Challenge {
    address: SocketAddr,
    data: u64,
    sent: Timestamp,
}

impl Challenge {
    fn is_alive(&self, now: Timestamp) -> bool {
        now.saturating_since(self.sent) <= CHALLENGE_LIFETIME
    }
}

/// Outstanding challenges of one session, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PathValidation {
    outstanding: Vec<Challenge>,
}

impl PathValidation {
    /// Decides about an authentic `message` of `length` sealed bytes from `from`. `random` draws
    /// fresh random bytes, of which the first eight become the data of a challenge.
    pub(crate) fn on_message<const N: usize>(
        &mut self,
        message: &Message<'_>,
        length: usize,
        from: SocketAddr,
        random: impl FnOnce() -> [u8; N],
        now: Timestamp,
    ) -> Step {
        const { assert!(N >= 8, "a challenge has eight bytes") };
        self.forget_expired(now);
        if let Message::PathResponse { data } = message
            && self
                .outstanding
                .iter()
                .any(|challenge| challenge.address == from && challenge.data == *data)
        {
            self.outstanding.clear();
            return Step::Validated;
        }
        let newest = self.outstanding.iter().rev().find(|challenge| challenge.address == from);
        if newest.is_some_and(|challenge| now.saturating_since(challenge.sent) < CHALLENGE_INTERVAL)
        {
            return Step::Wait;
        }
        if length < CHALLENGE_LENGTH {
            return Step::Ignore;
        }
        let data = random().iter().take(8).fold(0, |data, byte| data << 8 | u64::from(*byte));
        if self.outstanding.len() == MAXIMUM_OUTSTANDING {
            self.outstanding.remove(0);
        }
        self.outstanding.push(Challenge { address: from, data, sent: now });
        Step::Challenge(data)
    }

    /// Forgets challenges that can't be answered any more. True when none is left.
    pub(crate) fn forget_expired(&mut self, now: Timestamp) -> bool {
        self.outstanding.retain(|challenge| challenge.is_alive(now));
        self.outstanding.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Message<'_> = Message::PathResponse { data: 0 };

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([198, 51, 100, last], 1))
    }

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::from_millis(milliseconds)
    }

    #[test]
    fn a_challenge_is_answered_once_from_its_own_address_and_in_time() {
        let mut paths = PathValidation::default();
        assert_eq!(
            paths.on_message(&SHORT, 38, address(1), || [7; 8], at(0)),
            Step::Challenge(u64::MAX / 255 * 7)
        );
        let answer = Message::PathResponse { data: u64::MAX / 255 * 7 };
        // From elsewhere it is a message like any other, which is challenged.
        assert_eq!(
            paths.on_message(&answer, 38, address(2), || [8; 8], at(1)),
            Step::Challenge(u64::MAX / 255 * 8)
        );
        assert_eq!(paths.on_message(&answer, 38, address(1), || [9; 8], at(2)), Step::Validated);
        assert!(matches!(
            paths.on_message(&answer, 38, address(1), || [9; 8], at(3)),
            Step::Challenge(_)
        ));
        let late = Message::PathResponse { data: u64::MAX / 255 * 9 };
        assert!(matches!(
            paths.on_message(&late, 38, address(1), || [1; 8], at(3004)),
            Step::Challenge(_)
        ));
    }

    #[test]
    fn an_earlier_challenge_stays_valid_when_another_one_was_sent() {
        let mut paths = PathValidation::default();
        paths.on_message(&SHORT, 38, address(1), || [1; 8], at(0));
        assert_eq!(paths.on_message(&SHORT, 38, address(1), || [2; 8], at(19)), Step::Wait);
        assert!(matches!(
            paths.on_message(&SHORT, 38, address(1), || [2; 8], at(20)),
            Step::Challenge(_)
        ));
        let first = Message::PathResponse { data: u64::MAX / 255 };
        assert_eq!(paths.on_message(&first, 38, address(1), || [3; 8], at(21)), Step::Validated);
    }

    #[test]
    fn short_messages_are_not_answered_and_many_addresses_take_little_memory() {
        let mut paths = PathValidation::default();
        assert_eq!(paths.on_message(&SHORT, 37, address(1), || [1; 8], at(0)), Step::Ignore);
        for last in 0..=255 {
            paths.on_message(&SHORT, 38, address(last), || [last; 8], at(0));
        }
        assert_eq!(paths.outstanding.len(), MAXIMUM_OUTSTANDING);
        assert!(!paths.forget_expired(at(3000)));
        assert!(paths.forget_expired(at(3001)));
    }
}
