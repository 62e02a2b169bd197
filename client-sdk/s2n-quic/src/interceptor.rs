//! The packet interceptor: where s2n-quic and the core meet.

use crate::connection_events::{ConnectionEvent, ConnectionEvents};
use crate::path::AssistedPath;
use packrat_client::Datagram;
use s2n_codec::{DecoderBufferMut, Encoder, encoder::scatter};
use s2n_quic::provider::packet_interceptor::PacketInterceptor;
use s2n_quic_core::event::api::{SocketAddress, Subject};
use s2n_quic_core::packet::interceptor::{self, Packet};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The paths of an endpoint by remote address; the interceptor reads it, connections enter and leave it.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    by_remote: Mutex<HashMap<SocketAddr, Arc<AssistedPath>>>,
}

impl Paths {
    /// Enters a path; `false` when its remote address is taken.
    pub(crate) fn insert(&self, path: &Arc<AssistedPath>) -> bool {
        let mut paths = self.by_remote.lock().unwrap_or_else(PoisonError::into_inner);
        let free = !paths.contains_key(&path.remote());
        if free {
            paths.insert(path.remote(), Arc::clone(path));
        }
        free
    }

    /// Takes a path out.
    pub(crate) fn remove(&self, remote: SocketAddr) {
        self.by_remote.lock().unwrap_or_else(PoisonError::into_inner).remove(&remote);
    }

    fn get(&self, remote: SocketAddr) -> Option<Arc<AssistedPath>> {
        self.by_remote.lock().unwrap_or_else(PoisonError::into_inner).get(&remote).cloned()
    }
}

/// One per endpoint; s2n-quic calls it from its endpoint task, one datagram (already split out of a GRO batch) at a time.
#[derive(Debug)]
pub(crate) struct Interceptor {
    paths: Arc<Paths>,
    /// The path of the last datagram: its packets are decrypted before the next datagram is looked at.
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

    fn datagram_received(&mut self, remote: SocketAddr, datagram: &[u8]) -> Datagram {
        self.current = self.paths.get(remote);
        self.current.as_ref().map_or(Datagram::Base, |path| path.on_datagram(datagram))
    }

    /// Tells the paths which key phase s2n-quic uses now, before each packet received and each packet rewritten, and lets go of those
    /// whose connection is gone.
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
        // A connection whose assistance was closed may live on beside the next one to the same address.
        if self.by_connection.get(&connection).is_some_and(|known| !Arc::ptr_eq(known, &path))
            || !path.claim(connection)
        {
            return;
        }
        // Until the connection is gone, whatever becomes of its assistance: see `AssistedPath::rewrite`.
        self.by_connection.entry(connection).or_insert_with(|| Arc::clone(&path));
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
        let Some(remote) = remote_address(&datagram.remote_address) else { return payload };
        let bytes = payload.into_less_safe_slice();
        match self.datagram_received(remote, bytes) {
            Datagram::Base => DecoderBufferMut::new(bytes),
            // Nothing to decode: s2n-quic counts one dropped datagram and looks no further.
            Datagram::Control => DecoderBufferMut::new(&mut bytes[..0]),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Host, OperatingSystem};
    use packrat_client::{Assist, ClientConfig};
    use s2n_quic_core::event::{IntoEvent, builder};
    use s2n_quic_core::time::{Clock as _, NoopClock};
    use std::net::{Ipv4Addr, UdpSocket};

    const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

    /// What s2n-quic gets to see of a datagram from `remote` when the connection to [`SERVER`] is assisted.
    fn seen_by_s2n_quic(remote: SocketAddr, mut datagram: Vec<u8>) -> Vec<u8> {
        let host = Arc::new(OperatingSystem::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()));
        let core = Assist::new(ClientConfig::default(), [7; 32], host.now());
        let paths = Arc::new(Paths::default());
        assert!(paths.insert(&Arc::new(AssistedPath::new(SERVER, host, Some(Box::new(core))))));
        let mut interceptor = Interceptor::new(paths, ConnectionEvents::default());
        let remote: s2n_quic_core::inet::SocketAddress = remote.into();
        let information = interceptor::Datagram {
            remote_address: (&remote).into_event(),
            local_address: (&remote).into_event(),
            timestamp: NoopClock.get_time(),
        };
        let subject = builder::Subject::Endpoint {}.into_event();
        let payload = DecoderBufferMut::new(&mut datagram);
        interceptor.intercept_rx_datagram(&subject, &information, payload).into_less_safe_slice().to_vec()
    }

    #[test]
    fn control_datagrams_are_hidden_and_everything_else_is_passed_on_unchanged() {
        let mut control = vec![packrat_wire::control::FIRST_BYTE];
        control.extend_from_slice(&packrat_wire::control::MAGIC);
        control.extend_from_slice(&[1; 60]);
        assert_eq!(seen_by_s2n_quic(SERVER, control.clone()), b"");
        let short_header = vec![0x41; 1200];
        assert_eq!(seen_by_s2n_quic(SERVER, short_header.clone()), short_header);
        // From elsewhere nothing is taken out; s2n-quic drops it by itself.
        let elsewhere = SocketAddr::new(SERVER.ip(), 10);
        assert_eq!(seen_by_s2n_quic(elsewhere, control.clone()), control);
    }
}
