//! The shadow of a sender: the largest window that a loss-based sender can have.
//!
//! CUBIC keeps at most seven tenths of its window at a loss, NewReno a half; both grow by a datagram in
//! a round trip, CUBIC faster back to its old window (RFC 9438, RFC 9002). The shadow does what CUBIC
//! does at each loss that the sender is shown. A sender that has twice its shadow under way ignores
//! losses: BBR.
//!
//! ```text
//!   under way          x shown    heard |
//!   BBR     10  20  40     80       160   320      its shadow  112  113
//!   CUBIC   10  20  40     80       112   113                  112  113
//! ```
//!
//! "Under way" are the datagrams that were forwarded within a round trip of sender and client, the
//! shortest one. Every uncertainty makes the shadow larger: the sender hears of a loss late, losses of
//! one round trip are one, and the window before the first loss is the largest one until the sender has
//! heard of it.

use core::time::Duration;

use packrat_wire::estimate::{LARGE_WINDOW, Timestamp};

use crate::sender_memory::Finding;

/// Share of its window that CUBIC keeps at a loss.
const CUBIC_BACKOFF: f64 = 0.7;
/// Datagrams per cubed second by which CUBIC grows.
const CUBIC_GROWTH: f64 = 0.4;
/// Round trips after which a sender has heard of a loss that is found.
const HEARD_ROUND_TRIPS: f64 = 1.25;
/// Time after which a sender hears of a queue's loss, beside [`HEARD_ROUND_TRIPS`]: datagrams above it
/// wait at the client for symbols, and for the Report of the queue.
const HEARD_LATER: Duration = Duration::from_millis(60);
/// Time for which a sender hears later of a loss, if the round trip beyond the gateway is not known.
const UNKNOWN_BEYOND: Duration = Duration::from_millis(300);
/// Ratio of the round trip that is assumed to the true one, at most: a server takes time to answer.
const ANSWER_SCALE: f64 = 1.5;
/// Ratio of the datagrams under way to the shadow from which the sender ignores losses.
const IGNORED_RATIO: f64 = 2.0;
/// Losses after which a sender in the window that they allow is loss-based.
const JUDGED_LOSSES: u32 = 5;
/// Ratio of the datagrams under way to the window that losses allow below which a sender may be
/// loss-based.
const FITTING_RATIO: f64 = 2.0;
/// Share of the largest window below which the sender has given way.
const SHRUNK_SHARE: f64 = 0.5;
/// Round trips, after it has heard of its first loss, for which a sender may grow through it.
const GROWTH_ROUND_TRIPS: f64 = 3.0;
/// Marks of which the oldest is older than a round trip, also when round trips grow.
const MARK_COUNT: usize = 16;
/// Marks in the shortest round trip, if the present one is not much longer.
const LEAST_MARKS: u32 = 4;
/// Marks in the present round trip, at most.
const PRESENT_MARKS: u32 = 8;

/// The round trips of sender and client; of the last mile alone if `is_whole` is false.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrips {
    /// The shortest one.
    pub(super) least: Duration,
    /// The present one, with the last mile's queue.
    pub(super) present: Duration,
    /// False: the round trip of gateway and server is not known.
    pub(super) is_whole: bool,
}

/// A number of datagrams forwarded until a time.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    at: Timestamp,
    forwarded: u64,
}

/// A backoff of the shadow.
#[derive(Debug, Clone, Copy)]
struct Backoff {
    /// When the sender has heard of the loss.
    heard: Timestamp,
    /// Its window until then.
    before: f64,
}

/// The largest window that a loss-based sender can have, and the one that this sender has.
#[derive(Debug, Clone, Default)]
pub(super) struct Shadow {
    /// A ring; `newest` is the place of the newest.
    marks: [Mark; MARK_COUNT],
    newest: usize,
    /// Most datagrams under way since the loss before.
    peak: f64,
    /// Most datagrams under way until the sender has heard of its first loss.
    largest: f64,
    /// The newest one that the sender has heard of.
    backoff: Option<Backoff>,
    /// The sender will have heard of the newest loss then.
    pending: Option<Timestamp>,
    /// Losses since the sender is shown all, each in another round trip.
    losses: u32,
    /// Datagrams forwarded until the first of them.
    first_loss: u64,
    /// The next of them comes then, at the earliest.
    next_loss: Timestamp,
    /// A finding at the newest loss.
    gives_way: Option<Finding>,
    /// True if the newest loss was a queue's.
    is_queues: bool,
}

impl Shadow {
    /// The sender is shown that a datagram, forwarded at this time, was lost.
    pub(super) fn on_shown(
        &mut self,
        forwarded_at: Timestamp,
        is_queues: bool,
        round_trips: RoundTrips,
        now: Timestamp,
    ) {
        self.judge_allowed(round_trips, now);
        self.hear(round_trips, now);
        let newest = self.pending.or(self.backoff.map(|backoff| backoff.heard));
        if newest.is_some_and(|heard| forwarded_at < heard) {
            return;
        }
        let later = [(is_queues, HEARD_LATER), (!round_trips.is_whole, UNKNOWN_BEYOND)];
        let later: Duration = later.iter().filter(|(holds, _)| *holds).map(|(_, time)| *time).sum();
        self.pending = Some(now + round_trips.present.mul_f64(HEARD_ROUND_TRIPS) + later);
        self.is_queues = is_queues;
    }

    /// Compares the most datagrams under way since the loss before with the window that the shown losses
    /// allow: at the end of a transfer there are fewer.
    fn judge_allowed(&mut self, round_trips: RoundTrips, now: Timestamp) {
        if now < self.next_loss {
            return;
        }
        self.next_loss = now + round_trips.present.mul_f64(HEARD_ROUND_TRIPS);
        let forwarded = self.marks[self.newest].forwarded;
        if self.losses == 0 {
            self.first_loss = forwarded;
        }
        self.losses += 1;
        let peak = core::mem::take(&mut self.peak);
        if self.losses >= JUDGED_LOSSES {
            let between = (forwarded - self.first_loss) as f64 / f64::from(self.losses - 1);
            if peak < FITTING_RATIO * allowed(between, round_trips) {
                let has_shrunk = peak < SHRUNK_SHARE * self.largest;
                self.gives_way = Some(if has_shrunk { Finding::Answers } else { Finding::Fits });
            }
        }
    }

    /// An eACK was looked at, after `forwarded` datagrams. `Some`: a finding about the sender.
    pub(super) fn on_eack(
        &mut self,
        forwarded: u64,
        round_trips: RoundTrips,
        now: Timestamp,
    ) -> Option<Finding> {
        let under_way = self.follow(forwarded, round_trips, now);
        self.hear(round_trips, now);
        let heard = self.backoff?.heard;
        if now < heard + round_trips.present {
            return self.gives_way.take();
        }
        let ratio = under_way / self.window(round_trips, now)?;
        let gives_way = self.gives_way.take();
        if ratio >= IGNORED_RATIO { Some(Finding::Tolerates) } else { gives_way }
    }

    /// The sender has heard of the newest loss, if it is time.
    fn hear(&mut self, round_trips: RoundTrips, now: Timestamp) {
        if let Some(heard) = self.pending.filter(|heard| *heard <= now) {
            let floor = LARGE_WINDOW as f64 * ANSWER_SCALE;
            let before = self.window(round_trips, heard).unwrap_or(self.largest.max(floor));
            self.backoff = Some(Backoff { heard, before });
            self.pending = None;
        }
    }

    /// True if the sender has had the time to grow through its first loss.
    pub(super) fn has_judged_growth(&self, round_trips: RoundTrips, now: Timestamp) -> bool {
        let judged = round_trips.present.mul_f64(GROWTH_ROUND_TRIPS);
        self.backoff.is_some_and(|backoff| backoff.heard + judged <= now)
    }

    /// True if the newest loss was a queue's.
    pub(super) fn is_queues(&self) -> bool {
        self.is_queues
    }

    /// The largest window, datagrams; `None` before the sender has heard of a loss.
    fn window(&self, round_trips: RoundTrips, now: Timestamp) -> Option<f64> {
        let Backoff { heard, before } = self.backoff?;
        let since = now.saturating_since(heard);
        let kept = CUBIC_BACKOFF * before;
        let linear = since.div_duration_f64(round_trips.least) * ANSWER_SCALE.powi(2);
        let growth = CUBIC_GROWTH * ANSWER_SCALE;
        let back_after = (before * (1.0 - CUBIC_BACKOFF) / growth).cbrt();
        let cubic = before - kept + growth * (since.as_secs_f64() - back_after).powi(3);
        Some(kept + cubic.max(linear))
    }

    /// The datagrams under way, counted over the shortest round trip. Over the present one they are at
    /// most `peak` and `largest`.
    fn follow(&mut self, forwarded: u64, round_trips: RoundTrips, now: Timestamp) -> f64 {
        let distance = (round_trips.least / LEAST_MARKS).max(round_trips.present / PRESENT_MARKS);
        if self.marks[self.newest].at + distance <= now {
            self.newest = (self.newest + 1) % MARK_COUNT;
            self.marks[self.newest] = Mark { at: now, forwarded };
        }
        let since = |time: Duration| {
            let (older, newer) = self.marks.split_at(self.newest + 1);
            let is_old = |mark: &&Mark| mark.at + time <= now;
            let mut from_newest = older.iter().rev().chain(newer.iter().rev());
            let oldest = newer.first().unwrap_or(&older[0]);
            let old = from_newest.find(is_old).unwrap_or(oldest);
            (forwarded.saturating_sub(old.forwarded) as f64, now.saturating_since(old.at))
        };
        let (count, time) = since(round_trips.least);
        let under_way = count * round_trips.least.div_duration_f64(time.max(round_trips.least));
        let most = since(round_trips.present).0;
        self.peak = self.peak.max(most);
        if self.backoff.is_none() {
            self.largest = self.largest.max(most);
        }
        under_way
    }

    /// Losses are hidden from the sender from here on.
    pub(super) fn hide(&mut self) {
        (self.losses, self.gives_way) = (0, None);
    }

    /// Forgets all losses and the sender's largest window.
    pub(super) fn begin_anew(&mut self) {
        let Self { marks, newest, .. } = *self;
        *self = Self { marks, newest, ..Self::default() };
    }
}

/// The mean window that losses allow, with this number of datagrams between two: Reno's, or CUBIC's
/// (RFC 9438, section 5.1).
fn allowed(between: f64, round_trips: RoundTrips) -> f64 {
    let cubic = 1.05 * (round_trips.present.as_secs_f64() * between).powf(0.75);
    cubic.max(1.22 * between.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    const LAST_MILE: Duration = Duration::from_millis(20);
    const STEPS: u32 = 16;

    /// The growth and backoff of a sender.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Control {
        NewReno,
        Cubic,
        Bbr,
    }
    use Control::{Bbr, Cubic, NewReno};

    /// A download, in steps of a sixteenth of the round trip.
    #[derive(Debug, Clone, Copy)]
    struct Download {
        control: Control,
        first_window: f64,
        /// Datagrams that the path holds without a queue's loss, and the most that the sender needs.
        holds: f64,
        needs: f64,
        /// Share that the medium loses, of which the gateway shows all.
        loss: f64,
        /// The round trip of sender and client, and what the gateway takes it for.
        whole: Duration,
        assumed: Duration,
    }

    impl Download {
        const fn of(control: Control) -> Self {
            let whole = LAST_MILE;
            let (first_window, needs) = (10.0, f64::INFINITY);
            Self { control, first_window, holds: 400.0, needs, loss: 0.0, whole, assumed: whole }
        }

        /// All findings about it, one for each that follows another, with the round trip of each.
        fn findings(self, seed: u64, rounds: u32) -> Vec<(u32, Finding)> {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut is_lost = || f64::from(random.next_u32()) / f64::from(u32::MAX) < self.loss;
            let round_trips =
                RoundTrips { least: self.assumed, present: self.assumed, is_whole: true };
            let (mut shadow, mut found) = (Shadow::default(), Vec::new());
            let step = self.whole / STEPS;
            let (mut window, mut in_slow_start) = (self.first_window, self.control != Bbr);
            let (mut before, mut reduced_at) = (window, Timestamp::ZERO);
            let (mut debt, mut forwarded) = (0.0, 0);
            // Losses that the sender has not heard of: when it will, and when they were sent.
            let mut unheard: Vec<(Timestamp, Timestamp)> = Vec::new();
            for count in 0..rounds * STEPS {
                let now = Timestamp::from_millis(1000) + step * count;
                let heard: Vec<_> = unheard.extract_if(.., |(at, _)| *at <= now).collect();
                if let Some((_, sent)) = heard.last()
                    && *sent >= reduced_at
                    && self.control != Bbr
                {
                    (before, reduced_at, in_slow_start) = (window, now, false);
                    window = (window * if self.control == Cubic { 0.7 } else { 0.5 }).max(2.0);
                }
                // A sender that does not fill its window does not grow it (RFC 9002, section 7.8).
                if count % STEPS == 0 && count > 0 && window <= self.needs {
                    let since = now.saturating_since(reduced_at).as_secs_f64();
                    window = match self.control {
                        Bbr => (2.0 * window).min(2.0 * self.holds),
                        _ if in_slow_start => 2.0 * window,
                        NewReno => window + 1.0,
                        Cubic => {
                            let back = (before * 0.3 / 0.4).cbrt();
                            (before + 0.4 * (since - back).powi(3)).max(window + 0.5)
                        }
                    };
                }
                debt += window.min(self.needs) / f64::from(STEPS);
                let mut overflow =
                    (window.min(self.needs) - self.holds).max(0.0) / f64::from(STEPS);
                while debt >= 1.0 {
                    debt -= 1.0;
                    forwarded += 1;
                    let is_queues = overflow >= 1.0;
                    overflow -= f64::from(u8::from(is_queues));
                    if is_queues || is_lost() {
                        shadow.on_shown(now, is_queues, round_trips, now + LAST_MILE);
                        unheard.push((now + self.whole, now));
                    }
                }
                if let Some(finding) = shadow.on_eack(forwarded, round_trips, now)
                    && found.last().is_none_or(|(_, last)| *last != finding)
                {
                    found.push((count / STEPS, finding));
                }
            }
            found
        }
    }

    #[test]
    fn a_loss_based_sender_is_never_called_tolerant() {
        for control in [NewReno, Cubic] {
            for loss in [0.0, 0.0005, 0.001, 0.005, 0.02, 0.05] {
                for (far, assumed) in [(0, 0), (0, 10), (60, 60), (60, 100), (180, 180)] {
                    for (seed, first_window) in (0..20).zip([10.0, 32.0, 64.0].into_iter().cycle())
                    {
                        let [whole, assumed] =
                            [far, assumed].map(|far| LAST_MILE + Duration::from_millis(far));
                        let download = Download::of(control);
                        let download = Download { loss, first_window, whole, assumed, ..download };
                        let found = download.findings(seed, 300);
                        let ignores = found.iter().any(|(_, of)| *of == Finding::Tolerates);
                        assert!(!ignores, "{download:?}, {seed}: {found:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_sender_that_ignores_losses_is_found() {
        for loss in [0.005, 0.01, 0.02, 0.05] {
            for seed in 0..20 {
                let found = Download { loss, ..Download::of(Bbr) }.findings(seed, 200);
                assert_eq!(found.first().map(|(_, of)| *of), Some(Finding::Tolerates), "{loss}");
            }
        }
    }

    #[test]
    fn a_sender_that_overflows_a_queue_for_ever_is_found() {
        let found = Download::of(Bbr).findings(0, 60);
        assert!(matches!(found[..], [(..25, Finding::Tolerates)]), "{found:?}");
    }

    #[test]
    fn a_sender_that_gives_way_is_loss_based() {
        for control in [NewReno, Cubic] {
            let download = Download { loss: 0.01, ..Download::of(control) };
            for seed in 0..20 {
                let found = download.findings(seed, 300);
                assert!(matches!(found.first(), Some((_, Finding::Answers | Finding::Fits))));
            }
        }
    }

    #[test]
    fn a_sender_with_little_to_send_is_not_found() {
        for seed in 0..20 {
            let thin = Download { needs: 20.0, loss: 0.02, ..Download::of(Cubic) };
            let found = thin.findings(seed, 300);
            assert!(found.iter().all(|(_, of)| *of != Finding::Tolerates), "{seed}");
        }
    }

    #[test]
    fn losses_of_one_round_trip_are_one() {
        let mut shadow = Shadow::default();
        let round_trips = RoundTrips { least: LAST_MILE, present: LAST_MILE, is_whole: true };
        shadow.largest = 100.0;
        for millis in 0..25 {
            let now = Timestamp::from_millis(1000 + millis);
            shadow.on_shown(now, false, round_trips, now);
        }
        assert_eq!(shadow.losses, 1);
        shadow.hear(round_trips, Timestamp::from_millis(1025));
        assert_eq!(shadow.backoff.map(|backoff| backoff.before), Some(100.0));
    }
}
