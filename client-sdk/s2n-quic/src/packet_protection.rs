//! Proof that a packet is the peer's, before the transport has seen it.
//!
//! A datagram that is kept back from s2n-quic must not steer the hold unless it is authentic. A
//! second owner of the packet protection keys (RFC 9001, section 5.3) therefore decrypts a copy of
//! it. Keys follow one another at each key update (section 6); which one a packet wants is said by
//! one bit of its header, as the older ones are not kept.

use s2n_quic_core::crypto::packet_protection::Error;
use s2n_quic_core::crypto::tls::CipherSuite;
use s2n_quic_core::crypto::{Key, OneRttKey, scatter};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Generations of keys that are kept: the one in use, the one before, and the next one, which
/// s2n-quic derives in advance.
const GENERATIONS: usize = 3;

/// Authenticates packets of one generation of keys.
trait Prover: Send {
    /// True if the packet is authentic; `payload` is of no use afterwards.
    fn proves(&self, number: u64, header: &[u8], payload: &mut [u8]) -> bool;
}

impl<K: Key> Prover for K {
    fn proves(&self, number: u64, header: &[u8], payload: &mut [u8]) -> bool {
        payload.len() >= self.tag_len() && self.decrypt(number, header, payload).is_ok()
    }
}

type Generations = BTreeMap<u64, Arc<Mutex<dyn Prover>>>;

/// The keys of a connection, for its second owner.
#[derive(Clone, Default)]
pub(crate) struct Proofs(Arc<Mutex<Generations>>);

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A key is never changed, so that a panic elsewhere leaves it as it was.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proofs {
    fn insert(&self, generation: u64, key: Arc<Mutex<dyn Prover>>) {
        let mut generations = lock(&self.0);
        generations.insert(generation, key);
        while generations.len() > GENERATIONS {
            generations.pop_first();
        }
    }

    /// True if a packet of this number is authentic. `phase`: the key phase that its header, which
    /// is unprotected here, names.
    pub(crate) fn proves(&self, number: u64, phase: bool, header: &[u8], payload: &[u8]) -> bool {
        let keys = lock(&self.0);
        let mut keys = keys.iter().rev().filter(|(generation, _)| (*generation % 2 == 1) == phase);
        keys.any(|(_, key)| lock(key).proves(number, header, &mut payload.to_vec()))
    }
}

impl fmt::Debug for Proofs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Proofs")
    }
}

/// s2n-quic's own key, with which a second owner authenticates packets.
pub(crate) struct ProvingKey<K> {
    key: Arc<Mutex<K>>,
    generation: u64,
    proofs: Proofs,
}

impl<K: OneRttKey + 'static> ProvingKey<K> {
    /// The first key of a connection.
    pub(crate) fn new(key: K) -> Self {
        Self::following(key, 0, Proofs::default())
    }

    fn following(key: K, generation: u64, proofs: Proofs) -> Self {
        let key = Arc::new(Mutex::new(key));
        proofs.insert(generation, key.clone());
        Self { key, generation, proofs }
    }

    /// For the second owner.
    pub(crate) fn proofs(&self) -> Proofs {
        self.proofs.clone()
    }
}

impl<K: Key> Key for ProvingKey<K> {
    fn decrypt(&self, number: u64, header: &[u8], payload: &mut [u8]) -> Result<(), Error> {
        lock(&self.key).decrypt(number, header, payload)
    }

    fn encrypt(
        &mut self,
        number: u64,
        header: &[u8],
        payload: &mut scatter::Buffer<'_>,
    ) -> Result<(), Error> {
        lock(&self.key).encrypt(number, header, payload)
    }

    fn tag_len(&self) -> usize {
        lock(&self.key).tag_len()
    }

    fn aead_confidentiality_limit(&self) -> u64 {
        lock(&self.key).aead_confidentiality_limit()
    }

    fn aead_integrity_limit(&self) -> u64 {
        lock(&self.key).aead_integrity_limit()
    }

    fn cipher_suite(&self) -> CipherSuite {
        lock(&self.key).cipher_suite()
    }
}

impl<K: OneRttKey + 'static> OneRttKey for ProvingKey<K> {
    fn derive_next_key(&self) -> Self {
        let next = lock(&self.key).derive_next_key();
        Self::following(next, self.generation + 1, self.proofs.clone())
    }
}

impl<K> fmt::Debug for ProvingKey<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ProvingKey").field("generation", &self.generation).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_keys::Numbered;

    #[test]
    fn packets_of_the_keys_in_use_are_proven_and_no_others() {
        let key = ProvingKey::new(Numbered(1));
        let proofs = key.proofs();
        let proves = |phase: bool, tag: u8| proofs.proves(5, phase, &[], &[7, tag]);
        assert!(proves(false, 1) && !proves(true, 1) && !proves(false, 9));
        assert!(!proofs.proves(5, false, &[], &[]), "shorter than a tag");
        // s2n-quic derives the next key at once, and the one after that once it is in use.
        let next = key.derive_next_key();
        assert!(proves(true, 2) && proves(false, 1));
        let _ = next.derive_next_key().derive_next_key();
        assert!(proves(true, 2) && proves(false, 3) && proves(true, 4));
        assert!(!proves(false, 1), "old keys are not kept");
    }
}
