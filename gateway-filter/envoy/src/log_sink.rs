//! Log lines go to Envoy's log, as long as Envoy has one.

use std::sync::{PoisonError, RwLock};

use packrat_dataplane::log::{Level, LogSink};
use serde_json::{Map, Value};

use crate::abi::{self, LogLevel};

/// Whether Envoy's log may be used. I/O threads live until the process ends, Envoy's logger does not.
static OPEN: RwLock<bool> = RwLock::new(true);

/// From now on lines go to standard error. Returns when no thread is in Envoy's log any more.
pub(crate) fn close() {
    *OPEN.write().unwrap_or_else(PoisonError::into_inner) = false;
}

/// Writes lines to Envoy's log.
pub(crate) struct EnvoyLog;

impl LogSink for EnvoyLog {
    fn write(&self, level: Level, fields: Map<String, Value>) {
        let level = match level {
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warning => LogLevel::Warning,
            Level::Error => LogLevel::Error,
        };
        let line = Value::Object(fields).to_string();
        let open = OPEN.read().unwrap_or_else(PoisonError::into_inner);
        if *open {
            abi::log(level, &line);
        } else {
            eprintln!("{line}");
        }
    }
}
