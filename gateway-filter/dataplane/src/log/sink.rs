//! The destination of log lines.

use serde_json::{Map, Value};

use super::level::Level;

/// The place to which a shell writes log lines.
pub trait LogSink: Send + Sync {
    /// Writes one line: a JSON object without a line break.
    fn write(&self, level: Level, fields: Map<String, Value>);
}

/// A sink that drops every line, for tests and examples.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl LogSink for Silent {
    fn write(&self, _level: Level, _fields: Map<String, Value>) {}
}
