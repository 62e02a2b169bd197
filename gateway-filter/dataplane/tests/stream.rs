//! Routes that are live streams, on real sockets: many at once, changed while they run, fed by
//! allowed senders.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use packrat_client::{Assist, AssistState, ClientConfig, Datagram, Live, RefusalReason};
use packrat_dataplane::{RouteConfig, StreamRoute, route_from_json};
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::IdentifierScheme;

use crate::client::PATIENCE;
use crate::gateway::{self, Gateway, own_address, socket};

fn local() -> SocketAddr {
    own_address()
}

fn packet(stream: u8, number: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, stream];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend((0..100u32).map(|at| (at * 7 + number * 13) as u8));
    bytes
}

/// A subscriber on a socket of its own.
struct Subscriber {
    socket: UdpSocket,
    assist: Assist,
    origin: Instant,
    received: Vec<Vec<u8>>,
}

impl Subscriber {
    fn new(gateway: SocketAddr, token: Vec<u8>) -> Self {
        let socket = socket("127.0.0.1:0");
        socket.connect(gateway).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let live = Live {
            selective: true,
            subscribe: true,
            window: Duration::from_secs(1),
            tolerance: Duration::ZERO,
            symbols: false,
        };
        let scheme = IdentifierScheme::Payload;
        let token = packrat_client::Token::new(token).unwrap();
        let config = ClientConfig::default().with_live(live).with_scheme(scheme).with_token(token);
        let mut seed = [0; 32];
        seed[..2].copy_from_slice(&socket.local_addr().unwrap().port().to_be_bytes());
        let assist = Assist::new(config, seed, Timestamp::ZERO);
        Self { socket, assist, origin: Instant::now(), received: Vec::new() }
    }

    fn turn(&mut self) {
        let now = Timestamp::ZERO + self.origin.elapsed();
        self.assist.handle_timeout(now);
        while let Some(datagram) = self.assist.poll_transmit(now) {
            // A client that is not there yet, or any more, is asked again.
            let _ = self.socket.send(&datagram);
        }
        let mut buffer = [0; 2048];
        if let Ok(length) = self.socket.recv(&mut buffer) {
            let now = Timestamp::ZERO + self.origin.elapsed();
            if self.assist.on_datagram(&buffer[..length], now) == Datagram::Base {
                self.assist.on_authentic(now);
                self.received.push(buffer[..length].to_vec());
            }
        }
    }

    fn turn_until(&mut self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
            self.turn();
        }
    }

    fn subscribe(gateway: SocketAddr) -> Self {
        let mut subscriber = Self::new(gateway, Vec::new());
        subscriber.turn_until("the subscription", |one| {
            one.assist.stats().state == AssistState::Established
        });
        subscriber
    }
}

fn stream(upstream: SocketAddr) -> RouteConfig {
    RouteConfig::of_stream("tv", StreamRoute::new(upstream)).unwrap()
}

#[test]
fn an_update_of_the_configuration_costs_nobody_the_subscription() {
    let gateway = Gateway::start("127.0.0.1:0", stream(local()));
    let mut subscriber = Subscriber::subscribe(gateway.listen);
    let sender = socket("127.0.0.1:0");
    let arrives = |subscriber: &mut Subscriber, number: u32| {
        let upstream = gateway.route.stream_upstream().unwrap();
        subscriber.turn_until("the packet", |one| {
            // The socket may not be there yet: sent until it arrives.
            sender.send_to(&packet(1, number), upstream).unwrap();
            one.received.last().is_some_and(|last| *last == packet(1, number))
        });
    };
    arrives(&mut subscriber, 1);
    let before = gateway.route.stream_upstream().unwrap();
    // The limits of the engine, and then the address at which the stream arrives.
    let mut config = stream(before);
    config.repair_budget = 0.5;
    gateway.dataplane.configure(config.clone()).unwrap();
    arrives(&mut subscriber, 2);
    let other = own_address();
    config.stream = Some(StreamRoute::new(other));
    gateway.dataplane.configure(config.clone()).unwrap();
    assert_eq!(gateway.route.stream_upstream(), Some(other));
    arrives(&mut subscriber, 3);
    assert_eq!(gateway.metric("subscriptions_total"), 1);
    // Without a listener, the stream is not received, and no group stays joined. Then the listener
    // comes again.
    let Gateway { dataplane, route, listen, attachments } = gateway;
    drop(attachments);
    assert_eq!(route.stream_upstream(), None);
    let mut gateway = Gateway { dataplane, route, listen, attachments: Vec::new() };
    gateway.listen_again();
    subscriber.turn_until("the packet", |one| {
        sender.send_to(&packet(1, 4), other).unwrap();
        one.received.contains(&packet(1, 4))
    });
    // The route is an ordinary one from now on: the subscriber is notified.
    let server = socket("127.0.0.1:0");
    config.stream = None;
    config.endpoints = vec![server.local_addr().unwrap()];
    gateway.dataplane.configure(config).unwrap();
    subscriber.turn_until("the end", |one| one.assist.stats().state != AssistState::Established);
}

/// The port of a stream comes from its configuration; it is never one that a route listens on.
#[test]
fn streams_and_listeners_do_not_take_each_others_ports() {
    let server = socket("127.0.0.1:0");
    let web = RouteConfig::new("web", [server.local_addr().unwrap()]).unwrap();
    let web = Gateway::start("127.0.0.1:0", web);
    let everywhere = SocketAddr::from(([0, 0, 0, 0], web.listen.port()));
    for wanted in [web.listen, everywhere] {
        let thief = Gateway::start("127.0.0.1:0", stream(wanted));
        assert_eq!(thief.route.stream_upstream(), None, "{wanted}");
    }
    let client = web.client();
    client.send(b"question").unwrap();
    assert_eq!(gateway::receive(&server).0, b"question");
    let tv = Gateway::start("127.0.0.1:0", stream(local()));
    let taken = tv.route.stream_upstream().unwrap();
    let error = packrat_dataplane::socket::bind_reuse_port(taken).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn a_stream_waits_for_its_port_and_says_why() {
    let port = own_address();
    let predecessor = socket(&port.to_string());
    let gateway = Gateway::start("127.0.0.1:0", stream(port));
    let unavailable = || gateway.route.summary().stream.unwrap().unavailable;
    assert_eq!(gateway.route.stream_upstream(), None);
    assert!(unavailable().unwrap().contains("in use"), "{:?}", unavailable());
    drop(predecessor);
    gateway.wait_for("the stream", |gateway| gateway.route.stream_upstream() == Some(port));
    assert_eq!(unavailable(), None);
    let mut subscriber = Subscriber::subscribe(gateway.listen);
    let sender = socket("127.0.0.1:0");
    subscriber.turn_until("the packet", |one| {
        sender.send_to(&packet(1, 1), port).unwrap();
        one.received.contains(&packet(1, 1))
    });
}

/// Two streams of one process are separate, and subscribers' datagrams reach the server.
#[test]
fn two_streams_of_a_process_are_separate_and_subscribers_heard() {
    let server = socket("127.0.0.1:0");
    let mut config = RouteConfig::new("one", [server.local_addr().unwrap()]).unwrap();
    config.stream = Some(StreamRoute::new(local()));
    let one = Gateway::start("127.0.0.1:0", config);
    let other = Gateway::start("127.0.0.1:0", stream(local()));
    let (mut first, mut second) =
        (Subscriber::subscribe(one.listen), Subscriber::subscribe(other.listen));
    let foreign = socket("127.0.0.2:0");
    foreign.send_to(&packet(9, 9), one.route.stream_upstream().unwrap()).unwrap();
    server.send_to(&packet(1, 1), one.route.stream_upstream().unwrap()).unwrap();
    server.send_to(&packet(2, 1), other.route.stream_upstream().unwrap()).unwrap();
    first.turn_until("its packet", |first| !first.received.is_empty());
    second.turn_until("its packet", |second| !second.received.is_empty());
    one.wait_for("the refusal", |one| one.metric("stream_foreign_total") == 1);
    assert_eq!((&first.received, &second.received), (&vec![packet(1, 1)], &vec![packet(2, 1)]));
    // A request of the application's own, and the answer to it alone.
    first.socket.send(b"please again").unwrap();
    let (request, from) = gateway::receive(&server);
    assert_eq!(request, b"please again");
    server.send_to(b"retransmission", from).unwrap();
    first.turn_until("the answer", |first| {
        first.received.iter().any(|one| one == b"retransmission")
    });
    second.socket.send(b"nobody is there").unwrap();
    other.wait_for("the refusal", |other| other.metric("stream_foreign_total") == 1);
}

#[test]
fn a_stream_may_demand_a_token() {
    use packrat_assist_token::{Claims, Key, RouteHash};
    let key = format!("7:{}", "5a".repeat(32));
    let text = format!(
        r#"{{"route": "tv", "stream": {{"upstream": "127.0.0.1:0"}}, "tokens": "required", "token_keys": ["{key}"]}}"#
    );
    let gateway = Gateway::start("127.0.0.1:0", route_from_json(text.as_bytes()).unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let token = |expires, route: &str| {
        let claims = Claims { expires, route: RouteHash::of(route), binding: None, nonce: 1 };
        Key::from_text(&key).unwrap().issue(&claims)
    };
    for wrong in [Vec::new(), token(now - 600, "tv"), token(now + 600, "radio")] {
        let mut subscriber = Subscriber::new(gateway.listen, wrong);
        subscriber.turn_until("the refusal", |one| {
            one.assist.stats().refusal == Some(RefusalReason::Token)
        });
    }
    assert_eq!(gateway.metric("stream_subscribers"), 0);
    let mut subscriber = Subscriber::new(gateway.listen, token(now + 600, "tv"));
    subscriber
        .turn_until("the subscription", |one| one.assist.stats().state == AssistState::Established);
    gateway.wait_for("the subscriber", |gateway| gateway.metric("stream_subscribers") == 1);
}
