//! Numbers in front of datagrams, over real sockets: with and without segmentation offload.

use std::collections::{BTreeSet, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use packrat_client::{ClientConfig, Input, Shim, Verdict};
use packrat_dataplane::socket::{
    Destination, Ecn, Family, GsoBatch, Offload, ReceiveBatch, SendReport, Sender, WhenFull,
    listener_options,
};
use packrat_wire::estimate::Timestamp;
use packrat_wire::number::{self, NUMBER_LENGTH};

use crate::client::Socket as _;
use crate::gateway::{self, Gateway, PATIENCE, config, has, payload, receive, socket};

/// A client with a shim on a real socket.
struct Client {
    socket: UdpSocket,
    shim: Shim<Ecn>,
    start: Instant,
    /// Datagrams for the transport, with their marks.
    passed: Vec<(Vec<u8>, Ecn)>,
    numbered: u64,
    received: ReceiveBatch,
    /// Choice of the numbered datagrams that are lost once.
    loses: fn(u64) -> bool,
    lost: BTreeSet<Vec<u8>>,
    /// The way to the gateway takes this long.
    delay: Duration,
    under_way: VecDeque<(Instant, Vec<u8>)>,
}

impl Client {
    fn connect(gateway: SocketAddr, server: &UdpSocket) -> (Self, SocketAddr) {
        Self::connect_with(ClientConfig::default(), gateway, server)
    }

    fn connect_with(
        config: ClientConfig,
        gateway: SocketAddr,
        server: &UdpSocket,
    ) -> (Self, SocketAddr) {
        let socket = socket(if gateway.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" });
        listener_options(socket.as_fd(), true).unwrap();
        socket.connect(gateway).unwrap();
        socket.send(b"hello").unwrap();
        let (_, upstream) = receive(server);
        let shim = Shim::new(config, [9; 32], Timestamp::ZERO);
        let mut client = Self {
            socket,
            shim,
            start: Instant::now(),
            passed: Vec::new(),
            numbered: 0,
            received: ReceiveBatch::new(8),
            loses: |_| false,
            lost: BTreeSet::new(),
            delay: Duration::ZERO,
            under_way: VecDeque::new(),
        };
        client.turn_until("the session", |client| client.shim.assistance().reports > 0);
        (client, upstream)
    }

    /// The gateway learns that datagrams of this length arrive with a number: before, only some of
    /// them have one. Returns them.
    fn prove(&mut self, server: &UdpSocket, upstream: SocketAddr, length: usize) -> Vec<Vec<u8>> {
        let datagrams: Vec<_> = (0..150).map(|seed| payload(1000 + seed, length)).collect();
        for datagram in &datagrams {
            server.send_to(datagram, upstream).unwrap();
            self.turn_until("a datagram", |client| {
                client.passed.iter().any(|(passed, _)| passed == datagram)
            });
        }
        assert!(self.numbered > 32 + 3);
        self.passed.clear();
        self.numbered = 0;
        datagrams
    }

    fn turn(&mut self) {
        let now = Timestamp::from_micros(self.start.elapsed().as_micros() as u64);
        if self.shim.next_timeout().is_some_and(|at| at <= now) {
            self.shim.handle(Input::Timeout, now);
        }
        if self.received.receive(self.socket.as_fd()).is_err() {
            std::thread::sleep(std::time::Duration::from_micros(300));
        } else {
            for message in self.received.messages() {
                for datagram in message.datagrams() {
                    if let Some((_, base)) = number::split(datagram) {
                        self.numbered += 1;
                        if (self.loses)(self.numbered) && self.lost.insert(base.to_vec()) {
                            continue;
                        }
                    }
                    match self.shim.on_datagram(datagram, message.ecn, now) {
                        Verdict::Now { skip, metadata } => {
                            self.passed.push((datagram[skip..].to_vec(), metadata));
                        }
                        Verdict::Later | Verdict::Never => {}
                    }
                    while let Some(released) = self.shim.poll_deliver() {
                        self.passed.push((released.datagram, released.metadata));
                    }
                }
            }
        }
        while let Some(released) = self.shim.poll_deliver() {
            self.passed.push((released.datagram, released.metadata));
        }
        while let Some(said) = self.shim.poll_transmit(now) {
            self.under_way.push_back((Instant::now() + self.delay, said));
        }
        while let Some((_, said)) = self.under_way.pop_front_if(|(at, _)| *at <= Instant::now()) {
            self.socket.send(&said).unwrap();
        }
    }

    fn turn_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.turn();
            assert!(
                start.elapsed() < PATIENCE,
                "waited in vain for {what}: {:?}",
                self.shim.assistance()
            );
        }
    }
}

fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    batches: &[GsoBatch<'_>],
    offload: &Offload,
) -> SendReport {
    let destination = Destination {
        address: Some(to),
        source: None,
        family: Family::of(&to),
        leaves_as_v4: to.is_ipv4(),
        when_full: WhenFull::Wait,
    };
    Sender::default().send(socket.as_fd(), offload, &destination, batches)
}

#[test]
fn numbered_datagrams_and_batches_leave_the_shim_unchanged() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        if !has(listen) {
            continue;
        }
        let server = socket(listen);
        let gateway = Gateway::start(listen, config(&[&server]));
        let (mut client, upstream) = Client::connect(gateway.listen, &server);
        let longest = if listen.starts_with('[') { 1444 } else { 1464 };
        let before = client.prove(&server, upstream, longest);
        // The third has segments that are too long for a number, but for its last one.
        let shapes = [(1200 * 40 + 7, 1200), (30, 30), (1470 * 10 + 1000, 1470), (1440 * 44, 1440)];
        let datas: Vec<_> =
            shapes.iter().enumerate().map(|(seed, (length, _))| payload(seed, *length)).collect();
        let marks = [Ecn::CAPABLE_0, Ecn::CAPABLE_1, Ecn::CAPABLE_0, Ecn::CONGESTION];
        let batches: Vec<_> = datas
            .iter()
            .zip(&shapes)
            .zip(marks)
            .map(|((data, (_, size)), mark)| GsoBatch::plain(data, *size, mark))
            .collect();
        let expected: Vec<(Vec<u8>, Ecn)> = batches
            .iter()
            .flat_map(|batch| batch.datagrams().map(|datagram| (datagram.to_vec(), batch.ecn)))
            .collect();
        for round in 1..=3 {
            let begin = client.passed.len();
            for batch in &batches {
                send(&server, upstream, &[*batch], &Offload::default());
            }
            // The datagrams come in their order. A gateway that hears from no client for a while,
            // as on a busy machine, sends the newest again.
            client.turn_until("the datagrams of a round", |client| {
                let passed = &client.passed[begin..];
                let is_known = |one: &Vec<u8>| {
                    before.contains(one) || expected.iter().any(|(known, _)| known == one)
                };
                assert!(passed.iter().all(|(one, _)| is_known(one)), "round {round}");
                let mut left = expected.iter().peekable();
                for one in passed {
                    let _ = left.next_if_eq(&one);
                }
                left.peek().is_none()
            });
            // Datagrams of the later rounds are the server's own repetitions, and have no numbers.
        }
        let short =
            expected.iter().filter(|(datagram, _)| datagram.len() <= longest).count() as u64;
        assert!(client.numbered >= short, "{} of {listen}", client.numbered);
        assert_eq!(client.shim.stats().kept, 0);
        assert_eq!(gateway.metric("to_client_dropped_total"), 0);
        assert_eq!(gateway.metric("too_large_total"), 0);
        assert_eq!(gateway.metric("assistance_panics_total"), 0);
    }
}

/// A queue before the gateway reports congestion to a sender of L4S. A datagram that the client has
/// recovered by code has the mark of another one.
#[test]
fn repairs_bear_the_marks_of_their_originals() {
    let (server, gateway) = gateway::alone();
    let (mut client, upstream) = Client::connect(gateway.listen, &server);
    client.loses = |number| number % 25 == 7;
    let mark =
        |place: usize| if place.is_multiple_of(3) { Ecn::CONGESTION } else { Ecn::CAPABLE_1 };
    let mut sent: Vec<Vec<u8>> = Vec::new();
    client.turn_until("repairs of both kinds", |client| {
        let waits = client.passed.len() + client.lost.len() < sent.len();
        if !waits {
            for place in sent.len()..sent.len() + 10 {
                let next = payload(place, 1100);
                let batch = GsoBatch::single(&next, mark(place));
                send(&server, upstream, &[batch], &Offload::default());
                sent.push(next);
            }
        }
        let place = |datagram: &Vec<u8>| sent.iter().position(|one| one == datagram).unwrap();
        let repaired = client.passed.iter().filter(|(one, _)| client.lost.contains(one));
        let (reported, others): (Vec<_>, Vec<_>) =
            repaired.map(|(one, _)| mark(place(one))).partition(|mark| *mark == Ecn::CONGESTION);
        reported.len() >= 3 && others.len() >= 3
    });
    let place = |datagram: &Vec<u8>| sent.iter().position(|one| one == datagram).unwrap();
    let others =
        client.passed.iter().filter(|(one, seen)| *seen != mark(place(one))).count() as u64;
    let recovered = client.shim.stats().recovered;
    assert!(others <= recovered, "{others} with other marks, {recovered} by code");
}

#[test]
fn what_the_last_mile_loses_comes_in_its_place() {
    let (server, gateway) = gateway::alone();
    let (mut client, upstream) = Client::connect(gateway.listen, &server);
    client.loses = |number| number % 25 == 7;
    let mut sent = Vec::new();
    // Numbers of lost datagrams that have passed, and of those that passed before the next
    // datagram.
    let repaired = |client: &Client, sent: &[Vec<u8>]| {
        let at = |wanted: &Vec<u8>| client.passed.iter().position(|(one, _)| one == wanted);
        let places = sent.iter().enumerate().filter(|(_, one)| client.lost.contains(*one));
        let passed = places.filter_map(|(place, one)| Some((at(one)?, at(sent.get(place + 1)?)?)));
        let passed: Vec<_> = passed.collect();
        (passed.len(), passed.iter().filter(|(own, next)| own < next).count())
    };
    // On a busy machine a queue seems to stand now and then, whose losses are not repaired, and
    // repairs are late.
    client.turn_until("repairs", |client| {
        let waits = client.passed.len() + client.lost.len() < sent.len();
        if !waits {
            let next: Vec<_> =
                (sent.len()..sent.len() + 10).map(|seed| payload(seed, 1100)).collect();
            let data = next.concat();
            let batch = GsoBatch::plain(&data, 1100, Ecn::CAPABLE_0);
            send(&server, upstream, &[batch], &Offload::default());
            sent.extend(next);
        }
        let (repaired, in_place) = repaired(client, &sent);
        let counted = gateway.metric("repairs_total") + client.shim.stats().recovered;
        !waits && repaired >= 10 && in_place > 0 && counted > 0
    });
    let stats = client.shim.stats();
    assert!(stats.kept > 10, "{stats:?}");
    assert!(client.passed.iter().all(|(_, mark)| *mark == Ecn::CAPABLE_0), "repairs, too");
    let place = |datagram| sent.iter().position(|one| one == datagram).expect("none is garbled");
    client.passed.iter().for_each(|(datagram, _)| assert!(place(datagram) < sent.len()));
}

#[test]
#[cfg(feature = "virtual-time")]
fn on_a_long_last_mile_symbols_repair_what_is_lost() {
    let network = crate::network::Network::new();
    let server = network.server();
    let gateway = network.gateway(config(&[&server]));
    let socket = gateway.client();
    socket.delay(Duration::from_millis(250));
    socket.say(b"hello");
    let (_, upstream) = receive(&server);
    let start = socket.now();
    let mut shim = Shim::new(ClientConfig::default(), [9; 32], Timestamp::ZERO);
    let (mut sent, mut passed, mut numbered) = (Vec::new(), Vec::new(), 0);
    while shim.stats().recovered == 0 {
        let now = Timestamp::ZERO + socket.now().saturating_since(start);
        assert!(now < Timestamp::from_millis(60_000), "{:?}", shim.assistance());
        shim.handle(Input::Timeout, now);
        while let Some(said) = shim.poll_transmit(now) {
            socket.say(&said);
        }
        let datagram = payload(sent.len(), 1100);
        server.say_to(&datagram, upstream);
        sent.push(datagram);
        while let Some((datagram, _)) = socket.hear(Duration::ZERO) {
            // One of 25 is lost.
            numbered += u32::from(number::split(&datagram).is_some());
            if numbered % 25 == 7 {
                continue;
            }
            if let Verdict::Now { skip, metadata } = shim.on_datagram(&datagram, 7, now) {
                passed.push((datagram[skip..].to_vec(), metadata));
            }
            passed.extend(
                std::iter::from_fn(|| shim.poll_deliver()).map(|it| (it.datagram, it.metadata)),
            );
        }
        socket.pause(Duration::from_millis(1));
    }
    assert!(passed.iter().all(|(datagram, _)| sent.contains(datagram)), "none is garbled");
    // Recovered datagrams have the metadata of received ones.
    assert!(passed.iter().all(|(_, metadata)| *metadata == 7));
    assert!(gateway.metric("symbols_total") > 0);
    assert_eq!(gateway.metric("assistance_panics_total"), 0);
}

#[test]
fn what_a_client_sends_is_repaired_and_comes_without_numbers() {
    let (server, gateway) = gateway::alone();
    // Copies would fill the holes before they are repaired.
    let uploads = ClientConfig::default().with_uploads(true).with_copies(false);
    let (mut client, upstream) = Client::connect_with(uploads, gateway.listen, &server);
    server.set_read_timeout(Some(Duration::from_millis(3))).unwrap();
    let (mut sent, mut arrived) = (Vec::<Vec<u8>>::new(), BTreeSet::new());
    let (mut lost, start, mut buffer) = (BTreeSet::new(), Instant::now(), vec![0; 2000]);
    // On a busy machine a queue seems to stand now and then: then losses are left to the transport.
    let repaired = || gateway.metric("upward_repaired_total");
    while arrived.intersection(&lost).count() < 10 || repaired() == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", client.shim.assistance());
        let now = Timestamp::from_micros(client.start.elapsed().as_micros() as u64);
        let datagrams: Vec<Vec<u8>> = (sent.len()..sent.len() + 20)
            .map(|number| {
                let mut datagram = payload(number, 1100);
                datagram[8..16].copy_from_slice(&number.to_be_bytes());
                datagram
            })
            .collect();
        let numbers: Vec<_> =
            datagrams.iter().map(|datagram| client.shim.on_send(datagram, now)).collect();
        // The eighth is lost; the others leave in one go, as far as they have numbers.
        lost.insert(datagrams[7].clone());
        let rest = |range: std::ops::Range<usize>| {
            let data = datagrams[range.clone()].concat();
            let numbers: Vec<_> = numbers[range].iter().flatten().copied().collect();
            (data, numbers)
        };
        for range in [0..7, 8..20] {
            let (data, numbers) = rest(range.clone());
            let all = numbers.len() == range.len();
            let batch = GsoBatch {
                numbers: if all { &numbers } else { &[] },
                ..GsoBatch::plain(&data, 1100, Ecn::CAPABLE_0)
            };
            send(&client.socket, gateway.listen, &[batch], &Offload::default());
        }
        sent.extend(datagrams);
        // The server answers: by that, the gateway measures the last mile.
        server.send_to(&payload(sent.len(), 60), upstream).unwrap();
        // Slowly, as other tests measure round trips at the same time.
        (0..10).for_each(|_| client.turn());
        while let Ok((length, _)) = server.recv_from(&mut buffer) {
            arrived.insert(buffer[..length].to_vec());
        }
    }
    assert!(arrived.iter().all(|datagram| sent.contains(datagram)), "none with a number");
    assert!(gateway.metric("upward_waited_total") > 0);
    assert_eq!(gateway.metric("assistance_panics_total"), 0);
    // A client without a session, or whose session is over, is served as well.
    let other = gateway.client();
    let numbered = [b"\x0bPkr\x29abc", &payload(7, 500)[..]].concat();
    other.send(&numbered).unwrap();
    let mut served = Vec::new();
    while served != payload(7, 500) {
        served = receive(&server).0;
    }
}

#[test]
fn what_waits_for_a_hole_comes_when_assistance_is_switched_off() {
    let (server, gateway) = gateway::alone();
    let uploads = ClientConfig::default().with_uploads(true);
    let (mut client, upstream) = Client::connect_with(uploads, gateway.listen, &server);
    // A long last mile, so that the gateway waits for long.
    client.delay = Duration::from_millis(100);
    let (mut missing, mut seed) = (BTreeSet::new(), 0);
    let waited = gateway.metric("upward_waited_total");
    let start = Instant::now();
    while gateway.metric("upward_waited_total") == waited {
        assert!(start.elapsed() < PATIENCE, "{:?}", client.shim.assistance());
        let now = Timestamp::from_micros(client.start.elapsed().as_micros() as u64);
        let mut numbered = |loses: bool| {
            seed += 1;
            let datagram = payload(seed, 1100);
            let number = client.shim.on_send(&datagram, now);
            if !loses {
                let number = number.iter().flatten().copied();
                client.socket.send(&number.chain(datagram.clone()).collect::<Vec<_>>()).unwrap();
                missing.insert(datagram);
            }
        };
        // The client does not speak between the hole and the change.
        numbered(true);
        (0..10).for_each(|_| numbered(false));
        std::thread::sleep(Duration::from_millis(5));
        if gateway.metric("upward_waited_total") > waited {
            break;
        }
        server.send_to(&payload(5000 + seed, 60), upstream).unwrap();
        (0..30).for_each(|_| client.turn());
        // Received datagrams are taken, so that the server's buffer does not overflow.
        while let Some((datagram, _)) = server.hear(Duration::from_millis(1)) {
            missing.remove(&datagram);
        }
        missing.clear();
    }
    let mut plain = config(&[&server]);
    plain.assist = false;
    gateway.dataplane.configure(plain).unwrap();
    while !missing.is_empty() {
        missing.remove(&receive(&server).0);
    }
}

#[test]
fn a_client_that_asks_for_no_numbers_gets_none() {
    let (server, gateway) = gateway::alone();
    let (mut client, _) = Client::connect(gateway.listen, &server);
    client.shim = Shim::with_own_numbers(ClientConfig::default(), [8; 32], Timestamp::ZERO);
    client.start = Instant::now();
    client.turn_until("the session", |client| client.shim.assistance().reports > 0);
    client.socket.send(b"again").unwrap();
    let (_, upstream) = receive(&server);
    let data = payload(1, 12_000);
    send(&server, upstream, &[GsoBatch::plain(&data, 1200, Ecn::CAPABLE_0)], &Offload::default());
    // The last one may come twice.
    let all: BTreeSet<&[u8]> = data.chunks(1200).collect();
    client.turn_until("the datagrams", |client| {
        client.passed.iter().map(|(passed, _)| &passed[..]).collect::<BTreeSet<_>>() == all
    });
    assert_eq!(client.numbered, 0);
}

#[test]
fn what_the_link_refuses_with_a_number_goes_plain() {
    for disabled in [false, true] {
        let offload = Offload::default();
        if disabled {
            offload.disable();
        }
        let (sender, receiver) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
        // The loopback carries 65,507 bytes.
        let datas = [payload(1, 65_499), payload(2, 65_500), payload(3, 65_507), payload(4, 0)];
        let numbers = [[7; NUMBER_LENGTH]; 4];
        let batches: Vec<_> = datas
            .iter()
            .zip(&numbers)
            .map(|(data, number)| GsoBatch {
                numbers: std::slice::from_ref(number),
                ..GsoBatch::single(data, Ecn::CAPABLE_0)
            })
            .collect();
        let report = send(&sender, receiver.local_addr().unwrap(), &batches, &offload);
        assert_eq!((report.datagrams, report.dropped, report.too_large), (4, 0, 0), "{report:?}");
        assert_eq!(report.number_refused, Some(65_500));
        assert_eq!(report.bytes, (65_499 + 8 + 65_500 + 65_507 + 8) as u64);
        let numbered = |data: &[u8]| [&numbers[0][..], data].concat();
        assert!(receive(&receiver).0 == numbered(&datas[0]));
        assert!(receive(&receiver).0 == datas[1]);
        assert!(receive(&receiver).0 == datas[2]);
        assert!(receive(&receiver).0 == numbered(&datas[3]));
    }
}
