//! Whether a gateway is so busy with handshakes that every client has to prove its address first.

use std::sync::{Mutex, PoisonError};

use packrat_estimate::Timestamp;

/// Counts handshakes against a threshold per second: a token bucket that holds one second's worth.
#[derive(Debug)]
pub(crate) struct Busyness {
    per_second: f64,
    /// Handshakes that are still below the threshold, and since when they are counted up.
    left: Mutex<(f64, Timestamp)>,
}

impl Busyness {
    /// `per_second`: the threshold; 0: always busy.
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, left: Mutex::new((per_second, Timestamp::ZERO)) }
    }

    /// Counts a handshake; whether it is still below the threshold.
    pub(crate) fn is_below_threshold(&self, now: Timestamp) -> bool {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let earned = now.saturating_since(left.1).as_secs_f64() * self.per_second;
        left.0 = (left.0 + earned).min(self.per_second);
        left.1 = left.1.max(now);
        let below = left.0 >= 1.0;
        left.0 = (left.0 - 1.0).max(0.0);
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn the_threshold_is_per_second() {
        let busyness = Busyness::new(20);
        let below = |now| (0..100).filter(|_| busyness.is_below_threshold(now)).count();
        assert_eq!(below(Timestamp::ZERO), 20);
        assert_eq!(below(Timestamp::ZERO), 0);
        assert_eq!(below(Timestamp::ZERO + Duration::from_millis(500)), 10);
        assert_eq!(below(Timestamp::ZERO + Duration::from_secs(60)), 20);
        assert!(!Busyness::new(0).is_below_threshold(Timestamp::ZERO + Duration::from_secs(9)));
    }
}
