//! The keys of a gateway: the static one of its handshakes, and one for each purpose that the gateways of
//! one address share, from a secret that changes.

use std::sync::PoisonError;

use packrat_wire::peer::{PeerKey, derive};
use zeroize::Zeroizing;

use crate::gateway::Gateway;
use crate::sync::RwLockReadGuard;

/// The static key, and the keys for what gateways of one address write for each other.
pub(crate) struct Keys {
    pub(crate) static_key: Zeroizing<[u8; 32]>,
    /// The one in use.
    pub(crate) shared: SharedKeys,
    /// The one to come, or the one that was: it is understood.
    pub(crate) other: Option<SharedKeys>,
}

/// The keys that follow from a secret of the gateways of one address.
pub(crate) struct SharedKeys {
    pub(crate) peers: PeerKey,
    pub(crate) tickets: Zeroizing<[u8; 32]>,
}

impl SharedKeys {
    fn new(secret: &[u8; 32]) -> Self {
        Self { peers: PeerKey::new(secret), tickets: derive(secret, b"packrat/2 ticket") }
    }
}

impl Keys {
    pub(crate) fn new(static_key: [u8; 32], secrets: &[Zeroizing<[u8; 32]>]) -> Self {
        let mut shared = secrets.iter().map(|secret| SharedKeys::new(secret));
        Self {
            shared: shared.next().unwrap_or_else(|| SharedKeys::new(&static_key)),
            other: shared.next(),
            static_key: Zeroizing::new(static_key),
        }
    }

    /// All that are understood, the one in use first.
    pub(crate) fn understood(&self) -> impl Iterator<Item = &SharedKeys> {
        std::iter::once(&self.shared).chain(&self.other)
    }
}

impl Gateway {
    /// Answers handshakes with this static key from now on, and writes tickets and messages to other
    /// gateways with the first of `secrets`, at most two of which are understood; without one, the
    /// static key is the secret. Existing sessions continue.
    pub fn set_keys(&self, static_key: [u8; 32], secrets: &[Zeroizing<[u8; 32]>]) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Keys::new(static_key, secrets);
    }

    pub(crate) fn keys(&self) -> RwLockReadGuard<'_, Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayConfig;

    #[test]
    fn keys_are_overwritten_when_they_are_dropped_or_replaced() {
        fn is_wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
        let keys = gateway.keys();
        is_wiped(&keys.static_key);
        is_wiped(&keys.shared.peers);
        is_wiped(&keys.shared.tickets);
    }
}
