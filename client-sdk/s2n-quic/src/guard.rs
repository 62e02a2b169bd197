//! Keeps a failing core away from the base connection.

use packrat_client::{Assist, AssistStats};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The condition of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// It is at work.
    Active,
    /// There is none, or none any more.
    Off,
    /// It panicked and was put away.
    Failed,
}

/// A core that is put away for good when it panics.
pub(crate) struct Guarded {
    core: Option<Box<Assist>>,
    last_stats: AssistStats,
    failed: bool,
    /// The call at which a test has the core panic.
    #[cfg(test)]
    pub(crate) fails_at: Option<u32>,
}

impl Guarded {
    /// Guards `core`; `None` is a connection without assistance.
    pub(crate) fn new(core: Option<Box<Assist>>) -> Self {
        Self {
            core,
            last_stats: AssistStats::default(),
            failed: false,
            #[cfg(test)]
            fails_at: None,
        }
    }

    /// Calls the core; `None` when there is none (any more).
    pub(crate) fn call<R>(
        &mut self,
        what: &'static str,
        call: impl FnOnce(&mut Assist) -> R,
    ) -> Option<R> {
        let core = self.core.as_mut()?;
        #[cfg(test)]
        let call = {
            let fails_at = self.fails_at.as_mut();
            let fails = fails_at.is_some_and(|left| {
                *left -= 1;
                *left == 0
            });
            move |core: &mut Assist| {
                assert!(!fails, "as the test wants it");
                call(core)
            }
        };
        // The core is dropped when it panics, so its broken state is never looked at again.
        match catch_unwind(AssertUnwindSafe(|| call(core))) {
            Ok(result) => Some(result),
            Err(_) => {
                self.failed = true;
                if let Some(broken) = self.core.take() {
                    // Its destructor may panic as well.
                    let _ = catch_unwind(AssertUnwindSafe(move || drop(broken)));
                }
                tracing::error!(
                    what,
                    "assistance failed and is off for this connection, which goes on without it"
                );
                None
            }
        }
    }

    /// Accumulated figures: those of the last look when the core has failed since.
    pub(crate) fn stats(&mut self) -> AssistStats {
        if let Some(stats) = self.call("stats", |core| core.stats()) {
            self.last_stats = stats;
        }
        self.last_stats
    }

    /// Puts the core away because it is not needed any more; its figures stay.
    pub(crate) fn retire(&mut self) {
        self.stats();
        if let Some(core) = self.core.take() {
            let _ = catch_unwind(AssertUnwindSafe(move || drop(core)));
        }
    }

    /// True if a core is at work.
    pub(crate) fn is_active(&self) -> bool {
        self.core.is_some()
    }

    /// Condition of the core.
    pub(crate) fn health(&self) -> Health {
        match &self.core {
            Some(_) => Health::Active,
            None if self.failed => Health::Failed,
            None => Health::Off,
        }
    }
}

impl std::fmt::Debug for Guarded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Guarded")
            .field("active", &self.is_active())
            .field("failed", &self.failed)
            .finish()
    }
}
