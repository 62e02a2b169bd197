//! The secrets that issuer and verifier share.

use alloc::vec::Vec;
use core::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use thiserror::Error;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::claims::{Claims, TAG_LENGTH};

/// Context of the authentication codes, which separates them from any other use of the same secret.
const KEY_CONTEXT: &[u8] = b"packrat assist token";

/// A secret with its public identifier. Its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq, ZeroizeOnDrop)]
pub struct Key {
    id: u32,
    secret: [u8; 32],
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret stays out of logs.
        formatter.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a token key is written as its identifier (0 to 4294967295), a colon and 64 hexadecimal digits"
)]
pub struct KeyError;

impl Key {
    /// Creates a key from `secret`: 32 random bytes.
    pub fn new(id: u32, secret: [u8; 32]) -> Self {
        Self { id, secret }
    }

    /// Reads `identifier:64 hexadecimal digits`, as configurations write it.
    ///
    /// # Errors
    /// Anything else.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let (id, digits) = text.trim().split_once(':').ok_or(KeyError)?;
        let mut secret = [0; 32];
        let read = base16ct::mixed::decode(digits, &mut secret).map_err(|_| KeyError)?.len();
        if read != secret.len() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(KeyError);
        }
        Ok(Self { id: id.parse().map_err(|_| KeyError)?, secret })
    }

    /// The identifier, which travels in every token.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// A token with these claims; 46 to 63 bytes.
    pub fn issue(&self, claims: &Claims) -> Vec<u8> {
        let mut token = claims.encode(self.id);
        let tag = self.authenticate(&token).finalize().into_bytes();
        token.extend_from_slice(&tag[..TAG_LENGTH]);
        token
    }

    /// True if `tag` authenticates `claims`. The comparison takes constant time.
    pub(crate) fn made(&self, claims: &[u8], tag: &[u8; TAG_LENGTH]) -> bool {
        self.authenticate(claims).verify_truncated_left(tag).is_ok()
    }

    fn authenticate(&self, claims: &[u8]) -> Hmac<Sha256> {
        // The block of SHA-256 has 64 bytes; a shorter key is filled up with zeros (RFC 2104,
        // section 2).
        let mut block = Zeroizing::new([0; 64]);
        block[..32].copy_from_slice(&self.secret);
        let mut code = Hmac::<Sha256>::new((&*block).into());
        code.update(KEY_CONTEXT);
        code.update(claims);
        code
    }
}

/// The secrets in force: tokens are issued with the current one and accepted with both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// Issues and verifies.
    pub current: Key,
    /// Verifies, for as long as its tokens live.
    pub previous: Option<Key>,
}

impl Keys {
    /// The keys with this identifier: usually one; the result is empty if the token's key is no
    /// longer known.
    pub(crate) fn named(&self, id: u32) -> impl Iterator<Item = &Key> {
        core::iter::once(&self.current).chain(&self.previous).filter(move |key| key.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn keys_as_texts() {
        let digits = "0f".repeat(32);
        assert_eq!(Key::from_text(&format!("7:{digits}\n")), Ok(Key::new(7, [15; 32])));
        assert_eq!(
            Key::from_text(&format!("4294967295:{}", "FF".repeat(32))),
            Ok(Key::new(u32::MAX, [255; 32]))
        );
        for wrong in
            ["", "7", ":", "7:0f", &digits, &format!("x:{digits}"), &format!("4294967296:{digits}")]
        {
            assert_eq!(Key::from_text(wrong), Err(KeyError), "{wrong}");
        }
        assert_eq!(Key::from_text(&format!("+7:{digits}")), Err(KeyError));
        assert_eq!(Key::from_text(&format!(":{digits}")), Err(KeyError));
        assert_eq!(Key::from_text(&format!("7:{}g", &digits[1..])), Err(KeyError));
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", Keys { current: Key::new(7, [222; 32]), previous: None });
        assert!(shown.contains("id: 7") && !shown.contains("222"), "{shown}");
    }
}
