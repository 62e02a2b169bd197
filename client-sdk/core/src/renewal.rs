//! When a token is renewed.
//!
//! ```text
//!            three quarters of its lifetime            the endpoint issues one
//!   Fresh -----------------------------------> Asked -------------------------> Fresh
//!                                              |   ^
//!                                   no answer  |   | 30 s
//!                                              +---+
//! ```

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Share of a token's lifetime after which it is renewed, but not before [`SHORTEST_RENEWAL`].
const RENEWAL_SHARE: f64 = 0.75;
/// Shortest interval between two requests for a token.
const SHORTEST_RENEWAL: Duration = Duration::from_secs(5);
/// Longest time until a renewal, for a token that never expires, or if the clocks are wrong.
const LONGEST_RENEWAL: Duration = Duration::from_secs(3600);
/// After a renewal that has failed, the next attempt comes after this.
const RENEWAL_RETRY: Duration = Duration::from_secs(30);

/// The times at which a token endpoint is asked again, sans-IO.
///
/// ```
/// use packrat_client::{RenewalSchedule, Timestamp};
/// use std::time::Duration;
///
/// let since_1970 = Duration::from_secs(1_800_000_000);
/// let expires = since_1970 + Duration::from_secs(300);
/// let now = Timestamp::from_millis(5000);
/// let mut schedule = RenewalSchedule::new(Some(expires), since_1970, now);
/// assert_eq!(schedule.next_timeout(), now + Duration::from_secs(225));
/// // The endpoint is asked then.
/// let now = schedule.next_timeout();
/// schedule.on_failure(now);
/// assert_eq!(schedule.next_timeout(), now + Duration::from_secs(30));
/// ```
#[derive(Debug)]
pub struct RenewalSchedule {
    at: Timestamp,
}

impl RenewalSchedule {
    /// Creates the schedule of a token that was issued now. `expires` and `since_1970` (now, by the
    /// wall clock) are times since 1970; `expires` is `None` for a token that never expires.
    pub fn new(expires: Option<Duration>, since_1970: Duration, now: Timestamp) -> Self {
        Self { at: now + lifetime(expires, since_1970) }
    }

    /// Time to ask for another token.
    pub fn next_timeout(&self) -> Timestamp {
        self.at
    }

    /// The endpoint has issued another token.
    pub fn on_token(&mut self, expires: Option<Duration>, since_1970: Duration, now: Timestamp) {
        self.at = now + lifetime(expires, since_1970);
    }

    /// The endpoint did not answer.
    pub fn on_failure(&mut self, now: Timestamp) {
        self.at = now + RENEWAL_RETRY;
    }
}

/// Time until a new token must be renewed.
fn lifetime(expires: Option<Duration>, since_1970: Duration) -> Duration {
    let lifetime = expires.map_or(LONGEST_RENEWAL, |expires| expires.saturating_sub(since_1970));
    // Wherever a clock is wrong a token seems to have expired already, or to last for years.
    lifetime.min(LONGEST_RENEWAL).mul_f64(RENEWAL_SHARE).max(SHORTEST_RENEWAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_before_expiry_but_never_without_a_pause() {
        let now = Duration::from_secs(1_800_000_000);
        let wait = |seconds: i64| {
            lifetime(Some(Duration::from_secs((1_800_000_000 + seconds) as u64)), now)
        };
        assert_eq!(wait(300), Duration::from_secs(225));
        assert_eq!((wait(3), wait(-9)), (SHORTEST_RENEWAL, SHORTEST_RENEWAL));
        assert_eq!(wait(10_000_000), LONGEST_RENEWAL.mul_f64(RENEWAL_SHARE));
        assert_eq!(lifetime(None, now), LONGEST_RENEWAL.mul_f64(RENEWAL_SHARE));
    }

    #[test]
    fn a_token_that_came_late_is_renewed_by_its_own_lifetime() {
        let now = Timestamp::ZERO;
        let mut schedule = RenewalSchedule::new(None, Duration::ZERO, now);
        schedule.on_failure(now);
        assert_eq!(schedule.next_timeout(), now + RENEWAL_RETRY);
        schedule.on_token(Some(Duration::from_secs(8)), Duration::ZERO, now);
        assert_eq!(schedule.next_timeout(), now + Duration::from_secs(6));
    }
}
