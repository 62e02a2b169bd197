//! The least sample of a while.

use core::time::Duration;

use crate::estimate::Timestamp;

/// Period of the least values: the least one of this period and of the one before counts, as a path
/// may change.
const LEAST_MEMORY: Duration = Duration::from_secs(30);

/// Value in the place of a missing sample, microseconds.
const NO_SAMPLE: u32 = u32::MAX;

/// The least of the samples of the last half minute or more, in whole microseconds: gateways keep one
/// for each client.
#[derive(Debug, Clone, Copy)]
pub struct Least {
    /// Beginning of the period. The fields below are its least sample and the previous period's, in
    /// microseconds.
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
        Self { since: Timestamp::ZERO, now: NO_SAMPLE, before: NO_SAMPLE }
    }

    /// Takes in one sample.
    pub fn on_sample(&mut self, sample: Duration, at: Timestamp) {
        let sample = u32::try_from(sample.as_micros()).unwrap_or(NO_SAMPLE).min(NO_SAMPLE - 1);
        if self.now != NO_SAMPLE && at.saturating_since(self.since) < LEAST_MEMORY {
            self.now = self.now.min(sample);
        } else {
            (self.before, self.since, self.now) = (self.now, at, sample);
        }
    }

    /// The least sample, if there was any.
    pub fn get(&self) -> Option<Duration> {
        let least = self.now.min(self.before);
        (least != NO_SAMPLE).then(|| Duration::from_micros(least.into()))
    }
}
