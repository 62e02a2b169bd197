//! The tail probe: a repair of the newest datagram after silence.
//!
//! The flow went quiet and its tail is unacknowledged: the last datagram, sent again, makes the
//! client send an eACK (as TCP's tail loss probe, RFC 8985, section 7, and QUIC's probe timeout,
//! RFC 9002, section 6.2; a duplicate is harmless to the base connection).
//!
//! ```text
//!           datagram forwarded                  an eACK, and the tail is spoken of
//!   Idle ----------------------> Following ------------------------------------------> Idle
//!    ^                            |    ^ datagram forwarded                             ^
//!    |                     eACK,  |    |                                                |
//!    |                  tail open v    |                    tail spoken of,             |
//!    +------------------------ Scheduled ---- due: probe, next one later ---------------+
//!                                                       or too many probes
//! ```
//!
//! When a client is heard again after an outage, its tail is probed at once: its first messages are
//! from before the outage, and its next eACK names all missing datagrams.
//!
//! While datagrams pass, the timer follows the last one: its time is computed on demand, not for
//! each datagram.

use core::time::Duration;

use packrat_wire::estimate::{PathEstimate, Timestamp};

/// Most tail probes of one silence.
const MAXIMUM_PROBES: u32 = 12;
/// Shortest time from the last datagram to the first tail probe.
const MINIMUM_PROBE_DELAY: Duration = Duration::from_millis(25);
/// Longest delay of later ones, unless the first one's is longer; the delay doubles with each.
const LONGEST_PROBE_DELAY: Duration = Duration::from_millis(200);
/// Longest time between two later ones, so that they see the end of an outage of half a second.
const MOST_APART: Duration = Duration::from_millis(50);

/// Timer of the tail probe.
#[derive(Debug)]
pub(crate) struct TailProbe {
    last_forward: Timestamp,
    /// Probes of this silence, and the milliseconds from the last datagram to the last one of them.
    probes: u32,
    probed_after: u32,
    timer: ProbeTimer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeTimer {
    Idle,
    /// The timer follows the last datagram.
    Following,
    Scheduled(Timestamp),
}

impl TailProbe {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { last_forward: now, probes: 0, probed_after: 0, timer: ProbeTimer::Idle }
    }

    /// Records a forwarded datagram: a new silence begins, which is probed if `probes`.
    #[inline]
    pub(crate) fn on_forward(&mut self, probes: bool, now: Timestamp) {
        self.last_forward = now;
        (self.probes, self.probed_after) = (0, 0);
        if probes {
            self.timer = ProbeTimer::Following;
        }
    }

    /// Time since the last datagram.
    pub(crate) fn silence(&self, now: Timestamp) -> Duration {
        now.saturating_since(self.last_forward)
    }

    /// When the next probe is due.
    pub(crate) fn next_timeout(&self, path: &PathEstimate) -> Option<Timestamp> {
        match self.timer {
            ProbeTimer::Idle => None,
            ProbeTimer::Following => Some(self.last_forward + self.delay(path)),
            ProbeTimer::Scheduled(at) => Some(at),
        }
    }

    /// Plans the next probe if the tail is `open`: eACKs do not cover all of it, or datagrams are
    /// missing.
    pub(crate) fn schedule(&mut self, open: bool, path: &PathEstimate, now: Timestamp) {
        self.timer = if open && self.probes < MAXIMUM_PROBES {
            let delay = self.delay(path);
            let apart = (delay / 2).min(MOST_APART);
            let last_probe = Duration::from_millis(self.probed_after.into());
            let after_last = self.last_forward + last_probe + apart;
            let at = (self.last_forward + delay).max(after_last);
            ProbeTimer::Scheduled(at.max(now + MINIMUM_PROBE_DELAY / 2))
        } else {
            ProbeTimer::Idle
        };
    }

    /// Records that a probe was due. [`Self::schedule`] follows.
    pub(crate) fn count(&mut self, now: Timestamp) {
        self.probes += 1;
        self.probed_after = u32::try_from(self.silence(now).as_millis()).unwrap_or(u32::MAX);
    }

    /// Begins to probe anew when the client is heard again after an outage. An `open` tail is
    /// probed at once, unless it is still under way; the earlier probes may all be lost.
    pub(crate) fn on_return(&mut self, open: bool, path: &PathEstimate, now: Timestamp) {
        (self.probes, self.probed_after) = (0, 0);
        let at = (self.last_forward + self.delay(path)).max(now);
        self.timer = if open { ProbeTimer::Scheduled(at) } else { ProbeTimer::Idle };
    }

    fn delay(&self, path: &PathEstimate) -> Duration {
        let round_trip = path.round_trip().unwrap_or(MINIMUM_PROBE_DELAY);
        let first = (round_trip * 2 + path.round_trip_variation() * 4).max(MINIMUM_PROBE_DELAY);
        (first * (1 << self.probes.min(8))).min(first.max(LONGEST_PROBE_DELAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn path(millis: u64) -> PathEstimate {
        let mut path = PathEstimate::new();
        for _ in 0..200 {
            path.on_round_trip(Duration::from_millis(millis));
        }
        path
    }

    #[test]
    fn it_follows_the_last_datagram() {
        let (mut probe, path) = (TailProbe::new(at(0)), path(4));
        assert_eq!(probe.next_timeout(&path), None);
        for millis in [10, 20, 30] {
            probe.on_forward(true, at(millis));
            assert_eq!(probe.next_timeout(&path), Some(at(millis) + MINIMUM_PROBE_DELAY));
        }
        assert_eq!(probe.silence(at(35)), Duration::from_millis(5));
    }

    #[test]
    fn a_tail_that_is_spoken_of_is_not_probed() {
        let (mut probe, path) = (TailProbe::new(at(0)), path(4));
        probe.on_forward(true, at(10));
        probe.schedule(false, &path, at(14));
        assert_eq!(probe.next_timeout(&path), None);
        probe.on_forward(false, at(20));
        assert_eq!(probe.next_timeout(&path), None, "this one is not to be probed");
    }

    #[test]
    fn probes_come_more_and_more_seldom_and_end() {
        let (mut probe, path) = (TailProbe::new(at(0)), path(4));
        probe.on_forward(true, at(0));
        probe.schedule(true, &path, at(1));
        let mut due = Vec::new();
        while let Some(at) = probe.next_timeout(&path) {
            due.push(at.as_micros() / 1000);
            probe.count(at);
            probe.schedule(true, &path, at);
        }
        assert_eq!(due.len(), MAXIMUM_PROBES as usize);
        assert_eq!(due[..4], [25, 50, 100, 200], "twice as long after the last datagram each");
        // Beyond the longest delay it is only kept apart from the probe before.
        assert!(due.windows(2).all(|pair| pair[0] + 12 <= pair[1]), "{due:?}");
        assert!(due[11] >= 500, "half a second of silence is probed: {due:?}");
    }

    #[test]
    fn a_client_that_speaks_again_is_probed_anew_at_once() {
        let (mut probe, path) = (TailProbe::new(at(0)), path(4));
        probe.on_forward(true, at(0));
        for millis in 0..20 {
            probe.count(at(100 * millis));
        }
        probe.schedule(true, &path, at(4990));
        assert_eq!(probe.next_timeout(&path), None, "it has ended");
        probe.on_return(true, &path, at(5000));
        assert_eq!(probe.next_timeout(&path), Some(at(5000)));
        probe.on_return(false, &path, at(5000));
        assert_eq!(probe.next_timeout(&path), None, "nothing is missing");
        probe.on_forward(true, at(5100));
        probe.on_return(true, &path, at(5105));
        assert_eq!(probe.next_timeout(&path), Some(at(5125)), "it is still under way");
    }
}
