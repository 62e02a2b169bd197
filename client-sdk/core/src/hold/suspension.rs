//! Suspension of the hold where it does not pay.
//!
//! ```text
//!            most of the last 32 ended holes were held in vain
//!   Holding ---------------------------------------------------> Suspended: 1 s, then twice as long
//!      ^                                                            |       each time, at most 32 s
//!      +------------------------------------------------------------+
//! ```

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Ended holes that are judged together.
const JUDGED: u32 = 32;
/// First suspension; doubles each time waiting has not paid again.
pub(super) const FIRST_SUSPENSION: Duration = Duration::from_secs(1);
/// Longest suspension.
const LONGEST_SUSPENSION: Duration = Duration::from_secs(32);

/// Judges ended holes, and suspends the hold when most of them were held in vain.
#[derive(Debug)]
pub(super) struct Suspension {
    /// Packet numbers among the holes that ended last: filled in time...
    paid: u32,
    /// ...and not.
    unpaid: u32,
    until: Option<Timestamp>,
    next: Duration,
}

impl Default for Suspension {
    fn default() -> Self {
        Self { paid: 0, unpaid: 0, until: None, next: FIRST_SUSPENSION }
    }
}

impl Suspension {
    /// A held packet number arrived in time. True if the hold is suspended for those before.
    pub(super) fn on_paid(&mut self, now: Timestamp) -> bool {
        self.paid += 1;
        self.judge(now)
    }

    /// So many held packet numbers did not arrive in time. True if the hold is suspended for it.
    pub(super) fn on_unpaid(&mut self, numbers: u64, now: Timestamp) -> bool {
        // One burst is one piece of evidence.
        self.unpaid += u32::try_from(numbers).unwrap_or(u32::MAX).min(JUDGED / 2);
        self.judge(now)
    }

    fn judge(&mut self, now: Timestamp) -> bool {
        if self.paid + self.unpaid < JUDGED {
            return false;
        }
        let suspends = self.unpaid > self.paid;
        if suspends {
            self.until = Some(now + self.next);
            self.next = (self.next * 2).min(LONGEST_SUSPENSION);
        } else {
            self.next = FIRST_SUSPENSION;
        }
        self.paid = 0;
        self.unpaid = 0;
        suspends
    }

    /// True while the hold is suspended.
    pub(super) fn is_suspended(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn holes_that_fill_outweigh_a_few_that_do_not() {
        let mut suspension = Suspension::default();
        for _ in 0..20 {
            suspension.on_paid(at(0));
        }
        assert!(!suspension.on_unpaid(12, at(0)));
        assert!(!suspension.is_suspended(at(0)));
    }

    #[test]
    fn one_burst_does_not_suspend_and_two_do() {
        let mut suspension = Suspension::default();
        assert!(!suspension.on_unpaid(1000, at(0)));
        assert!(suspension.on_unpaid(1000, at(0)));
        assert!(suspension.is_suspended(at(999)) && !suspension.is_suspended(at(1000)));
    }

    #[test]
    fn each_suspension_is_twice_as_long_until_holding_pays() {
        let mut suspension = Suspension::default();
        let mut suspend = |now| {
            suspension.on_unpaid(16, now);
            suspension.on_unpaid(16, now);
            suspension.until.unwrap().saturating_since(now).as_secs()
        };
        let lengths: Vec<u64> = (0..7).map(|_| suspend(at(0))).collect();
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 32]);
        for _ in 0..32 {
            suspension.on_paid(at(0));
        }
        assert_eq!(suspension.next, FIRST_SUSPENSION);
    }
}
