//! When an I/O thread that keeps up lets messages gather: a wake-up costs as much as many datagrams.
//!
//! At a rate of some ten thousand single messages per second a thread that sleeps until the next one wakes for each of them. It
//! is cheaper to come back a little later and take several with one call, which also leave with one call. The pause is short enough
//! to go unnoticed, and there is none where messages come seldom, come in large batches, or come faster than the thread works.

use std::time::Duration;

use packrat_estimate::Timestamp;

/// How long messages may gather. The I/O threads' timers are [precise](crate::poller::use_precise_timers), so that it stays below 100 µs.
const PAUSE: Duration = Duration::from_micros(80);
/// From this many messages per second on.
const BUSY: f64 = 20_000.0;
/// Wake-ups that bring as many messages as this are well used.
const WELL_USED: usize = 16;
/// The rate is measured over so many microseconds.
const WINDOW_MICROSECONDS: u64 = 2000;

/// Counts what comes and decides.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    /// Messages of this turn.
    turn: usize,
    /// Messages of this window, and since when.
    messages: u64,
    since: u64,
    busy: bool,
}

impl Pacing {
    /// Messages were received.
    pub(crate) fn count(&mut self, messages: usize) {
        self.turn += messages;
        self.messages += messages as u64;
    }

    /// The turn is over; how long to pause before the next one.
    pub(crate) fn pause(&mut self, now: Timestamp) -> Option<Duration> {
        let turn = std::mem::take(&mut self.turn);
        let elapsed = now.as_micros().saturating_sub(self.since);
        if elapsed >= WINDOW_MICROSECONDS {
            self.busy = self.messages as f64 * 1e6 / elapsed as f64 >= BUSY;
            self.messages = 0;
            self.since = now.as_micros();
        }
        (self.busy && turn > 0 && turn < WELL_USED).then_some(PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of a thread that finds what has come since the last one; pauses taken, in all.
    fn run(per_second: u64, per_turn: usize) -> (usize, usize) {
        let mut pacing = Pacing::default();
        let (mut now, mut pauses, turns) = (1_000_000, 0, 1000);
        for _ in 0..turns {
            now += 1_000_000 * per_turn as u64 / per_second;
            pacing.count(per_turn);
            pauses += usize::from(pacing.pause(Timestamp::from_micros(now)).is_some());
        }
        (pauses, turns)
    }

    #[test]
    fn only_busy_threads_with_small_batches_pause() {
        let (pauses, turns) = run(50_000, 1);
        assert!(pauses > turns * 8 / 10, "{pauses}");
        assert_eq!(run(10_000, 1).0, 0, "seldom");
        assert_eq!(run(1_000_000, 32).0, 0, "more than it can take at once");
    }

    #[test]
    fn a_burst_is_forgotten() {
        let mut pacing = Pacing::default();
        let mut at = |micros, messages| {
            pacing.count(messages);
            pacing.pause(Timestamp::from_micros(micros))
        };
        assert_eq!(at(5000, 200), None);
        assert!(at(5010, 1).is_some());
        assert_eq!(at(8000, 1), None);
        assert_eq!(at(8100, 0), None);
    }
}
