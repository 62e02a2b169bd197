//! Spreads bursts, because a socket's receive buffer is limited.
//!
//! Datagrams that have waited for a hole are all released when it is filled, up to a round trip of
//! the last mile. A transport in this process accepts them; a socket of another program silently
//! drops datagrams that exceed its buffer.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Largest charge of a receive buffer for a datagram beside its bytes: the system's own record,
/// headers, and the rounding of allocations (Linux: 1,104 for 1,200 bytes).
const OVERHEAD_BYTES: usize = 1200;
/// Charge in bytes of the datagrams that leave at once: slightly more than half of Linux's default
/// receive buffer, 212,992 bytes.
const BURST_BYTES: f64 = 120_000.0;
/// Ratio of the rate of departure to the rate of arrival.
const DEPARTURE_RATIO: f64 = 2.0;
/// Smallest charge of departing datagrams in bytes per second: about 100 Mbit/s of long datagrams.
const LEAST_BYTES_PER_SECOND: f64 = 25e6;
/// Time over which the rate of arrival is measured, at least.
const MEASURED_OVER: Duration = Duration::from_millis(10);
/// Time between two bursts.
const BURST_INTERVAL: Duration = Duration::from_millis(1);

/// The pace at which datagrams leave: a token bucket whose rate follows the arrival rate.
#[derive(Debug)]
pub(super) struct Pace {
    /// Begin of the current measurement of arrivals.
    since: Timestamp,
    arrived: f64,
    /// Charge of arriving datagrams per second.
    rate: f64,
    credit: f64,
    earned_at: Timestamp,
    /// Longest delay of a datagram.
    longest_delay: Duration,
}

fn charge(length: usize) -> f64 {
    (length + OVERHEAD_BYTES) as f64
}

impl Pace {
    /// Creates a pace. `maximum_hold`: the longest time that datagrams wait for a repair, and the
    /// longest additional delay by pacing. Returns `None` if datagrams never wait.
    pub(super) fn new(maximum_hold: Duration, now: Timestamp) -> Option<Self> {
        (!maximum_hold.is_zero()).then_some(Self {
            since: now,
            arrived: 0.0,
            rate: 0.0,
            credit: BURST_BYTES,
            earned_at: now,
            longest_delay: maximum_hold,
        })
    }

    /// A datagram arrives.
    pub(super) fn on_arrival(&mut self, length: usize) {
        self.arrived += charge(length);
    }

    /// Advances to `now`, with this number of ready datagrams and their bytes.
    pub(super) fn on_time(&mut self, now: Timestamp, datagrams: usize, bytes: usize) {
        let passed = now.saturating_since(self.earned_at);
        if passed.is_zero() {
            return;
        }
        let over = now.saturating_since(self.since);
        // A shorter measurement has at least this rate.
        let arrival = self.rate.max(self.arrived / over.max(MEASURED_OVER).as_secs_f64());
        if over >= MEASURED_OVER {
            let measured = self.arrived / over.as_secs_f64();
            // A flow that pauses is soon as fast as it was.
            self.rate =
                if measured > self.rate { measured } else { (self.rate * 3.0 + measured) / 4.0 };
            (self.since, self.arrived) = (now, 0.0);
        }
        let ready = (datagrams * OVERHEAD_BYTES + bytes) as f64;
        let in_time = ready / self.longest_delay.as_secs_f64();
        let speed = (DEPARTURE_RATIO * arrival).max(LEAST_BYTES_PER_SECOND).max(in_time);
        self.credit = (self.credit + speed * passed.as_secs_f64()).min(BURST_BYTES);
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
        self.credit = (self.credit - charge(length)).max(-BURST_BYTES);
    }

    /// The time at which ready datagrams may leave.
    pub(super) fn next_timeout(&self) -> Timestamp {
        self.earned_at + BURST_INTERVAL
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
    fn bursts_of_a_round_trip_fit_into_a_default_buffer() {
        let mut now = Timestamp::from_millis(1000);
        let mut pace = Pace::new(Duration::from_secs(1), now).unwrap();
        // 100 Mbit/s, for a second: ten or eleven each millisecond.
        for millis in 0..1000 {
            now = now + BURST_INTERVAL;
            pace.on_time(now, 0, 0);
            (0..10 + millis % 2).for_each(|_| pace.on_arrival(LENGTH));
        }
        let (mut ready, since, mut steps) = (625, now, 0);
        assert_eq!(leave(&mut pace, &mut ready, now, since), 50, "a burst");
        while ready > 0 {
            now = now + BURST_INTERVAL;
            let left = leave(&mut pace, &mut ready, now, since);
            assert!((10..=30).contains(&left) || ready == 0, "{left} after {steps} steps");
            steps += 1;
        }
        assert!((25..=50).contains(&steps), "{steps}");
    }

    #[test]
    fn delays_have_a_bound_and_a_zero_hold_delays_no_datagram() {
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
