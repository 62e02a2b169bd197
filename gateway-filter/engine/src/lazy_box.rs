//! A box that takes memory when its value is changed for the first time: until then it costs eight
//! bytes, and reads as the default.

use core::ops::{Deref, DerefMut};
use std::collections::VecDeque;

use packrat_wire::estimate::{PathEstimate, Timestamp};

use crate::session::{Breaker, Timing};

/// A type with a default that can be read without being made.
pub(crate) trait StaticDefault: Default + 'static {
    /// The default.
    fn static_default() -> &'static Self;
}

impl StaticDefault for PathEstimate {
    fn static_default() -> &'static Self {
        static DEFAULT_ESTIMATE: PathEstimate = PathEstimate::new();
        &DEFAULT_ESTIMATE
    }
}

impl StaticDefault for Timing {
    fn static_default() -> &'static Self {
        static DEFAULT_TIMING: Timing = Timing::new();
        &DEFAULT_TIMING
    }
}

impl StaticDefault for Breaker {
    fn static_default() -> &'static Self {
        static DEFAULT_BREAKER: Breaker = Breaker::new();
        &DEFAULT_BREAKER
    }
}

/// Sequence numbers and the time of each.
pub(crate) type Timed = VecDeque<(Timestamp, u64)>;

impl StaticDefault for Timed {
    fn static_default() -> &'static Self {
        static DEFAULT_TIMED: Timed = Timed::new();
        &DEFAULT_TIMED
    }
}

/// A box of a value that may still be the default.
pub(crate) struct LazyBox<T>(Option<Box<T>>);

impl<T> LazyBox<T> {
    pub(crate) const fn new() -> Self {
        Self(None)
    }
}

impl<T: StaticDefault> Deref for LazyBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::static_default())
    }
}

impl<T: StaticDefault> DerefMut for LazyBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn it_reads_as_new_until_it_is_changed() {
        let mut path = LazyBox::<PathEstimate>::new();
        assert_eq!(path.round_trip(), None);
        assert!(path.0.is_none());
        path.on_round_trip(Duration::from_millis(30));
        assert_eq!(path.round_trip(), Some(Duration::from_millis(30)));
        // The next one begins anew.
        assert_eq!(LazyBox::<PathEstimate>::new().round_trip(), None);
        let mut copies = LazyBox::<Timed>::new();
        assert!(copies.front().is_none() && copies.0.is_none());
        copies.push_back((Timestamp::ZERO, 7));
        assert_eq!(copies.pop_front(), Some((Timestamp::ZERO, 7)));
    }
}
