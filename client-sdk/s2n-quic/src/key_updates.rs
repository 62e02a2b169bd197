//! Key updates, as s2n-quic's events tell of them.
//!
//! s2n-quic publishes the event while it decrypts the packet that made it change its keys, right before the interceptor gets that packet,
//! on the same thread. When a late packet of the old keys arrives, s2n-quic (0.91, `KeySet::decrypt_packet`) changes back to them,
//! and with that event, too: the core must know, see `packrat_client::Assist::on_key_phase`.

use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Which key phase each connection of an endpoint uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyUpdates(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Counts the updates, so that packets without one cost no lock.
    version: AtomicU64,
    phases: Mutex<HashMap<u64, bool>>,
}

impl KeyUpdates {
    /// The phases that have changed since `version`, which becomes the current one.
    pub(crate) fn changed_since(&self, version: &mut u64) -> Vec<(u64, bool)> {
        let current = self.0.version.load(Ordering::Acquire);
        if current == *version {
            return Vec::new();
        }
        *version = current;
        self.0.phases.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}

impl Subscriber for KeyUpdates {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_key_update(&mut self, (): &mut (), connection: &ConnectionMeta, event: &events::KeyUpdate) {
        // Every change of the phase, in either direction, counts the generation up by one.
        if let events::KeyType::OneRtt { generation, .. } = event.key_type {
            let mut phases = self.0.phases.lock().unwrap_or_else(PoisonError::into_inner);
            phases.insert(connection.id, generation % 2 == 1);
            self.0.version.fetch_add(1, Ordering::Release);
        }
    }
}
