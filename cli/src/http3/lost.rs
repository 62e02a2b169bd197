//! Packets that this end has declared lost.

use s2n_quic::provider::event::events::PacketLost;
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the packets that s2n-quic declares lost, other than probes of the path MTU. All clones
/// share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct LostPackets(Arc<AtomicU64>);

impl LostPackets {
    /// Number of lost packets.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Subscriber for LostPackets {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_packet_lost(&mut self, (): &mut (), _: &ConnectionMeta, event: &PacketLost) {
        if !event.is_mtu_probe {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
