//! The state that all routes of a data plane share.

use std::sync::Arc;
use std::time::Duration;

use packrat_engine::WorkBudget;
use packrat_wire::estimate::Timestamp;

use super::inquiry_budget::InquiryBudget;
use crate::clock::Clock;
use crate::log::{Event, Logger, Observations};
use crate::random::Random;
use crate::socket::{Capacity, SourcePorts};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Receive buffer below which bursts are lost at a few hundred Mbit/s; a smaller one is logged
/// once.
const SMALL_RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// The log, the clock, the randomness and the limits of a process.
#[derive(Debug)]
pub(crate) struct Environment {
    pub(crate) logger: Logger,
    pub(crate) capacity: Arc<Capacity>,
    pub(crate) source_ports: SourcePorts,
    pub(crate) observations: Observations,
    /// The work that clients' messages may cause on each thread, on all routes together.
    pub(crate) work: Arc<WorkBudget>,
    pub(crate) inquiries: InquiryBudget,
    pub(crate) random: Random,
    clock: Clock,
    numbers: AtomicU64,
    small_buffer_noted: AtomicBool,
}

impl Environment {
    pub(crate) fn new(logger: Logger, capacity: Arc<Capacity>) -> Self {
        Self {
            logger,
            capacity,
            source_ports: SourcePorts::of_host(),
            observations: Observations::default(),
            work: Arc::default(),
            inquiries: InquiryBudget::default(),
            random: Random::default(),
            clock: Clock::default(),
            numbers: AtomicU64::new(1),
            small_buffer_noted: AtomicBool::new(false),
        }
    }

    /// Environment with the caller's clock and randomness.
    #[cfg(feature = "virtual-time")]
    pub(crate) fn with(self, clock: Clock, random: Random) -> Self {
        Self { clock, random, ..self }
    }

    /// An environment without a log, for at most `sessions` sessions.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn silent(sessions: u64) -> Arc<Self> {
        let logger = Logger::new(Box::new(crate::log::Silent));
        Arc::new(Self::new(logger, Capacity::limited(sessions, "in a test".to_owned())))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The calendar's time at the origin of [`Self::now`], since 1970; changes when the clock is
    /// set.
    pub(crate) fn unix_origin(&self) -> Duration {
        self.clock.unix_origin()
    }

    /// A number that was not used before in this data plane.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn note_receive_buffer(&self, bytes: usize) {
        if bytes < SMALL_RECEIVE_BUFFER_BYTES
            && !self.small_buffer_noted.swap(true, Ordering::Relaxed)
        {
            self.logger.log(Event::ReceiveBufferSmall, || {
                [
                    ("bytes", bytes.into()),
                    (
                        "advice",
                        "bursts may be lost: raise net.core.rmem_max to 8388608 or grant CAP_NET_ADMIN"
                            .into(),
                    ),
                ]
            });
        }
    }
}
