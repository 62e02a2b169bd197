//! The bytes of a flow as they arrive at the receiving side's application.

use crate::simulation::clock::VirtualClock;
use packrat_wire::estimate::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A counter of arrived bytes.
#[derive(Debug)]
pub(crate) struct Arrivals {
    settled_at: Timestamp,
    all: AtomicU64,
    counted: AtomicU64,
    /// Time of the first arrival in microseconds; 0: no arrival yet.
    first_at: AtomicU64,
}

impl Arrivals {
    /// A counter; bytes that arrive earlier than `settled_at` do not count.
    pub(crate) fn new(settled_at: Timestamp) -> Self {
        Self {
            settled_at,
            all: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            first_at: AtomicU64::new(0),
        }
    }

    /// Bytes have arrived just now.
    pub(crate) fn add(&self, bytes: u64, clock: VirtualClock) {
        if self.all.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.first_at.store(clock.now().as_micros(), Ordering::Relaxed);
        }
        if clock.now() >= self.settled_at {
            self.counted.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that have arrived.
    pub(crate) fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    /// The time at which the first ones have arrived.
    pub(crate) fn first_at(&self) -> Option<Timestamp> {
        let micros = Some(self.first_at.load(Ordering::Relaxed)).filter(|micros| *micros > 0)?;
        Some(Timestamp::ZERO + Duration::from_micros(micros))
    }

    /// Arrived bytes that count.
    pub(crate) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// The time from which on bytes count.
    pub(crate) fn settled_at(&self) -> Timestamp {
        self.settled_at
    }
}
