//! Proofs of the user's identity: the field `Authorization`, and the places where it comes from.

use super::error::GetError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use std::convert::Infallible;
use std::str::FromStr;
use url::Url;

/// A text that no message shows.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret")
    }
}

/// The field for a user and a password (RFC 7617).
pub(crate) fn basic(user: &[u8], password: &[u8]) -> Result<HeaderValue, GetError> {
    let encoded = STANDARD.encode([user, b":", password].concat());
    sensitive(&format!("Basic {encoded}"), "the password")
}

/// The field for `USER:PASSWORD`.
///
/// # Errors
/// There is no password.
pub(crate) fn of_user(text: &Secret) -> Result<HeaderValue, GetError> {
    let (user, password) = text.0.split_once(':').ok_or_else(|| GetError::Usage {
        reason: "--user: expected USER:PASSWORD; --netrc keeps a password off the command line"
            .to_owned(),
    })?;
    basic(user.as_bytes(), password.as_bytes())
}

/// The field for a token (RFC 6750).
///
/// # Errors
/// The token has a control character.
pub(crate) fn bearer(token: &Secret) -> Result<HeaderValue, GetError> {
    sensitive(&format!("Bearer {}", token.0), "--oauth2-bearer: the token")
}

fn sensitive(text: &str, what: &str) -> Result<HeaderValue, GetError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| GetError::Usage {
        reason: format!("{what} has a line break or another control character; remove it"),
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Takes user and password out of a URL, and makes them a field.
///
/// # Errors
/// None for a URL with a host.
pub(super) fn take(url: &mut Url) -> Result<Option<HeaderValue>, GetError> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user = decoded(url.username());
    let field = basic(&user, &decoded(url.password().unwrap_or_default()))?;
    remove(url);
    Ok(Some(field))
}

/// Removes user and password from a URL.
pub(super) fn remove(url: &mut Url) {
    // Only a URL without a host refuses this, and that has neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
}

/// Bytes of a text with `%41` for `A`.
fn decoded(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
}

#[cfg(test)]
mod tests {
    use super::super::error::redacted;
    use super::*;

    #[test]
    fn a_urls_password_becomes_a_field_and_leaves_it() {
        let mut url = Url::parse("https://me:p%40ss@host/path").unwrap();
        let field = take(&mut url).unwrap().unwrap();
        assert_eq!(url.as_str(), "https://host/path");
        assert_eq!(field, format!("Basic {}", STANDARD.encode("me:p@ss")));
        assert!(!format!("{field:?}").contains("Basic"));
        assert_eq!(take(&mut url).unwrap(), None);
    }

    #[test]
    fn messages_show_no_password() {
        assert_eq!(redacted("https://me:se@cret@host/a@b"), "https://host/a@b");
        assert_eq!(redacted("https://host/a@b"), "https://host/a@b");
        assert_eq!(redacted("me:secret@host"), "host");
        let secret = |text: &str| Secret(text.to_owned());
        for error in [
            of_user(&secret("secret")).unwrap_err(),
            bearer(&secret("secret\r\nX: 1")).unwrap_err(),
        ] {
            assert_eq!(error.exit_code(), 2);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(!format!("{:?}", secret("secret")).contains("secret"));
    }
}
