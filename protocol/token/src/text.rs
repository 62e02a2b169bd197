//! Tokens as texts: base64url without padding (RFC 4648, section 5).

use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::claims::{MAXIMUM_LENGTH, TokenError};

/// A token for JSON; 62 to 84 characters.
pub fn to_text(token: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(token)
}

/// Reads a token that [`to_text`] has written.
///
/// # Errors
/// [`TokenError::Malformed`]: another alphabet, padding, or too long for a token.
pub fn from_text(text: &str) -> Result<Vec<u8>, TokenError> {
    if text.len() > MAXIMUM_LENGTH.div_ceil(3) * 4 {
        return Err(TokenError::Malformed);
    }
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed)
}
