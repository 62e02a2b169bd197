//! The least sample of a while.

use core::time::Duration;

use crate::estimate::Timestamp;

/// The least one of this time and of as long before counts: a path may change.
const MEMORY: Duration = Duration::from_secs(30);

/// A sample that there is not.
const NONE: u32 = u32::MAX;

/// The least of the samples of the last half minute or more, in whole microseconds: gateways keep one
/// for each client.
#[derive(Debug, Clone, Copy)]
pub struct Least {
    /// Beginning of the period, its least sample, and that of the period before.
    since: Timestamp,
    now: u32,
    before: u32,
}

impl Default for Least {
    fn default() -> Self {
        Self::new()
    }
}

impl Least {
    /// No sample yet.
    pub const fn new() -> Self {
        Self { since: Timestamp::ZERO, now: NONE, before: NONE }
    }

    /// Takes in one sample.
    pub fn on_sample(&mut self, sample: Duration, at: Timestamp) {
        let sample = u32::try_from(sample.as_micros()).unwrap_or(NONE).min(NONE - 1);
        if self.now != NONE && at.saturating_since(self.since) < MEMORY {
            self.now = self.now.min(sample);
        } else {
            (self.before, self.since, self.now) = (self.now, at, sample);
        }
    }

    /// The least one, if there was any.
    pub fn get(&self) -> Option<Duration> {
        let least = self.now.min(self.before);
        (least != NONE).then(|| Duration::from_micros(least.into()))
    }
}
