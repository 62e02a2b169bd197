//! Token buckets that fill with time.

use packrat_assist_token::token_bucket::{Rate, TokenBucket};

use crate::estimate::Timestamp;

/// A token bucket and the time up to which it was filled. The rate is its owner's.
#[derive(Debug, Clone, Copy)]
pub struct RateLimit {
    bucket: TokenBucket,
    filled: Timestamp,
}

impl RateLimit {
    /// A bucket with this number of tokens now.
    pub fn new(tokens: f64, now: Timestamp) -> Self {
        Self { bucket: TokenBucket::new(tokens), filled: now }
    }

    /// Adds the tokens earned since the last call. Threads may bring times in another order: an
    /// earlier one adds nothing.
    pub fn refill(&mut self, rate: &Rate, now: Timestamp) -> &mut TokenBucket {
        self.bucket.earn(rate.earned(now.saturating_since(self.filled)), rate.burst);
        self.filled = self.filled.max(now);
        &mut self.bucket
    }

    /// The bucket as it was at the last refill.
    pub fn bucket(&mut self) -> &mut TokenBucket {
        &mut self.bucket
    }

    /// True if one token could be taken now. Takes none.
    pub fn would_admit(&self, rate: &Rate, now: Timestamp) -> bool {
        let mut later = *self;
        later.refill(rate, now).covers(1.0)
    }

    /// Takes one token, if there is one.
    pub fn try_acquire(&mut self, rate: &Rate, now: Timestamp) -> bool {
        self.refill(rate, now).try_take(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
