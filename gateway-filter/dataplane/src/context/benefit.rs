//! The measured benefit of assistance on a route. If there is no benefit, assistance stops by
//! itself, and is tried again later.
//!
//! Reports contain one session of each address and hour. Decisions rest on fewer sessions: a client
//! can make itself slow, so each network has at most one vote in the comparison, as one attacker
//! may have a whole network. Votes are few, so it takes more than a few networks to make a
//! difference significant.

use std::collections::VecDeque;
use std::time::Duration;

use packrat_api::status::{ComparisonStatus, SizeComparison, Stage};
use packrat_figures::comparison::{Benefit, Comparison, Confidence, FEWEST_SESSIONS, Interval};
use packrat_wire::estimate::Timestamp;

/// Fewest bytes of the sessions of each class: sessions of a class are compared with each other
/// alone.
pub(crate) const SIZE_CLASSES: [u64; 3] = [256_000, 1_000_000, 10_000_000];
/// Duration of a slot, by which sessions are forgotten.
const SLOT_TIME: Duration = Duration::from_secs(3600);
/// Number of slots that are remembered: a day.
const REMEMBERED_SLOTS: u64 = 24;
/// Number of addresses that are remembered. An address is reported once in a slot: an arm is drawn
/// for the address, and its sessions depend on each other.
const REMEMBERED_ADDRESSES: usize = 4096;
/// Places of networks that vote, each with one vote in any [`REMEMBERED_SLOTS`] slots.
const VOTER_PLACES: usize = 16_384;
/// Votes of either arm that have to confirm that assistance does not pay.
const CONFIRMING_VOTES: u64 = 10;
/// Time for which assistance stops the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(3600);
/// Longest time for which assistance stops.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);
/// Share of the clients that are held out while assistance is tried again: half of them are spared
/// a possible harm, and the result is known soonest.
pub(crate) const TRIAL_HOLDOUT: f64 = 0.5;
/// Votes in each arm after which a trial that has not shown assistance to be slower has passed.
const TRIAL_VOTES: u64 = 10 * FEWEST_SESSIONS;

/// Arm of the comparison in which a session is. Sessions whose client has not asked for assistance,
/// or was refused for another reason, are in no arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Session left without assistance for comparison.
    Holdout = 1,
    /// Session that was assisted, at least for a while.
    Assisted = 2,
}

/// A session that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transferred {
    pub(crate) arm: Arm,
    pub(crate) bytes: u64,
    /// The time that the bytes took, without pauses.
    pub(crate) microseconds: u64,
    /// Datagrams that the client could report on, and how many of them the last mile lost.
    pub(crate) recorded: u64,
    pub(crate) missing: u64,
}

impl Transferred {
    pub(crate) fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8e6 / self.microseconds.max(1) as f64
    }

    /// The place of its size among [`SIZE_CLASSES`].
    pub(crate) fn size(&self) -> usize {
        SIZE_CLASSES.iter().rposition(|least| self.bytes >= *least).unwrap_or_default()
    }
}

/// The origin of a session: hashes of its client's address, and of the network in which that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) address: u64,
    pub(crate) network: u64,
}

/// The consequence of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// Assistance does not pay; it stops until then.
    Stopped { interval: Interval, until: Timestamp },
    /// Assistance has been tried, and is not slower.
    Resumed { interval: Interval },
}

/// The sessions of an hour.
#[derive(Debug, Default)]
struct Slot {
    hour: u64,
    sizes: [Comparison; SIZE_CLASSES.len()],
    votes: Votes,
}

/// Sessions that decide.
#[derive(Debug, Default)]
struct Votes {
    comparison: Comparison,
    /// The sum of what the assisted ones say that the last mile lost, as shares.
    lost: f64,
}

impl Votes {
    fn add(&mut self, session: &Transferred) {
        match session.arm {
            Arm::Assisted => {
                self.comparison.assisted.add(session.bits_per_second());
                self.lost += session.missing as f64 / session.recorded.max(1) as f64;
            }
            Arm::Holdout => self.comparison.holdout.add(session.bits_per_second()),
        }
    }

    fn merge(&mut self, other: &Self) {
        self.comparison.merge(&other.comparison);
        self.lost += other.lost;
    }

    /// The mean of the lost shares.
    fn loss(&self) -> f64 {
        self.lost / self.comparison.assisted.count().max(1) as f64
    }
}

/// Addresses that are shown in an hour.
#[derive(Debug, Default)]
struct Shown {
    hour: u64,
    /// Parts of their hashes; made with the first one.
    marks: Vec<u32>,
}

impl Shown {
    /// True if an address has not been shown in this hour; now it has.
    fn is_first(&mut self, address: u64, hour: u64) -> bool {
        if self.hour != hour {
            self.hour = hour;
            self.marks.clear();
        }
        self.marks.resize(REMEMBERED_ADDRESSES, 0);
        // Where two share a place, each may be shown again after the other.
        let (place, mark) = (address as usize % REMEMBERED_ADDRESSES, (address >> 32) as u32 | 1);
        self.marks.get_mut(place).is_some_and(|known| std::mem::replace(known, mark) != mark)
    }
}

/// The hours in which networks have voted.
#[derive(Debug, Default)]
struct Voters {
    /// For each place, the hour after the hour of its vote; allocated with the first vote.
    ends: Vec<u32>,
}

impl Voters {
    /// True if a network may vote; now it has. Of networks that share a place one has the vote: were it
    /// each in turn, two of them would have as many as they want.
    fn take(&mut self, network: u64, hour: u64) -> bool {
        self.ends.resize(VOTER_PLACES, 0);
        let Some(end) = self.ends.get_mut(network as usize % VOTER_PLACES) else { return false };
        // As long as the vote is in a slot that is compared.
        let has_voted = *end > 0 && hour < u64::from(*end) - 1 + REMEMBERED_SLOTS;
        if !has_voted {
            *end = u32::try_from(hour + 1).unwrap_or(u32::MAX);
        }
        !has_voted
    }
}

/// The benefit of assistance on a route, and the resulting state.
#[derive(Debug, Default)]
pub(crate) struct BenefitOfRoute {
    slots: VecDeque<Slot>,
    /// Addresses that are shown in this slot.
    shown: Shown,
    /// Networks that have voted in the last day.
    voters: Voters,
    stage: Stage,
    /// The end of a stop.
    until: Timestamp,
    /// Stops without a passed trial in between.
    stops: u32,
    /// Votes of either arm, assisted first, since the comparison first found that assistance does
    /// not pay.
    doubted: Option<[u64; 2]>,
}

impl BenefitOfRoute {
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// The time at which a stop ends.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        (self.stage == Stage::Stopped).then_some(self.until)
    }

    /// Discards the comparison, as its subject has changed.
    pub(crate) fn begin_again(&mut self) {
        *self = Self::default();
    }

    /// Tries assistance again when the pause is over; true if it begins now.
    pub(crate) fn try_again(&mut self, now: Timestamp) -> bool {
        let is_due = self.stage == Stage::Stopped && now >= self.until;
        if is_due {
            *self = Self { stage: Stage::Trial, stops: self.stops, ..Self::default() };
        }
        is_due
    }

    /// Adds a session that has ended.
    pub(crate) fn note(
        &mut self,
        session: &Transferred,
        origin: Origin,
        now: Timestamp,
    ) -> Option<Change> {
        if self.stage == Stage::Stopped {
            return None;
        }
        let hour = now.as_micros() / SLOT_TIME.as_micros() as u64;
        if self.slots.back().is_none_or(|slot| slot.hour != hour) {
            self.slots.retain(|slot| slot.hour + REMEMBERED_SLOTS > hour);
            self.slots.push_back(Slot { hour, ..Slot::default() });
        }
        let is_shown = self.shown.is_first(origin.address, hour);
        let is_vote = self.voters.take(origin.network, hour);
        let slot = self.slots.back_mut()?;
        if is_shown && let Some(comparison) = slot.sizes.get_mut(session.size()) {
            match session.arm {
                Arm::Assisted => comparison.assisted.add(session.bits_per_second()),
                Arm::Holdout => comparison.holdout.add(session.bits_per_second()),
            }
        }
        if !is_vote {
            return None;
        }
        slot.votes.add(session);
        if let Some([assisted, holdout]) = &mut self.doubted {
            match session.arm {
                Arm::Assisted => *assisted += 1,
                Arm::Holdout => *holdout += 1,
            }
        }
        self.decide(now)
    }

    fn decide(&mut self, now: Timestamp) -> Option<Change> {
        let mut votes = Votes::default();
        self.slots.iter().for_each(|slot| votes.merge(&slot.votes));
        let interval = votes.comparison.benefit(Confidence::High).interval()?;
        // What a sender sends again looks like goodput to a gateway. It sends more to a client that is
        // not assisted, up to what the last mile loses: assistance is given the benefit of that doubt.
        if interval.upper < 1.0 - votes.loss() {
            let [assisted, holdout] = *self.doubted.get_or_insert_default();
            if assisted.min(holdout) < CONFIRMING_VOTES {
                return None;
            }
            let pause = FIRST_PAUSE.saturating_mul(1 << self.stops.min(8)).min(LONGEST_PAUSE);
            let until = now + pause;
            *self = Self { stage: Stage::Stopped, until, stops: self.stops + 1, ..Self::default() };
            return Some(Change::Stopped { interval, until });
        }
        self.doubted = None;
        let fewest = votes.comparison.assisted.count().min(votes.comparison.holdout.count());
        if self.stage == Stage::Trial && (interval.estimate >= 1.0 || fewest >= TRIAL_VOTES) {
            // What the trial has shown stays; with the same shares in both arms it is as good as any.
            (self.stage, self.stops) = (Stage::Assisting, 0);
            return Some(Change::Resumed { interval });
        }
        None
    }

    /// The sessions of the last day that people are shown.
    pub(crate) fn comparison(&self) -> Comparison {
        let mut all = Comparison::default();
        self.slots.iter().flat_map(|slot| &slot.sizes).for_each(|size| all.merge(size));
        all
    }

    /// The benefit, as it is reported.
    pub(crate) fn benefit(&self) -> Benefit {
        self.comparison().benefit(Confidence::Usual)
    }

    /// The comparison for the status document. `holdout`: the configured share.
    pub(crate) fn status(&self, holdout: f64, now: Timestamp) -> ComparisonStatus {
        let sizes = SIZE_CLASSES.iter().enumerate().map(|(place, least)| {
            let mut all = Comparison::default();
            self.slots.iter().filter_map(|slot| slot.sizes.get(place)).for_each(|of| all.merge(of));
            SizeComparison {
                least_bytes: *least,
                assisted: all.assisted.buckets().clone(),
                holdout: all.holdout.buckets().clone(),
            }
        });
        ComparisonStatus {
            holdout,
            stage: self.stage,
            retry_seconds: self.until().map(|until| until.saturating_since(now).as_secs()),
            sizes: sizes.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A route whose clients come one after the other, each from a network of its own.
    struct Scene {
        benefit: BenefitOfRoute,
        now: Timestamp,
        networks: u64,
        loss: f64,
    }

    /// Different bits for each number.
    fn hash(number: u64) -> u64 {
        (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    }

    impl Scene {
        fn new() -> Self {
            let now = Timestamp::from_millis(1000);
            Self { benefit: BenefitOfRoute::default(), now, networks: 0, loss: 0.0 }
        }

        fn session(&mut self, arm: Arm, megabits: f64) -> Option<Change> {
            self.networks += 1;
            // Some are faster than others.
            let spread = 1.0 + 0.1 * (self.networks % 7) as f64;
            self.session_of(self.networks, self.networks, arm, megabits * spread)
        }

        /// A session of an address in a network.
        fn session_of(
            &mut self,
            address: u64,
            network: u64,
            arm: Arm,
            megabits: f64,
        ) -> Option<Change> {
            let microseconds = (8e6 / megabits) as u64;
            let recorded = if arm == Arm::Assisted { 1000 } else { 0 };
            let missing = (recorded as f64 * self.loss) as u64;
            let session = Transferred { arm, bytes: 1_000_000, microseconds, recorded, missing };
            let origin = Origin { address: hash(address), network: hash(network) };
            self.benefit.note(&session, origin, self.now)
        }

        /// Adds up to `count` sessions to each arm; returns the first change, and the number of
        /// pairs until then.
        fn pairs(&mut self, count: usize, assisted: f64, holdout: f64) -> Option<(usize, Change)> {
            (1..=count).find_map(|pair| {
                self.now = self.now + Duration::from_secs(1);
                let one = self.session(Arm::Assisted, assisted);
                one.or(self.session(Arm::Holdout, holdout)).map(|change| (pair, change))
            })
        }
    }

    /// If assisted sessions are slower, assistance stops, for longer each time.
    #[test]
    fn harmful_assistance_stops_for_longer_and_longer() {
        let mut scene = Scene::new();
        let mut pauses = Vec::new();
        for round in 0..7 {
            let Some((pairs, Change::Stopped { interval, until })) = scene.pairs(100, 5.0, 10.0)
            else {
                panic!("round {round}: {:?}", scene.benefit)
            };
            assert!(interval.upper < 0.8 && pairs >= 40, "{interval:?} after {pairs}");
            assert_eq!(scene.benefit.stage(), Stage::Stopped);
            assert_eq!(scene.pairs(100, 5.0, 10.0), None, "nothing counts meanwhile");
            pauses.push(until.saturating_since(scene.now).as_secs() / 3500);
            assert!(!scene.benefit.try_again(scene.now));
            scene.now = until;
            assert!(scene.benefit.try_again(scene.now));
            assert_eq!(scene.benefit.stage(), Stage::Trial);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 24, 24]);
    }

    /// A trial that shows no harm ends a stop, and the next pause is short again.
    #[test]
    fn a_harmless_trial_ends_a_stop_and_resets_the_pause() {
        let mut scene = Scene::new();
        assert!(scene.pairs(100, 5.0, 10.0).is_some());
        scene.now = scene.benefit.until().unwrap();
        assert!(scene.benefit.try_again(scene.now));
        let Some((pairs, Change::Resumed { interval })) = scene.pairs(100, 20.0, 10.0) else {
            panic!("{:?}", scene.benefit)
        };
        assert!(pairs == 30 && interval.lower > 1.5, "{interval:?} after {pairs}");
        assert_eq!(scene.benefit.stage(), Stage::Assisting);
        // It gets worse: as many slow ones as outweigh what the trial has shown.
        let Some((_, Change::Stopped { until, .. })) = scene.pairs(400, 5.0, 10.0) else {
            panic!("{:?}", scene.benefit)
        };
        assert_eq!(until.saturating_since(scene.now), FIRST_PAUSE);
    }

    #[test]
    fn a_difference_that_is_not_sure_stops_nothing() {
        let mut scene = Scene::new();
        assert_eq!(scene.pairs(400, 10.0, 10.0), None);
        // Bytes that senders send again may be the whole difference.
        let mut scene = Scene::new();
        scene.loss = 0.1;
        assert_eq!(scene.pairs(400, 9.2, 10.0), None);
        scene.loss = 0.0;
        let mut scene = Scene::new();
        assert!(scene.pairs(400, 9.2, 10.0).is_some());
    }

    #[test]
    fn a_trial_that_shows_nothing_passes_in_the_end() {
        let mut scene = Scene::new();
        assert!(scene.pairs(100, 5.0, 10.0).is_some());
        scene.now = scene.benefit.until().unwrap();
        assert!(scene.benefit.try_again(scene.now));
        let (pairs, change) = scene.pairs(400, 9.9, 10.0).unwrap();
        assert!(matches!(change, Change::Resumed { .. }) && pairs <= 300, "{change:?} {pairs}");
    }

    #[test]
    fn an_address_is_shown_once_in_an_hour_and_a_session_for_a_day() {
        let mut scene = Scene::new();
        let mut shown = |address: u64, hours: u64| {
            scene.now = Timestamp::from_millis(hours * 3_600_000);
            scene.session_of(address, 1, Arm::Holdout, 1.0);
            scene.benefit.comparison().holdout.count()
        };
        assert_eq!([77, 77, 77].map(|address| shown(address, 1)), [1, 1, 1]);
        assert_eq!([77, 78].map(|address| shown(address, 2)), [2, 3]);
        assert_eq!(shown(77, 25), 3, "the first hour is forgotten");
        assert_eq!(shown(77, 100), 1);
    }

    #[test]
    fn a_network_has_one_vote_in_the_comparison_at_any_time() {
        let mut scene = Scene::new();
        let mut votes = |network: u64, hour: u64| {
            scene.now = Timestamp::from_millis(hour * 3_600_000);
            let session = Transferred {
                arm: Arm::Holdout,
                bytes: 1_000_000,
                microseconds: 1,
                recorded: 0,
                missing: 0,
            };
            scene.benefit.note(&session, Origin { address: network, network }, scene.now);
            let slots = scene.benefit.slots.iter();
            slots.map(|slot| slot.votes.comparison.holdout.count()).sum::<u64>()
        };
        // The rule also holds around the end of a day of the clock; then the first vote is
        // forgotten.
        assert_eq!([1, 2, 23, 24, 25].map(|hour| votes(7, hour)), [1, 1, 1, 1, 1]);
        // Two that share a place have no more than one between them, in whichever order they come.
        let namesake = 7 + (VOTER_PLACES as u64) + (1 << 40);
        assert_eq!([namesake, 7, namesake].map(|network| votes(network, 26)), [1, 1, 1]);
        assert_eq!(votes(8, 26), 2);
    }

    /// A day on a route with `honest` networks, one of ten held out, whose clients are fast and
    /// slow alike in both arms, beside attackers in `lying_networks` networks that are assisted and
    /// slow, each hour from 32 other addresses. True if assistance stops.
    fn day(honest: u64, lying_networks: u64) -> bool {
        let mut scene = Scene::new();
        let mut is_stopped = false;
        for hour in 1..48 {
            scene.now = Timestamp::from_millis(hour * 3_600_000);
            for number in 0..honest {
                // Each has two sessions a day.
                if number % 12 == hour % 12 {
                    let arm = if number % 10 == 0 { Arm::Holdout } else { Arm::Assisted };
                    let megabits = (3.0 * (hash(number) >> 40) as f64 / (1 << 24) as f64).exp();
                    is_stopped |= scene.session_of(number, number, arm, megabits).is_some();
                }
            }
            for address in 0..32 * lying_networks {
                let (address, network) = (1 << 40 | hour << 32 | address, 1 << 41 | address >> 5);
                is_stopped |= scene.session_of(address, network, Arm::Assisted, 0.01).is_some();
            }
        }
        is_stopped
    }

    #[test]
    fn one_network_stops_nothing_however_many_addresses_it_has() {
        for honest in [300, 1000] {
            assert!(!day(honest, 0) && !day(honest, 1) && !day(honest, 5), "{honest}");
        }
        // Many networks are many; SECURITY.md has these figures.
        assert!(!day(300, 130) && day(300, 135));
        assert!(!day(1000, 160) && day(1000, 165));
    }

    /// Losses that one client reports do not keep assistance going either.
    #[test]
    fn one_networks_reported_losses_do_not_keep_assistance_running() {
        let mut scene = Scene::new();
        let lie = Transferred {
            arm: Arm::Assisted,
            bytes: 1 << 40,
            microseconds: 1,
            recorded: 1 << 30,
            missing: 1 << 30,
        };
        for address in 0..1000 {
            let origin = Origin { address: hash(1 << 40 | address), network: hash(1 << 41) };
            scene.benefit.note(&lie, origin, scene.now);
        }
        assert!(matches!(scene.pairs(100, 5.0, 10.0), Some((_, Change::Stopped { .. }))));
    }

    #[test]
    fn sessions_are_compared_with_those_of_their_size() {
        let mut scene = Scene::new();
        scene.session(Arm::Assisted, 5.0);
        let status = scene.benefit.status(0.05, scene.now);
        let counts: Vec<u64> =
            status.sizes.iter().map(|size| size.assisted.values().sum()).collect();
        assert_eq!(counts, [0, 1, 0]);
        assert_eq!(
            (status.holdout, status.stage, status.retry_seconds),
            (0.05, Stage::Assisting, None)
        );
    }
}
