//! Keeps a failing shim away from the base connection.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use packrat_wire::estimate::Timestamp;

use crate::shim::{Released, Shim, ShimStats};
use crate::stats::AssistStats;

/// Control datagrams sent at one go: a shim that never runs dry must not starve the transport.
const TRANSMIT_BATCH: usize = 64;

/// The condition of a guarded shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It is at work.
    Active,
    /// There is none.
    Off,
    /// It panicked and was put away.
    Failed,
}

/// A shim that is put away for good when it panics; what waited in it still comes out. After that,
/// and for a connection without assistance, nothing is called any more.
pub struct GuardedShim<M> {
    shim: Option<Box<Shim<M>>>,
    last_stats: (AssistStats, ShimStats),
    /// Datagrams that waited in a shim which has failed.
    rescued: VecDeque<Released<M>>,
    failed: bool,
    #[cfg(feature = "fault-injection")]
    fails_at: Option<u32>,
}

impl<M: Clone> GuardedShim<M> {
    /// Guards `shim`; `None` is a connection without assistance.
    pub fn new(shim: Option<Box<Shim<M>>>) -> Self {
        Self {
            shim,
            last_stats: Default::default(),
            rescued: VecDeque::new(),
            failed: false,
            #[cfg(feature = "fault-injection")]
            fails_at: None,
        }
    }

    /// Calls the shim; `None` when there is none (any more). `what`: the call, for the log.
    pub fn call<R>(
        &mut self,
        what: &'static str,
        call: impl FnOnce(&mut Shim<M>) -> R,
    ) -> Option<R> {
        let shim = self.shim.as_mut()?;
        #[cfg(feature = "fault-injection")]
        let call = {
            let fails_at = self.fails_at.as_mut();
            let fails = fails_at.is_some_and(|left| {
                *left -= 1;
                *left == 0
            });
            move |shim: &mut Shim<M>| {
                assert!(!fails, "as the test wants it");
                call(shim)
            }
        };
        // It is dropped when it panics, and asked for what waits in it alone: to lose that would be
        // no harm beyond a loss on the path.
        match catch_unwind(AssertUnwindSafe(|| call(shim))) {
            Ok(result) => Some(result),
            Err(_) => {
                self.failed = true;
                if let Some(broken) = self.shim.take() {
                    let waiting = catch_unwind(AssertUnwindSafe(move || all_that_waits(*broken)));
                    self.rescued.extend(waiting.unwrap_or_default());
                }
                tracing::error!(
                    what,
                    "assistance failed and is off for this connection, which goes on without it"
                );
                None
            }
        }
    }

    /// The next datagram for the transport.
    pub fn poll_deliver(&mut self) -> Option<Released<M>> {
        let released = self.call("poll_deliver", Shim::poll_deliver).flatten();
        released.or_else(|| self.rescued.pop_front())
    }

    /// Hands `send` the control datagrams that are ready, as many as may leave at one go.
    pub fn transmit(&mut self, now: Timestamp, mut send: impl FnMut(Vec<u8>)) {
        for _ in 0..TRANSMIT_BATCH {
            let control = self.call("poll_transmit", |shim| shim.poll_transmit(now)).flatten();
            let Some(control) = control else { return };
            send(control);
        }
    }

    /// When the shim is to be called at the latest.
    pub fn next_timeout(&mut self) -> Option<Timestamp> {
        self.call("next_timeout", |shim| shim.next_timeout()).flatten()
    }

    /// Accumulated figures: those of the last look when the shim has failed since.
    pub fn stats(&mut self) -> (AssistStats, ShimStats) {
        if let Some(stats) = self.call("stats", |shim| (shim.assistance(), shim.stats())) {
            self.last_stats = stats;
        }
        self.last_stats
    }

    /// The condition of the shim.
    pub fn health(&self) -> Health {
        match &self.shim {
            Some(_) => Health::Active,
            None if self.failed => Health::Failed,
            None => Health::Off,
        }
    }

    /// Has the shim panic at this call, counted from 1: for tests of shells.
    #[cfg(feature = "fault-injection")]
    pub fn fail_at(&mut self, call: u32) {
        self.fails_at = Some(call);
    }
}

fn all_that_waits<M: Clone>(mut shim: Shim<M>) -> Vec<Released<M>> {
    shim.release_all();
    std::iter::from_fn(|| shim.poll_deliver()).collect()
}

impl<M: Clone> std::fmt::Debug for GuardedShim<M> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("GuardedShim")
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
