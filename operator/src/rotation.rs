//! Rotation of a secret without a moment at which one party knows only the old one and another only
//! the new one.
//!
//! A new secret is *announced* first: all parties accept it, but do not use it. When all have heard
//! of it, it is *used*, and the old one is still accepted for a while. The state is kept in a place
//! that all replicas see.

use serde::{Deserialize, Serialize};

/// The times of a rotation, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Time for which a secret is used before the next one is announced.
    pub period: i64,
    /// Time between the announcement and the use.
    pub announcement: i64,
    /// Time for which the old secret is still accepted after that.
    pub overlap: i64,
}

/// A secret and its neighbours in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation<T> {
    /// The secret in use.
    pub current: T,
    /// The beginning of the use, in seconds since 1970.
    pub since: i64,
    /// The next secret, and the time of its announcement.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub next: Option<(T, i64)>,
    /// The previous secret.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub previous: Option<T>,
}

fn none<T>() -> Option<T> {
    None
}

impl<T> Rotation<T> {
    /// Begins with one secret.
    pub const fn new(first: T, now: i64) -> Self {
        Self { current: first, since: now, next: None, previous: None }
    }

    /// Takes the step that is due, if one is; true if anything has changed. `make` gets the secret
    /// that is used now.
    ///
    /// # Errors
    /// The errors of `make`; then the state is unchanged.
    pub fn advance<E>(
        &mut self,
        now: i64,
        schedule: Schedule,
        make: impl FnOnce(&T) -> Result<T, E>,
    ) -> Result<bool, E> {
        if let Some((_, announced)) = &self.next {
            if now - announced < schedule.announcement {
                return Ok(false);
            }
            if let Some((next, _)) = self.next.take() {
                self.previous = Some(std::mem::replace(&mut self.current, next));
                self.since = now;
            }
            return Ok(true);
        }
        if now - self.since >= schedule.period {
            self.next = Some((make(&self.current)?, now));
            // At most two secrets are accepted at a time.
            self.previous = None;
            return Ok(true);
        }
        if self.previous.is_some() && now - self.since >= schedule.overlap {
            self.previous = None;
            return Ok(true);
        }
        Ok(false)
    }

    /// All accepted secrets, one or two, the one in use first.
    pub fn accepted(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.current)
            .chain(self.next.iter().map(|(next, _)| next))
            .chain(&self.previous)
            .take(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCHEDULE: Schedule = Schedule { period: 100, announcement: 10, overlap: 50 };

    fn advance(rotation: &mut Rotation<u32>, now: i64) -> bool {
        rotation.advance(now, SCHEDULE, |current| Ok::<_, ()>(current + 1)).unwrap()
    }

    #[test]
    fn announced_then_used_then_forgotten() {
        let mut rotation = Rotation::new(1, 0);
        assert!(!advance(&mut rotation, 99));
        assert!(advance(&mut rotation, 100));
        assert_eq!(rotation.accepted().collect::<Vec<_>>(), [&1, &2]);
        assert!(!advance(&mut rotation, 109));
        assert!(advance(&mut rotation, 110));
        assert_eq!(rotation.accepted().collect::<Vec<_>>(), [&2, &1]);
        assert!(!advance(&mut rotation, 159));
        assert!(advance(&mut rotation, 160));
        assert_eq!(rotation.accepted().collect::<Vec<_>>(), [&2]);
        let text = serde_json::to_string(&rotation).unwrap();
        assert_eq!(serde_json::from_str::<Rotation<u32>>(&text).unwrap(), rotation);
    }

    #[test]
    fn what_cannot_be_made_changes_nothing() {
        let mut rotation = Rotation::new(1, 0);
        let before = rotation.clone();
        assert_eq!(rotation.advance(1000, SCHEDULE, |_| Err("no")), Err("no"));
        assert_eq!(rotation, before);
    }

    proptest! {
        /// A party that lags behind by less than the announcement, in whichever direction, accepts
        /// the secrets that others use.
        #[test]
        fn neighbours_in_time_understand_each_other(
            steps in prop::collection::vec(1i64..60, 1..200),
            lag in 0i64..10,
        ) {
            let mut rotation = Rotation::new(1, 0);
            let mut history = vec![(0, rotation.clone())];
            let mut now = 0;
            for step in steps {
                now += step;
                while advance(&mut rotation, now) {
                    history.push((now, rotation.clone()));
                }
            }
            let at = |time: i64| &history.iter().rev().find(|(since, _)| *since <= time).unwrap().1;
            for time in lag..now {
                let (late, early) = (at(time - lag), at(time));
                prop_assert!(late.accepted().any(|secret| *secret == early.current), "at {time}");
                prop_assert!(early.accepted().any(|secret| *secret == late.current), "at {time}");
            }
        }
    }
}
