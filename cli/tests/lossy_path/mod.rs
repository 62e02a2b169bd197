//! A gateway in this process, and a last mile in front of it that loses datagrams.

use packrat_dataplane::log::Silent;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, Dataplane, Options, route_from_json};
use packrat_emulation::path::{LinkConfig, LossModel, PathConfig, UdpPath};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

/// The last mile, in bits per second.
const RATE: u64 = 40_000_000;

/// A path to a server by way of the gateway. Of what goes to the client 2 % is lost.
pub(crate) struct LossyPath {
    dataplane: Dataplane,
    last_mile: UdpPath,
    _listening: Attachment,
}

impl LossyPath {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent)).unwrap();
        let config = json!({ "route": "web", "endpoints": [server] });
        let route =
            dataplane.configure(route_from_json(config.to_string().as_bytes()).unwrap()).unwrap();
        let socket = bind_reuse_port("127.0.0.1:0".parse().unwrap()).unwrap();
        let gateway = local_address(std::os::fd::AsFd::as_fd(&socket)).unwrap();
        let listening = dataplane.listen(&route, gateway, 0, socket).unwrap();
        let link = |seed| LinkConfig::new(Duration::from_millis(5), RATE).with_seed(seed);
        let last_mile = UdpPath::start(PathConfig {
            server: gateway,
            upward: link(1),
            downward: link(2).with_loss(LossModel::new(0.02, 1.0)),
        })
        .unwrap();
        Self { dataplane, last_mile, _listening: listening }
    }

    /// The client's end, as `--connect-to` takes it.
    pub(crate) fn address(&self) -> String {
        self.last_mile.address().to_string()
    }

    pub(crate) fn shut_down(self) {
        drop(self.last_mile);
        self.dataplane.shutdown();
    }
}
