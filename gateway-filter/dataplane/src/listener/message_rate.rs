//! The rate of messages at a socket, or at all sockets of a thread: high, or not.

use std::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Time over which messages are counted.
pub(crate) const COUNTING_WINDOW: Duration = Duration::from_millis(1);
/// Messages in a window from which on the rate is high.
const HIGH_RATE_MESSAGES: u64 = 16;

/// The rate as of the last window, with hysteresis, so that it does not change with each of them.
/// `FEW`: messages in a window below which it is not high any more.
#[derive(Debug, Default)]
pub(crate) struct MessageRate<const FEW: u64> {
    is_high: bool,
    /// The beginning of the window, and messages in it.
    since: Timestamp,
    messages: u64,
}

impl<const FEW: u64> MessageRate<FEW> {
    pub(crate) const fn is_high(&self) -> bool {
        self.is_high
    }

    /// Notes messages. True if [`Self::is_high`] has changed.
    pub(crate) fn note(&mut self, messages: usize, now: Timestamp) -> bool {
        self.messages += messages as u64;
        let passed = now.saturating_since(self.since);
        if passed < COUNTING_WINDOW {
            return false;
        }
        let was_high = self.is_high;
        // Windows without a message were empty.
        let messages = self.messages / (passed.as_micros() / COUNTING_WINDOW.as_micros()) as u64;
        self.is_high = messages >= if was_high { FEW } else { HIGH_RATE_MESSAGES };
        (self.since, self.messages) = (now, 0);
        self.is_high != was_high
    }
}
