//! Evidence, in passing datagrams, that the client receives at its address.

use packrat_engine::AddressProof;

use crate::socket::GsoBatch;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU8, Ordering};

/// Datagrams that are looked at: a handshake, and its repetitions. A protocol whose servers send no
/// random values in the clear costs no more.
const LOOKED_AT_DATAGRAMS: u32 = 64;

/// The state of the evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Looking,
    Given,
    /// No evidence was found in the first [`LOOKED_AT_DATAGRAMS`].
    Missing,
}

/// The evidence that a session's client receives at its address.
#[derive(Debug)]
pub(super) struct Evidence {
    /// A [`State`]; known without the lock of `proof`.
    state: AtomicU8,
    proof: Mutex<(AddressProof, u32)>,
}

impl Default for Evidence {
    fn default() -> Self {
        Self { state: AtomicU8::new(State::Looking as u8), proof: Mutex::default() }
    }
}

impl Evidence {
    /// True if the client has proved its address.
    pub(super) fn is_given(&self) -> bool {
        self.state.load(Ordering::Relaxed) == State::Given as u8
    }

    /// Looks at datagrams of the base connection, as long as there is something to find: `look` is called
    /// for each.
    pub(super) fn look(&self, batches: &[GsoBatch<'_>], look: impl Fn(&mut AddressProof, &[u8])) {
        if self.state.load(Ordering::Relaxed) != State::Looking as u8 {
            return;
        }
        let mut guard = self.proof.lock();
        let (proof, looked_at) = &mut *guard;
        for datagram in batches.iter().flat_map(|batch| batch.datagrams()) {
            look(proof, datagram);
            *looked_at += 1;
            let state = match proof.is_given() {
                true => State::Given,
                false if *looked_at >= LOOKED_AT_DATAGRAMS => State::Missing,
                false => continue,
            };
            self.state.store(state as u8, Ordering::Relaxed);
            return;
        }
    }
}
