//! Spreads bursts: a socket's receive buffer takes only so much at once.
//!
//! What has waited for a hole comes all at once when that is filled, up to a round trip of the last
//! mile. A transport in this process takes it; a socket of another one drops what its buffer has no
//! room for, and tells no one.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Most that a receive buffer is charged for a datagram beside its bytes: the system's own record of
/// it, headers, and what allocations are rounded up by (Linux: 1,104 for 1,200 bytes).
const OVERHEAD: usize = 1200;
/// Charge of what leaves at once: a little more than half of Linux's default of a receive buffer,
/// 212,992 bytes.
const BURST: f64 = 120_000.0;
/// Datagrams leave so many times as fast as they arrive.
const SPEED: f64 = 2.0;
/// Charge of what leaves per second at least: about 100 Mbit/s of long datagrams.
const LEAST_SPEED: f64 = 25e6;
/// Time over which the rate of arrival is measured, at least.
const MEASURED_OVER: Duration = Duration::from_millis(10);
/// Time between two bursts.
const STEP: Duration = Duration::from_millis(1);

/// The pace at which datagrams leave: a token bucket whose rate follows that of arrival.
#[derive(Debug)]
pub(super) struct Pace {
    /// Since then so much has arrived.
    since: Timestamp,
    arrived: f64,
    /// Charge of what arrives per second.
    rate: f64,
    credit: f64,
    earned_at: Timestamp,
    /// No datagram is delayed for longer.
    longest_delay: Duration,
}

fn charge(length: usize) -> f64 {
    (length + OVERHEAD) as f64
}

impl Pace {
    /// `maximum_hold`: the longest time that datagrams wait for a repair, and again for this. `None`:
    /// nothing waits.
    pub(super) fn new(maximum_hold: Duration, now: Timestamp) -> Option<Self> {
        (!maximum_hold.is_zero()).then_some(Self {
            since: now,
            arrived: 0.0,
            rate: 0.0,
            credit: BURST,
            earned_at: now,
            longest_delay: maximum_hold,
        })
    }

    /// A datagram arrives.
    pub(super) fn on_arrival(&mut self, length: usize) {
        self.arrived += charge(length);
    }

    /// It is `now`, and so much is ready to leave.
    pub(super) fn on_time(&mut self, now: Timestamp, datagrams: usize, bytes: usize) {
        let passed = now.saturating_since(self.earned_at);
        if passed.is_zero() {
            return;
        }
        let over = now.saturating_since(self.since);
        // What came in a shorter time came no slower than this.
        let arrival = self.rate.max(self.arrived / over.max(MEASURED_OVER).as_secs_f64());
        if over >= MEASURED_OVER {
            let measured = self.arrived / over.as_secs_f64();
            // A flow that pauses is soon as fast as it was.
            self.rate =
                if measured > self.rate { measured } else { (self.rate * 3.0 + measured) / 4.0 };
            (self.since, self.arrived) = (now, 0.0);
        }
        let ready = (datagrams * OVERHEAD + bytes) as f64;
        let in_time = ready / self.longest_delay.as_secs_f64();
        let speed = (SPEED * arrival).max(LEAST_SPEED).max(in_time);
        self.credit = (self.credit + speed * passed.as_secs_f64()).min(BURST);
        self.earned_at = now;
    }

    /// True if another datagram may leave.
    pub(super) fn admits(&self) -> bool {
        self.credit > 0.0
    }

    /// True if a datagram that has been ready since then is not to be delayed any more.
    pub(super) fn is_overdue(&self, ready_since: Timestamp) -> bool {
        self.earned_at >= ready_since + self.longest_delay
    }

    /// A datagram leaves.
    pub(super) fn on_leaving(&mut self, length: usize) {
        // More than a burst is never owed.
        self.credit = (self.credit - charge(length)).max(-BURST);
    }

    /// The time at which what is ready may go on.
    pub(super) fn next_timeout(&self) -> Timestamp {
        self.earned_at + STEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 1200;

    /// Leaves in one step, from datagrams that have been ready since the first one.
    fn leave(pace: &mut Pace, ready: &mut usize, now: Timestamp, since: Timestamp) -> usize {
        pace.on_time(now, *ready, *ready * LENGTH);
        let before = *ready;
        while *ready > 0 && (pace.admits() || pace.is_overdue(since)) {
            pace.on_leaving(LENGTH);
            *ready -= 1;
        }
        before - *ready
    }

    #[test]
    fn a_round_trip_of_datagrams_leaves_in_bursts_that_a_default_buffer_takes() {
        let mut now = Timestamp::from_millis(1000);
        let mut pace = Pace::new(Duration::from_secs(1), now).unwrap();
        // 100 Mbit/s, for a second: ten or eleven each millisecond.
        for millis in 0..1000 {
            now = now + STEP;
            pace.on_time(now, 0, 0);
            (0..10 + millis % 2).for_each(|_| pace.on_arrival(LENGTH));
        }
        let (mut ready, since, mut steps) = (625, now, 0);
        assert_eq!(leave(&mut pace, &mut ready, now, since), 50, "a burst");
        while ready > 0 {
            now = now + STEP;
            let left = leave(&mut pace, &mut ready, now, since);
            assert!((10..=30).contains(&left) || ready == 0, "{left} after {steps} steps");
            steps += 1;
        }
        assert!((25..=50).contains(&steps), "{steps}");
    }

    #[test]
    fn no_datagram_is_delayed_for_longer_than_the_bound_and_a_hold_of_nothing_delays_none() {
        let mut now = Timestamp::from_millis(1000);
        assert!(Pace::new(Duration::ZERO, now).is_none());
        let mut pace = Pace::new(Duration::from_millis(20), now).unwrap();
        let (mut ready, since) = (100_000, now);
        leave(&mut pace, &mut ready, now, since);
        // The shell is late.
        now = now + Duration::from_millis(20);
        leave(&mut pace, &mut ready, now, since);
        assert_eq!(ready, 0);
    }
}
