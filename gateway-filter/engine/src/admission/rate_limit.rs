//! Token buckets that fill with time.

use std::sync::PoisonError;

use packrat_assist_token::token_bucket::{Rate, TokenBucket};
use packrat_wire::estimate::Timestamp;

use crate::sync::Mutex;

/// A token bucket and the time up to which it was filled. The rate is its owner's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateLimit {
    bucket: TokenBucket,
    filled: Timestamp,
}

impl RateLimit {
    /// A bucket with so many tokens now.
    pub(crate) fn new(tokens: f64, now: Timestamp) -> Self {
        Self { bucket: TokenBucket::new(tokens), filled: now }
    }

    /// Adds what was earned since the last call. Threads may bring times in another order: an
    /// earlier one adds nothing.
    pub(crate) fn refill(&mut self, rate: &Rate, now: Timestamp) -> &mut TokenBucket {
        self.bucket.earn(rate.earned(now.saturating_since(self.filled)), rate.burst);
        self.filled = self.filled.max(now);
        &mut self.bucket
    }

    /// The bucket as it was at the last refill.
    pub(crate) fn bucket(&mut self) -> &mut TokenBucket {
        &mut self.bucket
    }

    /// True if one token could be taken now. Takes none.
    pub(crate) fn would_admit(&self, rate: &Rate, now: Timestamp) -> bool {
        let mut later = *self;
        later.refill(rate, now).covers(1.0)
    }

    /// Takes one token, if there is one.
    pub(crate) fn try_acquire(&mut self, rate: &Rate, now: Timestamp) -> bool {
        self.refill(rate, now).try_take(1.0)
    }
}

/// A rate limit of all threads together. It begins with a full bucket; the rate is its owner's.
#[derive(Debug)]
pub(crate) struct SharedRateLimit(Mutex<RateLimit>);

impl SharedRateLimit {
    pub(crate) fn new(rate: &Rate) -> Self {
        Self(Mutex::new(RateLimit::new(rate.burst, Timestamp::ZERO)))
    }

    /// Takes one token, if there is one. A refusal takes what is left of a token: only a rate that
    /// stays below the limit is admitted.
    pub(crate) fn try_acquire_strictly(&self, rate: &Rate, now: Timestamp) -> bool {
        let mut limit = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = limit.try_acquire(rate, now);
        if !admitted {
            limit.bucket().drain();
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn the_limit_is_per_second() {
        let rate = Rate::per_second(20.0);
        let limit = SharedRateLimit::new(&rate);
        let admitted = |now| (0..100).filter(|_| limit.try_acquire_strictly(&rate, now)).count();
        assert_eq!(admitted(Timestamp::ZERO), 20);
        assert_eq!(admitted(Timestamp::ZERO), 0);
        assert_eq!(admitted(Timestamp::ZERO + Duration::from_millis(500)), 10);
        assert_eq!(admitted(Timestamp::ZERO + Duration::from_secs(60)), 20);
        let nothing = Rate::per_second(0.0);
        let none = SharedRateLimit::new(&nothing);
        assert!(!none.try_acquire_strictly(&nothing, Timestamp::ZERO + Duration::from_secs(9)));
    }

    #[test]
    fn a_refusal_takes_part_of_a_token() {
        let half = |number: u64| Timestamp::from_millis(number * 500);
        let rate = Rate::per_second(1.0);
        let limit = SharedRateLimit::new(&rate);
        let admitted =
            (0..=4).map(half).filter(|now| limit.try_acquire_strictly(&rate, *now)).count();
        assert_eq!(admitted, 1);
    }

    #[test]
    fn asking_is_free_and_time_does_not_run_backwards() {
        let rate = Rate::per_second(1.0);
        let mut limit = RateLimit::new(1.0, Timestamp::ZERO);
        assert!((0..9).all(|_| limit.would_admit(&rate, Timestamp::ZERO)));
        assert!(limit.try_acquire(&rate, Timestamp::from_millis(5000)));
        assert!(!limit.would_admit(&rate, Timestamp::from_millis(1000)));
        assert!(!limit.try_acquire(&rate, Timestamp::from_millis(1000)));
        assert!(!limit.try_acquire(&rate, Timestamp::from_millis(5999)));
        assert!(limit.try_acquire(&rate, Timestamp::from_millis(6000)));
    }
}
