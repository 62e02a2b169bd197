//! A point in time as an argument.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Microseconds since an origin that the caller chooses once and keeps (process start, or the start
/// of a simulation).
///
/// Timestamps of two processes are never compared; only differences travel on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// A timestamp `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// A timestamp `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1000)
    }

    /// A timestamp of a caller's clock. Times above a quarter of the clock's range, such as
    /// `PACKRAT_NEVER`, become that quarter, so that sums of times fit.
    pub fn of_caller(micros: u64) -> Self {
        Self(micros.min(u64::MAX / 4))
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Seconds since the origin.
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 * 1e-6
    }

    /// Time since `earlier`; zero when `earlier` is in fact later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The time `age` ago, down to a whole microsecond; `None` before the origin.
    pub fn checked_sub(self, age: Duration) -> Option<Self> {
        self.saturating_since(Self::ZERO).checked_sub(age).map(|since| Self::ZERO + since)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}
