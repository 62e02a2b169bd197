//! Token buckets: a rate with a burst.
//!
//! A bucket has no clock. Its owner passes the earned tokens, by time ([`Rate::earned`]) or by
//! traffic, and the capacity.

use core::time::Duration;

/// Tokens per second, and the most that are saved up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Tokens earned in a second.
    pub per_second: f64,
    /// Tokens that a full bucket holds.
    pub burst: f64,
}

impl Rate {
    /// A rate whose burst is its income of one second.
    pub const fn per_second(tokens: f64) -> Self {
        Self { per_second: tokens, burst: tokens }
    }

    /// Tokens earned in `elapsed`.
    pub fn earned(&self, elapsed: Duration) -> f64 {
        elapsed.as_secs_f64() * self.per_second
    }
}

/// Storage of a bucket's level: `f64`, or `f32` if there are thousands of buckets.
pub trait Level: Copy {
    /// The level as it is calculated with.
    fn get(self) -> f64;
    /// The level as it is stored.
    fn store(tokens: f64) -> Self;
}

impl Level for f64 {
    fn get(self) -> f64 {
        self
    }

    fn store(tokens: f64) -> Self {
        tokens
    }
}

impl Level for f32 {
    fn get(self) -> f64 {
        self.into()
    }

    fn store(tokens: f64) -> Self {
        tokens as Self
    }
}

/// A bucket of tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenBucket<L = f64>(L);

impl<L: Level> TokenBucket<L> {
    /// A bucket with this number of tokens.
    pub fn new(tokens: f64) -> Self {
        Self(L::store(tokens))
    }

    /// Tokens in the bucket; below zero, a debt that later earnings pay first.
    pub fn tokens(&self) -> f64 {
        self.0.get()
    }

    /// Adds tokens, up to `burst`.
    #[inline]
    pub fn earn(&mut self, tokens: f64, burst: f64) {
        self.0 = L::store((self.0.get() + tokens).min(burst));
    }

    /// True if the bucket holds `cost`.
    pub fn covers(&self, cost: f64) -> bool {
        self.0.get() >= cost
    }

    /// Takes `cost` if the bucket holds that much; otherwise the bucket is unchanged.
    pub fn try_take(&mut self, cost: f64) -> bool {
        let covered = self.covers(cost);
        if covered {
            self.charge(cost);
        }
        covered
    }

    /// Takes `cost` even if that leaves a debt.
    pub fn charge(&mut self, cost: f64) {
        self.0 = L::store(self.0.get() - cost);
    }

    /// Takes everything; a debt stays.
    pub fn drain(&mut self) {
        self.0 = L::store(self.0.get().min(0.0));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_available_at_once_and_more_only_as_it_is_earned() {
        let rate = Rate::per_second(20.0);
        let mut bucket = TokenBucket::<f64>::new(rate.burst);
        let taken = |bucket: &mut TokenBucket| (0..100).filter(|_| bucket.try_take(1.0)).count();
        assert_eq!(taken(&mut bucket), 20);
        bucket.earn(rate.earned(Duration::from_millis(500)), rate.burst);
        assert_eq!(taken(&mut bucket), 10);
        bucket.earn(rate.earned(Duration::from_secs(60)), rate.burst);
        assert_eq!(taken(&mut bucket), 20);
    }

    #[test]
    fn a_charge_may_leave_a_debt_which_is_paid_first() {
        let mut bucket = TokenBucket::<f32>::new(10.0);
        bucket.charge(400.0);
        assert!(!bucket.covers(0.0) && !bucket.try_take(1.0));
        bucket.drain();
        assert_eq!(bucket.tokens(), -390.0);
        bucket.earn(391.0, 10.0);
        assert!(bucket.try_take(1.0) && !bucket.try_take(1.0));
        bucket.earn(3.5, 10.0);
        bucket.drain();
        assert_eq!(bucket.tokens(), 0.0);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Earn(f64),
        Take(f64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step =
            prop_oneof![(0.0..50.0f64).prop_map(Step::Earn), (0.0..50.0f64).prop_map(Step::Take)];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// In any order, the bucket never holds more than the burst, or less than zero, and never
        /// gives more than it held and earned.
        #[test]
        fn no_more_is_taken_than_is_earned(burst in 1.0..100.0f64, steps in steps()) {
            let mut bucket = TokenBucket::<f64>::new(burst);
            let mut small = TokenBucket::<f32>::new(burst);
            let (mut earned, mut taken) = (burst, 0.0);
            for step in steps {
                match step {
                    Step::Earn(tokens) => {
                        bucket.earn(tokens, burst);
                        small.earn(tokens, burst);
                        earned += tokens;
                    }
                    Step::Take(cost) => {
                        let before = bucket.tokens();
                        if bucket.try_take(cost) {
                            taken += cost;
                            small.charge(cost);
                        } else {
                            prop_assert_eq!(bucket.tokens(), before);
                        }
                    }
                }
                prop_assert!((0.0..=burst).contains(&bucket.tokens()));
                prop_assert!(taken <= earned + 1e-6);
                prop_assert!((small.tokens() - bucket.tokens()).abs() < 1e-2);
            }
        }
    }
}
