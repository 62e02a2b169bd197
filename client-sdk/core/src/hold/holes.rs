//! Missing packet numbers, in an index that answers each packet's questions about them without a
//! walk over all holes.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use packrat_wire::estimate::Timestamp;

/// State of a hole; transitions: [`super`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Held,
    Expired,
    Settled,
}

/// Consecutive missing packet numbers. The first one is the key of the hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    /// Last number (inclusive).
    pub(super) end: u64,
    pub(super) opened: Timestamp,
    pub(super) state: State,
    /// True if the hold was extended once, because this host did not run.
    pub(super) extended: bool,
}

impl Hole {
    /// Number of missing packets, from `start`, the first one.
    pub(super) fn numbers(&self, start: u64) -> u64 {
        self.end - start + 1
    }
}

/// Holes by their first number. Only [`Self::insert`] and [`Self::take`] change the index.
#[derive(Debug, Default)]
pub(super) struct Holes {
    by_start: BTreeMap<u64, Hole>,
    /// First numbers of held holes.
    held_starts: BTreeSet<u64>,
    /// Held holes in the order of opening, which is the order of expiry: the hold is the same for
    /// all.
    held_by_opening: BTreeSet<(Timestamp, u64)>,
    /// The other holes in the order of opening.
    ended_by_opening: BTreeSet<(Timestamp, u64)>,
    /// Numbers in held holes.
    held: u64,
    /// Numbers in holes that are not settled and were opened at [`Self::recent_from`] or later.
    recent: u64,
    recent_from: Timestamp,
}

impl Holes {
    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Adds a hole of numbers that are in no other hole.
    pub(super) fn insert(&mut self, start: u64, hole: Hole) {
        self.by_start.insert(start, hole);
        if hole.state == State::Held {
            self.held_starts.insert(start);
            self.held_by_opening.insert((hole.opened, start));
            self.held += hole.numbers(start);
        } else {
            self.ended_by_opening.insert((hole.opened, start));
        }
        if self.is_recent(&hole) {
            self.recent += hole.numbers(start);
        }
    }

    fn take(&mut self, start: u64) -> Option<Hole> {
        let hole = self.by_start.remove(&start)?;
        if hole.state == State::Held {
            self.held_starts.remove(&start);
            self.held_by_opening.remove(&(hole.opened, start));
            self.held -= hole.numbers(start);
        } else {
            self.ended_by_opening.remove(&(hole.opened, start));
        }
        if self.is_recent(&hole) {
            self.recent -= hole.numbers(start);
        }
        Some(hole)
    }

    fn is_recent(&self, hole: &Hole) -> bool {
        hole.state != State::Settled && hole.opened >= self.recent_from
    }

    /// Puts another hole in the place of the one that begins at `start`.
    pub(super) fn replace(&mut self, start: u64, hole: Hole) {
        self.take(start);
        self.insert(start, hole);
    }

    /// The hole that `number` is in.
    pub(super) fn containing(&self, number: u64) -> Option<&Hole> {
        let (_, hole) = self.by_start.range(..=number).next_back()?;
        (number <= hole.end).then_some(hole)
    }

    /// Takes out the hole that `number` is in.
    pub(super) fn remove_containing(&mut self, number: u64) -> Option<(u64, Hole)> {
        let (&start, hole) = self.by_start.range(..=number).next_back()?;
        if number > hole.end {
            return None;
        }
        self.take(start).map(|hole| (start, hole))
    }

    /// Takes out the hole with the lowest numbers.
    pub(super) fn remove_first(&mut self) -> Option<(u64, Hole)> {
        let (&start, _) = self.by_start.first_key_value()?;
        self.take(start).map(|hole| (start, hole))
    }

    /// Removes the holes whose time of opening satisfies `is_over`, except held ones. `is_over`
    /// holds for all times before one for which it holds.
    pub(super) fn forget_ended(&mut self, is_over: impl Fn(Timestamp) -> bool) {
        while let Some(&(opened, start)) = self.ended_by_opening.first()
            && is_over(opened)
        {
            self.take(start);
        }
    }

    /// Numbers in held holes.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// First number of the held hole with the lowest numbers.
    pub(super) fn first_held(&self) -> Option<u64> {
        self.held_starts.first().copied()
    }

    /// The held hole that was opened first.
    pub(super) fn oldest_held(&self) -> Option<(u64, Hole)> {
        let &(_, start) = self.held_by_opening.first()?;
        self.by_start.get(&start).map(|hole| (start, *hole))
    }

    /// Held holes all of whose numbers are below `below`.
    pub(super) fn held_below(&self, below: u64) -> Vec<(u64, Hole)> {
        let holes = self
            .held_starts
            .range(..below)
            .filter_map(|start| Some((*start, *self.by_start.get(start)?)));
        holes.filter(|(_, hole)| hole.end < below).collect()
    }

    /// Numbers in holes that are not settled and were opened less than `window` before `now`.
    pub(super) fn unsettled_within(&mut self, window: Duration, now: Timestamp) -> u64 {
        // Timestamps count whole microseconds: the earliest one of the window is the one after its
        // beginning, unless that lies between two.
        let window = u64::try_from(window.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        let from = now.as_micros().checked_sub(window).map_or(0, |beginning| beginning + 1);
        let from = Timestamp::from_micros(from);
        // The window moves a little between two questions, so that few holes enter or leave it.
        let before = self.recent_from;
        self.recent_from = from;
        if from > before {
            self.recent -= self.unsettled_between(before, from);
        } else {
            self.recent += self.unsettled_between(from, before);
        }
        self.recent
    }

    fn unsettled_between(&self, from: Timestamp, until: Timestamp) -> u64 {
        let range = (from, 0)..(until, 0);
        self.held_by_opening
            .range(range.clone())
            .chain(self.ended_by_opening.range(range))
            .filter_map(|(_, start)| Some((start, self.by_start.get(start)?)))
            .filter(|(_, hole)| hole.state != State::Settled)
            .map(|(start, hole)| hole.numbers(*start))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Open(u64),
        Fill(u64),
        End(State),
        Postpone(u64),
        RemoveFirst,
        Forget(u64),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u64..5).prop_map(Step::Open),
            2 => (0u64..200).prop_map(Step::Fill),
            2 => prop_oneof![Just(State::Expired), Just(State::Settled)].prop_map(Step::End),
            1 => (0u64..50).prop_map(Step::Postpone),
            1 => Just(Step::RemoveFirst),
            1 => (0u64..300).prop_map(Step::Forget),
            3 => (0u64..60).prop_map(Step::Pass),
        ]
    }

    proptest! {
        #[test]
        fn every_answer_is_that_of_a_walk_over_all_holes(
            steps in proptest::collection::vec((step(), 0u64..120_500), 0..80)
        ) {
            let (mut holes, mut next, mut now) = (Holes::default(), 0, 0);
            for (step, window) in steps {
                match step {
                    Step::Open(length) => {
                        let hole = Hole {
                            end: next + length - 1,
                            opened: Timestamp::from_micros(now),
                            state: State::Held,
                            extended: false,
                        };
                        holes.insert(next, hole);
                        next += length + 1;
                    }
                    Step::Fill(number) => {
                        if let Some((start, hole)) = holes.remove_containing(number) {
                            prop_assert!(start <= number && number <= hole.end);
                            if start < number {
                                holes.insert(start, Hole { end: number - 1, ..hole });
                            }
                            if number < hole.end {
                                holes.insert(number + 1, hole);
                            }
                        }
                    }
                    Step::End(state) => {
                        if let Some((start, hole)) = holes.oldest_held() {
                            holes.replace(start, Hole { state, ..hole });
                        }
                    }
                    Step::Postpone(time) => {
                        if let Some((start, hole)) = holes.oldest_held() {
                            holes.replace(start, Hole { opened: hole.opened + Duration::from_micros(time), ..hole });
                        }
                    }
                    Step::RemoveFirst => {
                        holes.remove_first();
                    }
                    Step::Forget(age) => {
                        let over = |opened: Timestamp| opened.as_micros() + age <= now;
                        holes.forget_ended(over);
                        prop_assert!(holes.by_start.values().all(|hole| hole.state == State::Held || !over(hole.opened)));
                    }
                    Step::Pass(time) => now += time,
                }
                let all: Vec<(u64, Hole)> = holes.by_start.iter().map(|(start, hole)| (*start, *hole)).collect();
                let held = || all.iter().filter(|(_, hole)| hole.state == State::Held);
                prop_assert_eq!(holes.held(), held().map(|(start, hole)| hole.numbers(*start)).sum::<u64>());
                prop_assert_eq!(holes.first_held(), held().map(|(start, _)| *start).next());
                prop_assert_eq!(holes.oldest_held().map(|(_, hole)| hole.opened), held().map(|(_, hole)| hole.opened).min());
                prop_assert_eq!(holes.held_below(next / 2), held().filter(|(_, hole)| hole.end < next / 2).copied().collect::<Vec<_>>());
                // A measured window also has nanoseconds.
                let window = Duration::from_nanos(window + 1);
                let current = Timestamp::from_micros(now);
                let walked: u64 = all
                    .iter()
                    .filter(|(_, hole)| hole.state != State::Settled && current.saturating_since(hole.opened) < window)
                    .map(|(start, hole)| hole.numbers(*start))
                    .sum();
                prop_assert_eq!(holes.unsettled_within(window, current), walked);
            }
        }
    }
}
