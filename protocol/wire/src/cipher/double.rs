//! A double of the cipher's algorithms for Miri, which cannot run ring: the Noise library's cipher,
//! and the random number generator that is ChaCha20. It is slower and never shipped; a test
//! compares both.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use snow::params::CipherChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Cipher;

use super::{SAMPLE_LENGTH, TAG_LENGTH, Unspecified};

/// Words of a block.
const BLOCK_WORDS: u128 = 16;

fn cipher(key: &[u8; 32]) -> Result<Box<dyn Cipher>, Unspecified> {
    let mut cipher =
        DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).ok_or(Unspecified)?;
    cipher.set(key);
    Ok(cipher)
}

/// The number in a nonce of messages, which begins with zeros.
fn number(nonce: [u8; 12]) -> u64 {
    let [_, _, _, _, number @ ..] = nonce;
    u64::from_le_bytes(number)
}

/// The first bytes of the block of ChaCha20 whose number and nonce are in `sample`.
pub(super) fn block(key: &[u8; 32], sample: [u8; SAMPLE_LENGTH]) -> Result<[u8; 4], Unspecified> {
    let (position, stream) = sample.split_at(8);
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| Unspecified);
    // A generator has a counter and a stream of 64 bits, a cipher a counter of 32 and a nonce of 96: the
    // same words of the block's state.
    let mut generator = ChaCha20Rng::from_seed(*key);
    generator.set_stream(word(stream)?);
    generator.set_word_pos(u128::from(word(position)?) * BLOCK_WORDS);
    let mut bytes = [0; 4];
    generator.fill_bytes(&mut bytes);
    Ok(bytes)
}

/// Encrypts `text` in its place, and returns the tag.
pub(super) fn seal(
    key: &[u8; 32],
    nonce: [u8; 12],
    associated: &[u8],
    text: &mut [u8],
) -> Result<[u8; TAG_LENGTH], Unspecified> {
    let mut sealed = vec![0; text.len() + TAG_LENGTH];
    cipher(key)?.encrypt(number(nonce), associated, text, &mut sealed);
    let (ciphertext, tag) = sealed.split_at(text.len());
    text.copy_from_slice(ciphertext);
    tag.try_into().map_err(|_| Unspecified)
}

/// Decrypts `text`, which the tag follows, in its place, and returns its length without the tag.
pub(super) fn open(
    key: &[u8; 32],
    nonce: [u8; 12],
    associated: &[u8],
    text: &mut [u8],
) -> Result<usize, Unspecified> {
    let mut opened = vec![0; text.len()];
    let decrypted = cipher(key)?.decrypt(number(nonce), associated, text, &mut opened);
    let length = decrypted.map_err(|_| Unspecified)?;
    for (byte, opened) in text.iter_mut().zip(opened.into_iter().take(length)) {
        *byte = opened;
    }
    Ok(length)
}
