//! The packet interceptor: where s2n-quic and the core meet.

use crate::connection_events::{ConnectionEvent, ConnectionEvents};
use crate::path::AssistedPath;
use s2n_codec::{DecoderBufferMut, Encoder, encoder::scatter};
use s2n_quic::provider::packet_interceptor::PacketInterceptor;
use s2n_quic_core::event::api::{SocketAddress, Subject};
use s2n_quic_core::packet::interceptor::{self, Packet};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

/// Wakes s2n-quic's endpoint task.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointWaker(Arc<Mutex<Option<Waker>>>);

impl EndpointWaker {
    /// The endpoint waits.
    pub(crate) fn set(&self, waker: &Waker) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    /// Something that was kept back may be passed on.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }
}

/// The paths of an endpoint by remote address; the interceptor reads it, connections enter and
/// leave it.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    by_remote: Mutex<HashMap<SocketAddr, Arc<AssistedPath>>>,
    pub(crate) waker: EndpointWaker,
}

impl Paths {
    /// Enters a path; `false` when its remote address is taken by one that the application still
    /// holds.
    pub(crate) fn insert(&self, path: &Arc<AssistedPath>) -> bool {
        let before = {
            let mut paths = self.by_remote.lock().unwrap_or_else(PoisonError::into_inner);
            if paths.get(&path.remote()).is_some_and(|known| known.is_held()) {
                return false;
            }
            paths.insert(path.remote(), Arc::clone(path))
        };
        if let Some(before) = before {
            before.close();
        }
        true
    }

    /// Ends a path's assistance and takes the path out. Idempotent.
    pub(crate) fn end(&self, path: &Arc<AssistedPath>) {
        path.close();
        let mut paths = self.by_remote.lock().unwrap_or_else(PoisonError::into_inner);
        if paths.get(&path.remote()).is_some_and(|known| Arc::ptr_eq(known, path)) {
            paths.remove(&path.remote());
        }
    }

    pub(crate) fn get(&self, remote: SocketAddr) -> Option<Arc<AssistedPath>> {
        self.by_remote.lock().unwrap_or_else(PoisonError::into_inner).get(&remote).cloned()
    }
}

/// One per endpoint; s2n-quic calls it from its endpoint task, one datagram (already split out of a
/// GRO batch) at a time.
#[derive(Debug)]
pub(crate) struct Interceptor {
    paths: Arc<Paths>,
    /// The path of the last datagram: its packets are decrypted before the next datagram is looked
    /// at.
    current: Option<Arc<AssistedPath>>,
    /// By s2n-quic's internal connection identifier, for outgoing packets.
    by_connection: HashMap<u64, Arc<AssistedPath>>,
    events: ConnectionEvents,
    events_seen: u64,
}

impl Interceptor {
    pub(crate) fn new(paths: Arc<Paths>, events: ConnectionEvents) -> Self {
        Self { paths, current: None, by_connection: HashMap::new(), events, events_seen: 0 }
    }

    /// Tells the paths which key phase s2n-quic uses now, before each packet received and each
    /// packet rewritten, and lets go of those whose connection is gone.
    fn take_events(&mut self) {
        for (connection, event) in self.events.since(&mut self.events_seen) {
            match event {
                ConnectionEvent::KeyPhase(phase) => {
                    if let Some(path) = self.by_connection.get(&connection) {
                        path.on_key_phase(phase);
                    }
                }
                ConnectionEvent::Gone => {
                    self.by_connection.remove(&connection);
                }
            }
        }
    }

    fn packet_received(&mut self, connection: u64, application_number: Option<u64>) {
        let Some(path) = self.current.clone() else { return };
        // A connection whose assistance was closed may live on beside the next one to the same
        // address.
        if self.by_connection.get(&connection).is_some_and(|known| !Arc::ptr_eq(known, &path))
            || !path.claim(connection)
        {
            return;
        }
        // Until the connection is gone, whatever becomes of its assistance: see
        // `AssistedPath::rewrite`.
        self.by_connection.entry(connection).or_insert_with(|| {
            self.events.on_claim(connection, &path, &self.paths);
            Arc::clone(&path)
        });
        self.take_events();
        match application_number {
            Some(number) => path.on_packet_number(number),
            None => path.on_handshake_packet(),
        }
    }
}

fn remote_address(address: &SocketAddress<'_>) -> Option<SocketAddr> {
    match address {
        SocketAddress::IpV4 { ip, port, .. } => Some((**ip, *port).into()),
        SocketAddress::IpV6 { ip, port, .. } => Some((**ip, *port).into()),
        _ => None,
    }
}

fn application_number(packet: &Packet) -> Option<u64> {
    packet.number.space().is_application_data().then(|| packet.number.as_u64())
}

impl PacketInterceptor for Interceptor {
    fn intercept_rx_datagram<'a>(
        &mut self,
        _subject: &Subject,
        datagram: &interceptor::Datagram<'_>,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        self.current =
            remote_address(&datagram.remote_address).and_then(|remote| self.paths.get(remote));
        payload
    }

    fn intercept_rx_payload<'a>(
        &mut self,
        subject: &Subject,
        packet: &Packet,
        payload: DecoderBufferMut<'a>,
    ) -> DecoderBufferMut<'a> {
        if let Subject::Connection { id, .. } = subject {
            self.packet_received(*id, application_number(packet));
        }
        payload
    }

    fn intercept_tx_payload(
        &mut self,
        subject: &Subject,
        packet: &Packet,
        payload: &mut scatter::Buffer<'_>,
    ) {
        let Subject::Connection { id, .. } = subject else { return };
        if application_number(packet).is_none() {
            return;
        }
        self.take_events();
        let Some(path) = self.by_connection.get(id) else { return };
        let buffer = payload.flatten();
        let room = buffer.capacity();
        if let Some(frames) = path.rewrite(buffer.as_mut_slice(), room) {
            // `rewrite` keeps within `room` and never returns less than there was.
            buffer.set_position(0);
            buffer.write_slice(&frames);
        }
    }
}
