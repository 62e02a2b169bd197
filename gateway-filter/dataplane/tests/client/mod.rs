//! A client with Packrat's core; the tests of all shells use it on a real socket.
#![allow(dead_code)] // every test uses a part of it

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use packrat_client::{Assist, AssistState, ClientConfig, PacketNumber, RefusalReason};
use packrat_wire::estimate::Timestamp;

/// Longest time that a client waits for something that has to happen: it only ends a test that
/// would never end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// Longest time that a client waits for a datagram before it looks at its deadlines.
const TURN: Duration = Duration::from_millis(1);
/// Time without an arrival after which the server sends missing datagrams again.
const SERVER_PATIENCE: Duration = Duration::from_millis(500);
/// The last mile of [`transfer`] loses one datagram of this number.
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

/// A UDP socket with a clock: the system's, or one in virtual time.
pub(crate) trait Socket {
    fn address(&self) -> SocketAddr;
    fn now(&self) -> Timestamp;
    fn pause(&self, time: Duration);
    /// Sends to the address that it is connected to, even if the socket there is closed by now.
    fn say(&self, datagram: &[u8]);
    fn say_to(&self, datagram: &[u8], to: SocketAddr);
    /// The next datagram, and its sender; `None` if none arrives in this time.
    fn hear(&self, patience: Duration) -> Option<(Vec<u8>, SocketAddr)>;
}

impl Socket for UdpSocket {
    fn address(&self) -> SocketAddr {
        self.local_addr().unwrap()
    }

    fn now(&self) -> Timestamp {
        static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        Timestamp::from_micros(ORIGIN.elapsed().as_micros() as u64)
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn say(&self, datagram: &[u8]) {
        // The system may report that an earlier one was refused.
        let _ = self.send(datagram);
    }

    fn say_to(&self, datagram: &[u8], to: SocketAddr) {
        self.send_to(datagram, to).unwrap();
    }

    fn hear(&self, patience: Duration) -> Option<(Vec<u8>, SocketAddr)> {
        self.set_read_timeout(Some(patience)).unwrap();
        let mut buffer = vec![0; 70_000];
        let (length, from) = self.recv_from(&mut buffer).ok()?;
        buffer.truncate(length);
        Some((buffer, from))
    }
}

/// The next datagram, and its sender.
pub(crate) fn receive(socket: &impl Socket) -> (Vec<u8>, SocketAddr) {
    socket.hear(PATIENCE).expect("a datagram")
}

/// A client with Packrat's core.
pub(crate) struct Client<S: Socket = UdpSocket> {
    pub(crate) socket: S,
    pub(crate) assist: Assist,
    start: Timestamp,
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
        Self::on(socket, config)
    }
}

impl<S: Socket> Client<S> {
    /// A client on this socket, which is connected to its gateway.
    pub(crate) fn on(socket: S, config: ClientConfig) -> Self {
        // Every client has its own randomness.
        let seed = [socket.address().port().to_le_bytes()[0]; 32];
        let start = socket.now();
        Self { socket, assist: Assist::new(config, seed, Timestamp::ZERO), start }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.socket.now().saturating_since(self.start)
    }

    /// The next message of the core, if one is due.
    pub(crate) fn poll(&mut self) -> Option<Vec<u8>> {
        let now = self.now();
        if self.assist.next_timeout().is_some_and(|timeout| timeout <= now) {
            self.assist.handle_timeout(now);
        }
        self.assist.poll_transmit(now)
    }

    /// The next message of the core, which is not sent.
    pub(crate) fn withhold(&mut self) -> Vec<u8> {
        let start = self.now();
        loop {
            if let Some(message) = self.poll() {
                return message;
            }
            assert!(self.now().saturating_since(start) < PATIENCE, "it has nothing to say");
            self.socket.pause(TURN);
        }
    }

    /// Does all work that is due, and waits a moment for a datagram of the gateway.
    pub(crate) fn turn(&mut self) -> Option<Vec<u8>> {
        while let Some(datagram) = self.poll() {
            self.socket.say(&datagram);
        }
        Some(self.socket.hear(TURN)?.0)
    }

    /// Takes turns until `done` is true of a received datagram.
    pub(crate) fn turn_until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self, Option<Vec<u8>>) -> bool,
    ) {
        let start = self.now();
        loop {
            let received = self.turn();
            if done(self, received) {
                return;
            }
            assert!(
                self.now().saturating_since(start) < PATIENCE,
                "waited in vain for {what}: {:?}",
                self.assist.stats()
            );
        }
    }

    /// True if it has a session.
    pub(crate) fn is_established(&self) -> bool {
        self.assist.stats().state == AssistState::Established
    }

    /// Takes part until `done` is true: the core gets all datagrams.
    pub(crate) fn take_part_until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        self.turn_until(what, |client, received| {
            if let Some(datagram) = received {
                client.assist.on_datagram(&datagram, client.now());
            }
            done(client)
        });
    }

    /// Continues from another socket, of which the core does not know yet. Returns the old one.
    pub(crate) fn go_on_from(&mut self, socket: S) -> S {
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

    /// Takes part in the handshake until the gateway has learned that the session is there, and
    /// confirmed it.
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

/// Client with this configuration, and the address that the server sees it at.
pub(crate) fn connect_with(
    gateway: SocketAddr,
    server: &UdpSocket,
    config: ClientConfig,
) -> (Client, SocketAddr) {
    assist(Client::with(gateway, config), server)
}

/// Sends the client's hello and gets it a session; returns it, and the address that the server sees
/// it at.
pub(crate) fn assist<S: Socket>(mut client: Client<S>, server: &S) -> (Client<S>, SocketAddr) {
    // The hello looks like a QUIC packet with a long header: a packet with a short one may wait, as
    // its client may have moved.
    client.socket.say(b"\xc3hello");
    let (hello, upstream) = receive(server);
    assert_eq!(hello, b"\xc3hello");
    client.establish();
    (client, upstream)
}

/// Most datagrams in flight: a receive buffer holds more.
const MOST_UNDER_WAY: usize = 40;

/// A server's datagrams that have come through a last mile that loses some of them once. Losses
/// that the gateway leaves to the server, as it does when a queue seems to stand (on a busy host
/// there is one), are sent again by the server after a while.
pub(crate) struct Arrivals {
    numbers: HashMap<Vec<u8>, usize>,
    counts: HashMap<usize, usize>,
    to_send: Range<usize>,
    missing: usize,
    progress: Timestamp,
}

impl Arrivals {
    pub(crate) fn new(range: Range<usize>, now: Timestamp) -> Self {
        Self {
            missing: range.len(),
            numbers: range.clone().map(|number| (encrypted(number), number)).collect(),
            to_send: range,
            counts: HashMap::new(),
            progress: now,
        }
    }

    pub(crate) fn are_complete(&self) -> bool {
        self.missing == 0
    }

    /// The number of one of the server's datagrams.
    pub(crate) fn number(&self, datagram: &[u8]) -> Option<usize> {
        self.numbers.get(datagram).copied()
    }

    /// Notes that a datagram has come to the last mile; returns whether it gets through.
    pub(crate) fn arrive(&mut self, number: usize, now: Timestamp) -> bool {
        let count = self.counts.entry(number).or_default();
        *count += 1;
        if *count == 1 + losses(number) {
            self.missing -= 1;
            self.progress = now;
        }
        *count > losses(number)
    }

    /// Sends the server's next datagrams, and missing ones again if none has arrived for a while.
    pub(crate) fn send(&mut self, server: &impl Socket, upstream: SocketAddr, now: Timestamp) {
        let under_way = self.numbers.len() - self.to_send.len() - self.counts.len();
        if under_way <= MOST_UNDER_WAY - 10 {
            for number in self.to_send.by_ref().take(10) {
                server.say_to(&encrypted(number), upstream);
            }
        }
        if now.saturating_since(self.progress) <= SERVER_PATIENCE {
            return;
        }
        self.progress = now;
        let is_missing = |number: &usize| {
            let count = self.counts.get(number).copied().unwrap_or_default();
            !self.to_send.contains(number) && count <= losses(*number)
        };
        let mut missing: Vec<usize> = self.numbers.values().copied().filter(is_missing).collect();
        missing.sort_unstable();
        missing.into_iter().for_each(|number| server.say_to(&encrypted(number), upstream));
    }
}

/// The number of times that the last mile loses this one.
fn losses(number: usize) -> usize {
    usize::from(number % LOST_EVERY == 7)
}

/// The server sends datagrams; the last mile loses some of them once; the client waits until it has
/// them all.
pub(crate) fn transfer<S: Socket>(
    client: &mut Client<S>,
    server: &S,
    upstream: SocketAddr,
    range: Range<usize>,
) {
    let mut arrivals = Arrivals::new(range, client.now());
    client.turn_until("all datagrams", |client, received| {
        let now = client.now();
        let Some(datagram) = received else {
            arrivals.send(server, upstream, now);
            return arrivals.are_complete();
        };
        let number = arrivals.number(&datagram);
        if number.is_some_and(|number| !arrivals.arrive(number, now)) {
            return false;
        }
        client.assist.on_datagram(&datagram, now);
        if let Some(number) = number {
            client.assist.on_packet_number(PacketNumber::new(number as u64), now);
        }
        arrivals.are_complete()
    });
}

/// Transfers of datagrams from number `first` on, until the gateway has repaired one more than
/// before: on a busy host a queue seems to stand now and then, and its losses are the server's to
/// repeat.
pub(crate) fn transfer_until_repaired<S: Socket>(
    client: &mut Client<S>,
    server: &S,
    upstream: SocketAddr,
    first: usize,
    repairs: impl Fn() -> u64,
) {
    let (before, start) = (repairs(), client.now());
    for begin in (first..).step_by(200) {
        transfer(client, server, upstream, begin..begin + 200);
        if repairs() > before {
            return;
        }
        assert!(client.now().saturating_since(start) < PATIENCE, "nothing is repaired");
    }
}
