//! A server, a real gateway and an emulated last mile, for the tests of SDKs.
//!
//! ```text
//!   server <-- far segment, 10 ms, 20 Mbit/s <-- gateway <-- last mile, 5 ms, loss <-- the SDK
//! ```
//!
//! For tests only: what cannot be started ends the test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod datagrams;
mod quic;
mod several;
mod trials;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

pub use datagrams::{Datagrams, datagram, most_copies};
use packrat_dataplane::log::Silent;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, Dataplane, Options, Route, RouteConfig};
use packrat_emulation::path::{LinkConfig, LossModel, PathConfig, UdpPath};
pub use quic::{FILE_BYTES, Quic, SERVER_NAME, expected, file};
pub use several::Several;
pub use trials::Trials;

/// Longest time that any step of a test may take.
pub const STEP_PATIENCE: Duration = Duration::from_secs(60);
/// Any port of this host.
pub const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A gateway in front of a server.
pub struct Gateway {
    dataplane: Dataplane,
    route: Arc<Route>,
    address: SocketAddr,
    _attachment: Attachment,
}

impl Gateway {
    /// Starts one.
    pub fn start(at: SocketAddr, server: SocketAddr) -> Self {
        Self::with(at, RouteConfig::new("web", [server]).unwrap())
    }

    /// Starts one with room for `sessions` of one address, all of which may begin at once.
    pub fn for_many(at: SocketAddr, server: SocketAddr, sessions: u32) -> Self {
        let mut config = RouteConfig::new("web", [server]).unwrap();
        config.sessions_per_source = sessions;
        config.handshakes_per_second_per_source = sessions;
        Self::with(at, config)
    }

    fn with(at: SocketAddr, config: RouteConfig) -> Self {
        let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap();
        let route = dataplane.configure(config).unwrap();
        let socket = bind_reuse_port(at).unwrap();
        let address = local_address(socket.as_fd()).unwrap();
        let attachment = dataplane.listen(&route, address, 0, socket).unwrap();
        Self { dataplane, route, address, _attachment: attachment }
    }

    /// Address that clients send to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Flows that are assisted.
    pub fn assisted(&self) -> usize {
        let sessions = self.dataplane.sessions(&self.route, usize::MAX);
        sessions.iter().filter(|session| session.assistance.is_some()).count()
    }

    /// Stops it.
    pub fn end(self) {
        self.dataplane.shutdown();
    }
}

fn path(to: SocketAddr, delay: u64, rate: u64, loss: f64) -> UdpPath {
    let link = |seed: u64| {
        LinkConfig::new(Duration::from_millis(delay), rate)
            .with_seed(seed)
            .with_loss(LossModel::Independent { rate: loss })
    };
    UdpPath::start(PathConfig { server: to, upward: link(1), downward: link(2) }).unwrap()
}

/// The bottleneck is there: 20 Mbit/s and 10 ms.
pub fn far_segment(server: SocketAddr) -> UdpPath {
    path(server, 10, 20_000_000, 0.0)
}

/// 50 Mbit/s and 5 ms, and this loss both ways.
pub fn last_mile(gateway: SocketAddr, loss: f64) -> UdpPath {
    path(gateway, 5, 50_000_000, loss)
}

/// A server behind a gateway and a lossy last mile.
pub struct LossyPath {
    /// The part that loses.
    pub near: UdpPath,
    /// The gateway.
    pub gateway: Gateway,
    far: UdpPath,
}

impl LossyPath {
    /// A path to `server` with this loss.
    pub fn start(server: SocketAddr, loss: f64) -> Self {
        let far = far_segment(server);
        let gateway = Gateway::start(ANY_PORT, far.address());
        Self { near: last_mile(gateway.address(), loss), gateway, far }
    }

    /// Address that the SDK sends to.
    pub fn address(&self) -> SocketAddr {
        self.near.address()
    }

    /// True if both parts were [on time](packrat_emulation::path::PathReport::is_on_time).
    pub fn is_on_time(&self) -> bool {
        self.near.report().is_on_time() && self.far.report().is_on_time()
    }

    /// Datagrams towards the client that the far segment's queue has dropped: the sender's own
    /// losses.
    pub fn dropped(&self) -> u64 {
        self.far.report().downward.link.queue_dropped
    }

    /// Datagrams that the SDK has sent.
    pub fn sent(&self) -> u64 {
        self.near.report().upward.link.offered
    }

    /// Datagrams towards the gateway that the last mile has lost.
    pub fn lost_upwards(&self) -> u64 {
        self.near.report().upward.link.lost
    }

    /// Datagrams towards the client that the last mile has lost.
    pub fn lost(&self) -> u64 {
        self.near.report().downward.link.lost
    }
}
