//! The round trip to the server.

use crate::sync::atomic::{AtomicU64, Ordering};
use packrat_wire::estimate::Timestamp;

/// The first round trip of a session to its server, with the server's time to answer.
#[derive(Debug, Default)]
pub(crate) struct FarRoundTrip {
    /// The time of the first datagram to the server, in microseconds; 0: not sent yet.
    asked: AtomicU64,
    /// The round trip in microseconds; 0: not known.
    measured: AtomicU64,
}

impl FarRoundTrip {
    /// A datagram goes to the server; the first one begins the measurement.
    pub(crate) fn note_question(&self, now: impl FnOnce() -> Timestamp) {
        if self.asked.load(Ordering::Relaxed) == 0 {
            self.asked.store(now().as_micros().max(1), Ordering::Relaxed);
        }
    }

    /// Something has come from the server; the first time this ends the measurement, and returns
    /// it in microseconds.
    pub(crate) fn note_answer(&self, now: Timestamp) -> Option<u64> {
        let asked = self.asked.load(Ordering::Relaxed);
        if self.measured.load(Ordering::Relaxed) != 0 || asked == 0 {
            return None;
        }
        let microseconds = now.as_micros().saturating_sub(asked).max(1);
        self.measured.store(microseconds, Ordering::Relaxed);
        Some(microseconds)
    }

    /// The time of the first answer.
    pub(crate) fn answered(&self) -> Option<Timestamp> {
        let asked = self.asked.load(Ordering::Relaxed);
        self.microseconds().map(|measured| Timestamp::from_micros(asked + measured))
    }

    /// The round trip in microseconds, once it is known.
    pub(crate) fn microseconds(&self) -> Option<u64> {
        Some(self.measured.load(Ordering::Relaxed)).filter(|microseconds| *microseconds > 0)
    }
}
