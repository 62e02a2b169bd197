//! A trial of a sender: does it ignore losses?
//!
//! Most downloads are short. So a trial begins with one loss: a sender that grows through it is BBR. If
//! it does not, losses are repaired until the session is long. The [shadow](super::shadow) judges.
//!
//! ```text
//!   Start ---- the sender grows through a loss ----> it tolerates losses
//!     |  \--- it does not --> Paused: losses are repaired
//!     |                          |
//!     +--------------------------+---- the session is long ----> Long: losses are shown
//! ```

use crate::config::TOLERATED_LOSS;
use crate::sender_memory::Expectation;

/// Datagrams after which a session is long: some 1.5 MB.
const LONG_SESSION_DATAGRAMS: u64 = 1280;

/// Progress of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// From the beginning of the connection on: does it grow through a loss?
    Start,
    /// It may have given way, and is shown no losses.
    Paused,
    /// It is shown losses until it is known.
    Long,
}

/// The trial of a session's sender, and its findings.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    phase: Phase,
    tolerates: bool,
    /// It began with a window, or ignored overflows, as no loss-based sender does.
    heedless: bool,
    /// Other sessions have found that the route's senders tolerate losses.
    is_expected: bool,
    /// No loss was shown because of that yet.
    believes: bool,
}

impl Trial {
    /// That of a session that begins like this; `None` if its sender is shown no losses.
    pub(super) fn expecting(expectation: Expectation) -> Option<Self> {
        let is_expected = expectation == Expectation::Tolerates;
        let start = Self { is_expected, believes: is_expected, ..Self::in_phase(Phase::Start) };
        (expectation != Expectation::Answers).then_some(start)
    }

    /// That of a session whose sender has acted as no loss-based one does.
    pub(super) fn of_heedless() -> Self {
        Self { heedless: true, ..Self::in_phase(Phase::Long) }
    }

    fn in_phase(phase: Phase) -> Self {
        Self { phase, tolerates: false, heedless: false, is_expected: false, believes: false }
    }

    /// True while the sender is shown losses.
    pub(super) fn shows(&self) -> bool {
        self.phase != Phase::Paused
    }

    /// True until the sender has grown through its first loss, or has had the time to.
    pub(super) fn is_at_start(&self) -> bool {
        self.phase == Phase::Start
    }

    /// A number of datagrams was forwarded since the session began.
    pub(super) fn on_forwarded(&mut self, forwarded: u64) {
        if forwarded >= LONG_SESSION_DATAGRAMS {
            self.phase = Phase::Long;
        }
    }

    /// The sender has grown through a loss, or not, or other losses are shown from here on.
    pub(super) fn end_start(&mut self, tolerates: bool) {
        if self.is_at_start() {
            let goes_on = tolerates || self.is_expected;
            self.phase = if goes_on { Phase::Long } else { Phase::Paused };
        }
    }

    /// The share of losses up to which its sender is shown them.
    pub(super) fn tolerated_loss(&self) -> f64 {
        if self.heedless { 1.0 } else { TOLERATED_LOSS }
    }

    /// True when a loss is shown for the first time because of what others have found.
    pub(super) fn note_shown(&mut self) -> bool {
        core::mem::take(&mut self.believes)
    }

    /// It was found to tolerate losses: true at the first time.
    pub(super) fn note_tolerance(&mut self) -> bool {
        self.end_start(true);
        !core::mem::replace(&mut self.tolerates, true)
    }

    /// True if it was found to tolerate losses.
    pub(super) fn tolerates(&self) -> bool {
        self.tolerates
    }
}
