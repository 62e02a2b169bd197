//! The place where the assisted client runs: the simulation instead of the operating system.

use crate::simulation::clock::VirtualClock;
use packrat_s2n_quic::{Host, Sleep};
use packrat_wire::estimate::Timestamp;
use s2n_quic::provider::io::testing::Socket;
use s2n_quic_core::inet::ExplicitCongestionNotification;
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;

/// The simulated host of a client: control datagrams leave through the socket of s2n-quic itself.
#[derive(Debug)]
pub(crate) struct VirtualHost {
    pub(crate) clock: VirtualClock,
    /// Known once s2n-quic has started.
    pub(crate) socket: OnceLock<Socket>,
}

impl Host for VirtualHost {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn send(
        &self,
        datagram: &[u8],
        remote: SocketAddr,
        ecn: ExplicitCongestionNotification,
    ) -> io::Result<()> {
        let socket = self.socket.get().ok_or(io::ErrorKind::NotConnected)?;
        socket.send_to(remote, ecn, datagram.to_vec())
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        Box::pin(self.clock.sleep_until(at))
    }
}
