//! Log lines as JSON objects on standard output.

use std::io::Write;

use serde_json::{Map, Value};

use super::level::Level;
use super::sink::LogSink;
use super::timestamp::timestamp;

/// Writes every line at once, so that no line is lost or torn when several threads log.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandardOutput;

impl LogSink for StandardOutput {
    fn write(&self, _level: Level, fields: Map<String, Value>) {
        let mut line = Value::Object(fields).to_string();
        line.push('\n');
        // The reader of standard output may have gone; forwarding continues.
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    }
}

impl StandardOutput {
    /// Writes a line of a shell that has no dataplane (yet).
    pub fn line<const N: usize>(level: Level, event: &str, fields: [(&str, Value); N]) {
        let mut line = Map::new();
        line.insert("ts".to_owned(), timestamp().into());
        line.insert("level".to_owned(), level.name().into());
        line.insert("event".to_owned(), event.into());
        line.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Self.write(level, line);
    }
}
