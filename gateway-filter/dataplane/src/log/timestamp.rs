//! The time of a log line.

use std::time::SystemTime;

/// The time now: RFC 3339, UTC, with milliseconds.
pub fn timestamp() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}
