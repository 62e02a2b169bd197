//! Circuit breaker of repairs (RFC 8084; RFC 8085, section 3.1.10): repairs that never arrive make
//! an overload worse. [`super::queue_losses`] judges the losses themselves.
//!
//! ```text
//!                    most datagrams are repaired in vain
//!   closed ------------------------------------------------------> open
//!     ^ repairs are sent             losses are given up at once,   |
//!     |                              and nothing waits for repairs  |
//!     +-------- 1 s, then twice as long each time, up to 32 s ------+
//! ```

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Repaired datagrams that are looked at together.
const JUDGED_REPAIRS: u32 = 32;
/// Share of the judged repairs that never arrives when repairs pause. A repair that is lost proves
/// little: on a medium that loses in bursts, most are sent into the burst.
const LOST_REPAIRS_SHARE: f64 = 0.5;
/// Shortest time over which the fates of judged repairs are spread: a burst of loss is over sooner.
const MINIMUM_SPREAD: Duration = Duration::from_secs(2);

/// Duration of the first pause of repairs.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Duration of the longest pause of repairs.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);
/// Time without a pause after which the next one is as short as the first.
const PAUSE_MEMORY: Duration = Duration::from_secs(60);

/// The breaker of one direction of a session.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// Repaired datagrams whose fates became known since `repaired_since`.
    repaired: u32,
    repaired_in_vain: u32,
    repaired_since: Timestamp,
    /// Repairs pause until this time.
    open_until: Option<Timestamp>,
    /// Pauses in a row, and the end of the last one.
    pauses: u32,
    closed_at: Timestamp,
}

/// A change of the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Repairs pause for this long.
    Paused(Duration),
    /// Repairs are sent again.
    Resumed,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

impl Breaker {
    pub(crate) const fn new() -> Self {
        Self {
            repaired: 0,
            repaired_in_vain: 0,
            repaired_since: Timestamp::ZERO,
            open_until: None,
            pauses: 0,
            closed_at: Timestamp::ZERO,
        }
    }

    /// True if repairs pause now.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    /// Records that a repaired datagram has arrived.
    pub(crate) fn on_delivered(&mut self, now: Timestamp) {
        if self.repaired == 0 {
            self.repaired_since = now;
        }
        self.repaired += 1;
    }

    /// Records that a repaired datagram is given up.
    pub(crate) fn on_in_vain(&mut self, now: Timestamp) {
        self.on_delivered(now);
        self.repaired_in_vain += 1;
    }

    /// Judges the repairs whose fates have become known.
    pub(crate) fn on_repairs(&mut self, now: Timestamp) -> Option<Change> {
        if let Some(until) = self.open_until {
            if now < until {
                return None;
            }
            (self.open_until, self.closed_at) = (None, now);
            (self.repaired, self.repaired_in_vain) = (0, 0);
            return Some(Change::Resumed);
        }
        self.are_in_vain(now).then(|| self.open(now))
    }

    fn open(&mut self, now: Timestamp) -> Change {
        if now.saturating_since(self.closed_at) >= PAUSE_MEMORY {
            self.pauses = 0;
        }
        let pause = (FIRST_PAUSE * (1 << self.pauses.min(5))).min(LONGEST_PAUSE);
        self.pauses += 1;
        self.open_until = Some(now + pause);
        Change::Paused(pause)
    }

    /// True if most datagrams that were repaired in the last while never arrived.
    fn are_in_vain(&mut self, now: Timestamp) -> bool {
        if self.repaired < JUDGED_REPAIRS
            || now.saturating_since(self.repaired_since) < MINIMUM_SPREAD
        {
            return false;
        }
        let in_vain =
            f64::from(self.repaired_in_vain) > LOST_REPAIRS_SHARE * f64::from(self.repaired);
        (self.repaired, self.repaired_in_vain) = (0, 0);
        in_vain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_where_most_repairs_never_arrive_for_seconds() {
        let opened = |lost_of_ten: u64, spread: u64| {
            let mut breaker = Breaker::new();
            let open = |step: u64| {
                let now = Timestamp::from_millis(1000 + step * spread);
                if step % 10 < lost_of_ten {
                    breaker.on_in_vain(now);
                } else {
                    breaker.on_delivered(now);
                }
                breaker.on_repairs(now)
            };
            (0..200).filter_map(open).next()
        };
        assert_eq!(opened(7, 50), Some(Change::Paused(FIRST_PAUSE)));
        assert_eq!(opened(4, 50), None);
        assert_eq!(opened(10, 5), None, "a burst of one second");
    }

    #[test]
    fn pauses_grow_and_after_a_quiet_minute_are_short_again() {
        let mut breaker = Breaker::new();
        let in_vain = |breaker: &mut Breaker, from: u64| {
            (0..).find_map(|step| {
                let now = Timestamp::from_millis(from + step * 100);
                breaker.on_in_vain(now);
                match breaker.on_repairs(now) {
                    Some(Change::Paused(pause)) => Some(pause.as_secs()),
                    _ => None,
                }
            })
        };
        assert_eq!(in_vain(&mut breaker, 1000), Some(1));
        assert_eq!(in_vain(&mut breaker, 10_000), Some(2));
        assert_eq!(in_vain(&mut breaker, 20_000), Some(4));
        assert!(breaker.is_open(Timestamp::from_millis(24_000)));
        // It closes with the next report, and then a minute passes.
        let closed = Timestamp::from_millis(30_000);
        assert_eq!(breaker.on_repairs(closed), Some(Change::Resumed));
        assert_eq!(in_vain(&mut breaker, 90_000), Some(1));
    }
}
