//! Noise's cipher with a bare key: 32 bytes for a direction, set up for each message anew.
//!
//! ChaCha20-Poly1305 (RFC 8439) with the message's counter as nonce (Noise specification, section
//! 12.3), without associated data. It does not use the Noise library, because this cipher is most
//! of the cost of an eACK at the gateway.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::error::Unspecified;

use crate::codec::DecodeError;
use crate::control::{Control, MAXIMUM_LENGTH};
use crate::seal::{MAXIMUM_PLAINTEXT, OpenError, SealError};
use crate::{MessageCounter, SessionId};

/// Bytes of the AEAD tag.
pub(crate) const TAG_LENGTH: usize = 16;

/// The key of one direction. No counter may be used twice with it.
#[derive(Clone)]
pub(crate) struct Key([u8; 32]);

impl core::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Key(..)")
    }
}

fn nonce(counter: MessageCounter) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..8].copy_from_slice(&counter.get().to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

impl Key {
    pub(crate) const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    fn cipher(&self) -> Result<LessSafeKey, Unspecified> {
        Ok(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &self.0)?))
    }

    /// Appends the datagram for `plaintext` to `out`.
    pub(crate) fn seal(
        &self,
        session: SessionId,
        counter: MessageCounter,
        plaintext: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        if plaintext.len() > MAXIMUM_PLAINTEXT {
            return Err(SealError::TooLong);
        }
        let begin = out.len();
        Control::Sealed { session, counter, ciphertext: plaintext }.encode(out);
        let text = out.len() - plaintext.len();
        let sealed = out.get_mut(text..).unwrap_or_default();
        let seal = |cipher: LessSafeKey| {
            cipher.seal_in_place_separate_tag(nonce(counter), Aad::empty(), sealed)
        };
        match self.cipher().and_then(seal) {
            Ok(tag) => {
                out.extend_from_slice(tag.as_ref());
                Ok(())
            }
            Err(Unspecified) => {
                out.truncate(begin);
                Err(SealError::TooLong)
            }
        }
    }

    /// Replaces `plaintext` by the message of a sealed datagram and returns its counter, if
    /// `is_new` says so of it.
    pub(crate) fn open(
        &self,
        datagram: &[u8],
        plaintext: &mut Vec<u8>,
        is_new: impl FnOnce(MessageCounter) -> bool,
    ) -> Result<MessageCounter, OpenError> {
        let (counter, ciphertext) = match Control::decode(datagram) {
            Ok(Control::Sealed { counter, ciphertext, .. }) => (counter, ciphertext),
            Ok(_) => return Err(OpenError::Malformed(DecodeError::NotControl)),
            Err(error) => return Err(OpenError::Malformed(error)),
        };
        if datagram.len() > MAXIMUM_LENGTH || ciphertext.len() < TAG_LENGTH {
            return Err(OpenError::Malformed(DecodeError::Truncated));
        }
        if !is_new(counter) {
            return Err(OpenError::Replayed);
        }
        plaintext.clear();
        plaintext.extend_from_slice(ciphertext);
        let cipher = self.cipher().map_err(|Unspecified| OpenError::Forged)?;
        let opened = cipher.open_in_place(nonce(counter), Aad::empty(), plaintext);
        let length = opened.map_err(|Unspecified| OpenError::Forged)?.len();
        plaintext.truncate(length);
        Ok(counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::builder;
    use proptest::prelude::*;
    use snow::StatelessTransportState;

    /// Both ends of a finished Noise handshake, as the library keeps them, and its keys: with which
    /// the initiator seals, and with which it opens.
    fn finished() -> (StatelessTransportState, StatelessTransportState, Key, Key) {
        let mut one = builder([1; 32]).unwrap().build_initiator().unwrap();
        let mut other = builder([2; 32])
            .unwrap()
            .local_private_key(&[3; 32])
            .unwrap()
            .build_responder()
            .unwrap();
        let (mut message, mut payload) = ([0; 200], [0; 200]);
        let length = one.write_message(&[], &mut message).unwrap();
        other.read_message(&message[..length], &mut payload).unwrap();
        let length = other.write_message(&[], &mut message).unwrap();
        one.read_message(&message[..length], &mut payload).unwrap();
        let (seals, opens) = one.dangerously_get_raw_split();
        let one = one.into_stateless_transport_mode().unwrap();
        (one, other.into_stateless_transport_mode().unwrap(), Key::new(seals), Key::new(opens))
    }

    const SESSION: SessionId = SessionId::new(7);

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The Noise library is the oracle.
        #[test]
        fn the_same_as_the_noise_library(text in proptest::collection::vec(any::<u8>(), 0..MAXIMUM_PLAINTEXT), number in any::<u32>()) {
            let counter = MessageCounter::new(number);
            let (one, other, seals, opens) = finished();
            let mut expected = vec![0; text.len() + TAG_LENGTH];
            one.write_message(number.into(), &text, &mut expected).unwrap();
            let mut sealed = b"before".to_vec();
            seals.seal(SESSION, counter, &text, &mut sealed).unwrap();
            let datagram = &sealed[6..];
            let Ok(Control::Sealed { session: SESSION, counter: told, ciphertext }) = Control::decode(datagram) else {
                panic!("not sealed")
            };
            prop_assert_eq!((told, ciphertext), (counter, expected.as_slice()));

            let mut ciphertext = vec![0; text.len() + TAG_LENGTH];
            other.write_message(number.into(), &text, &mut ciphertext).unwrap();
            let mut datagram = Vec::new();
            Control::Sealed { session: SESSION, counter, ciphertext: &ciphertext }.encode(&mut datagram);
            let mut plaintext = b"something else".to_vec();
            prop_assert_eq!(opens.open(&datagram, &mut plaintext, |_| true), Ok(counter));
            prop_assert_eq!(&plaintext, &text);
            prop_assert_eq!(opens.open(&datagram, &mut plaintext, |_| false), Err(OpenError::Replayed));
            prop_assert_eq!(seals.open(&datagram, &mut plaintext, |_| true), Err(OpenError::Forged));
        }
    }
}
