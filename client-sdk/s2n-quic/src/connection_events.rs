//! Begins and ends of connections, and their keys, from s2n-quic's events.

use crate::paths::Paths;
use s2n_quic::provider::event::events::PacketHeader;
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber, events};
use s2n_quic_core::event::api::SocketAddress;
use std::net::SocketAddr;
use std::sync::Arc;

/// Informs an endpoint's paths about the connections that use them.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionEvents(pub(crate) Arc<Paths>);

/// The existence of a connection: s2n-quic drops it together with the connection.
#[derive(Debug)]
pub(crate) struct Existence {
    paths: Arc<Paths>,
    connection: u64,
    /// Known once the connection has begun.
    remote: Option<SocketAddr>,
}

impl Existence {
    /// A packet has been decrypted.
    fn on_packet(&self, header: &PacketHeader) {
        if let PacketHeader::OneRtt { number, .. } = header {
            self.paths.keys.on_packet(self.connection, *number);
        }
    }
}

impl Drop for Existence {
    fn drop(&mut self) {
        self.paths.keys.on_gone(self.connection);
        if let Some(remote) = self.remote {
            self.paths.on_gone(remote);
        }
    }
}

impl Subscriber for ConnectionEvents {
    type ConnectionContext = Existence;

    fn create_connection_context(
        &mut self,
        connection: &ConnectionMeta,
        _: &ConnectionInfo,
    ) -> Existence {
        Existence { paths: Arc::clone(&self.0), connection: connection.id, remote: None }
    }

    fn on_key_update(
        &mut self,
        existence: &mut Existence,
        _: &ConnectionMeta,
        event: &events::KeyUpdate,
    ) {
        if let events::KeyType::OneRtt { .. } = event.key_type {
            self.0.keys.on_key_update(existence.connection);
        }
    }

    fn on_packet_received(
        &mut self,
        existence: &mut Existence,
        _: &ConnectionMeta,
        event: &events::PacketReceived,
    ) {
        existence.on_packet(&event.packet_header);
    }

    fn on_duplicate_packet(
        &mut self,
        existence: &mut Existence,
        _: &ConnectionMeta,
        event: &events::DuplicatePacket,
    ) {
        existence.on_packet(&event.packet_header);
    }

    fn on_connection_started(
        &mut self,
        existence: &mut Existence,
        _: &ConnectionMeta,
        event: &events::ConnectionStarted,
    ) {
        existence.remote = socket_address(&event.path.remote_addr);
        if let Some(remote) = existence.remote {
            self.0.on_begun(remote);
        }
    }
}

fn socket_address(address: &SocketAddress<'_>) -> Option<SocketAddr> {
    match address {
        SocketAddress::IpV4 { ip, port, .. } => Some((**ip, *port).into()),
        SocketAddress::IpV6 { ip, port, .. } => Some((**ip, *port).into()),
        _ => None,
    }
}
