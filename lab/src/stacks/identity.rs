//! Connection identifiers and reset tokens of quinn and noq.

use hmac::{Hmac, Mac};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use sha2::Sha256;
use std::sync::{Arc, Mutex, PoisonError};

/// Length of the connection identifiers, bytes: quinn's own choice.
pub(crate) const CONNECTION_ID: usize = 8;

/// Connection identifiers from the seed: packets authenticate them, and Packrat's identifiers
/// therefore depend on them.
#[derive(Clone)]
pub(crate) struct ConnectionIds(pub(crate) Arc<Mutex<ChaCha8Rng>>);

impl ConnectionIds {
    /// The bytes of the next one.
    pub(crate) fn draw(&self) -> [u8; CONNECTION_ID] {
        let mut id = [0; CONNECTION_ID];
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut id);
        id
    }
}

/// The key of stateless reset tokens, for the same reason.
pub(crate) struct ResetKey(pub(crate) [u8; 32]);

impl ResetKey {
    /// Bytes of a signature.
    pub(crate) const LENGTH: usize = 32;

    fn mac(&self, data: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(data);
        Some(mac)
    }

    pub(crate) fn write_signature(&self, data: &[u8], signature: &mut [u8]) {
        if let Some(mac) = self.mac(data) {
            let code = mac.finalize().into_bytes();
            signature.iter_mut().zip(code).for_each(|(to, from)| *to = from);
        }
    }

    pub(crate) fn is_signed(&self, data: &[u8], signature: &[u8]) -> bool {
        self.mac(data).is_some_and(|mac| mac.verify_slice(signature).is_ok())
    }
}

/// Gives identifiers and key to a stack, quinn or noq.
macro_rules! seeded_identity {
    ($stack:ident) => {
        impl $stack::ConnectionIdGenerator for ConnectionIds {
            fn generate_cid(&mut self) -> $stack::ConnectionId {
                $stack::ConnectionId::new(&self.draw())
            }

            fn cid_len(&self) -> usize {
                $crate::stacks::identity::CONNECTION_ID
            }

            fn cid_lifetime(&self) -> Option<std::time::Duration> {
                None
            }
        }

        impl $stack::crypto::HmacKey for ResetKey {
            fn sign(&self, data: &[u8], signature: &mut [u8]) {
                self.write_signature(data, signature);
            }

            fn signature_len(&self) -> usize {
                Self::LENGTH
            }

            fn verify(
                &self,
                data: &[u8],
                signature: &[u8],
            ) -> Result<(), $stack::crypto::CryptoError> {
                self.is_signed(data, signature).then_some(()).ok_or($stack::crypto::CryptoError)
            }
        }
    };
}
pub(super) use seeded_identity;
