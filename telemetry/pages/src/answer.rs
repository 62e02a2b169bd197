//! An answer over HTTP.

use serde::Serialize;

/// An answer over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

impl Answer {
    /// A document as JSON.
    pub fn json(document: &impl Serialize) -> Self {
        match serde_json::to_string_pretty(document) {
            Ok(text) => Self { status: 200, content_type: "application/json", body: text + "\n" },
            Err(error) => Self::problem(500, format!("the answer cannot be written: {error}")),
        }
    }

    /// Series for Prometheus.
    pub fn prometheus(text: String) -> Self {
        Self { status: 200, content_type: "text/plain; version=0.0.4; charset=utf-8", body: text }
    }

    /// A problem, in a sentence.
    pub fn problem(status: u16, text: String) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: text + "\n" }
    }
}
