//! The state that lives as long as the process: the data plane, shared by all listeners and the
//! bootstrap extension.

use std::sync::OnceLock;

use packrat_dataplane::log::{Clients, Level, Logger, StandardOutput};
use packrat_dataplane::{Dataplane, DataplaneError, Options};
use parking_lot::Mutex;

use crate::abi;

/// Data plane of the process. Never dropped: Envoy may still run worker threads when it destroys
/// the module's configuration.
static PROCESS_DATAPLANE: OnceLock<Dataplane> = OnceLock::new();

/// Settings of the bootstrap extension for the log; it may come before the dataplane.
static LOG_SETTINGS: Mutex<(Option<Level>, Option<Clients>)> = Mutex::new((None, None));

/// Sets how the log is written; `None` keeps the current setting.
pub(crate) fn set_log(level: Option<Level>, clients: Option<Clients>) {
    *LOG_SETTINGS.lock() = (level, clients);
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
    PROCESS_DATAPLANE.get()
}

/// The dataplane, started when it is asked for the first time. On Envoy's main thread only, so that
/// two are never started.
pub(crate) fn dataplane() -> Result<&'static Dataplane, DataplaneError> {
    if let Some(dataplane) = PROCESS_DATAPLANE.get() {
        return Ok(dataplane);
    }
    let dataplane =
        Dataplane::start(Options { workers: abi::concurrency() }, Box::new(StandardOutput))?;
    let (level, clients) = *LOG_SETTINGS.lock();
    apply(dataplane.logger(), level, clients);
    Ok(PROCESS_DATAPLANE.get_or_init(|| dataplane))
}
