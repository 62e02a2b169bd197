//! Noise's cipher with a bare key: 32 bytes for a direction, set up again for each message.
//!
//! ChaCha20-Poly1305 (RFC 8439) with the message's counter as nonce (Noise specification, section
//! 12.3) and the datagram's header as associated data. It does not use the Noise library, because
//! this cipher is most of the cost of an eACK at the gateway.
//!
//! The counter travels masked by a block of the cipher that the tag chooses (RFC 9001, section
//! 5.4.4), so that a path cannot follow it. The nonces of these blocks and of the AEAD begin
//! with different bytes, so one key serves both.

#[cfg(not(miri))]
mod algorithms;
#[cfg(any(test, miri))]
mod double;
#[cfg(miri)]
use double as algorithms;

use crate::codec::DecodeError;
use crate::control::{Control, MAXIMUM_LENGTH, SEALED_HEADER_LENGTH};
use crate::seal::{MAXIMUM_PLAINTEXT_BYTES, OpenError, SealError};
use crate::{MessageCounter, SessionId};
use zeroize::ZeroizeOnDrop;

/// Bytes of the AEAD tag.
pub(crate) const TAG_LENGTH: usize = 16;
/// Bytes that choose a block of the cipher: its number and its nonce.
const SAMPLE_LENGTH: usize = 16;
/// Offset of the counter in the header.
const COUNTER_AT: usize = SEALED_HEADER_LENGTH - 4;
/// Beginning of the nonces of masks. Nonces of messages begin with zeros.
const MASK_NONCE: [u8; 4] = *b"mask";

/// The key of one direction. A counter must not be used twice with it, so there is only one
/// instance; its memory is overwritten when it is dropped.
#[derive(ZeroizeOnDrop)]
pub(crate) struct Key([u8; 32]);

impl core::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Key(..)")
    }
}

/// The algorithm refuses: a text that is too long, or a wrong tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unspecified;

fn nonce(counter: MessageCounter) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..8].copy_from_slice(&counter.get().to_le_bytes());
    nonce
}

impl Key {
    pub(crate) const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Bits that hide a counter, from the tag of its message.
    fn mask(&self, tag: &[u8; TAG_LENGTH]) -> Result<u32, Unspecified> {
        // The block's number, and behind it its nonce.
        let mut sample = [0; SAMPLE_LENGTH];
        sample[..4].copy_from_slice(&tag[..4]);
        sample[4..8].copy_from_slice(&MASK_NONCE);
        sample[8..].copy_from_slice(&tag[4..12]);
        algorithms::block(&self.0, sample).map(u32::from_be_bytes)
    }

    /// Appends the datagram for `plaintext` to `out`.
    pub(crate) fn seal(
        &self,
        session: SessionId,
        counter: MessageCounter,
        plaintext: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        if plaintext.len() > MAXIMUM_PLAINTEXT_BYTES {
            return Err(SealError::TooLong);
        }
        let begin = out.len();
        Control::Sealed { session, counter, ciphertext: plaintext }.encode(out);
        let (header, sealed) =
            out.get_mut(begin..).unwrap_or_default().split_at_mut(SEALED_HEADER_LENGTH);
        let tag = algorithms::seal(&self.0, nonce(counter), header, sealed);
        match tag.and_then(|tag| Ok((tag, self.mask(&tag)?))) {
            Ok((tag, mask)) => {
                header[COUNTER_AT..].copy_from_slice(&(counter.get() ^ mask).to_be_bytes());
                out.extend_from_slice(&tag);
                Ok(())
            }
            Err(Unspecified) => {
                out.truncate(begin);
                Err(SealError::TooLong)
            }
        }
    }

    /// Replaces `plaintext` by the message of a sealed datagram and returns its counter, if
    /// `is_new` accepts the counter.
    pub(crate) fn open(
        &self,
        datagram: &[u8],
        plaintext: &mut Vec<u8>,
        is_new: impl FnOnce(MessageCounter) -> bool,
    ) -> Result<MessageCounter, OpenError> {
        let (masked, ciphertext) = match Control::decode(datagram) {
            Ok(Control::Sealed { counter, ciphertext, .. }) => (counter, ciphertext),
            Ok(_) => return Err(OpenError::Malformed(DecodeError::NotControl)),
            Err(error) => return Err(OpenError::Malformed(error)),
        };
        let tag = ciphertext.last_chunk().filter(|_| datagram.len() <= MAXIMUM_LENGTH);
        let tag = tag.ok_or(OpenError::Malformed(DecodeError::Truncated))?;
        let mask = self.mask(tag).map_err(|Unspecified| OpenError::Forged)?;
        let counter = MessageCounter::new(masked.get() ^ mask);
        let mut header = [0; SEALED_HEADER_LENGTH];
        header.copy_from_slice(&datagram[..SEALED_HEADER_LENGTH]);
        header[COUNTER_AT..].copy_from_slice(&counter.get().to_be_bytes());
        if !is_new(counter) {
            return Err(OpenError::Replayed);
        }
        // A byte is about an operation, and the key about five hundred.
        #[cfg(feature = "count-operations")]
        packrat_eack::operations::count(500 + ciphertext.len());
        plaintext.clear();
        plaintext.extend_from_slice(ciphertext);
        let opened = algorithms::open(&self.0, nonce(counter), &header, plaintext);
        let length = opened.map_err(|Unspecified| OpenError::Forged)?;
        plaintext.truncate(length);
        Ok(counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use snow::params::CipherChoice;
    use snow::resolvers::{CryptoResolver, DefaultResolver};

    const SESSION: SessionId = SessionId::new(7);

    /// The datagram that the Noise library's cipher makes, with the counter in the clear.
    fn expected(key: [u8; 32], counter: MessageCounter, text: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        Control::Sealed { session: SESSION, counter, ciphertext: &[] }.encode(&mut datagram);
        let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::ChaChaPoly).unwrap();
        cipher.set(&key);
        let mut ciphertext = vec![0; text.len() + TAG_LENGTH];
        cipher.encrypt(counter.get().into(), &datagram, text, &mut ciphertext);
        datagram.extend_from_slice(&ciphertext);
        datagram
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The Noise library is the oracle.
        #[test]
        fn the_same_as_the_noise_library(text in proptest::collection::vec(any::<u8>(), 0..MAXIMUM_PLAINTEXT_BYTES), number in any::<u32>(), bytes: [u8; 32]) {
            let (key, counter) = (Key::new(bytes), MessageCounter::new(number));
            let mut sealed = b"before".to_vec();
            key.seal(SESSION, counter, &text, &mut sealed).unwrap();
            let datagram = &mut sealed[6..];
            let mut plaintext = b"something else".to_vec();
            prop_assert_eq!(key.open(datagram, &mut plaintext, |_| true), Ok(counter));
            prop_assert_eq!(&plaintext, &text);
            prop_assert_eq!(key.open(datagram, &mut plaintext, |_| false), Err(OpenError::Replayed));
            prop_assert_eq!(Key::new([9; 32]).open(datagram, &mut plaintext, |_| true), Err(OpenError::Forged));
            let expected = expected(bytes, counter, &text);
            datagram[9..13].copy_from_slice(&number.to_be_bytes());
            prop_assert_eq!(&*datagram, &expected[..]);
        }

        /// Lets Miri run the shipped code.
        #[cfg(not(miri))]
        #[test]
        fn the_double_does_what_ring_does(key: [u8; 32], sample: [u8; SAMPLE_LENGTH], number: u32, associated: [u8; 13], text in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(algorithms::block(&key, sample), double::block(&key, sample));
            let nonce = nonce(MessageCounter::new(number));
            let (mut by_ring, mut by_double) = (text.clone(), text.clone());
            let tag = algorithms::seal(&key, nonce, &associated, &mut by_ring).unwrap();
            prop_assert_eq!(double::seal(&key, nonce, &associated, &mut by_double), Ok(tag));
            prop_assert_eq!(&by_ring, &by_double);
            by_ring.extend_from_slice(&tag);
            by_double.extend_from_slice(&tag);
            prop_assert_eq!(double::open(&key, nonce, &associated, &mut by_ring), Ok(text.len()));
            prop_assert_eq!(&by_ring[..text.len()], &text[..]);
            by_double[0] ^= 1;
            prop_assert_eq!(double::open(&key, nonce, &associated, &mut by_double), Err(Unspecified));
            prop_assert_eq!(algorithms::open(&key, nonce, &associated, &mut by_double), Err(Unspecified));
        }

        #[test]
        fn every_byte_is_protected(position in 0..60usize, bit in 0..8u8) {
            let key = Key::new([5; 32]);
            let (mut datagram, mut plaintext) = (Vec::new(), Vec::new());
            key.seal(SESSION, MessageCounter::new(3), &[1; 31], &mut datagram).unwrap();
            datagram[position] ^= 1 << bit;
            prop_assert!(key.open(&datagram, &mut plaintext, |_| true).is_err());
        }
    }

    /// The counters of consecutive messages are unrelated on the wire.
    #[test]
    fn counters_travel_masked() {
        let key = Key::new([5; 32]);
        let wire = |number| {
            let mut datagram = Vec::new();
            key.seal(SESSION, MessageCounter::new(number), b"the same text", &mut datagram)
                .unwrap();
            u32::from_be_bytes(datagram[9..13].try_into().unwrap())
        };
        let far = (0..100).filter(|&number| wire(number + 1).wrapping_sub(wire(number)) > 1 << 16);
        assert!(far.count() > 90);
    }

    #[test]
    fn a_key_is_overwritten_when_it_is_dropped() {
        fn is_wiped<T: ZeroizeOnDrop>() {}
        is_wiped::<Key>();
    }
}
