//! The state that lives as long as the process: the data plane, shared by all listeners and the
//! bootstrap extension.

use std::sync::OnceLock;

use packrat_dataplane::log::{Clients, Level, Logger, StandardOutput};
use packrat_dataplane::{Dataplane, DataplaneError, Options};
use parking_lot::Mutex;

use crate::abi;

/// The data plane. Never dropped: Envoy may still run worker threads when it destroys the module's
/// configuration.
static DATAPLANE: OnceLock<Dataplane> = OnceLock::new();

/// The settings of the bootstrap extension for the log; it may come before the dataplane.
static LOG: Mutex<(Option<Level>, Option<Clients>)> = Mutex::new((None, None));

/// Sets how the log is written; `None` keeps the current setting.
pub(crate) fn set_log(level: Option<Level>, clients: Option<Clients>) {
    *LOG.lock() = (level, clients);
    if let Some(dataplane) = existing() {
        apply(dataplane.logger(), level, clients);
    }
}

fn apply(logger: &Logger, level: Option<Level>, clients: Option<Clients>) {
    if let Some(level) = level {
        logger.set_level(level);
    }
    if let Some(clients) = clients {
        logger.set_clients(clients);
    }
}

/// The dataplane, if a listener has been configured already.
pub(crate) fn existing() -> Option<&'static Dataplane> {
    DATAPLANE.get()
}

/// The dataplane, started when it is asked for the first time. On Envoy's main thread only, so that
/// two are never started.
pub(crate) fn dataplane() -> Result<&'static Dataplane, DataplaneError> {
    if let Some(dataplane) = DATAPLANE.get() {
        return Ok(dataplane);
    }
    let dataplane =
        Dataplane::start(Options { workers: abi::concurrency() }, Box::new(StandardOutput))?;
    let (level, clients) = *LOG.lock();
    apply(dataplane.logger(), level, clients);
    Ok(DATAPLANE.get_or_init(|| dataplane))
}
