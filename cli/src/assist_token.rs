//! An assist token as text.

use packrat_client::Token;

/// Reads a token as its issuer writes it.
pub(crate) fn read(text: &str) -> Result<Token, String> {
    let bytes = packrat_assist_token::from_text(text).map_err(|error| error.to_string())?;
    Token::new(bytes).map_err(|error| error.to_string())
}
