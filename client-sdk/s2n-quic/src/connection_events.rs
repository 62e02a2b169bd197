//! Key updates and ends of connections, as s2n-quic's events tell of them.
//!
//! s2n-quic publishes the event of a key update while it decrypts the packet that made it change
//! its keys, right before the interceptor gets that packet, on the same thread. When a late packet
//! of the old keys arrives, s2n-quic (0.91, `KeySet::decrypt_packet`) changes back to them,
//! and with that event, too: the core must know, see `packrat_client::Assist::on_key_phase`.

use crate::interceptor::Paths;
use crate::path::AssistedPath;
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Events of the connections of an endpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionEvents(Arc<Shared>);

/// A connection's path, among the paths of its endpoint.
type Assisted = (Arc<AssistedPath>, Arc<Paths>);

#[derive(Debug, Default)]
struct Shared {
    /// Counts the events, so that packets without one cost no lock.
    version: AtomicU64,
    /// The last event of each connection since the last look.
    events: Mutex<HashMap<u64, ConnectionEvent>>,
    /// The assistance that ends together with each connection.
    assisted: Mutex<HashMap<u64, Assisted>>,
}

/// An event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEvent {
    /// It uses keys of this phase now.
    KeyPhase(bool),
    /// It does not exist any more.
    Gone,
}

impl ConnectionEvents {
    /// Events since `version`, which becomes the current one, by s2n-quic's internal identifier of
    /// the connection.
    pub(crate) fn since(&self, version: &mut u64) -> Vec<(u64, ConnectionEvent)> {
        let current = self.0.version.load(Ordering::Acquire);
        if current == *version {
            return Vec::new();
        }
        *version = current;
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }

    /// A path has found its connection, and ends with it from now on.
    pub(crate) fn on_claim(&self, connection: u64, path: &Arc<AssistedPath>, paths: &Arc<Paths>) {
        let mut assisted = self.0.assisted.lock().unwrap_or_else(PoisonError::into_inner);
        assisted.insert(connection, (Arc::clone(path), Arc::clone(paths)));
    }

    fn on_gone(&self, connection: u64) {
        self.publish(connection, ConnectionEvent::Gone);
        let gone =
            self.0.assisted.lock().unwrap_or_else(PoisonError::into_inner).remove(&connection);
        if let Some((path, paths)) = gone {
            paths.end(&path);
        }
    }

    fn publish(&self, connection: u64, event: ConnectionEvent) {
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner).insert(connection, event);
        self.0.version.fetch_add(1, Ordering::Release);
    }
}

/// s2n-quic drops it together with the connection.
#[derive(Debug)]
pub(crate) struct Existence {
    connection: u64,
    events: ConnectionEvents,
}

impl Drop for Existence {
    fn drop(&mut self) {
        self.events.on_gone(self.connection);
    }
}

impl Subscriber for ConnectionEvents {
    type ConnectionContext = Existence;

    fn create_connection_context(
        &mut self,
        connection: &ConnectionMeta,
        _: &ConnectionInfo,
    ) -> Existence {
        Existence { connection: connection.id, events: self.clone() }
    }

    fn on_key_update(
        &mut self,
        _: &mut Existence,
        connection: &ConnectionMeta,
        event: &events::KeyUpdate,
    ) {
        // Every change of the phase, in either direction, counts the generation up by one.
        if let events::KeyType::OneRtt { generation, .. } = event.key_type {
            self.publish(connection.id, ConnectionEvent::KeyPhase(generation % 2 == 1));
        }
    }
}
