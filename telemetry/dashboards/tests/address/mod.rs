//! Addresses of servers under test, and their encoding in queries.

use std::fmt::Write as _;

/// Percent-encoded, as the value of a parameter.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").unwrap();
        }
    }
    encoded
}
