//! Keeps a failing shim away from the base connection.

use crate::path::Metadata;
use packrat_client::{AssistStats, Released, Shim, ShimStats};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The shim of a path.
pub(crate) type PathShim = Shim<Metadata>;

/// The condition of a shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// It is at work.
    Active,
    /// There is none.
    Off,
    /// It panicked and was put away.
    Failed,
}

/// A shim that is put away for good when it panics.
pub(crate) struct Guarded {
    shim: Option<Box<PathShim>>,
    last_stats: (AssistStats, ShimStats),
    /// Datagrams that waited in a shim which has failed.
    rescued: VecDeque<Released<Metadata>>,
    failed: bool,
    /// The call at which a test has the shim panic.
    #[cfg(test)]
    pub(crate) fails_at: Option<u32>,
}

impl Guarded {
    /// Guards `shim`; `None` is a connection without assistance.
    pub(crate) fn new(shim: Option<Box<PathShim>>) -> Self {
        Self {
            shim,
            last_stats: Default::default(),
            rescued: VecDeque::new(),
            failed: false,
            #[cfg(test)]
            fails_at: None,
        }
    }

    /// Calls the shim; `None` when there is none (any more).
    pub(crate) fn call<R>(
        &mut self,
        what: &'static str,
        call: impl FnOnce(&mut PathShim) -> R,
    ) -> Option<R> {
        let shim = self.shim.as_mut()?;
        #[cfg(test)]
        let call = {
            let fails_at = self.fails_at.as_mut();
            let fails = fails_at.is_some_and(|left| {
                *left -= 1;
                *left == 0
            });
            move |shim: &mut PathShim| {
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
                    let waiting = catch_unwind(AssertUnwindSafe(move || all_that_waits(broken)));
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
    pub(crate) fn poll_deliver(&mut self) -> Option<Released<Metadata>> {
        let released = self.call("poll_deliver", Shim::poll_deliver).flatten();
        released.or_else(|| self.rescued.pop_front())
    }

    /// Accumulated figures: those of the last look when the shim has failed since.
    pub(crate) fn stats(&mut self) -> (AssistStats, ShimStats) {
        if let Some(stats) = self.call("stats", |shim| (shim.assistance(), shim.stats())) {
            self.last_stats = stats;
        }
        self.last_stats
    }

    /// Condition of the shim.
    pub(crate) fn health(&self) -> Health {
        match &self.shim {
            Some(_) => Health::Active,
            None if self.failed => Health::Failed,
            None => Health::Off,
        }
    }
}

fn all_that_waits(mut shim: Box<PathShim>) -> Vec<Released<Metadata>> {
    shim.release_all();
    std::iter::from_fn(|| shim.poll_deliver()).collect()
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Guarded").field("health", &self.health()).finish_non_exhaustive()
    }
}
