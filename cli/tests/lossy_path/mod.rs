//! A gateway in this process, and a last mile in front of it that loses datagrams.

use crate::local_gateway::LocalGateway;
use packrat_emulation::path::{LinkConfig, LossModel, PathConfig, UdpPath};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

/// The last mile, in bits per second.
const RATE: u64 = 40_000_000;

/// A path to a server by way of the gateway. Of the datagrams to the client 2 % are lost.
pub(crate) struct LossyPath {
    // (ends before the gateway does)
    last_mile: UdpPath,
    _gateway: LocalGateway,
}

impl LossyPath {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let gateway = LocalGateway::start(&json!({ "route": "web", "endpoints": [server] }));
        let link = |seed| LinkConfig::new(Duration::from_millis(5), RATE).with_seed(seed);
        let last_mile = UdpPath::start(PathConfig {
            server: gateway.address,
            upward: link(1),
            downward: link(2).with_loss(LossModel::new(0.02, 1.0)),
        })
        .unwrap();
        Self { last_mile, _gateway: gateway }
    }

    /// The client's end, as `--connect-to` takes it.
    pub(crate) fn address(&self) -> String {
        self.last_mile.address().to_string()
    }
}
