//! Path validation: proof that a session's client receives at an address it has not used before
//! (RFC 9000, sections 8.2 and 9).
//!
//! ```text
//!                  authentic message            right PathResponse, from that path, in time
//!                  from a new path                                    |
//!   Unvalidated ------------------> Challenged -----------------------+
//!        ^                          |   ^  ^ |                        |
//!        |  lifetime over, or a     |   |  | | another message, an    v   is the path another session's?
//!        +- message from the path --+   |  +-+ interval later:     +-----+
//!        |  in use                      |      a new challenge     |     |-- no, or its client is silent --> Validated
//!        |                              +--- its client is asked --+     |                                   (moved)
//!        |                                                         |     |-- yes, and its client speaks
//!        |  lifetime over                                          +-----+         |
//!        +------------------------------------------------------------- Refused <--+
//! ```
//!
//! Challenge data is random and used once: the client holds every other secret of its session, so a
//! value that it can compute is no proof. An unvalidated path receives challenges and Refusals
//! only, each not longer than the message it answers.

use core::time::Duration;
use std::net::SocketAddr;

use packrat_wire::estimate::Timestamp;
use packrat_wire::message::Message;
use packrat_wire::seal::SEAL_OVERHEAD_BYTES;

/// Length of a sealed challenge; a shorter message is not answered.
pub(crate) const CHALLENGE_LENGTH: usize = SEAL_OVERHEAD_BYTES + 9;
/// Distance between two challenges of one address.
pub(crate) const CHALLENGE_INTERVAL: Duration = Duration::from_millis(20);
/// Time in which a challenge may be answered.
pub const CHALLENGE_LIFETIME: Duration = Duration::from_secs(3);
/// Challenges that a session remembers: when there are more, the oldest is forgotten.
const MAXIMUM_CHALLENGES: usize = 8;

/// The two addresses that the datagrams of a flow travel between: a path as in RFC 9000, section 9.
/// A gateway has several addresses if it has several listeners, or one at a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkPath {
    /// Address of the client.
    pub client: SocketAddr,
    /// Address of the gateway that the client sends to.
    pub gateway: SocketAddr,
}

/// The caller's decision about a path on which a client has proved to receive: whether the session
/// may have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathUse {
    /// The session may have the path, and is there now.
    Free,
    /// Another session is known there, and its client is being asked whether it still is.
    Asked,
    /// Another session is there, and its client is heard.
    InUse,
}

/// Result of an authentic message from a path that is not the session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A challenge is under way already: send no other one.
    Wait,
    /// A challenge with this data is due.
    Challenge(u64),
    /// The message answers a challenge: the client receives there.
    Validated,
    /// The path was another session's a moment ago: refuse the session, and the client begins anew.
    Refuse,
    /// The message is too short to be answered.
    Ignore,
}

#[derive(Debug, Clone, Copy)]
struct Challenge<P> {
    path: P,
    data: u64,
    sent: Timestamp,
}

fn is_alive(since: Timestamp, now: Timestamp) -> bool {
    now.saturating_since(since) <= CHALLENGE_LIFETIME
}

/// Paths of one session that are not validated. A flow's path is a [`NetworkPath`]; a stream's
/// subscribers are known by their own address alone.
#[derive(Debug)]
pub(crate) struct PathValidation<P> {
    /// Outstanding challenges, oldest first.
    outstanding: Vec<Challenge<P>>,
    /// The path that the session was refused, and the time of the refusal.
    refused: Option<(P, Timestamp)>,
}

impl<P> Default for PathValidation<P> {
    fn default() -> Self {
        Self { outstanding: Vec::new(), refused: None }
    }
}

impl<P: Copy + Eq> PathValidation<P> {
    /// Decides about an authentic `message` of `length` sealed bytes from `from`. `random` draws
    /// fresh random bytes, of which the first eight become the data of a challenge.
    pub(crate) fn on_message<const N: usize>(
        &mut self,
        message: &Message<'_>,
        length: usize,
        from: P,
        random: impl FnOnce() -> [u8; N],
        now: Timestamp,
    ) -> Step {
        const { assert!(N >= 8, "a challenge has eight bytes") };
        self.forget_expired(now);
        if self.refused.is_some_and(|(path, _)| path == from) {
            return Step::Refuse;
        }
        if let Message::PathResponse { data } = message
            && self
                .outstanding
                .iter()
                .any(|challenge| challenge.path == from && challenge.data == *data)
        {
            self.outstanding.clear();
            return Step::Validated;
        }
        let newest = self.outstanding.iter().rev().find(|challenge| challenge.path == from);
        if newest.is_some_and(|challenge| now.saturating_since(challenge.sent) < CHALLENGE_INTERVAL)
        {
            return Step::Wait;
        }
        if length < CHALLENGE_LENGTH {
            return Step::Ignore;
        }
        let data = random().iter().take(8).fold(0, |data, byte| data << 8 | u64::from(*byte));
        if self.outstanding.len() == MAXIMUM_CHALLENGES {
            self.outstanding.remove(0);
        }
        self.outstanding.push(Challenge { path: from, data, sent: now });
        Step::Challenge(data)
    }

    /// Refuses messages from this path for a while, without a challenge: the client receives there,
    /// but so does another session's client.
    pub(crate) fn refuse(&mut self, path: P, now: Timestamp) {
        self.refused = Some((path, now));
    }

    /// Forgets challenges that can't be answered any more, and refusals that are over. True if no
    /// challenge or refusal is left.
    pub(crate) fn forget_expired(&mut self, now: Timestamp) -> bool {
        self.outstanding.retain(|challenge| is_alive(challenge.sent, now));
        self.refused.take_if(|(_, since)| !is_alive(*since, now));
        self.outstanding.is_empty() && self.refused.is_none()
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
    fn a_challenge_takes_one_timely_answer_from_its_address() {
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
    fn a_refused_path_is_not_challenged_during_the_refusal() {
        let mut paths = PathValidation::default();
        paths.on_message(&SHORT, 38, address(1), || [1; 8], at(0));
        let answer = Message::PathResponse { data: u64::MAX / 255 };
        assert_eq!(paths.on_message(&answer, 38, address(1), || [2; 8], at(1)), Step::Validated);
        paths.refuse(address(1), at(1));
        for message in [&answer, &SHORT] {
            assert_eq!(
                paths.on_message(message, 38, address(1), || [2; 8], at(3001)),
                Step::Refuse
            );
        }
        // The client may be at another address, and later here as well.
        for (last, milliseconds) in [(2, 3001), (1, 3002)] {
            let step = paths.on_message(&SHORT, 38, address(last), || [3; 8], at(milliseconds));
            assert!(matches!(step, Step::Challenge(_)));
        }
    }

    #[test]
    fn short_messages_get_no_answer_and_addresses_little_memory() {
        let mut paths = PathValidation::default();
        assert_eq!(paths.on_message(&SHORT, 37, address(1), || [1; 8], at(0)), Step::Ignore);
        for last in 0..=255 {
            paths.on_message(&SHORT, 38, address(last), || [last; 8], at(0));
        }
        assert_eq!(paths.outstanding.len(), MAXIMUM_CHALLENGES);
        assert!(!paths.forget_expired(at(3000)));
        assert!(paths.forget_expired(at(3001)));
    }
}
