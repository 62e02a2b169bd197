//! A gateway on the loopback for tests, with a server behind it.
#![allow(dead_code)] // every test uses a part of it

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use packrat_dataplane::log::{LogSink, Silent};
use packrat_dataplane::metrics::definitions;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, Dataplane, Options, Route, RouteConfig};

/// Longest time that a test waits for something that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Gateway {
    pub(crate) dataplane: Dataplane,
    pub(crate) route: Arc<Route>,
    pub(crate) listen: SocketAddr,
    pub(crate) attachments: Vec<Attachment>,
}

impl Gateway {
    /// Two workers on `listen` (port 0: any).
    pub(crate) fn start(listen: &str, config: RouteConfig) -> Self {
        Self::start_with_log(listen, config, Box::new(Silent))
    }

    pub(crate) fn start_with_log(listen: &str, config: RouteConfig, log: Box<dyn LogSink>) -> Self {
        let dataplane = Dataplane::start(Options { workers: 2 }, log).unwrap();
        let route = dataplane.configure(config).unwrap();
        let mut gateway =
            Self { dataplane, route, listen: listen.parse().unwrap(), attachments: Vec::new() };
        gateway.listen_again();
        gateway
    }

    pub(crate) fn listen_again(&mut self) {
        for worker in 0..2 {
            let socket = bind_reuse_port(self.listen).unwrap();
            self.listen = local_address(std::os::fd::AsFd::as_fd(&socket)).unwrap();
            self.attachments
                .push(self.dataplane.listen(&self.route, self.listen, worker, socket).unwrap());
        }
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        let name = format!("packrat_{name}");
        let index =
            definitions().iter().position(|definition| definition.series() == name).expect(&name);
        self.route.metrics().values().nth(index).unwrap()
    }

    pub(crate) fn wait_for(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A client socket connected to the gateway.
    pub(crate) fn client(&self) -> UdpSocket {
        self.client_from(if self.listen.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" })
    }

    pub(crate) fn client_from(&self, local: &str) -> UdpSocket {
        let socket = socket(local);
        socket.connect(self.listen).unwrap();
        socket
    }
}

/// A socket that does not wait for ever.
pub(crate) fn socket(local: &str) -> UdpSocket {
    let socket = UdpSocket::bind(local).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub(crate) fn config(servers: &[&UdpSocket]) -> RouteConfig {
    RouteConfig::new("web", servers.iter().map(|server| server.local_addr().unwrap())).unwrap()
}

pub(crate) fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 70_000];
    let (length, from) = socket.recv_from(&mut buffer).expect("a datagram");
    buffer.truncate(length);
    (buffer, from)
}

/// Bytes that differ from datagram to datagram.
pub(crate) fn payload(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index.wrapping_mul(31) ^ seed.wrapping_mul(131) ^ (index >> 8)) as u8)
        .collect()
}
