//! Conditions of objects of the Gateway API.

/// A condition without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Type.
    pub type_: &'static str,
    /// Status; `None`: unknown.
    pub status: Option<bool>,
    /// Reason.
    pub reason: &'static str,
    /// Message.
    pub message: String,
}

impl Finding {
    /// A condition that is true.
    pub fn yes(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: Some(true), reason, message: message.into() }
    }

    /// A condition that is not known.
    pub fn unknown(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: None, reason, message: message.into() }
    }

    /// A condition that is false.
    pub fn no(type_: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { type_, status: Some(false), reason, message: message.into() }
    }

    /// The word of an object's status for the condition's own.
    pub fn status_word(&self) -> &'static str {
        match self.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}
