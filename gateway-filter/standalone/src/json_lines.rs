//! Log lines as JSON objects on standard output.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use packrat_dataplane::log::{Level, LogSink};
use serde_json::{Map, Value};

/// Writes every line at once, so that no line is lost or torn when several threads log.
pub(crate) struct JsonLines;

impl LogSink for JsonLines {
    fn write(&self, level: Level, mut fields: Map<String, Value>) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Milliseconds are enough, and keep the number short.
        fields.insert("time".to_owned(), (time.as_millis() as f64 / 1000.0).into());
        let level = match level {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        };
        fields.insert("level".to_owned(), level.into());
        let mut line = Value::Object(fields).to_string();
        line.push('\n');
        // Whoever reads standard output may have gone; forwarding goes on.
        let mut output = std::io::stdout().lock();
        let _ = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    }
}
