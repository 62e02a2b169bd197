//! What lives as long as the process: the dataplane, shared by all listeners and the bootstrap extension.

use std::sync::OnceLock;

use packrat_dataplane::{Dataplane, DataplaneError, Options};

use crate::abi;
use crate::log_sink::EnvoyLog;

/// Never dropped: Envoy may still run worker threads when it destroys what it knows of the module.
static DATAPLANE: OnceLock<Dataplane> = OnceLock::new();

/// The dataplane, if a listener has been configured already.
pub(crate) fn existing() -> Option<&'static Dataplane> {
    DATAPLANE.get()
}

/// The dataplane, started when it is asked for the first time. On Envoy's main thread only, so that two are never started.
pub(crate) fn dataplane() -> Result<&'static Dataplane, DataplaneError> {
    if let Some(dataplane) = DATAPLANE.get() {
        return Ok(dataplane);
    }
    let dataplane = Dataplane::start(Options { workers: abi::concurrency() }, Box::new(EnvoyLog))?;
    Ok(DATAPLANE.get_or_init(|| dataplane))
}
