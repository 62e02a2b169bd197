//! Secrets in a route's configuration.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::ZeroizeOnDrop;

/// A secret that logs do not show. Its JSON contains it, but only configurations are written. Its
/// memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ZeroizeOnDrop)]
#[serde(transparent)]
pub struct Hidden(String);

impl Hidden {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(hidden)")
    }
}

/// True for a key of 64 hexadecimal digits.
pub(crate) fn is_key(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_hidden_is_overwritten_when_it_is_dropped() {
        fn is_wiped<T: ZeroizeOnDrop>() {}
        is_wiped::<Hidden>();
    }
}
