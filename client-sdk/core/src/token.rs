//! The permission to be assisted.

use packrat_wire::handshake::MAXIMUM_TOKEN;

/// A permission to be assisted, as a gateway's token endpoint issues it; opaque to the client. The
/// default one is empty: no permission.
///
/// ```
/// use packrat_client::{ClientConfig, Token};
///
/// # fn main() -> Result<(), packrat_client::TokenTooLong> {
/// let token = Token::new(b"issued by the gateway".to_vec())?;
/// let config = ClientConfig::default().with_token(token);
/// assert!(Token::new(vec![0; Token::MAXIMUM_LENGTH + 1]).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Token(Vec<u8>);

/// The bytes are too many for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the token has {length} bytes, more than the {} of the longest; use it as it was issued",
    Token::MAXIMUM_LENGTH
)]
pub struct TokenTooLong {
    /// Number of bytes given.
    pub length: usize,
}

impl Token {
    /// Bytes of the longest token.
    pub const MAXIMUM_LENGTH: usize = MAXIMUM_TOKEN;

    /// The token of these bytes.
    ///
    /// # Errors
    /// When they are more than [`Self::MAXIMUM_LENGTH`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, TokenTooLong> {
        let bytes = bytes.into();
        if bytes.len() > Self::MAXIMUM_LENGTH {
            return Err(TokenTooLong { length: bytes.len() });
        }
        Ok(Self(bytes))
    }

    /// True if this is no permission.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that the gateway gets to see.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A token is a secret of its holder: its length is shown only.
impl core::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Token({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_whole_or_refused() {
        let longest = vec![7; Token::MAXIMUM_LENGTH];
        assert_eq!(Token::new(longest.clone()).unwrap().as_bytes(), longest);
        let error = Token::new([longest, vec![7]].concat()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the token has 201 bytes, more than the 200 of the longest; use it as it was issued"
        );
        assert!(Token::default().is_empty());
    }
}
