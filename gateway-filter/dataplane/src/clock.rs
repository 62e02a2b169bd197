//! The clock of a data plane.

#[cfg(feature = "virtual-time")]
use std::sync::Arc;
#[cfg(feature = "virtual-time")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use packrat_wire::estimate::Timestamp;

/// The time since an origin.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The system's, since then.
    System(Instant),
    /// The caller's, in microseconds.
    #[cfg(feature = "virtual-time")]
    Virtual(Arc<AtomicU64>),
}

impl Default for Clock {
    fn default() -> Self {
        Self::System(Instant::now())
    }
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System(origin) => Timestamp::from_micros(
                u64::try_from(origin.elapsed().as_micros()).unwrap_or(u64::MAX),
            ),
            #[cfg(feature = "virtual-time")]
            Self::Virtual(now) => Timestamp::from_micros(now.load(Ordering::Relaxed)),
        }
    }

    /// The calendar's time at the origin, since 1970; changes when the system's clock is set.
    pub(crate) fn unix_origin(&self) -> Duration {
        match self {
            Self::System(origin) => {
                let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                unix.saturating_sub(origin.elapsed())
            }
            #[cfg(feature = "virtual-time")]
            Self::Virtual(_) => Duration::from_secs(1_800_000_000),
        }
    }
}
