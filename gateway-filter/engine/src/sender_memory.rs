//! A route's senders, as its sessions have found them: what a new session expects of its own.
//!
//! ```text
//!                    3 networks find that it tolerates losses, and no third as many
//!                    that it answers
//!   Unknown ------------------------------------------------------------> Tolerates: all sessions
//!     | every 8th session is a trial                                         |   are shown losses
//!     | most of 3 networks find otherwise     more find that it answers      |
//!     +-------------------------------> Answers <----------------------------+
//!                                       every 32nd session is a trial
//! ```
//!
//! A client judges for its network only, whatever it says of its losses: one network has one vote.
//! What others take from the votes decides whether they *begin* without a hold and repairs. A sender
//! that then gives way is found out by its own session after a few losses.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::PoisonError;

use packrat_wire::estimate::Timestamp;

use crate::admission::Network;
use crate::sync::Mutex;

/// Votes that are remembered, the newest of each network, for so long.
const VOTES: usize = 32;
const MEMORY: Duration = Duration::from_secs(24 * 3600);
/// Networks that must have found the same.
const QUORUM: usize = 3;
/// Trials are rarer by this factor where the sender seems to answer losses.
const RARER: u32 = 4;

/// A finding of a session about its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The sender gave way to losses.
    Answers,
    /// Its window is one that a loss-based sender may have, or one that has little to send.
    Fits,
    /// It goes on as before.
    Tolerates,
}

/// The expectation with which a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// The sender answers losses, or it is not known: they are repaired.
    Answers,
    /// It is shown losses, to find out.
    Trial,
    /// It tolerates losses.
    Tolerates,
}

/// The votes about the senders of a route. One for as long as the route exists.
#[derive(Debug, Default)]
pub struct SenderMemory {
    votes: Mutex<Votes>,
}

#[derive(Debug, Default)]
struct Votes {
    votes: VecDeque<Vote>,
    sessions: u32,
}

#[derive(Debug, Clone, Copy)]
struct Vote {
    network: Network,
    finding: Finding,
    at: Timestamp,
}

impl SenderMemory {
    /// A session begins. One of so many is a trial.
    pub(crate) fn expect(&self, one_of: u32, now: Timestamp) -> Expectation {
        let mut votes = self.votes.lock().unwrap_or_else(PoisonError::into_inner);
        votes.age(now);
        votes.sessions = votes.sessions.wrapping_add(1);
        if votes.find_tolerance() {
            return Expectation::Tolerates;
        }
        let tolerant = votes.count(Finding::Tolerates);
        let is_open = votes.votes.len() < QUORUM || tolerant * 2 >= votes.votes.len();
        let one_of = if is_open { one_of } else { one_of.saturating_mul(RARER) };
        // None of no sessions.
        if one_of > 0 && votes.sessions.is_multiple_of(one_of) {
            Expectation::Trial
        } else {
            Expectation::Answers
        }
    }

    /// A session of a client in this network has found something. `Some`: sessions begin in another
    /// way from here on; true if the sender is now expected to tolerate losses.
    pub(crate) fn vote(&self, network: Network, finding: Finding, now: Timestamp) -> Option<bool> {
        let mut votes = self.votes.lock().unwrap_or_else(PoisonError::into_inner);
        votes.age(now);
        let before = votes.find_tolerance();
        votes.votes.retain(|vote| vote.network != network);
        if votes.votes.len() >= VOTES {
            votes.votes.pop_front();
        }
        votes.votes.push_back(Vote { network, finding, at: now });
        let after = votes.find_tolerance();
        (before != after).then_some(after)
    }
}

impl Votes {
    /// Forgets what is too old.
    fn age(&mut self, now: Timestamp) {
        self.votes.retain(|vote| now.saturating_since(vote.at) < MEMORY);
    }

    fn count(&self, finding: Finding) -> usize {
        self.votes.iter().filter(|vote| vote.finding == finding).count()
    }

    fn find_tolerance(&self) -> bool {
        let tolerant = self.count(Finding::Tolerates);
        tolerant >= QUORUM && tolerant >= 3 * self.count(Finding::Answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u8) -> Network {
        Network::largest_of(std::net::IpAddr::from([192, 0, number, 7]))
    }

    fn expected(memory: &SenderMemory, now: Timestamp) -> Vec<Expectation> {
        (0..64).map(|_| memory.expect(8, now)).collect()
    }

    fn trials(memory: &SenderMemory) -> usize {
        let all = expected(memory, Timestamp::ZERO);
        assert!(!all.contains(&Expectation::Tolerates), "{all:?}");
        all.iter().filter(|expected| **expected == Expectation::Trial).count()
    }

    #[test]
    fn three_networks_decide_and_one_alone_does_not() {
        let memory = SenderMemory::default();
        let vote = |number, finding| memory.vote(network(number), finding, Timestamp::ZERO);
        assert_eq!(trials(&memory), 8);
        for _ in 0..100 {
            vote(1, Finding::Tolerates);
        }
        assert_eq!(vote(2, Finding::Tolerates), None);
        assert_eq!(trials(&memory), 8, "two networks, however often they say it");
        assert_eq!(vote(3, Finding::Tolerates), Some(true));
        assert_eq!(vote(3, Finding::Tolerates), None, "it is so already");
        let decided = expected(&memory, Timestamp::ZERO);
        assert!(decided.iter().all(|expected| *expected == Expectation::Tolerates));
        // One of four may err, and some of their downloads are small; two of five may not.
        vote(4, Finding::Answers);
        vote(6, Finding::Fits);
        assert_eq!(memory.expect(8, Timestamp::ZERO), Expectation::Tolerates);
        assert_eq!(vote(5, Finding::Answers), Some(false));
        assert_eq!(trials(&memory), 8, "it is open again");
    }

    #[test]
    fn where_senders_answer_trials_are_few() {
        for finding in [Finding::Answers, Finding::Fits] {
            let memory = SenderMemory::default();
            for number in 1..=3 {
                memory.vote(network(number), finding, Timestamp::ZERO);
            }
            assert_eq!(trials(&memory), 2, "{finding:?}");
        }
        let memory = SenderMemory::default();
        assert!((0..64).all(|_| memory.expect(0, Timestamp::ZERO) == Expectation::Answers));
    }

    #[test]
    fn addresses_of_one_network_have_one_vote() {
        let memory = SenderMemory::default();
        for last in 0..200u8 {
            let network = Network::largest_of(std::net::IpAddr::from([192, 0, 2, last]));
            memory.vote(network, Finding::Tolerates, Timestamp::ZERO);
        }
        assert_eq!(trials(&memory), 8);
    }

    #[test]
    fn votes_are_few_and_age() {
        let memory = SenderMemory::default();
        for number in 0..=255 {
            memory.vote(network(number), Finding::Tolerates, Timestamp::ZERO);
        }
        assert_eq!(memory.votes.lock().unwrap().votes.len(), VOTES);
        let expected = |after| memory.expect(8, Timestamp::ZERO + after);
        assert_eq!(expected(MEMORY / 2), Expectation::Tolerates);
        assert_ne!(expected(MEMORY), Expectation::Tolerates);
    }
}
