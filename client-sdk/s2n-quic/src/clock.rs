//! The endpoint's monotonic clock.

use packrat_estimate::Timestamp;
use std::time::Instant;

/// Maps the operating system's monotonic clock to the [`Timestamp`] of the sans-IO core; one origin per endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin is now.
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Microseconds since the origin.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The instant of a timestamp of this clock; `None` when it is beyond what the platform can represent.
    pub(crate) fn instant(&self, timestamp: Timestamp) -> Option<Instant> {
        self.origin.checked_add(timestamp.saturating_since(Timestamp::ZERO))
    }
}
