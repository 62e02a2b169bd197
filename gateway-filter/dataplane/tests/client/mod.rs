//! A client with Packrat's core on a real socket; the tests of all shells use it.
#![allow(dead_code)] // every test uses a part of it

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant};

use packrat_client::{Assist, AssistState, ClientConfig, PacketNumber, RefusalReason};
use packrat_wire::estimate::Timestamp;

/// Longest time that a client waits for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time that a client waits for a datagram before it looks at what is due.
const TURN: Duration = Duration::from_millis(1);
/// When nothing arrives for so long, the server sends again what is missing.
const SERVER_PATIENCE: Duration = Duration::from_millis(500);
/// One of so many datagrams is lost by the last mile of [`transfer`].
pub(crate) const LOST_EVERY: usize = 20;

/// A datagram that looks encrypted: every identifier is different.
pub(crate) fn encrypted(number: usize) -> Vec<u8> {
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..1200)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8 | 0x40
        })
        .collect()
}

/// A client with Packrat's core.
pub(crate) struct Client {
    pub(crate) socket: UdpSocket,
    pub(crate) assist: Assist,
    start: Instant,
}

impl Client {
    pub(crate) fn new(gateway: SocketAddr) -> Self {
        Self::with(gateway, ClientConfig::default())
    }

    pub(crate) fn with(gateway: SocketAddr, config: ClientConfig) -> Self {
        Self::from(if gateway.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }, gateway, config)
    }

    /// A client at this address of its host.
    pub(crate) fn from(local: &str, gateway: SocketAddr, config: ClientConfig) -> Self {
        let socket = UdpSocket::bind(local).unwrap();
        socket.connect(gateway).unwrap();
        socket.set_read_timeout(Some(TURN)).unwrap();
        // Every client has its own randomness.
        let seed = [socket.local_addr().unwrap().port().to_le_bytes()[0]; 32];
        let assist = Assist::new(config, seed, Timestamp::ZERO);
        Self { socket, assist, start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.start.elapsed().as_micros() as u64)
    }

    /// Does what is due, and waits a moment for a datagram of the gateway.
    pub(crate) fn turn(&mut self) -> Option<Vec<u8>> {
        let now = self.now();
        if self.assist.next_timeout().is_some_and(|timeout| timeout <= now) {
            self.assist.handle_timeout(now);
        }
        while let Some(datagram) = self.assist.poll_transmit(now) {
            self.socket.send(&datagram).unwrap();
        }
        let mut buffer = vec![0; 2000];
        let length = self.socket.recv(&mut buffer).ok()?;
        buffer.truncate(length);
        Some(buffer)
    }

    /// Takes turns until `done` with what has come says so.
    pub(crate) fn turn_until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self, Option<Vec<u8>>) -> bool,
    ) {
        let start = Instant::now();
        loop {
            let received = self.turn();
            if done(self, received) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "waited in vain for {what}: {:?}",
                self.assist.stats()
            );
        }
    }

    /// True if it has a session.
    pub(crate) fn is_established(&self) -> bool {
        self.assist.stats().state == AssistState::Established
    }

    /// Takes part until `done` says so: the core gets all that comes.
    pub(crate) fn take_part_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        self.turn_until(what, |client, received| {
            if let Some(datagram) = received {
                client.assist.on_datagram(&datagram, client.now());
            }
            done(client)
        });
    }

    /// Goes on from another socket, of which the core does not know yet. Returns the old one.
    pub(crate) fn go_on_from(&mut self, socket: UdpSocket) -> UdpSocket {
        socket.set_read_timeout(Some(TURN)).unwrap();
        std::mem::replace(&mut self.socket, socket)
    }

    /// Forgets its session and begins another one from the same address.
    pub(crate) fn begin_again(&mut self, seed: [u8; 32]) {
        self.assist = Assist::new(ClientConfig::default(), seed, self.now());
        self.establish();
    }

    /// Takes part in the handshake until a gateway has refused; why.
    pub(crate) fn wait_for_refusal(&mut self) -> RefusalReason {
        let mut reason = None;
        self.take_part_until("the refusal", |client| {
            reason = client.assist.stats().refusal;
            reason.is_some()
        });
        reason.unwrap()
    }

    /// Takes part until the session has ended.
    pub(crate) fn wait_for_goodbye(&mut self) {
        self.take_part_until("the goodbye", |client| !client.is_established());
    }

    /// Takes part in the handshake until the gateway has heard that the session is there, and said
    /// so.
    pub(crate) fn establish(&mut self) {
        self.take_part_until("the session", |client| {
            client.is_established() && client.assist.stats().reports > 0
        });
    }
}

/// An assisted client, and the address that the server sees it at.
pub(crate) fn connect(gateway: SocketAddr, server: &UdpSocket) -> (Client, SocketAddr) {
    connect_with(gateway, server, ClientConfig::default())
}

/// The same with this configuration.
pub(crate) fn connect_with(
    gateway: SocketAddr,
    server: &UdpSocket,
    config: ClientConfig,
) -> (Client, SocketAddr) {
    let mut client = Client::with(gateway, config);
    client.socket.send(b"hello").unwrap();
    let mut buffer = [0; 100];
    let (length, upstream) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"hello");
    client.establish();
    (client, upstream)
}

/// Those of a server's datagrams that have come through a last mile that loses some of them once.
/// What the gateway shows the server as lost, as it does when a queue seems to stand (on a busy
/// host there is one), the server sends again after a while.
pub(crate) struct Arrivals {
    numbers: HashMap<Vec<u8>, usize>,
    counts: HashMap<usize, usize>,
    missing: usize,
    progress: Instant,
}

impl Arrivals {
    pub(crate) fn new(range: Range<usize>) -> Self {
        Self {
            missing: range.len(),
            numbers: range.map(|number| (encrypted(number), number)).collect(),
            counts: HashMap::new(),
            progress: Instant::now(),
        }
    }

    pub(crate) fn are_complete(&self) -> bool {
        self.missing == 0
    }

    /// The number of one of the server's datagrams.
    pub(crate) fn number(&self, datagram: &[u8]) -> Option<usize> {
        self.numbers.get(datagram).copied()
    }

    /// One has come to the last mile; whether it gets through.
    pub(crate) fn arrive(&mut self, number: usize) -> bool {
        let count = self.counts.entry(number).or_default();
        *count += 1;
        if *count == 1 + losses(number) {
            self.missing -= 1;
            self.progress = Instant::now();
        }
        *count > losses(number)
    }

    /// The server sends again what has not arrived, when nothing has for a while.
    pub(crate) fn repeat(&mut self, server: &UdpSocket, upstream: SocketAddr) {
        if self.progress.elapsed() <= SERVER_PATIENCE {
            return;
        }
        self.progress = Instant::now();
        for (datagram, number) in &self.numbers {
            if self.counts.get(number).is_some_and(|count| *count <= losses(*number)) {
                server.send_to(datagram, upstream).unwrap();
            }
        }
    }
}

/// The number of times that the last mile loses this one.
fn losses(number: usize) -> usize {
    usize::from(number % LOST_EVERY == 7)
}

/// The server sends datagrams; the last mile loses some of them once; the client waits until it has
/// them all.
pub(crate) fn transfer(
    client: &mut Client,
    server: &UdpSocket,
    upstream: SocketAddr,
    range: Range<usize>,
) {
    let mut arrivals = Arrivals::new(range.clone());
    let mut to_send = range;
    client.turn_until("all datagrams", |client, received| {
        let Some(datagram) = received else {
            arrivals.repeat(server, upstream);
            for number in to_send.by_ref().take(10) {
                server.send_to(&encrypted(number), upstream).unwrap();
            }
            return arrivals.are_complete();
        };
        let now = client.now();
        let number = arrivals.number(&datagram);
        if number.is_some_and(|number| !arrivals.arrive(number)) {
            return false;
        }
        client.assist.on_datagram(&datagram, now);
        if let Some(number) = number {
            client.assist.on_packet_number(PacketNumber::new(number as u64), now);
        }
        arrivals.are_complete()
    });
}
