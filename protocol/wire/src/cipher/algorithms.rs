//! The cipher's algorithms, by ring.

use ring::aead::quic::{CHACHA20, HeaderProtectionKey};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::error;

use super::{SAMPLE_LENGTH, TAG_LENGTH, Unspecified};

impl From<error::Unspecified> for Unspecified {
    fn from(_: error::Unspecified) -> Self {
        Self
    }
}

fn cipher(key: &[u8; 32]) -> Result<LessSafeKey, error::Unspecified> {
    Ok(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key)?))
}

/// The first bytes of the block of ChaCha20 whose number and nonce are in `sample`.
pub(super) fn block(key: &[u8; 32], sample: [u8; SAMPLE_LENGTH]) -> Result<[u8; 4], Unspecified> {
    let [first, second, third, fourth, _] =
        HeaderProtectionKey::new(&CHACHA20, key)?.new_mask(&sample)?;
    Ok([first, second, third, fourth])
}

/// Encrypts `text` in its place, and returns the tag.
pub(super) fn seal(
    key: &[u8; 32],
    nonce: [u8; 12],
    associated: &[u8],
    text: &mut [u8],
) -> Result<[u8; TAG_LENGTH], Unspecified> {
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag = cipher(key)?.seal_in_place_separate_tag(nonce, Aad::from(associated), text)?;
    tag.as_ref().try_into().map_err(|_| Unspecified)
}

/// Decrypts `text`, which the tag follows, in its place, and returns its length without the tag.
pub(super) fn open(
    key: &[u8; 32],
    nonce: [u8; 12],
    associated: &[u8],
    text: &mut [u8],
) -> Result<usize, Unspecified> {
    let nonce = Nonce::assume_unique_for_key(nonce);
    Ok(cipher(key)?.open_in_place(nonce, Aad::from(associated), text)?.len())
}
