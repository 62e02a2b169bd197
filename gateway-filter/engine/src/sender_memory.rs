//! Memory of a route's senders: the findings of its sessions, which a new session expects of its
//! own sender.
//!
//! ```text
//!                    3 networks find that it tolerates losses, and not a third as many
//!                    that it answers
//!   Unknown ------------------------------------------------------------> Tolerates: sessions are
//!     | every 8th session is a trial                                         |  shown losses
//!     | most of 3 networks do not find that   more find that it answers,     |
//!     +-------------------------------> Answers <----------------------------+
//!                                       or too few networks that are shown losses find the same;
//!                                       every 32nd session is a trial
//! ```
//!
//! In a network in which a trial has shown its sender a loss, every 32nd session is a trial as
//! well.
//!
//! A client judges for its network only, whatever losses it reports: one network has one vote, and
//! there the findings of its own sessions outweigh other networks' votes. Tolerance that it has
//! found needs no other votes. For other networks, the votes decide whether sessions *begin*
//! without a hold and repairs. If a sender then gives way, its own session finds out after a few
//! losses.
//!
//! Most sessions are too short for that. So networks other than its founders must bear a verdict
//! out: every ten minutes, one of four networks that were shown losses because of it must have
//! found the same. Otherwise it ends, and the networks that voted for it have no say about
//! tolerance for a day.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::PoisonError;

use packrat_wire::estimate::Timestamp;

use crate::admission::Network;
use crate::loss_memory::LossMemory;
use crate::sync::Mutex;

/// Number of votes that are remembered, the newest of each network.
const REMEMBERED_VOTES: usize = 32;
/// Time for which a vote is remembered.
const VOTE_MEMORY: Duration = Duration::from_secs(24 * 3600);
/// Networks that must have found the same.
const NETWORK_QUORUM: usize = 3;
/// Factor by which trials are rarer if the sender seems to answer losses, and in a network that
/// has had one.
const RARER_TRIALS: u32 = 4;
/// Number of sessions of which one believes other networks, if a network's own newest session has
/// found that the sender may be loss-based.
const DOUBTING_SESSIONS: u32 = 2;
/// Time after which a verdict is checked against its witnesses.
const VERDICT_PERIOD: Duration = Duration::from_secs(600);
/// Number of witnesses that are remembered: networks that were shown losses because of a verdict.
const REMEMBERED_WITNESSES: usize = 64;
/// Fewest witnesses that prove something about a verdict.
const FEWEST_WITNESSES: usize = 8;
/// Number of witnesses of which one must have found the same for a verdict to be borne out.
const BORNE_OUT_DIVISOR: usize = 4;
/// Number of networks remembered whose verdict was not borne out.
const SILENCED_NETWORKS: usize = 64;

/// A finding of a session about its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The sender gave way to losses.
    Answers,
    /// The window fits a loss-based sender, or a sender that has little to send.
    Fits,
    /// The sender goes on as before.
    Tolerates,
}

/// The expectation with which a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// The sender answers losses, or is unknown: losses are repaired.
    Answers,
    /// The sender is shown losses, to find out.
    Trial,
    /// The sender tolerates losses, as earlier sessions have found.
    Tolerates,
}

/// The votes about the senders of a route, and the losses of its clients' last miles. It exists as
/// long as the route.
#[derive(Debug, Default)]
pub struct SenderMemory {
    pub(crate) losses: LossMemory,
    votes: Mutex<Votes>,
}

#[derive(Debug, Default)]
struct Votes {
    votes: VecDeque<Vote>,
    sessions: u32,
    verdict: Option<Verdict>,
    /// Networks whose newest trial was undecided, and its time.
    undecided: VecDeque<(Network, Timestamp)>,
    /// Networks that have no say about tolerance, and since when.
    silenced: VecDeque<(Network, Timestamp)>,
}

#[derive(Debug, Clone, Copy)]
struct Vote {
    network: Network,
    finding: Finding,
    at: Timestamp,
}

/// A verdict that the senders tolerate losses.
#[derive(Debug)]
struct Verdict {
    /// Networks whose votes led to the verdict.
    founders: Vec<Network>,
    /// Other networks whose sessions were shown losses because of the verdict, since `since`; true
    /// if they have found the same.
    witnesses: Vec<(Network, bool)>,
    since: Timestamp,
}

impl SenderMemory {
    /// Expectation of a new session of a client in this network. One of `one_of` sessions is a
    /// trial.
    pub(crate) fn expect(&self, network: Network, one_of: u32, now: Timestamp) -> Expectation {
        let mut votes = self.votes.lock().unwrap_or_else(PoisonError::into_inner);
        votes.age(now);
        votes.sessions = votes.sessions.wrapping_add(1);
        let is_judged = votes.verdict.is_some();
        let believes = match votes.own(network) {
            // The finding applies to this network only.
            Some(Finding::Tolerates) => true,
            Some(Finding::Answers) => false,
            Some(Finding::Fits) => is_judged && votes.sessions.is_multiple_of(DOUBTING_SESSIONS),
            None => is_judged,
        };
        if believes {
            return Expectation::Tolerates;
        }
        let tried = votes.votes.len() + votes.undecided.len();
        let is_open = tried < NETWORK_QUORUM || votes.count(Finding::Tolerates) * 2 >= tried;
        let is_tried = votes.own(network).is_some() || votes.is_undecided(network);
        let is_rare = is_tried || !is_open;
        let one_of = if is_rare { one_of.saturating_mul(RARER_TRIALS) } else { one_of };
        // 0: no session is a trial.
        if one_of > 0 && votes.sessions.is_multiple_of(one_of) {
            Expectation::Trial
        } else {
            Expectation::Answers
        }
    }

    /// Records that a session that believes others is shown a loss, and has no finding yet. `Some`:
    /// as [`Self::vote`].
    pub(crate) fn on_shown(&self, network: Network, now: Timestamp) -> Option<bool> {
        self.change(now, |votes| votes.testify(network, false))
    }

    /// Records that a trial in this network has shown its sender a loss, and is undecided.
    pub(crate) fn on_undecided(&self, network: Network, now: Timestamp) {
        let mut votes = self.votes.lock().unwrap_or_else(PoisonError::into_inner);
        votes.undecided.retain(|(undecided, _)| *undecided != network);
        if votes.own(network).is_none() {
            if votes.undecided.len() >= REMEMBERED_VOTES {
                votes.undecided.pop_front();
            }
            votes.undecided.push_back((network, now));
        }
    }

    /// Records the finding of a session of a client in this network. `Some`: sessions begin in
    /// another way from here on; true if the sender is now expected to tolerate losses.
    pub(crate) fn vote(&self, network: Network, finding: Finding, now: Timestamp) -> Option<bool> {
        self.change(now, |votes| {
            let is_silenced = votes.silenced.iter().any(|(silenced, _)| *silenced == network);
            if finding == Finding::Tolerates && is_silenced {
                return;
            }
            votes.votes.retain(|vote| vote.network != network);
            votes.undecided.retain(|(undecided, _)| *undecided != network);
            if votes.votes.len() >= REMEMBERED_VOTES {
                votes.votes.pop_front();
            }
            votes.votes.push_back(Vote { network, finding, at: now });
            if finding == Finding::Tolerates {
                votes.testify(network, true);
            }
        })
    }

    fn change(&self, now: Timestamp, change: impl FnOnce(&mut Votes)) -> Option<bool> {
        let mut votes = self.votes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = votes.verdict.is_some();
        votes.age(now);
        change(&mut votes);
        votes.judge(now);
        let after = votes.verdict.is_some();
        (before != after).then_some(after)
    }
}

impl Votes {
    /// Forgets entries that are too old.
    fn age(&mut self, now: Timestamp) {
        let is_young = |at: Timestamp| now.saturating_since(at) < VOTE_MEMORY;
        self.votes.retain(|vote| is_young(vote.at));
        self.undecided.retain(|(_, at)| is_young(*at));
        self.silenced.retain(|(_, at)| is_young(*at));
        self.verdict.take_if(|_| !find_tolerance(&self.votes));
    }

    fn count(&self, finding: Finding) -> usize {
        count(&self.votes, finding)
    }

    /// The newest finding of a network.
    fn own(&self, network: Network) -> Option<Finding> {
        self.votes.iter().find(|vote| vote.network == network).map(|vote| vote.finding)
    }

    fn is_undecided(&self, network: Network) -> bool {
        self.undecided.iter().any(|(undecided, _)| *undecided == network)
    }

    /// Records that a network was shown losses because of the verdict; `has_found`: it found the
    /// same.
    fn testify(&mut self, network: Network, has_found: bool) {
        let Some(verdict) = &mut self.verdict else { return };
        if verdict.founders.contains(&network) {
            return;
        }
        let known = verdict.witnesses.iter_mut().find(|(witness, _)| *witness == network);
        if let Some((_, found)) = known {
            *found |= has_found;
        } else if verdict.witnesses.len() < REMEMBERED_WITNESSES {
            verdict.witnesses.push((network, has_found));
        }
    }

    /// Comes to a verdict, or ends the existing one.
    fn judge(&mut self, now: Timestamp) {
        self.verdict.take_if(|_| !find_tolerance(&self.votes));
        if let Some(verdict) = &mut self.verdict {
            let witnesses = verdict.witnesses.len();
            if now.saturating_since(verdict.since) < VERDICT_PERIOD || witnesses < FEWEST_WITNESSES
            {
                return;
            }
            let found = verdict.witnesses.iter().filter(|(_, found)| *found).count();
            if found * BORNE_OUT_DIVISOR >= witnesses {
                verdict.witnesses.clear();
                verdict.since = now;
            } else {
                self.verdict = None;
                self.silence(now);
            }
        } else if find_tolerance(&self.votes) {
            let tolerant = self.votes.iter().filter(|vote| vote.finding == Finding::Tolerates);
            let founders = tolerant.map(|vote| vote.network).collect();
            self.verdict = Some(Verdict { founders, witnesses: Vec::new(), since: now });
        }
    }

    /// Silences the networks that have found tolerance.
    fn silence(&mut self, now: Timestamp) {
        let tolerant = self.votes.iter().filter(|vote| vote.finding == Finding::Tolerates);
        self.silenced.extend(tolerant.map(|vote| (vote.network, now)));
        let too_many = self.silenced.len().saturating_sub(SILENCED_NETWORKS);
        self.silenced.drain(..too_many);
        self.votes.retain(|vote| vote.finding != Finding::Tolerates);
    }
}

fn count(votes: &VecDeque<Vote>, finding: Finding) -> usize {
    votes.iter().filter(|vote| vote.finding == finding).count()
}

fn find_tolerance(votes: &VecDeque<Vote>) -> bool {
    let tolerant = count(votes, Finding::Tolerates);
    tolerant >= NETWORK_QUORUM && tolerant >= 3 * count(votes, Finding::Answers)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use packrat_client::{Assist, ClientConfig};

    use super::*;
    use crate::{Flow, Gateway, GatewayConfig, Outbox, Received};

    fn network(number: u8) -> Network {
        Network::largest_of(std::net::IpAddr::from([192, 0, number, 7]))
    }

    fn expected(memory: &SenderMemory, now: Timestamp) -> Vec<Expectation> {
        (0..64).map(|_| memory.expect(network(200), 8, now)).collect()
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
        assert_eq!(memory.expect(network(200), 8, Timestamp::ZERO), Expectation::Tolerates);
        assert_eq!(vote(5, Finding::Answers), Some(false));
        assert_eq!(trials(&memory), 8, "it is open again");
    }

    #[test]
    fn a_network_needs_no_quorum_for_itself() {
        let memory = SenderMemory::default();
        memory.vote(network(1), Finding::Tolerates, Timestamp::ZERO);
        let expected = |number, after| memory.expect(network(number), 0, Timestamp::ZERO + after);
        assert_eq!(expected(1, Duration::ZERO), Expectation::Tolerates);
        assert_eq!(expected(2, Duration::ZERO), Expectation::Answers, "others are not concerned");
        assert_eq!(expected(1, VOTE_MEMORY), Expectation::Answers, "a day later");
        memory.vote(network(1), Finding::Fits, Timestamp::ZERO);
        assert_eq!(expected(1, Duration::ZERO), Expectation::Answers, "its newest finding counts");
    }

    #[test]
    fn questions_in_forged_names_are_no_sessions_and_place_no_trial() {
        let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
        let sessions = || gateway.senders.votes.lock().unwrap().sessions;
        let begin = |number: u8| {
            let from = SocketAddr::from(([192, 0, 2, number], 5000));
            let mut flow = Flow::new(Arc::clone(&gateway));
            let mut client =
                Assist::new(ClientConfig::default(), [number; 32], Timestamp::from_millis(1000));
            let mut out = Outbox::new();
            let now = Timestamp::from_millis(1000);
            let question = client.poll_transmit(now).unwrap();
            let Received::Begin(begin) = gateway.receive(&question, from, now, &mut out) else {
                panic!("no cookie is asked for")
            };
            flow.begin(begin, [number; 32], now, &mut out);
            (flow, client, out)
        };
        let forged: Vec<_> = (1..=20).map(begin).collect();
        assert_eq!(sessions(), 0);
        // A client that receives the answer seals a message, and its session counts.
        let (mut flow, mut client, mut out) = begin(21);
        let now = Timestamp::from_millis(1000);
        let answer = out.datagrams().next().unwrap().to_vec();
        client.on_datagram(&answer, now);
        while let Some(said) = client.poll_transmit(now) {
            flow.control(&said, now, &mut out);
        }
        assert!(flow.is_assisted());
        assert_eq!((sessions(), forged.len()), (1, 20));
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
        assert!(
            (0..64)
                .all(|_| memory.expect(network(200), 0, Timestamp::ZERO) == Expectation::Answers)
        );
    }

    #[test]
    fn a_network_whose_trial_found_nothing_has_few_more() {
        let memory = SenderMemory::default();
        let trials_in = |number: u8| {
            let expected = |_| memory.expect(network(number), 8, Timestamp::ZERO);
            (0..64).map(expected).filter(|expected| *expected == Expectation::Trial).count()
        };
        memory.on_undecided(network(1), Timestamp::ZERO);
        assert_eq!((trials_in(1), trials_in(2)), (2, 8));
        memory.vote(network(2), Finding::Fits, Timestamp::ZERO);
        assert_eq!((trials_in(2), trials_in(3)), (2, 8));
        // Findings of three networks count for other networks as well.
        memory.on_undecided(network(3), Timestamp::ZERO);
        assert_eq!(trials_in(4), 2);
        // A network's finding outweighs its undecided trial, and replaces it.
        memory.vote(network(3), Finding::Tolerates, Timestamp::ZERO);
        memory.vote(network(4), Finding::Tolerates, Timestamp::ZERO);
        memory.on_undecided(network(4), Timestamp::ZERO);
        assert_eq!(memory.votes.lock().unwrap().undecided.len(), 1);
        assert_eq!(memory.expect(network(4), 8, Timestamp::ZERO), Expectation::Tolerates);
        assert_eq!(trials_in(5), 8, "two of four have found tolerance");
        let after = Timestamp::ZERO + VOTE_MEMORY;
        let later = |_| memory.expect(network(1), 8, after);
        assert_eq!((0..64).map(later).filter(|it| *it == Expectation::Trial).count(), 8);
    }

    #[test]
    fn networks_that_found_nothing_are_few_and_displace_no_vote() {
        let memory = SenderMemory::default();
        for number in 1..=3 {
            memory.vote(network(number), Finding::Tolerates, Timestamp::ZERO);
        }
        for number in 4..=255 {
            memory.on_undecided(network(number), Timestamp::ZERO);
        }
        assert_eq!(memory.votes.lock().unwrap().undecided.len(), REMEMBERED_VOTES);
        assert_eq!(memory.expect(network(200), 8, Timestamp::ZERO), Expectation::Tolerates);
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
        assert_eq!(memory.votes.lock().unwrap().votes.len(), REMEMBERED_VOTES);
        let expected = |after| memory.expect(network(200), 8, Timestamp::ZERO + after);
        assert_eq!(expected(VOTE_MEMORY / 2), Expectation::Tolerates);
        assert_ne!(expected(VOTE_MEMORY), Expectation::Tolerates);
    }

    /// A route, minute by minute.
    #[derive(Default)]
    struct Minutes {
        memory: SenderMemory,
        minute: u64,
        /// Sessions of honest networks that began without repairs.
        harmed: u64,
        sessions: u64,
    }

    const MINUTE: Duration = Duration::from_secs(60);

    impl Minutes {
        /// In each minute every honest network has a session of a sender that answers losses; one
        /// of `long` is long enough to find out. `lie`: the attackers' actions.
        fn pass(
            &mut self,
            minutes: u64,
            honest: u8,
            long: u8,
            lie: impl Fn(&SenderMemory, Timestamp),
        ) {
            for _ in 0..minutes {
                self.minute += 1;
                let now = Timestamp::ZERO + MINUTE * self.minute as u32;
                lie(&self.memory, now);
                for number in 0..honest {
                    self.sessions += 1;
                    let expected = self.memory.expect(network(number), 8, now);
                    if expected == Expectation::Tolerates {
                        self.harmed += 1;
                        self.memory.on_shown(network(number), now);
                    }
                    if expected != Expectation::Answers && long > 0 && number % long == 0 {
                        self.memory.vote(network(number), Finding::Fits, now);
                    }
                }
            }
        }
    }

    /// Attackers: networks that find again and again that the sender tolerates losses.
    fn forgers(numbers: core::ops::Range<u8>) -> impl Fn(&SenderMemory, Timestamp) {
        move |memory, now| {
            for number in numbers.clone() {
                memory.on_shown(network(number), now);
                memory.vote(network(number), Finding::Tolerates, now);
            }
        }
    }

    #[test]
    fn an_unconfirmed_verdict_ends_and_does_not_come_back() {
        for long in [0, 8] {
            let mut route = Minutes::default();
            route.pass(24 * 60 - 15, 40, long, forgers(100..103));
            // Ten minutes, and the one in which they begin.
            assert!(route.harmed <= 40 * 11, "{} of {}", route.harmed, route.sessions);
            assert!(route.harmed >= 40 * 8, "it is tried all the same: {}", route.harmed);
            // A day later they may try again, and have as long.
            route.pass(60, 40, long, forgers(100..103));
            assert!(route.harmed <= 2 * 40 * 11, "{} of {}", route.harmed, route.sessions);
        }
    }

    #[test]
    fn those_who_know_the_rule_need_a_quarter_of_the_networks() {
        // The attackers come first, find the same when it counts, and are 8 witnesses beside 40.
        let mut route = Minutes::default();
        route.pass(120, 40, 0, forgers(100..111));
        assert!(route.harmed <= 40 * 11, "{} of {}", route.harmed, route.sessions);
        // Another finding in between does not end a network's silence.
        let launder = |memory: &SenderMemory, now| {
            for number in 100..111 {
                memory.vote(network(number), Finding::Fits, now);
                memory.vote(network(number), Finding::Tolerates, now);
            }
        };
        route.pass(120, 40, 0, launder);
        assert!(route.harmed <= 40 * 11, "{} of {}", route.harmed, route.sessions);
    }

    #[test]
    fn a_verdict_that_others_bear_out_stays() {
        let memory = SenderMemory::default();
        forgers(100..103)(&memory, Timestamp::ZERO);
        // One of four networks has downloads that are long enough to find out.
        for minute in 1..24 * 60 {
            let now = Timestamp::ZERO + MINUTE * minute;
            for number in 0..40 {
                assert_eq!(
                    memory.expect(network(number), 8, now),
                    Expectation::Tolerates,
                    "{minute}"
                );
                memory.on_shown(network(number), now);
                if number % 4 == 0 {
                    memory.vote(network(number), Finding::Tolerates, now);
                }
            }
        }
        // A verdict on a small route stays as well.
        let memory = SenderMemory::default();
        forgers(100..103)(&memory, Timestamp::ZERO);
        for minute in 1..24 * 60 {
            let now = Timestamp::ZERO + MINUTE * minute;
            for number in 0..7 {
                memory.on_shown(network(number), now);
            }
            assert_eq!(memory.expect(network(9), 8, now), Expectation::Tolerates, "{minute}");
        }
    }

    #[test]
    fn a_network_believes_its_own_sessions_more_than_others() {
        let memory = SenderMemory::default();
        for number in 1..=6 {
            memory.vote(network(number), Finding::Tolerates, Timestamp::ZERO);
        }
        memory.vote(network(7), Finding::Answers, Timestamp::ZERO);
        memory.vote(network(8), Finding::Fits, Timestamp::ZERO);
        let believers = |number| {
            let expect = |_: &i32| memory.expect(network(number), 8, Timestamp::ZERO);
            (0..64).filter(|at| expect(at) == Expectation::Tolerates).count()
        };
        assert_eq!([1, 7, 8, 9].map(believers), [64, 0, 32, 64]);
    }
}
