//! A gateway on the loopback for tests, with a server behind it.
#![allow(dead_code)] // every test uses a part of it

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use packrat_dataplane::log::{LogSink, Silent};
use packrat_dataplane::metrics::definitions;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, Dataplane, Options, Route, RouteConfig};

use crate::client::Socket;
pub(crate) use crate::client::{PATIENCE, receive};

pub(crate) struct Gateway {
    pub(crate) dataplane: Dataplane,
    pub(crate) route: Arc<Route>,
    pub(crate) listen: SocketAddr,
    pub(crate) attachments: Vec<Attachment>,
}

impl Gateway {
    /// Two workers at `listen`, as [`place`] reads it.
    pub(crate) fn start(listen: &str, config: RouteConfig) -> Self {
        Self::start_with_log(listen, config, Box::new(Silent))
    }

    pub(crate) fn start_with_log(listen: &str, config: RouteConfig, log: Box<dyn LogSink>) -> Self {
        let dataplane = Dataplane::start(Options { workers: 2 }, log).unwrap();
        let route = dataplane.configure(config).unwrap();
        let mut gateway = Self { dataplane, route, listen: place(listen), attachments: Vec::new() };
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
        metric(&self.route, name)
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
        let socket = UdpSocket::bind(local).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(self.listen).unwrap();
        socket
    }
}

/// A server, and a gateway before it.
pub(crate) fn alone() -> (UdpSocket, Gateway) {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    (server, gateway)
}

/// An address, where "127.0.0.1:0" is one of its own.
///
/// Gateways speak to servers from ports that the system chooses. When a gateway has gone, another
/// test may get its port, and with it the datagrams still sent there.
pub(crate) fn place(address: &str) -> SocketAddr {
    if address == "127.0.0.1:0" { own_address() } else { address.parse().unwrap() }
}

/// True if this machine has the address; says so if not, for IPv6 may be off.
pub(crate) fn has(address: &str) -> bool {
    let has = UdpSocket::bind(address).is_ok();
    if !has {
        println!("SKIPPED: no {address} here");
    }
    has
}

/// A socket at a [`place`] whose reads end after a time.
pub(crate) fn socket(local: &str) -> UdpSocket {
    let socket = UdpSocket::bind(place(local)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// An address that no other socket has or gets, also when a test gives it back and wants it again:
/// its host is this process alone, and its port outside the range that the system chooses from.
pub(crate) fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::from(([127, 64 | high & 0x3f, middle, low], port));
        // Another process may listen at all addresses.
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

/// The value of a metric.
pub(crate) fn metric(route: &Route, name: &str) -> u64 {
    let name = format!("packrat_{name}");
    let index =
        definitions().iter().position(|definition| definition.series() == name).expect(&name);
    route.metrics().values().nth(index).unwrap()
}

/// A route to these servers. No session ends because its client or its server is late.
pub(crate) fn config(servers: &[&impl Socket]) -> RouteConfig {
    let mut config =
        RouteConfig::new("web", servers.iter().map(|server| server.address())).unwrap();
    config.idle_timeout_seconds = 3600;
    config
}

/// Bytes that differ from datagram to datagram, also in each part of eight.
pub(crate) fn payload(seed: usize, length: usize) -> Vec<u8> {
    let number = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..length)
        .map(|index| number[index % 8] ^ (index.wrapping_mul(31) ^ (index >> 8)) as u8)
        .collect()
}
