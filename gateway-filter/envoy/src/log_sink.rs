//! Log lines go to Envoy's log, as long as Envoy has one.

use std::sync::{PoisonError, RwLock};

use packrat_dataplane::log::{Level, LogSink};
use serde_json::{Map, Value};

use crate::abi::{self, LogLevel};

/// Who keeps Envoy's log open. I/O threads live until the process ends, Envoy's logger does not.
static STATE: RwLock<State> = RwLock::new(State { holders: 0, closed: false });

struct State {
    holders: usize,
    closed: bool,
}

/// While one of these exists, lines go to Envoy's log: Envoy destroys what it holds of the module before its logger.
pub(crate) struct Holder(());

impl Holder {
    pub(crate) fn new() -> Self {
        STATE.write().unwrap_or_else(PoisonError::into_inner).holders += 1;
        Self(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Waits until no thread is in Envoy's log.
        STATE.write().unwrap_or_else(PoisonError::into_inner).holders -= 1;
    }
}

/// From now on lines go to standard error, whoever exists. Returns when no thread is in Envoy's log any more.
pub(crate) fn close() {
    STATE.write().unwrap_or_else(PoisonError::into_inner).closed = true;
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
        let state = STATE.read().unwrap_or_else(PoisonError::into_inner);
        if state.holders > 0 && !state.closed {
            abi::log(level, &line);
        } else {
            eprintln!("{line}");
        }
    }
}
