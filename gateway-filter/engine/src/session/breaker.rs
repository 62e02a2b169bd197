//! Circuit breaker of repairs (RFC 8084; RFC 8085, section 3.1.10): losses from too high a sending
//! rate are for the sender to see, and repairs of them make the overload worse.
//!
//! A standing queue shows by its delay ([`super::last_mile`]). A policer and a shallow buffer cause
//! none: behind them, the arrival rate stays the same however much more is forwarded. On a lossy
//! medium, more datagrams arrive when more are forwarded. Repairs are not compared: their number
//! follows the loss, so that the sending rate varies with each burst while all datagrams arrive in
//! the end.
//!
//! ```text
//!     arrivals do not follow forwarding, or most datagrams are repaired in vain
//!   closed ------------------------------------------------------------------------------------> open
//!     ^ repairs are sent                                       losses are given up at once, and  |
//!     |                                                        the client waits for no repair    |
//!     +------------------- 1 s, then twice as long each time, up to 32 s ------------------------+
//! ```

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::policing::Policing;

/// Shortest duration of a window.
const MINIMUM_WINDOW: Duration = Duration::from_millis(200);
/// Fewest round trips in a window.
const WINDOW_ROUND_TRIPS: u32 = 4;
/// Fewest datagrams in a window that proves something.
const MINIMUM_DATAGRAMS: u64 = 32;
/// Least loss in a window that proves something.
const MINIMUM_LOSS: f64 = 0.02;
/// Number of windows with loss that are compared.
const COMPARED_WINDOWS: usize = 8;
/// Number of windows without loss in a row after which earlier windows are forgotten.
const QUIET_WINDOWS: u8 = 8;
/// Deviation of the forwarding rate, as a share of its mean, below which the windows prove nothing.
const MINIMUM_DEVIATION: f64 = 0.1;
/// Squared coefficient of variation of the arrival rate, as a share of the forwarding rate's, below
/// which arrivals do not follow. On a medium that loses a constant share it is 1, whatever the
/// share; a varying loss adds to it.
const SATURATED_VARIATION: f64 = 0.25;

/// Repaired datagrams that are looked at together.
const JUDGED_REPAIRS: u32 = 32;
/// Share of the judged repairs that never arrives when repairs pause. A repair that is lost proves
/// little: on a medium that loses in bursts, most are sent into the burst.
const LOST_REPAIRS_SHARE: f64 = 0.5;
/// Shortest time over which the fates of judged repairs are spread: a burst of loss is over sooner.
const MINIMUM_SPREAD: Duration = Duration::from_secs(2);

/// Duration of the first pause of repairs.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Duration of the first pause behind a policer, which will be there for longer.
const POLICED_PAUSE: Duration = Duration::from_secs(8);
/// Duration of the longest pause of repairs.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);
/// Time without a pause after which the next one is as short as the first.
const PAUSE_MEMORY: Duration = Duration::from_secs(60);

/// Totals of a session, as an eACK shows them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// Datagrams forwarded.
    pub(crate) forwarded: u64,
    /// Datagrams known to have arrived, at first or as repairs.
    pub(crate) arrived: u64,
    /// Datagrams known to be lost, each counted once.
    pub(crate) lost: u64,
}

/// One window's rates, datagrams per second.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    forwarded: f64,
    arrived: f64,
}

/// The breaker of one session, which may open at each eACK.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// Totals at the beginning of the window, and its time.
    before: Totals,
    since: Timestamp,
    /// Windows with loss, the newest one at `next - 1`.
    windows: [Window; COMPARED_WINDOWS],
    next: u8,
    filled: bool,
    quiet: u8,
    /// Repaired datagrams whose fates became known since `repaired_since`.
    repaired: u32,
    repaired_in_vain: u32,
    repaired_since: Timestamp,
    policing: Policing,
    /// A policer has caused losses since the last eACK.
    policed: bool,
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
            before: Totals { forwarded: 0, arrived: 0, lost: 0 },
            since: Timestamp::ZERO,
            windows: [Window { forwarded: 0.0, arrived: 0.0 }; COMPARED_WINDOWS],
            next: 0,
            filled: false,
            quiet: 0,
            repaired: 0,
            repaired_in_vain: 0,
            repaired_since: Timestamp::ZERO,
            policing: Policing::new(),
            policed: false,
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
        self.count_repaired(now);
    }

    /// Records that a repaired datagram is given up.
    pub(crate) fn on_in_vain(&mut self, now: Timestamp) {
        self.count_repaired(now);
        self.repaired_in_vain += 1;
    }

    fn count_repaired(&mut self, now: Timestamp) {
        if self.repaired == 0 {
            self.repaired_since = now;
        }
        self.repaired += 1;
    }

    /// Records that a datagram with this sequence number, forwarded `at`, is missing; the fates of
    /// all before it are known. `round_trip`: the last mile's.
    pub(crate) fn on_loss(&mut self, sequence: u64, at: Timestamp, round_trip: Duration) {
        self.policed |= self.policing.on_loss(sequence, at, round_trip);
    }

    /// Records the arrival of a repair that was sent before the datagrams that are found missing
    /// next.
    pub(crate) fn on_repair_arrived(&mut self) {
        self.policing.on_repair_arrived();
    }

    /// Handles a decoded eACK. `is_shown`: losses are given up anyway, because a queue stands or
    /// the sender tolerates them; there is no repair to pause.
    pub(crate) fn on_eack(
        &mut self,
        totals: Totals,
        round_trip: Duration,
        is_shown: bool,
        now: Timestamp,
    ) -> Option<Change> {
        let policed = core::mem::take(&mut self.policed) && !is_shown;
        if let Some(until) = self.open_until {
            if now < until {
                if policed {
                    self.open_until = Some(until.max(now + POLICED_PAUSE));
                }
                return None;
            }
            self.open_until = None;
            self.closed_at = now;
            self.begin_anew(totals, now);
            return Some(Change::Resumed);
        }
        if is_shown {
            self.policing.begin_anew();
            self.begin_window(totals, now);
            return None;
        }
        let saturated = self.on_time(totals, round_trip, now);
        let in_vain = self.are_repairs_in_vain(now);
        if policed {
            return Some(self.open(POLICED_PAUSE, now));
        }
        (saturated || in_vain).then(|| self.open(FIRST_PAUSE, now))
    }

    /// Judges repairs only, whose fates may have become known; [`super::backlog`] judges the
    /// losses.
    pub(crate) fn on_repairs(&mut self, now: Timestamp) -> Option<Change> {
        if let Some(until) = self.open_until {
            if now < until {
                return None;
            }
            (self.open_until, self.closed_at) = (None, now);
            (self.repaired, self.repaired_in_vain) = (0, 0);
            return Some(Change::Resumed);
        }
        self.are_repairs_in_vain(now).then(|| self.open(FIRST_PAUSE, now))
    }

    fn open(&mut self, first: Duration, now: Timestamp) -> Change {
        if now.saturating_since(self.closed_at) >= PAUSE_MEMORY {
            self.pauses = 0;
        }
        let pause = (first * (1 << self.pauses.min(5))).min(LONGEST_PAUSE);
        self.pauses += 1;
        self.open_until = Some(now + pause);
        Change::Paused(pause)
    }

    fn begin_window(&mut self, totals: Totals, now: Timestamp) {
        self.before = totals;
        self.since = now;
    }

    fn begin_anew(&mut self, totals: Totals, now: Timestamp) {
        self.begin_window(totals, now);
        (self.next, self.filled, self.quiet) = (0, false, 0);
        (self.repaired, self.repaired_in_vain) = (0, 0);
        self.policing.begin_anew();
    }

    /// Ends the window when it is over. True if the windows show that arrivals do not follow
    /// forwarding.
    fn on_time(&mut self, totals: Totals, round_trip: Duration, now: Timestamp) -> bool {
        let elapsed = now.saturating_since(self.since);
        if elapsed < MINIMUM_WINDOW.max(round_trip * WINDOW_ROUND_TRIPS) {
            return false;
        }
        let forwarded = totals.forwarded.saturating_sub(self.before.forwarded);
        let arrived = totals.arrived.saturating_sub(self.before.arrived);
        let lost = totals.lost.saturating_sub(self.before.lost);
        self.begin_window(totals, now);
        if forwarded < MINIMUM_DATAGRAMS || (lost as f64) < MINIMUM_LOSS * forwarded as f64 {
            self.quiet += 1;
            if self.quiet >= QUIET_WINDOWS {
                (self.next, self.filled, self.quiet) = (0, false, 0);
            }
            return false;
        }
        self.quiet = 0;
        let seconds = elapsed.as_secs_f64();
        if let Some(window) = self.windows.get_mut(usize::from(self.next)) {
            let [forwarded, arrived] = [forwarded, arrived].map(|count| count as f64 / seconds);
            *window = Window { forwarded, arrived };
        }
        self.next = (self.next + 1) % COMPARED_WINDOWS as u8;
        self.filled |= self.next == 0;
        self.filled && self.is_saturated()
    }

    fn is_saturated(&self) -> bool {
        let variation = |of: fn(&Window) -> f64| {
            let mean = self.windows.iter().map(of).sum::<f64>() / COMPARED_WINDOWS as f64;
            let square = |window: &Window| (of(window) - mean) * (of(window) - mean);
            let variance = self.windows.iter().map(square).sum::<f64>() / COMPARED_WINDOWS as f64;
            variance / (mean * mean).max(f64::MIN_POSITIVE)
        };
        let forwarded = variation(|window| window.forwarded);
        let arrived = variation(|window| window.arrived);
        forwarded >= MINIMUM_DEVIATION * MINIMUM_DEVIATION
            && arrived <= SATURATED_VARIATION * forwarded
    }

    /// True if most datagrams that were repaired in the last while never arrived.
    fn are_repairs_in_vain(&mut self, now: Timestamp) -> bool {
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

    const ROUND_TRIP: Duration = Duration::from_millis(40);

    /// Ten seconds with an eACK each 10 ms. `sent` returns the number of datagrams sent in the 10
    /// ms from this millisecond, `arrived` how many of them arrive. Returns the changes, with the
    /// millisecond of each.
    fn changes(
        sent: impl Fn(u64) -> u64,
        mut arrived: impl FnMut(u64, u64) -> u64,
    ) -> Vec<(u64, Change)> {
        let (mut breaker, mut totals) = (Breaker::new(), Totals::default());
        let mut changes = Vec::new();
        for millis in (0..10_000).step_by(10) {
            let count = sent(millis);
            let arrived = arrived(millis, count);
            totals.forwarded += count;
            totals.arrived += arrived;
            totals.lost += count - arrived;
            let now = Timestamp::from_millis(1000 + millis);
            let change = breaker.on_eack(totals, ROUND_TRIP, false, now);
            changes.extend(change.map(|change| (millis, change)));
        }
        changes
    }

    /// A sender that grows by a half in two seconds, and begins again.
    fn growing(millis: u64) -> u64 {
        40 + millis % 2000 / 100
    }

    /// A pseudo-random share of `count`, about `per_mille` of it.
    fn lose(millis: u64, count: u64, per_mille: u64) -> u64 {
        (0..count)
            .filter(|number| {
                let mixed = (millis * 1000 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                mixed % 1000 >= per_mille
            })
            .count() as u64
    }

    #[test]
    fn it_opens_for_longer_and_longer_where_more_that_is_sent_does_not_arrive() {
        let pauses: Vec<Change> = changes(growing, |_, count| count.min(38))
            .into_iter()
            .map(|(_, change)| change)
            .collect();
        let pause = |seconds| Change::Paused(Duration::from_secs(seconds));
        assert_eq!(pauses, [pause(1), Change::Resumed, pause(2), Change::Resumed, pause(4)]);
    }

    #[test]
    fn it_stays_closed_where_a_share_of_what_is_sent_arrives() {
        for per_mille in [20, 100, 240, 400, 600] {
            let lost = |millis, count| lose(millis, count, per_mille);
            assert_eq!(changes(growing, lost), [], "{per_mille}");
            assert_eq!(changes(|_| 40, lost), [], "{per_mille}, at a constant rate");
        }
        // Bursts of 60 ms, in which no datagram arrives.
        let bursts = |millis: u64, count| if millis % 500 < 60 { 0 } else { count };
        assert_eq!(changes(growing, bursts), []);
        // No loss.
        assert_eq!(changes(growing, |_, count| count), []);
    }

    #[test]
    fn behind_a_policer_it_opens_at_once_and_stays_open_while_losses_go_on() {
        let (mut breaker, mut totals) = (Breaker::new(), Totals::default());
        let mut changes = Vec::new();
        let mut run = |breaker: &mut Breaker, from: u64, millis: u64, queue_stands: bool| {
            let mut changes = Vec::new();
            for milli in from..from + millis {
                // Three are sent each millisecond, two arrive.
                let now = Timestamp::from_millis(milli);
                breaker.on_loss(totals.forwarded + 2, now, ROUND_TRIP);
                totals.forwarded += 3;
                (totals.arrived, totals.lost) = (totals.arrived + 2, totals.lost + 1);
                changes.extend(breaker.on_eack(totals, ROUND_TRIP, queue_stands, now));
            }
            changes
        };
        assert_eq!(run(&mut breaker, 1000, 500, true), [], "a queue stands");
        changes.extend(run(&mut breaker, 2000, 20_000, false));
        assert_eq!(changes, [Change::Paused(POLICED_PAUSE)]);
        assert!(breaker.is_open(Timestamp::from_millis(22_000) + POLICED_PAUSE / 2));
        let later = Timestamp::from_millis(22_000) + POLICED_PAUSE;
        assert_eq!(breaker.on_eack(totals, ROUND_TRIP, false, later), Some(Change::Resumed));
    }

    #[test]
    fn it_opens_where_most_repaired_datagrams_never_arrive_for_seconds() {
        let opened = |lost_of_ten: u64, spread: u64| {
            let mut breaker = Breaker::new();
            let open = |step: u64| {
                let now = Timestamp::from_millis(1000 + step * spread);
                if step % 10 < lost_of_ten {
                    breaker.on_in_vain(now);
                } else {
                    breaker.on_delivered(now);
                }
                breaker.on_eack(Totals::default(), ROUND_TRIP, false, now)
            };
            (0..200).filter_map(open).next()
        };
        assert_eq!(opened(7, 50), Some(Change::Paused(FIRST_PAUSE)));
        assert_eq!(opened(4, 50), None);
        assert_eq!(opened(10, 5), None, "a burst of one second");
    }

    #[test]
    fn after_a_quiet_minute_a_pause_is_short_again_and_a_standing_queue_says_nothing() {
        let mut breaker = Breaker::new();
        let in_vain = |breaker: &mut Breaker, from: u64| {
            (0..).find_map(|step| {
                let now = Timestamp::from_millis(from + step * 100);
                breaker.on_in_vain(now);
                match breaker.on_eack(Totals::default(), ROUND_TRIP, false, now) {
                    Some(Change::Paused(pause)) => Some(pause.as_secs()),
                    _ => None,
                }
            })
        };
        assert_eq!(in_vain(&mut breaker, 1000), Some(1));
        assert_eq!(in_vain(&mut breaker, 10_000), Some(2));
        assert_eq!(in_vain(&mut breaker, 20_000), Some(4));
        assert!(breaker.is_open(Timestamp::from_millis(24_000)));
        // It closes with the next eACK, and then a minute passes.
        let closed = Timestamp::from_millis(30_000);
        assert_eq!(
            breaker.on_eack(Totals::default(), ROUND_TRIP, false, closed),
            Some(Change::Resumed)
        );
        assert_eq!(in_vain(&mut breaker, 90_000), Some(1));

        let (mut breaker, mut totals) = (Breaker::new(), Totals::default());
        for millis in (0..10_000).step_by(10) {
            totals.forwarded += growing(millis);
            totals.arrived += 38;
            totals.lost += growing(millis) - 38;
            let now = Timestamp::from_millis(1000 + millis);
            assert_eq!(breaker.on_eack(totals, ROUND_TRIP, true, now), None);
        }
    }
}
