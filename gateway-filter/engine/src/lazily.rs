//! What a session has from the moment on that it needs it: until then it costs eight bytes, and reads as if it were new.

use core::ops::{Deref, DerefMut};
use std::collections::VecDeque;

use packrat_estimate::{PathEstimate, Queueing, Timestamp};

/// Something whose new value is always the same.
pub(crate) trait Unused: Sized + 'static {
    /// The new value, to be read.
    fn unused() -> &'static Self;
    /// The same, to be changed.
    fn fresh() -> Self;
}

impl Unused for PathEstimate {
    fn unused() -> &'static Self {
        static UNUSED: PathEstimate = PathEstimate::new();
        &UNUSED
    }

    fn fresh() -> Self {
        Self::new()
    }
}

impl Unused for Queueing {
    fn unused() -> &'static Self {
        static UNUSED: Queueing = Queueing::new();
        &UNUSED
    }

    fn fresh() -> Self {
        Self::new()
    }
}

/// Numbers and the time of each.
pub(crate) type Timed = VecDeque<(Timestamp, u64)>;

impl Unused for Timed {
    fn unused() -> &'static Self {
        static UNUSED: Timed = Timed::new();
        &UNUSED
    }

    fn fresh() -> Self {
        Self::new()
    }
}

/// Takes memory when it is changed for the first time.
pub(crate) struct Lazily<T>(Option<Box<T>>);

impl<T> Lazily<T> {
    pub(crate) const fn new() -> Self {
        Self(None)
    }
}

impl<T: Unused> Deref for Lazily<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::unused())
    }
}

impl<T: Unused> DerefMut for Lazily<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(T::fresh()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn it_reads_as_new_until_it_is_changed() {
        let mut path = Lazily::<PathEstimate>::new();
        assert_eq!(path.round_trip(), None);
        assert!(path.0.is_none());
        path.on_round_trip(Duration::from_millis(30));
        assert_eq!(path.round_trip(), Some(Duration::from_millis(30)));
        // The next one begins anew.
        assert_eq!(Lazily::<PathEstimate>::new().round_trip(), None);
        let mut copies = Lazily::<Timed>::new();
        assert!(copies.front().is_none() && copies.0.is_none());
        copies.push_back((Timestamp::ZERO, 7));
        assert_eq!(copies.pop_front(), Some((Timestamp::ZERO, 7)));
    }
}
