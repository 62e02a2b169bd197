//! Plain forwarding as users see it, over real sockets on the loopback.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use packrat_dataplane::socket::{
    Destination, Ecn, Family, GsoBatch, Offload, ReceiveBatch, SendReport, Sender, WhenFull,
    listener_options,
};
use packrat_dataplane::{ClientDatagrams, RouteConfig};

use crate::client::Socket as _;
use crate::gateway::{self, Gateway, PATIENCE, config, has, own_address, payload, receive, socket};

#[test]
fn datagrams_of_every_size_arrive_unchanged_both_ways() {
    for (listen, server) in
        [("127.0.0.1:0", "127.0.0.1:0"), ("[::1]:0", "[::1]:0"), ("[::1]:0", "127.0.0.1:0")]
    {
        if !has(listen) {
            continue;
        }
        let server = socket(server);
        let gateway = Gateway::start(listen, config(&[&server]));
        let client = gateway.client();
        // The largest that fits a packet of the loopback (MTU 65,536).
        let largest = if listen.starts_with('[') { 65_488 } else { 65_507 };
        let sizes =
            [0, 1, 2, 21, 500, 1199, 1200, 1252, 1472, 1500, 9000, 16_384, 40_000, 65_480, largest];
        for (seed, size) in sizes.into_iter().enumerate() {
            let question = payload(seed, size);
            client.send(&question).unwrap();
            let (received, upstream) = receive(&server);
            assert!(received == question, "{size} bytes to the server");
            let answer = payload(seed + 1000, size);
            server.send_to(&answer, upstream).unwrap();
            assert!(receive(&client).0 == answer, "{size} bytes to the client");
        }
        gateway.wait_for("counters", |gateway| gateway.metric("to_client_datagrams_total") == 15);
        assert_eq!(gateway.metric("to_server_datagrams_total"), 15);
        assert_eq!(gateway.metric("to_server_bytes_total"), sizes.iter().sum::<usize>() as u64);
        assert_eq!(gateway.metric("to_client_bytes_total"), sizes.iter().sum::<usize>() as u64);
        assert_eq!(gateway.metric("sessions"), 1);
    }
}

#[test]
fn a_datagram_above_the_mtu_is_counted_and_the_flow_goes_on() {
    if !has("[::1]:0") {
        return;
    }
    let server = socket("[::1]:0");
    let gateway = Gateway::start("[::1]:0", config(&[&server]));
    let client = gateway.client();
    client.send(b"before").unwrap();
    let upstream = receive(&server).1;
    // IPv6 on the loopback: 65,507 bytes need 65,555. The sender's kernel makes fragments, the
    // gateway never does.
    client.send(&payload(1, 65_507)).unwrap();
    gateway.wait_for("the count of the client's", |gateway| gateway.metric("too_large_total") == 1);
    server.send_to(&payload(2, 65_507), upstream).unwrap();
    gateway.wait_for("the count of the server's", |gateway| gateway.metric("too_large_total") == 2);
    client.send(b"after").unwrap();
    assert_eq!(receive(&server), (b"after".to_vec(), upstream));
    server.send_to(b"answer", upstream).unwrap();
    assert_eq!(receive(&client).0, b"answer");
}

/// Datagrams that leave the gateway together, as servers send them one by one.
#[test]
fn single_datagrams_of_many_clients_reach_each_its_own_in_order() {
    let (server, gateway) = gateway::alone();
    let clients: Vec<UdpSocket> = (0..50).map(|_| gateway.client()).collect();
    let mut ways = Vec::new();
    for client in &clients {
        client.send(b"hello").unwrap();
        ways.push(receive(&server).1);
    }
    for round in 0..20 {
        for (number, way) in ways.iter().enumerate() {
            // Long datagrams, and two in a row, leave at once.
            let length = if number % 9 == 8 { 9000 } else { 100 };
            for seed in 0..1 + usize::from(number % 5 == 4) {
                let answer = payload(round * 1000 + number * 10 + seed, length);
                server.send_to(&answer, way).unwrap();
            }
        }
        for (number, client) in clients.iter().enumerate() {
            let length = if number % 9 == 8 { 9000 } else { 100 };
            for seed in 0..1 + usize::from(number % 5 == 4) {
                let expected = payload(round * 1000 + number * 10 + seed, length);
                assert!(receive(client).0 == expected, "round {round}, client {number}, {seed}");
            }
        }
    }
    let all = 20 * (50 + 10);
    gateway.wait_for("counters", |gateway| gateway.metric("to_client_datagrams_total") == all);
    assert_eq!(gateway.metric("to_client_dropped_total"), 0);
}

/// Sends batches like a sender that uses segmentation offload does.
fn send_batches(
    socket: &UdpSocket,
    to: Option<SocketAddr>,
    batches: &[GsoBatch<'_>],
    offload: &Offload,
) -> SendReport {
    let destination = Destination {
        address: to,
        source: None,
        family: Family::of(&socket.local_addr().unwrap()),
        leaves_as_v4: socket.local_addr().unwrap().is_ipv4(),
        when_full: WhenFull::Wait,
    };
    Sender::default().send(socket.as_fd(), offload, &destination, batches)
}

/// Batches with full and short ends, of one and of many datagrams, of changing sizes.
fn batches() -> Vec<(Vec<u8>, usize)> {
    vec![
        (payload(1, 1200 * 10), 1200),
        (payload(2, 1200 * 50 + 7), 1200),
        (payload(3, 30), 30),
        (payload(4, 1), 1),
        (payload(5, 64 * 20), 20),
        (payload(6, 1452 * 3), 1452),
        (payload(7, 1453), 1453),
    ]
}

#[test]
fn batches_keep_boundaries_both_ways_with_or_without_offload() {
    for offload_enabled in [true, false] {
        let offload = Offload::default();
        if !offload_enabled {
            offload.disable();
        }
        let server = socket("127.0.0.1:0");
        let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
        let client = gateway.client();
        client.send(b"hello").unwrap();
        let upstream = receive(&server).1;
        let batches = batches();
        let batches: Vec<_> = batches
            .iter()
            .map(|(data, segment_size)| GsoBatch::plain(data, *segment_size, Ecn::NOT_CAPABLE))
            .collect();
        // Not more at once than a receive buffer holds.
        for batches in batches.chunks(2) {
            let expected: Vec<&[u8]> = batches.iter().flat_map(|batch| batch.datagrams()).collect();
            let report = send_batches(&server, Some(upstream), batches, &offload);
            assert_eq!(report.datagrams, expected.len() as u64, "{report:?}");
            for (index, datagram) in expected.iter().enumerate() {
                assert!(receive(&client).0 == *datagram, "datagram {index} to the client");
            }
            let report = send_batches(&client, None, batches, &offload);
            assert_eq!(report.datagrams, expected.len() as u64, "{report:?}");
            for (index, datagram) in expected.iter().enumerate() {
                let (received, from) = receive(&server);
                assert!(received == *datagram, "datagram {index} to the server");
                assert_eq!(from, upstream);
            }
        }
        assert_eq!(
            gateway.metric("to_client_dropped_total") + gateway.metric("to_server_dropped_total"),
            0
        );
    }
}

/// Receives one message with its mark.
fn receive_mark(socket: &UdpSocket) -> (Vec<u8>, Ecn, SocketAddr) {
    let mut batch = ReceiveBatch::new(1);
    let start = std::time::Instant::now();
    loop {
        match batch.receive(socket.as_fd()) {
            Ok(_) => {
                let message = batch.messages().next().unwrap();
                return (message.data.to_vec(), message.ecn, message.source.unwrap());
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                assert!(start.elapsed() < PATIENCE, "no datagram came");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn ecn_marks_are_carried_through_both_ways() {
    for (listen, client_address, server) in [
        ("127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"),
        ("[::1]:0", "[::1]:0", "[::1]:0"),
        // A dual-stack listener with an IPv4 client, an IPv6 client of an IPv4 server.
        ("[::]:0", "127.0.0.1:0", "[::1]:0"),
        ("[::]:0", "[::1]:0", "127.0.0.1:0"),
    ] {
        if !(has(listen) && has(client_address) && has(server)) {
            continue;
        }
        let server = socket(server);
        listener_options(server.as_fd(), true).unwrap();
        let gateway = Gateway::start(listen, config(&[&server]));
        let client = socket(client_address);
        listener_options(client.as_fd(), true).unwrap();
        let to = SocketAddr::new(client.local_addr().unwrap().ip(), gateway.listen.port());
        client.connect(to).unwrap();
        for mark in [Ecn::NOT_CAPABLE, Ecn::CAPABLE_0, Ecn::CAPABLE_1, Ecn::CONGESTION] {
            let question = payload(1, 1200);
            send_batches(&client, None, &[GsoBatch::single(&question, mark)], &Offload::default());
            let (received, seen, upstream) = receive_mark(&server);
            assert!(received == question);
            assert_eq!(seen, mark, "to the server, {listen} {client_address}");
            let answers = payload(2, 3600);
            let batch = GsoBatch::plain(&answers, 1200, mark);
            send_batches(&server, Some(upstream), &[batch], &Offload::default());
            let (received, seen, _) = receive_mark(&client);
            assert!(answers.starts_with(&received));
            assert_eq!(seen, mark, "to the client, {listen} {client_address}");
            let mut rest = received.len();
            while rest < answers.len() {
                rest += receive_mark(&client).0.len();
            }
        }
    }
}

#[test]
fn a_wildcard_listener_answers_from_the_address_that_was_asked() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("0.0.0.0:0", config(&[&server]));
    for address in ["127.0.0.1", "127.0.0.2", "127.9.9.9"] {
        // Connected: the kernel drops answers that come from elsewhere.
        let client = socket("127.0.0.1:0");
        client.connect((address, gateway.listen.port())).unwrap();
        client.send(address.as_bytes()).unwrap();
        let (question, upstream) = receive(&server);
        server.send_to(&question, upstream).unwrap();
        assert_eq!(receive(&client).0, address.as_bytes());
    }
}

/// A session keeps its upstream socket through updates, listeners and workers.
#[test]
fn a_session_keeps_its_upstream_across_updates_and_workers() {
    let (server, mut gateway) = gateway::alone();
    let client = gateway.client();
    client.send(b"first").unwrap();
    let upstream = receive(&server).1;

    let mut changed = config(&[&server]);
    changed.repair_budget = 0.5;
    gateway.dataplane.configure(changed).unwrap();
    client.send(b"after an update").unwrap();
    assert_eq!(receive(&server), (b"after an update".to_vec(), upstream));

    // The listener goes away and comes back.
    gateway.attachments.clear();
    server.send_to(b"to nobody", upstream).unwrap();
    gateway.wait_for("a drop without listener", |gateway| {
        gateway.metric("to_client_dropped_total") == 1
    });
    gateway.listen_again();
    client.send(b"after the return").unwrap();
    assert_eq!(receive(&server), (b"after the return".to_vec(), upstream));
    server.send_to(b"answer", upstream).unwrap();
    assert_eq!(receive(&client).0, b"answer");

    // The same client on each of the workers.
    for worker in 0..2 {
        let mut ingress =
            gateway.dataplane.ingress(&gateway.route, &gateway.attachments[worker], worker);
        ingress.receive(&ClientDatagrams {
            client: client.local_addr().unwrap(),
            local: None,
            ecn: Ecn::NOT_CAPABLE,
            data: b"moved",
            segment_size: 5,
        });
        assert_eq!(receive(&server), (b"moved".to_vec(), upstream));
    }
    assert_eq!(gateway.metric("sessions_opened_total"), 1);
}

#[test]
#[cfg(feature = "virtual-time")]
fn idle_sessions_end_and_their_clients_can_return() {
    let network = crate::network::Network::new();
    let server = network.server();
    let mut idle = config(&[&server]);
    idle.idle_timeout_seconds = 1;
    let gateway = network.gateway(idle);
    let (quiet, busy) = (gateway.client(), gateway.client());
    quiet.say(b"quiet");
    assert_eq!(receive(&server).0, b"quiet");
    busy.say(b"busy");
    let (_, upstream) = receive(&server);
    // Datagrams in one direction alone keep a session, here datagrams of the server.
    for _ in 0..15 {
        assert_eq!(gateway.metric("sessions"), 2);
        network.pass(Duration::from_millis(70));
        server.say_to(b"still here", upstream);
    }
    gateway.wait_for("the end of the quiet session", |gateway| {
        server.say_to(b"still here", upstream);
        gateway.metric("sessions_closed_total") == 1
    });
    assert_eq!(gateway.metric("sessions"), 1);
    busy.say(b"same session");
    assert_eq!(receive(&server), (b"same session".to_vec(), upstream));
    quiet.say(b"back again");
    assert_eq!(receive(&server).0, b"back again");
    assert_eq!(gateway.metric("sessions_opened_total"), 3);
}

#[test]
fn refusals_are_counted_and_the_flow_resumes_with_the_server() {
    let address = own_address();
    let server = socket(&address.to_string());
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let client = gateway.client();
    client.send(b"one").unwrap();
    let upstream = receive(&server).1;
    drop(server);
    gateway.wait_for("ICMP errors", |gateway| {
        client.send(b"into the void").unwrap();
        gateway.metric("upstream_errors_total") >= 3
    });
    let server = socket(&address.to_string());
    // An error that an earlier datagram has caused does not cost a later one.
    client.send(b"welcome back").unwrap();
    loop {
        let (received, from) = receive(&server);
        assert_eq!(from, upstream);
        if received == b"welcome back" {
            break;
        }
        assert_eq!(received, b"into the void");
    }
    server.send_to(b"thanks", upstream).unwrap();
    assert_eq!(receive(&client).0, b"thanks");
    assert_eq!(gateway.metric("sessions_opened_total"), 1);
}

#[test]
fn sessions_beyond_the_limit_are_refused_and_the_others_go_on() {
    let server = socket("127.0.0.1:0");
    let mut few = config(&[&server]);
    few.maximum_sessions = 2;
    let gateway = Gateway::start("127.0.0.1:0", few);
    let clients: Vec<_> = (0..3).map(|_| gateway.client()).collect();
    for client in &clients[..2] {
        client.send(b"in").unwrap();
        receive(&server);
    }
    clients[2].send(b"out").unwrap();
    gateway.wait_for("the refusal", |gateway| gateway.metric("sessions_refused_total") == 1);
    clients[0].send(b"still in").unwrap();
    assert_eq!(receive(&server).0, b"still in");
    assert_eq!(gateway.metric("sessions"), 2);
}

#[test]
fn single_byte_probes_open_no_session() {
    let (server, gateway) = gateway::alone();
    for byte in 4..=15 {
        gateway.client().send(&[byte]).unwrap();
    }
    let client = gateway.client();
    for byte in [9, 3, 16, 9] {
        client.send(&[byte]).unwrap();
    }
    // A client that has a session gets everything through.
    let upstream = receive(&server).1;
    assert_eq!(receive(&server), (vec![16], upstream));
    assert_eq!(receive(&server), (vec![9], upstream));
    gateway.client().send(&[9, 9]).unwrap();
    assert_eq!(receive(&server).0, [9, 9]);
    assert_eq!(gateway.metric("sessions_opened_total"), 2);
    assert_eq!(gateway.metric("sessions_refused_total"), 0);
}

/// Servers that tell each client which of them they are.
struct Servers(Vec<Option<UdpSocket>>);

impl Servers {
    fn start(count: usize) -> Self {
        let servers: Vec<_> = (0..count).map(|_| socket("127.0.0.1:0")).collect();
        servers.iter().for_each(|server| server.set_nonblocking(true).unwrap());
        Self(servers.into_iter().map(Some).collect())
    }

    /// Answers all that has come, with the number of the server and the sender's port behind it.
    fn answer(&self) {
        for (number, server) in (0..).zip(&self.0) {
            let Some(server) = server else { continue };
            let mut buffer = [0; 100];
            while let Ok((length, from)) = server.recv_from(&mut buffer) {
                let [high, low] = from.port().to_be_bytes();
                let answer = [&buffer[..length], &[number, high, low]].concat();
                server.send_to(&answer, from).unwrap();
            }
        }
    }

    /// The server that answers each of these clients, and the port at which it sees it.
    fn ask(&self, clients: &[UdpSocket], question: &[u8]) -> Vec<(usize, u16)> {
        for client in clients {
            client.send(question).unwrap();
        }
        let answer = |client: &UdpSocket| {
            let begun = Instant::now();
            loop {
                self.answer();
                if let Some((answer, _)) = client.hear(Duration::from_millis(1))
                    && let Some((asked, [server, high, low])) = answer.split_last_chunk()
                    && asked == question
                {
                    return (usize::from(*server), u16::from_be_bytes([*high, *low]));
                }
                assert!(begun.elapsed() < PATIENCE, "no server has answered");
            }
        };
        clients.iter().map(answer).collect()
    }

    fn config(&self) -> RouteConfig {
        config(&self.0.iter().flatten().collect::<Vec<_>>())
    }
}

#[test]
fn only_clients_of_a_removed_endpoint_move_once_it_is_gone() {
    let mut servers = Servers::start(3);
    let gateway = Gateway::start("127.0.0.1:0", servers.config());
    let clients: Vec<_> = (0..24).map(|_| gateway.client()).collect();
    let placed = servers.ask(&clients, b"where am I");
    let gone = placed[0].0;
    let moving = placed.iter().filter(|(server, _)| *server == gone).count() as u64;
    let removed = servers.0[gone].take();
    gateway.dataplane.configure(servers.config()).unwrap();

    // The server may be ending, or only be missing from the list: as long as it answers, it keeps
    // the clients that it knows.
    servers.0[gone] = removed;
    assert_eq!(servers.ask(&clients, b"and now"), placed);
    assert_eq!(gateway.metric("sessions_moved_total"), 0);
    let new = [gateway.client()];
    assert_ne!(servers.ask(&new, b"new")[0].0, gone);

    // Gone, it refuses datagrams; then its clients move, and only they.
    servers.0[gone] = None;
    gateway.wait_for("all to move", |gateway| {
        for client in &clients {
            client.send(b"and then").unwrap();
        }
        servers.answer();
        gateway.metric("sessions_moved_total") == moving
    });
    for (now, place) in servers.ask(&clients, b"at last").into_iter().zip(placed) {
        assert!(now.0 != gone && (place.0 == gone || place == now), "from {place:?} to {now:?}");
    }
}

#[test]
fn clients_leave_a_removed_and_silent_endpoint() {
    let (old, new) = (socket("127.0.0.1:0"), socket("127.0.0.1:0"));
    let gateway = Gateway::start("127.0.0.1:0", config(&[&old]));
    let client = gateway.client();
    client.send(b"where am I").unwrap();
    let (_, upstream) = receive(&old);
    old.send_to(b"here", upstream).unwrap();
    receive(&client);
    gateway.dataplane.configure(config(&[&new])).unwrap();
    new.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    gateway.wait_for("the other endpoint", |_| {
        client.send(b"and now").unwrap();
        let mut buffer = [0; 100];
        new.recv(&mut buffer).is_ok_and(|length| buffer[..length] == *b"and now")
    });
    // Datagrams before that went to the former server as always.
    assert_eq!(receive(&old).0, b"and now");
    assert_eq!(gateway.metric("sessions_moved_total"), 1);
    assert_eq!(gateway.metric("sessions_opened_total"), 1);
}

#[test]
fn a_released_listener_leaves_no_socket_behind() {
    let (server, mut gateway) = gateway::alone();
    let client = gateway.client();
    client.send(b"hello").unwrap();
    receive(&server);
    gateway.attachments.clear();
    // Without SO_REUSEPORT this fails while any socket is bound to the address.
    let alone = UdpSocket::bind(gateway.listen);
    assert!(alone.is_ok(), "{alone:?}");
}
