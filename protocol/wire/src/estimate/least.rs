//! The least sample of a while.

use core::time::Duration;

use crate::estimate::Timestamp;

/// The least one of this time and of as long before counts: a path may change.
const MEMORY: Duration = Duration::from_secs(30);

/// The least of the samples of the last half minute or more.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Least {
    /// That of the period that began then, and that of the period before.
    now: Option<(Timestamp, Duration)>,
    before: Option<Duration>,
}

impl Least {
    pub(super) fn on_sample(&mut self, sample: Duration, at: Timestamp) {
        self.now = Some(match self.now {
            Some((since, least)) if at.saturating_since(since) < MEMORY => {
                (since, least.min(sample))
            }
            Some((_, least)) => {
                self.before = Some(least);
                (at, sample)
            }
            None => (at, sample),
        });
    }

    /// The least one, if there was any.
    pub(super) fn get(&self) -> Option<Duration> {
        [self.now.map(|(_, least)| least), self.before].into_iter().flatten().min()
    }
}
