//! The benefit of assistance on a route, as measured; where there is none it stops by itself, and is
//! tried again later.

use std::collections::VecDeque;
use std::time::Duration;

use packrat_api::status::{ComparisonStatus, SizeComparison, Stage};
use packrat_figures::comparison::{Benefit, Comparison, Confidence, FEWEST_SESSIONS, Interval};
use packrat_wire::estimate::Timestamp;

/// The sizes of sessions that are compared with each other alone: the fewest bytes of each.
pub(crate) const SIZES: [u64; 3] = [256_000, 1_000_000, 10_000_000];
/// Sessions are forgotten by the hour, after a day.
const SLOT: Duration = Duration::from_secs(3600);
const SLOTS: u64 = 24;
/// An address counts once in a slot: chance decides about addresses, and sessions of one address depend
/// on each other. So many are remembered.
const REMEMBERED: usize = 4096;
/// Sessions of either arm that have to confirm that assistance does not pay.
const CONFIRMED_BY: u64 = 10;
/// The time for which assistance stops: the first time, and at most.
const PAUSE: Duration = Duration::from_secs(3600);
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);
/// Share of the clients that are held out while assistance is tried again: so few are harmed, and it is
/// known soonest.
pub(crate) const TRIAL_HOLDOUT: f64 = 0.5;
/// A trial with so many sessions in both arms that has not shown assistance to be slower has passed.
const TRIAL_SESSIONS: u64 = 10 * FEWEST_SESSIONS;

/// The part in the comparison of a session whose client asked for assistance; others, and those refused
/// for another reason, have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arm {
    /// It is left without assistance for comparison.
    Holdout = 1,
    /// It was assisted, at least for a while.
    Assisted = 2,
}

/// A session that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transferred {
    pub(crate) arm: Arm,
    pub(crate) bytes: u64,
    /// The time that the bytes took, without pauses.
    pub(crate) microseconds: u64,
    /// Datagrams that the client could report on, and those of them that the last mile lost.
    pub(crate) recorded: u64,
    pub(crate) missing: u64,
}

impl Transferred {
    pub(crate) fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8e6 / self.microseconds.max(1) as f64
    }

    /// The place of its size among [`SIZES`].
    pub(crate) fn size(&self) -> usize {
        SIZES.iter().rposition(|least| self.bytes >= *least).unwrap_or_default()
    }
}

/// The consequence of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Change {
    /// Assistance does not pay; it stops until then.
    Stopped { interval: Interval, until: Timestamp },
    /// It has been tried, and is not slower.
    Resumed { interval: Interval },
}

/// The sessions of an hour.
#[derive(Debug, Default)]
struct Slot {
    hour: u64,
    sizes: [Comparison; SIZES.len()],
    recorded: u64,
    missing: u64,
}

/// The benefit of assistance on a route, and what has followed from it.
#[derive(Debug, Default)]
pub(crate) struct BenefitOfRoute {
    slots: VecDeque<Slot>,
    /// Hashes of the addresses that have counted in this slot; made with the first one.
    addresses: Vec<u32>,
    stage: Stage,
    /// The end of a stop.
    until: Timestamp,
    /// Stops without a passed trial in between.
    stops: u32,
    /// Sessions of either arm, assisted first, since the comparison first said that assistance does not
    /// pay.
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

    /// Begins anew: what is compared has changed.
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

    /// Adds a session that has ended. `address`: a hash of its client's address.
    pub(crate) fn note(
        &mut self,
        session: &Transferred,
        address: u64,
        now: Timestamp,
    ) -> Option<Change> {
        if self.stage == Stage::Stopped || !self.is_first(address, now) {
            return None;
        }
        let slot = self.slots.back_mut()?;
        slot.recorded += session.recorded;
        slot.missing += session.missing;
        let comparison = slot.sizes.get_mut(session.size())?;
        match session.arm {
            Arm::Assisted => comparison.assisted.add(session.bits_per_second()),
            Arm::Holdout => comparison.holdout.add(session.bits_per_second()),
        }
        if let Some([assisted, holdout]) = &mut self.doubted {
            match session.arm {
                Arm::Assisted => *assisted += 1,
                Arm::Holdout => *holdout += 1,
            }
        }
        self.decide(now)
    }

    /// True if the address has not counted in this slot. Makes the slot.
    fn is_first(&mut self, address: u64, now: Timestamp) -> bool {
        let hour = now.as_micros() / SLOT.as_micros() as u64;
        if self.slots.back().is_none_or(|slot| slot.hour != hour) {
            self.slots.retain(|slot| slot.hour + SLOTS > hour);
            self.slots.push_back(Slot { hour, ..Slot::default() });
            self.addresses.clear();
        }
        self.addresses.resize(REMEMBERED, 0);
        // Where two addresses share a place, the one before may count twice.
        let (place, mark) = (address as usize % REMEMBERED, (address >> 32) as u32 | 1);
        self.addresses.get_mut(place).is_some_and(|known| std::mem::replace(known, mark) != mark)
    }

    fn decide(&mut self, now: Timestamp) -> Option<Change> {
        let comparison = self.comparison();
        let interval = comparison.benefit(Confidence::High).interval()?;
        // What a sender sends again looks like goodput to a gateway. It sends more to a client that is
        // not assisted, up to what the last mile loses: assistance is given the benefit of that doubt.
        let (recorded, missing) = self.losses();
        let loss = missing as f64 / recorded.max(1) as f64;
        if interval.upper < 1.0 - loss {
            let [assisted, holdout] = *self.doubted.get_or_insert_default();
            if assisted.min(holdout) < CONFIRMED_BY {
                return None;
            }
            let pause = PAUSE.saturating_mul(1 << self.stops.min(8)).min(LONGEST_PAUSE);
            let until = now + pause;
            *self = Self { stage: Stage::Stopped, until, stops: self.stops + 1, ..Self::default() };
            return Some(Change::Stopped { interval, until });
        }
        self.doubted = None;
        let sessions = comparison.assisted.count().min(comparison.holdout.count());
        if self.stage == Stage::Trial && (interval.estimate >= 1.0 || sessions >= TRIAL_SESSIONS) {
            // What the trial has shown stays; with the same shares in both arms it is as good as any.
            (self.stage, self.stops) = (Stage::Assisting, 0);
            return Some(Change::Resumed { interval });
        }
        None
    }

    /// All sessions of the last day.
    pub(crate) fn comparison(&self) -> Comparison {
        let mut all = Comparison::default();
        self.slots.iter().flat_map(|slot| &slot.sizes).for_each(|size| all.merge(size));
        all
    }

    /// The benefit, as people are told.
    pub(crate) fn benefit(&self) -> Benefit {
        self.comparison().benefit(Confidence::Usual)
    }

    fn losses(&self) -> (u64, u64) {
        self.slots.iter().fold((0, 0), |(recorded, missing), slot| {
            (recorded + slot.recorded, missing + slot.missing)
        })
    }

    /// The comparison for the status document. `holdout`: the configured share.
    pub(crate) fn status(&self, holdout: f64, now: Timestamp) -> ComparisonStatus {
        let sizes = SIZES.iter().enumerate().map(|(place, least)| {
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

    /// A route whose clients come one after the other, each from an address of its own.
    struct Scene {
        benefit: BenefitOfRoute,
        now: Timestamp,
        addresses: u64,
        loss: f64,
    }

    impl Scene {
        fn new() -> Self {
            let now = Timestamp::from_millis(1000);
            Self { benefit: BenefitOfRoute::default(), now, addresses: 0, loss: 0.0 }
        }

        fn session(&mut self, arm: Arm, megabits: f64) -> Option<Change> {
            self.addresses += 1;
            let address = self.addresses.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Some are faster than others.
            let spread = 1.0 + 0.1 * (self.addresses % 7) as f64;
            let microseconds = (8e6 / (megabits * spread)) as u64;
            let recorded = if arm == Arm::Assisted { 1000 } else { 0 };
            let missing = (recorded as f64 * self.loss) as u64;
            let session = Transferred { arm, bytes: 1_000_000, microseconds, recorded, missing };
            self.benefit.note(&session, address, self.now)
        }

        /// So many sessions of each arm; the first change, and the number of pairs until then.
        fn pairs(&mut self, count: usize, assisted: f64, holdout: f64) -> Option<(usize, Change)> {
            (1..=count).find_map(|pair| {
                self.now = self.now + Duration::from_secs(1);
                let one = self.session(Arm::Assisted, assisted);
                one.or(self.session(Arm::Holdout, holdout)).map(|change| (pair, change))
            })
        }
    }

    #[test]
    fn where_assisted_sessions_are_slower_assistance_stops_for_longer_and_longer() {
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

    #[test]
    fn a_trial_that_shows_no_harm_ends_a_stop_and_the_next_pause_is_short_again() {
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
        assert_eq!(until.saturating_since(scene.now), PAUSE);
    }

    #[test]
    fn a_difference_that_is_not_sure_stops_nothing() {
        let mut scene = Scene::new();
        assert_eq!(scene.pairs(400, 10.0, 10.0), None);
        // What senders send again may be the whole difference.
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
    fn an_address_counts_once_in_an_hour_and_a_session_for_a_day() {
        let mut benefit = BenefitOfRoute::default();
        let session = Transferred {
            arm: Arm::Holdout,
            bytes: 300_000,
            microseconds: 1_000_000,
            recorded: 0,
            missing: 0,
        };
        let at = |hours: u64| Timestamp::from_millis(hours * 3_600_000);
        for _ in 0..5 {
            benefit.note(&session, 77, at(1));
        }
        assert_eq!(benefit.comparison().holdout.count(), 1);
        benefit.note(&session, 77, at(2));
        benefit.note(&session, 78 << 32, at(2));
        assert_eq!(benefit.comparison().holdout.count(), 3);
        benefit.note(&session, 77, at(25));
        assert_eq!(benefit.comparison().holdout.count(), 3, "the first hour is forgotten");
        benefit.note(&session, 77, at(100));
        assert_eq!(benefit.comparison().holdout.count(), 1);
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
