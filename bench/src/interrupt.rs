//! Ctrl-C: the running part ends, and stops the processes that it has started.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The user's request to stop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the signal handlers; a second signal ends the process at once.
    pub(crate) fn listen() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// Fails once the user has asked to stop.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }
}

/// The user has stopped the measurement.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("interrupted; what was measured so far is in the summary")
    }
}

impl std::error::Error for Interrupted {}
