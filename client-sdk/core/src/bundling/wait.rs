//! The wait of acknowledgements for others: the longest that makes the download no slower.
//!
//! If a sender's window exceeds the capacity of the path, a queue builds up somewhere, and earlier
//! acknowledgements deliver data no earlier. If the window is smaller, in slow start and after a
//! loss, each waiting acknowledgement slows the sender down. A client cannot see the window. It
//! sees whether datagrams arrive at the highest rate so far, and whether they still do once
//! acknowledgements wait.
//!
//! ```text
//!        full, for a span          full, for a span
//!   0 --------------------> 1/3 --------------------> 2/3 --> 1 of the longest wait
//!   ^                        |                          |     |
//!   +-- fewer come: not again for .5 s, 1 s ... 32 s ---+-----+
//!   +-- a datagram is missing, or more come: again with the next full span
//! ```

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Longest wait of acknowledgements.
const LONGEST_WAIT: Duration = Duration::from_millis(8);
/// Divisor of the round trip to the server, of which the longest wait is this part at most.
const ROUND_TRIP_DIVISOR: u32 = 4;
/// Number of steps to the longest wait.
const WAIT_STEPS: u32 = 3;
/// Shortest span, which also lasts a round trip at least.
const SHORTEST_SPAN: Duration = Duration::from_millis(100);
/// Fewest datagrams in a span that is measured.
const BUSY_DATAGRAMS: u32 = 16;
/// Percentage of the datagrams of the fullest recent span with which a span is full.
const FULL_PERCENT: u64 = 97;
/// Divisor of the fullest span's count, which decays by this part with each span.
const FORGETTING_DIVISOR: u32 = 256;
/// Percentage of a span's datagrams in the next span from which the sender counts as in slow start.
const SLOW_START_PERCENT: u64 = 125;
/// Time without waiting acknowledgements after a missing datagram.
const CALM_AFTER: Duration = Duration::from_millis(300);
/// Bounds of the time without waiting after a wait that has made the download slower: at first, and
/// at most.
const BACKOFF_BOUNDS: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(32);

/// The wait of acknowledgements, derived from the arriving datagrams.
#[derive(Debug)]
pub(super) struct Wait {
    /// The span that has begun: since when, and datagrams in it.
    since: Timestamp,
    count: u32,
    /// Datagrams in the previous span; `None` if there was no previous span.
    last: Option<u32>,
    fullest: u32,
    step: u32,
    last_hole: Option<Timestamp>,
    not_before: Timestamp,
    backoff: Duration,
}

impl Default for Wait {
    fn default() -> Self {
        Self {
            since: Timestamp::ZERO,
            count: 0,
            last: None,
            fullest: 0,
            step: 0,
            last_hole: None,
            not_before: Timestamp::ZERO,
            backoff: *BACKOFF_BOUNDS.start(),
        }
    }
}

impl Wait {
    /// A datagram of the base connection has arrived. `round_trip`: to the server.
    pub(super) fn on_received(&mut self, round_trip: Option<Duration>, now: Timestamp) {
        let span = SHORTEST_SPAN.max(round_trip.unwrap_or_default());
        let passed = now.saturating_since(self.since);
        if passed >= span {
            self.on_span(passed < span * 2, now);
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
    }

    /// Ends a span; a pause in it or after it excludes it from a busy download.
    fn on_span(&mut self, is_whole: bool, now: Timestamp) {
        let (count, before) = (u64::from(self.count), self.last.map(u64::from));
        self.last = is_whole.then_some(self.count);
        if !is_whole || self.count < BUSY_DATAGRAMS {
            self.step = 0;
            return;
        }
        self.fullest = self.count.max(self.fullest - self.fullest.div_ceil(FORGETTING_DIVISOR));
        let is_full = count * 100 >= u64::from(self.fullest) * FULL_PERCENT;
        let grows = before.is_none_or(|before| count * 100 > before * SLOW_START_PERCENT);
        if !self.is_calm(now) || grows {
            self.step = 0;
        } else if is_full {
            self.step = if now >= self.not_before { WAIT_STEPS.min(self.step + 1) } else { 0 };
        } else if self.step > 0 {
            self.step = 0;
            self.not_before = now + self.backoff;
            self.backoff = (self.backoff * 2).min(*BACKOFF_BOUNDS.end());
        }
    }

    /// A datagram is missing.
    pub(super) fn on_hole(&mut self, now: Timestamp) {
        self.last_hole = Some(now);
    }

    fn is_calm(&self, now: Timestamp) -> bool {
        self.last_hole.is_none_or(|last| now.saturating_since(last) >= CALM_AFTER)
    }

    /// The wait of an acknowledgement that is sent now.
    pub(super) fn of_now(&self, round_trip: Option<Duration>, now: Timestamp) -> Duration {
        let longest = LONGEST_WAIT.min(round_trip.unwrap_or_default() / ROUND_TRIP_DIVISOR);
        if self.is_calm(now) { longest * self.step / WAIT_STEPS } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Option<Duration> = Some(Duration::from_millis(60));

    /// A download, and the clock.
    #[derive(Default)]
    struct Download {
        wait: Wait,
        now: Timestamp,
    }

    impl Download {
        /// Delivers this number of datagrams in each of some spans.
        fn goes_on(&mut self, spans: u32, datagrams: u32) -> Duration {
            for _ in 0..spans * datagrams {
                self.now = self.now + SHORTEST_SPAN / datagrams;
                self.wait.on_received(ROUND_TRIP, self.now);
            }
            self.wait.of_now(ROUND_TRIP, self.now)
        }
    }

    #[test]
    fn acknowledgements_wait_once_a_download_is_as_fast_as_it_gets() {
        let mut download = Download::default();
        for datagrams in [20, 40, 80, 160] {
            assert_eq!(download.goes_on(1, datagrams), Duration::ZERO, "slow start");
        }
        assert_eq!(download.goes_on(6, 160), LONGEST_WAIT);
        assert_eq!(download.goes_on(1, 158), LONGEST_WAIT, "a few more or less are nothing");
        let short = Some(Duration::from_millis(8));
        assert_eq!(download.wait.of_now(short, download.now), Duration::from_millis(2));
        assert_eq!(download.wait.of_now(None, download.now), Duration::ZERO);
    }

    /// A wait that slows the download down is left out, for longer each time.
    #[test]
    fn a_harmful_wait_is_left_out_for_longer_each_time() {
        let mut download = Download::default();
        download.goes_on(3, 160);
        let mut before = 0;
        for _ in 0..3 {
            while download.goes_on(1, 160).is_zero() {}
            assert_eq!(download.goes_on(2, 150), Duration::ZERO);
            let mut spans = 1;
            while download.goes_on(1, 160).is_zero() {
                spans += 1;
            }
            assert!(spans >= 4 && spans > before * 3 / 2, "{spans} after {before}");
            before = spans;
        }
    }

    /// A loss, a pause or a thin flow ends a measurement at once, and the wait is not blamed.
    #[test]
    fn losses_pauses_and_thin_flows_end_a_measurement_without_blame() {
        for interrupt in 0..3 {
            let mut download = Download::default();
            assert_eq!(download.goes_on(8, 160), LONGEST_WAIT);
            match interrupt {
                0 => download.wait.on_hole(download.now),
                1 => drop((
                    download.now = download.now + SHORTEST_SPAN * 3,
                    download.goes_on(1, 160),
                )),
                _ => drop(download.goes_on(2, 10)),
            }
            assert_eq!(download.wait.of_now(ROUND_TRIP, download.now), Duration::ZERO);
            assert_eq!(download.goes_on(9, 160), LONGEST_WAIT, "again within a second");
        }
    }

    #[test]
    fn a_span_is_no_shorter_than_a_round_trip() {
        let (mut wait, mut now) = (Wait::default(), Timestamp::ZERO);
        let long = Some(Duration::from_millis(600));
        // Whole rounds are equal, and no part of one is like the other.
        for _ in 0..8 {
            for at in 0..600_u64 {
                now = now + Duration::from_millis(1);
                if at < 300 {
                    wait.on_received(long, now);
                }
            }
        }
        assert_eq!(wait.of_now(long, now), LONGEST_WAIT);
    }
}
