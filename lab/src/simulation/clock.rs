//! Virtual time as the sans-IO parts count it.

use packrat_wire::estimate::Timestamp;
use s2n_quic::provider::io::testing::time;

/// Maps the simulation's clock to [`Timestamp`]; one origin per trial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VirtualClock {
    origin: s2n_quic_core::time::Timestamp,
}

impl VirtualClock {
    /// A clock whose origin is now. Must be called inside the simulation.
    pub(crate) fn new() -> Self {
        Self { origin: time::now() }
    }

    /// Virtual microseconds since the origin.
    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = time::now().saturating_duration_since(self.origin);
        Timestamp::from_micros(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX))
    }

    /// Completes at `at`, or at once when that is past.
    pub(crate) fn sleep_until(&self, at: Timestamp) -> time::Timer {
        time::delay_until(self.origin + at.saturating_since(Timestamp::ZERO))
    }
}
