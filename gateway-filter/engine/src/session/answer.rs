//! A trial of a sender: does it answer the losses that it is shown?
//!
//! A loss-based sender gives way by a third or a half at each loss, and its losses determine the
//! window that is left: in packets, 1.22 times the root of the number sent per loss (Reno), or 1.05
//! times the power 3/4 of the product of that number and the round trip in seconds (CUBIC, RFC
//! 9438, section 5.1). A window that is several times as large, and does not shrink while losses
//! are shown, belongs to a sender that goes on as before: BBR. The gateway sees the last mile's
//! part of the window only, so that it errs towards a sender that answers.
//!
//! ```text
//!   window   o o o o o  BBR: as large as before, whatever the losses
//!            o
//!              o        CUBIC in a window that is too large: 0.7 of it after each loss
//!                o o o  CUBIC in the window that its losses allow
//! ```
//!
//! Most downloads end before five losses. So a trial begins with one: a sender that
//! [grows](super::growth) through it is BBR. Otherwise losses are repaired until the session is
//! long enough for five.
//!
//! ```text
//!   Start ---- the sender grows through a loss ----> it tolerates losses
//!     |  \--- it does not --> Paused: losses are repaired
//!     |                          |
//!     +--------------------------+---- 1280 datagrams were forwarded -------> Long: five losses
//! ```

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::growth::{Growth, RoundTrips};
use crate::config::TOLERATED_LOSS;
use crate::history::History;
use crate::sender_memory::{Expectation, Finding};

/// Losses that are judged together, each in another round trip.
const JUDGED_LOSSES: usize = 5;
/// Least distance of judged losses in round trips: a sender answers a loss once in a round trip,
/// and the gateway sees it a round trip later.
const ROUND_TRIPS_APART: f64 = 1.25;
/// Ratio of a window to the window that losses allow beyond which no loss-based sender has it.
const LARGE_WINDOW_RATIO: f64 = 3.0;
/// Ratio of a shrunk window to the window that losses allow below which it is on its way there:
/// BBR's shrinks as well when its startup ends, but to many times the window that losses allow.
const SHRINKING_WINDOW_RATIO: f64 = 3.0;
/// Ratio of a window to the window that losses allow below which it is a loss-based sender's.
const SMALL_WINDOW_RATIO: f64 = 1.5;
/// Share of its first size below which a window has shrunk: two and three losses leave 0.49 and
/// 0.34 of CUBIC's window.
const SHRUNK_SHARE: f64 = 0.5;
/// Share of its first size above which a window has not shrunk.
const KEPT_SHARE: f64 = 0.75;

/// Datagrams after which a session is long: some 1.5 MB.
const LONG_SESSION_DATAGRAMS: u64 = 1280;

/// Phase of the judgement of a sender.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// From the beginning of the connection on: does the sender grow through a loss?
    Start(Growth),
    /// The sender may have given way, and is shown no losses.
    Paused,
    /// Five losses are judged.
    Long,
}

/// One loss that the sender is shown.
#[derive(Debug, Clone, Copy, Default)]
struct Loss {
    /// Datagrams under way when it was found, and forwarded until then.
    window: f64,
    forwarded: u64,
}

/// The judgement of a session's sender: the newest losses that it was shown, while it was shown all
/// of them.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    phase: Phase,
    losses: [Loss; JUDGED_LOSSES],
    count: usize,
    next: Timestamp,
    tolerates: bool,
    /// The sender has begun with a window, or gone on through overflows, as no loss-based sender
    /// does.
    heedless: bool,
    /// Losses are shown because of other sessions' findings.
    is_expected: bool,
    /// No loss was shown because of these findings yet.
    believes: bool,
}

impl Answers {
    /// The judgement with which a session begins; `None` if its sender is shown no losses.
    pub(super) fn expecting(expectation: Expectation) -> Option<Self> {
        let believes = expectation == Expectation::Tolerates;
        let start = Self::in_phase(Phase::Start(Growth::default()));
        (expectation != Expectation::Answers).then_some(Self {
            is_expected: believes,
            believes,
            ..start
        })
    }

    /// The judgement of a sender that has done what a loss-based one never does.
    pub(super) fn of_heedless() -> Self {
        Self { heedless: true, ..Self::in_phase(Phase::Long) }
    }

    fn in_phase(phase: Phase) -> Self {
        Self {
            phase,
            losses: [Loss::default(); JUDGED_LOSSES],
            count: 0,
            next: Timestamp::ZERO,
            tolerates: false,
            heedless: false,
            is_expected: false,
            believes: false,
        }
    }

    /// True while the sender is shown losses.
    pub(super) fn shows(&self) -> bool {
        !matches!(self.phase, Phase::Paused)
    }

    /// Records the total of forwarded datagrams.
    pub(super) fn on_forwarded(&mut self, forwarded: u64) {
        if forwarded < LONG_SESSION_DATAGRAMS {
            return;
        }
        if !self.shows() {
            self.count = 0;
        }
        self.phase = Phase::Long;
    }

    /// Handles an eACK; `is_found`: it shows a loss that the sender is shown. `Some`, once: true if
    /// the sender grows through it, false if a trial pauses.
    pub(super) fn follow_growth(
        &mut self,
        is_found: bool,
        history: &History,
        round_trips: Option<RoundTrips>,
        now: Timestamp,
    ) -> Option<bool> {
        let Phase::Start(growth) = &mut self.phase else { return None };
        let grows = match round_trips {
            Some(round_trips) => growth.on_eack(is_found, history, round_trips, now)?,
            None if is_found => false,
            None => return None,
        };
        self.end_start(grows);
        (grows || !self.shows()).then_some(grows)
    }

    fn end_start(&mut self, tolerates: bool) {
        if matches!(self.phase, Phase::Start(_)) {
            let goes_on = tolerates || self.is_expected;
            self.phase = if goes_on { Phase::Long } else { Phase::Paused };
        }
    }

    /// The share of losses up to which the sender is shown them.
    pub(super) fn tolerated_loss(&self) -> f64 {
        if self.heedless { 1.0 } else { TOLERATED_LOSS }
    }

    /// True when a loss is shown for the first time because of other sessions' findings.
    pub(super) fn note_shown(&mut self) -> bool {
        core::mem::take(&mut self.believes)
    }

    /// Begins anew: from here on other losses are shown, or losses are repaired.
    pub(super) fn begin_anew(&mut self) {
        self.count = 0;
        self.end_start(false);
    }

    /// Records that the sender was found to tolerate losses: true at the first time.
    pub(super) fn note_tolerance(&mut self) -> bool {
        !core::mem::replace(&mut self.tolerates, true)
    }

    /// True if the sender was found to tolerate losses.
    pub(super) fn tolerates(&self) -> bool {
        self.tolerates
    }

    /// Judges a loss that the sender is shown, found while `window` datagrams are under way, after
    /// `forwarded`.
    pub(super) fn on_loss(
        &mut self,
        window: u64,
        forwarded: u64,
        round_trip: Duration,
        now: Timestamp,
    ) -> Option<Finding> {
        if now < self.next {
            return None;
        }
        self.next = now + round_trip.mul_f64(ROUND_TRIPS_APART);
        self.losses.rotate_left(1);
        self.losses[JUDGED_LOSSES - 1] = Loss { window: window as f64, forwarded };
        self.count += 1;
        if self.count < JUDGED_LOSSES {
            return None;
        }
        let mean = |losses: &[Loss]| {
            losses.iter().map(|loss| loss.window).sum::<f64>() / losses.len() as f64
        };
        // Startup and slow start overshoot: the second window may be the first that is the path's.
        let begin = self.losses[0].window.min(self.losses[1].window);
        let end = mean(&self.losses[JUDGED_LOSSES - 2..]);
        let sent =
            self.losses[JUDGED_LOSSES - 1].forwarded.saturating_sub(self.losses[0].forwarded);
        let per_loss = sent as f64 / (JUDGED_LOSSES - 1) as f64;
        let allowed = (1.22 * per_loss.sqrt())
            .max(1.05 * (round_trip.as_secs_f64() * per_loss).powf(0.75))
            .max(f64::MIN_POSITIVE);
        let times = mean(&self.losses) / allowed;
        if end < SHRUNK_SHARE * begin && times < SHRINKING_WINDOW_RATIO {
            Some(Finding::Answers)
        } else if times < SMALL_WINDOW_RATIO {
            Some(Finding::Fits)
        } else {
            (times >= LARGE_WINDOW_RATIO && end >= KEPT_SHARE * begin).then_some(Finding::Tolerates)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    const ROUND_TRIP: Duration = Duration::from_millis(40);

    /// The finding that decides a trial: the first one.
    fn first(found: &[Finding]) -> Finding {
        *found.first().unwrap()
    }

    /// Findings about a sender whose window is `grown` each round trip and `reduced` after each
    /// loss, while the share `loss` of its datagrams is lost.
    fn findings(
        loss: f64,
        seed: u64,
        grown: impl Fn(f64, f64) -> f64,
        reduced: impl Fn(f64) -> f64,
    ) -> Vec<Finding> {
        let (mut random, mut answers) =
            (ChaCha8Rng::seed_from_u64(seed), Answers::in_phase(Phase::Long));
        let (mut window, mut forwarded, mut found) = (140.0, 0, Vec::new());
        let mut since = 0.0;
        for round in 1..4000u32 {
            let now = Timestamp::ZERO + ROUND_TRIP * round;
            forwarded += window as u64;
            let survives = (1.0 - loss).powf(window);
            if f64::from(random.next_u32()) / f64::from(u32::MAX) > survives {
                found.extend(answers.on_loss(window as u64, forwarded, ROUND_TRIP, now));
                window = reduced(window).max(2.0);
                since = 0.0;
            } else {
                since += ROUND_TRIP.as_secs_f64();
                window = grown(window, since).min(280.0);
            }
        }
        found
    }

    #[test]
    fn reno_and_cubic_are_never_taken_for_a_sender_that_goes_on() {
        for loss in [0.0005, 0.001, 0.005, 0.02, 0.05] {
            for seed in 0..50 {
                let reno = findings(loss, seed, |window, _| window + 1.0, |window| window * 0.5);
                assert_ne!(first(&reno), Finding::Tolerates, "Reno, {loss}, {seed}: {reno:?}");
                // CUBIC grows by half a packet in a round trip, then faster.
                let cubic =
                    |window: f64, since: f64| window + 0.53f64.max(1.2 * since * since * 0.04);
                let cubic = findings(loss, seed, cubic, |window| window * 0.7);
                assert_ne!(first(&cubic), Finding::Tolerates, "CUBIC, {loss}, {seed}: {cubic:?}");
            }
        }
    }

    #[test]
    fn a_window_that_stays_is_of_a_sender_that_goes_on() {
        for loss in [0.001, 0.005, 0.02, 0.05] {
            let mut random = ChaCha8Rng::seed_from_u64(7);
            let noise: Vec<f64> =
                (0..4000).map(|_| 0.8 + f64::from(random.next_u32() % 1000) / 2500.0).collect();
            let at = core::cell::Cell::new(0);
            let probed = |_: f64, _: f64| {
                at.set(at.get() + 1);
                140.0 * noise[at.get()]
            };
            let found = findings(loss, 3, probed, |window| window);
            let tolerates = found.iter().filter(|found| **found == Finding::Tolerates).count();
            assert!(tolerates * 10 > found.len() * 9, "{loss}: {found:?}");
            assert!(!found.contains(&Finding::Answers), "{loss}");
        }
    }

    #[test]
    fn losses_of_one_round_trip_are_one() {
        let mut answers = Answers::in_phase(Phase::Long);
        for millis in 0..50 {
            let now = Timestamp::from_millis(1000 + millis);
            assert_eq!(answers.on_loss(100, 100 * millis, ROUND_TRIP, now), None);
        }
        assert_eq!(answers.count, 1);
    }
}
