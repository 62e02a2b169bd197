//! Rate limits that threads share.

use std::sync::PoisonError;

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::RateLimit;
use packrat_wire::estimate::Timestamp;

use crate::sync::Mutex;

/// A rate limit of all threads together. It begins with a full bucket; the rate is its owner's.
#[derive(Debug)]
pub(crate) struct SharedRateLimit(Mutex<RateLimit>);

impl SharedRateLimit {
    pub(crate) fn new(rate: &Rate) -> Self {
        Self(Mutex::new(RateLimit::new(rate.burst, Timestamp::ZERO)))
    }

    /// Takes one token, if there is one. A refusal takes the rest of a token: only a rate that
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
}
