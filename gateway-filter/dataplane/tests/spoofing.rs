//! Attackers that send in the name of others: with a session of their own and all its keys, or
//! without any.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Client, connect, encrypted, transfer};
use gateway::{Gateway, config, receive, socket};
use packrat_client::{AssistState, Datagram, PacketNumber};
use packrat_dataplane::socket::{Ecn, bind_reuse_port, local_address};
use packrat_dataplane::{Attachment, ClientDatagrams};
use packrat_wire::control::Control;
use packrat_wire::is_control;
use packrat_wire::seal::session_of;

use crate::client;
use crate::gateway;

/// Has the gateway receive a datagram under this source address, which may be that of another client.
fn spoof(gateway: &Gateway, from: SocketAddr, datagram: &[u8]) {
    spoof_at(gateway, &gateway.attachments[0], from, datagram);
}

fn spoof_at(gateway: &Gateway, listener: &Attachment, from: SocketAddr, datagram: &[u8]) {
    gateway.dataplane.ingress(&gateway.route, listener, 0).receive(&ClientDatagrams {
        client: from,
        local: None,
        ecn: Ecn::NOT_CAPABLE,
        data: datagram,
        segment_size: datagram.len(),
    });
}

/// Another listener of the gateway's route.
fn add_listener(gateway: &Gateway) -> (SocketAddr, Attachment) {
    let socket = bind_reuse_port("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = local_address(std::os::fd::AsFd::as_fd(&socket)).unwrap();
    (address, gateway.dataplane.listen(&gateway.route, address, 0, socket).unwrap())
}

/// Everything that a socket has received.
fn drain(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 70_000];
    let received = std::iter::from_fn(|| {
        let length = socket.recv(&mut buffer).ok()?;
        Some(buffer[..length].to_vec())
    })
    .collect();
    socket.set_nonblocking(false).unwrap();
    received
}

/// The next sealed message of a client that wants to be answered.
fn next_message(client: &mut Client) -> Vec<u8> {
    loop {
        let now = client.now();
        if client.assist.next_timeout().is_some_and(|timeout| timeout <= now) {
            client.assist.handle_timeout(now);
        }
        if let Some(datagram) = client.assist.poll_transmit(now) {
            return datagram;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Age of a server's first answer from which a session without assistance keeps its path.
const SETTLED: Duration = Duration::from_secs(3);

/// A client of a plain connection, and the address that the server sees it at; both have spoken
/// twice.
fn plain_client(gateway: &Gateway, server: &UdpSocket) -> (UdpSocket, SocketAddr) {
    let client = gateway.client();
    let mut upstream = None;
    for round in 0..2u8 {
        client.send(&[b'q', round]).unwrap();
        let (question, from) = receive(server);
        assert_eq!(question, [b'q', round]);
        server.send_to(&[b'a', round], from).unwrap();
        assert_eq!(receive(&client).0, [b'a', round]);
        upstream = Some(from);
    }
    (client, upstream.unwrap())
}

/// Lets the client of a plain connection and its server speak for as long as it takes a session to
/// be settled: the gateway's own rule, not a matter of how fast they are.
fn settle(client: &UdpSocket, server: &UdpSocket, upstream: SocketAddr) {
    let begun = std::time::Instant::now();
    while begun.elapsed() <= SETTLED {
        client.send(b"question").unwrap();
        assert_eq!(receive(server), (b"question".to_vec(), upstream));
        server.send_to(b"answer", upstream).unwrap();
        assert_eq!(receive(client).0, b"answer");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_client_with_all_its_keys_cannot_have_an_address_flooded() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut attacker, upstream) = connect(gateway.listen, &server);
    transfer(&mut attacker, &server, upstream, 0..100);
    let victim = socket("127.0.0.9:0");
    let address = victim.local_addr().unwrap();
    let mut spoofed = 0;
    for number in 1000..1100 {
        // The server speaks, the attacker acknowledges in the victim's name.
        server.send_to(&encrypted(number), upstream).unwrap();
        attacker.turn_until("a datagram", |client, received| {
            let Some(datagram) = received else { return false };
            let is_base = client.assist.on_datagram(&datagram, client.now()) == Datagram::Base;
            if is_base {
                client.assist.on_packet_number(PacketNumber::new(number as u64), client.now());
            }
            is_base
        });
        if let Some(message) = attacker.assist.poll_transmit(attacker.now()) {
            spoofed += message.len();
            spoof(&gateway, address, &message);
        }
    }
    let message = next_message(&mut attacker);
    spoofed += message.len();
    spoof(&gateway, address, &message);
    let received = drain(&victim);
    assert!(!received.is_empty(), "never challenged");
    assert!(received.iter().all(|datagram| {
        matches!(Control::decode(datagram), Ok(Control::Sealed { ciphertext, .. }) if ciphertext.len() == 25)
    }));
    let bytes: usize = received.iter().map(Vec::len).sum();
    assert!(bytes <= 3 * spoofed, "{bytes} bytes for {spoofed}");
    assert_eq!(gateway.metric("paths_moved_total"), 0);
    // It goes on where it is.
    transfer(&mut attacker, &server, upstream, 2000..2100);
}

#[test]
fn a_message_in_somebodys_name_does_not_show_what_they_say() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut attacker, of_attacker) = connect(gateway.listen, &server);
    transfer(&mut attacker, &server, of_attacker, 0..50);
    // Words that could be a QUIC packet of a client that has moved, and such that could not.
    for words in [&b"my first words, in the clear"[..], &b"\xc3 a long header"[..]] {
        let other = socket("127.0.0.9:0");
        other.connect(gateway.listen).unwrap();
        server.send_to(&encrypted(5000), of_attacker).unwrap();
        attacker.turn_until("a datagram", |client, received| {
            received.is_some_and(|datagram| {
                client.assist.on_datagram(&datagram, client.now()) == Datagram::Base
            })
        });
        let challenged = gateway.metric("paths_challenged_total");
        let message = next_message(&mut attacker);
        spoof(&gateway, other.local_addr().unwrap(), &message);
        assert_eq!(gateway.metric("paths_challenged_total"), challenged + 1);
        other.send(words).unwrap();
        let (said, from) = receive(&server);
        assert_eq!(said, words);
        assert_ne!(from, of_attacker, "the attacker's connection is sent what another one says");
        server.send_to(b"the answer", from).unwrap();
        let answer =
            std::iter::repeat_with(|| receive(&other).0).find(|datagram| !is_control(datagram));
        assert_eq!(answer.unwrap(), b"the answer");
    }
    assert_eq!(gateway.metric("datagrams_claimed_total"), 0);
}

/// An attacker on the path of another client, who sees what arrives there, tries to take the
/// address until the gateway refuses; `other` goes on meanwhile, with what is its own.
fn try_to_take(
    gateway: &Gateway,
    attacker: &mut Client,
    address: SocketAddr,
    mut others: impl FnMut() -> Vec<Vec<u8>>,
) -> Vec<Vec<u8>> {
    let id = session_of(&next_message(attacker)).unwrap();
    let mut seen = Vec::new();
    let begun = std::time::Instant::now();
    while gateway.metric("paths_refused_total") == 0 {
        assert!(begun.elapsed() < gateway::PATIENCE, "neither moved nor refused");
        let now = attacker.now();
        if attacker.assist.next_timeout().is_some_and(|timeout| timeout <= now) {
            attacker.assist.handle_timeout(now);
        }
        while let Some(message) = attacker.assist.poll_transmit(now) {
            spoof(gateway, address, &message);
        }
        for datagram in others() {
            if session_of(&datagram) == Some(id) {
                attacker.assist.on_datagram(&datagram, now);
            }
            seen.push(datagram);
        }
        assert_eq!(gateway.metric("paths_moved_total"), 0, "the address was given away");
        std::thread::sleep(Duration::from_millis(1));
    }
    seen
}

#[test]
fn a_client_that_speaks_keeps_its_address_whatever_another_one_proves() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut attacker, of_attacker) = connect(gateway.listen, &server);
    transfer(&mut attacker, &server, of_attacker, 0..50);
    server.send_to(&encrypted(5000), of_attacker).unwrap();
    attacker.turn_until("a datagram", |client, received| {
        received.is_some_and(|datagram| {
            client.assist.on_datagram(&datagram, client.now()) == Datagram::Base
        })
    });
    let (other, upstream) = plain_client(&gateway, &server);
    settle(&other, &server, upstream);
    let address = other.local_addr().unwrap();
    let seen = try_to_take(&gateway, &mut attacker, address, || drain(&other));
    assert!(seen.iter().all(|datagram| is_control(datagram)), "the attacker's own stream");
    // Its client is told that it has no session there, in fewer bytes than it sent.
    let is_refusal =
        |datagram: &Vec<u8>| matches!(Control::decode(datagram), Ok(Control::Refusal { .. }));
    let mut told = seen.iter().any(is_refusal);
    while !told {
        told = is_refusal(&receive(&other).0);
    }
    // And the other client goes on as if nothing had happened.
    server.send_to(b"are you there?", upstream).unwrap();
    let question =
        std::iter::repeat_with(|| receive(&other).0).find(|datagram| !is_control(datagram));
    assert_eq!(question.unwrap(), b"are you there?");
    other.send(b"yes").unwrap();
    assert_eq!(receive(&server), (b"yes".to_vec(), upstream));
    assert_eq!(gateway.metric("sessions_closed_total"), 0);
}

#[test]
fn an_assisted_client_that_answers_keeps_its_address_and_its_assistance() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut attacker, of_attacker) = connect(gateway.listen, &server);
    transfer(&mut attacker, &server, of_attacker, 0..50);
    server.send_to(&encrypted(5000), of_attacker).unwrap();
    attacker.turn_until("a datagram", |client, received| {
        received.is_some_and(|datagram| {
            client.assist.on_datagram(&datagram, client.now()) == Datagram::Base
        })
    });
    let (mut other, upstream) = connect(gateway.listen, &server);
    transfer(&mut other, &server, upstream, 0..50);
    let address = other.socket.local_addr().unwrap();
    try_to_take(&gateway, &mut attacker, address, || {
        let received: Vec<_> = other.turn().into_iter().collect();
        for datagram in &received {
            other.assist.on_datagram(datagram, other.now());
        }
        received
    });
    transfer(&mut other, &server, upstream, 1000..1100);
    assert_eq!(other.assist.stats().state, AssistState::Established);
    assert_eq!(gateway.metric("sessions_begun_total"), 2);
}

#[test]
fn a_client_that_is_refused_an_address_begins_anew_there() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut client, upstream) = connect(gateway.listen, &server);
    transfer(&mut client, &server, upstream, 0..50);
    // Its address changes, and has been another client's until now, as its server believes.
    let (there, upstream) = plain_client(&gateway, &server);
    settle(&there, &server, upstream);
    client.go_on_from(there);
    client.take_part_until("another session", |_| gateway.metric("sessions_begun_total") == 2);
    assert!(gateway.metric("paths_refused_total") > 0);
    client.establish();
    let repairs = gateway.metric("repairs_total");
    transfer(&mut client, &server, upstream, 1000..1200);
    assert!(gateway.metric("repairs_total") >= repairs + 5, "no repairs");
}

#[test]
fn a_datagram_to_another_listener_turns_no_answers_away() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (_, second) = add_listener(&gateway);
    let (client, upstream) = plain_client(&gateway, &server);
    let address = client.local_addr().unwrap();
    spoof_at(&gateway, &second, address, b"x");
    let (said, another) = receive(&server);
    assert_eq!(said, b"x");
    assert_ne!(another, upstream);
    for number in 0..100u8 {
        server.send_to(&[number], upstream).unwrap();
        assert_eq!(receive(&client).0, [number]);
    }
    // A sealed message that someone else has captured is not enough, either.
    let (mut assisted, upstream) = connect(gateway.listen, &server);
    transfer(&mut assisted, &server, upstream, 0..50);
    server.send_to(&encrypted(5000), upstream).unwrap();
    assisted.turn_until("a datagram", |client, received| {
        received.is_some_and(|datagram| {
            client.assist.on_datagram(&datagram, client.now()) == Datagram::Base
        })
    });
    let message = next_message(&mut assisted);
    spoof_at(&gateway, &second, assisted.socket.local_addr().unwrap(), &message);
    assert_eq!(gateway.metric("paths_moved_total"), 0);
    transfer(&mut assisted, &server, upstream, 1000..1100);
}

#[test]
fn one_socket_has_a_session_at_each_listener_and_an_assisted_one_can_go_to_another() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (address, _second) = add_listener(&gateway);
    let client = socket("127.0.0.1:0");
    let mut upstreams = HashSet::new();
    for listener in [gateway.listen, address, gateway.listen] {
        client.send_to(b"question", listener).unwrap();
        let upstream = receive(&server).1;
        upstreams.insert(upstream);
        server.send_to(b"answer", upstream).unwrap();
        assert_eq!(receive(&client), (b"answer".to_vec(), listener));
    }
    assert_eq!(upstreams.len(), 2);

    let (mut assisted, upstream) = connect(gateway.listen, &server);
    transfer(&mut assisted, &server, upstream, 0..50);
    assisted.socket.connect(address).unwrap();
    server.send_to(&encrypted(5000), upstream).unwrap();
    assisted.take_part_until("the move", |_| gateway.metric("paths_moved_total") == 1);
    transfer(&mut assisted, &server, upstream, 1000..1100);
}

/// Forged datagrams, each from an address of its own, to a server that answers all of them.
fn flood(gateway: &Gateway, addresses: impl Iterator<Item = u32>) {
    let mut ingress = gateway.dataplane.ingress(&gateway.route, &gateway.attachments[0], 0);
    for number in addresses {
        let source = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        ingress.receive(&ClientDatagrams {
            client: (source, 4000).into(),
            local: None,
            ecn: Ecn::NOT_CAPABLE,
            data: b"forged",
            segment_size: 6,
        });
        if number % 10 == 9 {
            // Not faster than the I/O thread, which makes room.
            gateway.wait_for("room", |gateway| gateway.metric("sessions") < 86);
        }
    }
}

#[test]
fn forged_sources_keep_no_client_out_and_end_no_session_that_is_used() {
    let server = socket("127.0.0.1:0");
    let mut few = config(&[&server]);
    few.maximum_sessions = 100;
    let gateway = Gateway::start("127.0.0.1:0", few);
    let (client, upstream) = plain_client(&gateway, &server);
    let stop = Arc::new(AtomicBool::new(false));
    let echo = {
        let (server, stop) = (server.try_clone().unwrap(), Arc::clone(&stop));
        server.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 100];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((length, from)) = server.recv_from(&mut buffer) {
                    // The session may be gone.
                    let _ = server.send_to(&buffer[..length], from);
                }
            }
        })
    };
    for round in 0..10u32 {
        flood(&gateway, round * 100..round * 100 + 100);
        let newcomer = gateway.client();
        for question in [&b"first"[..], &b"second"[..]] {
            newcomer.send(question).unwrap();
            assert_eq!(receive(&newcomer).0, question, "round {round}");
        }
    }
    assert!(gateway.metric("sessions_evicted_total") > 800);
    assert_eq!(gateway.metric("sessions_refused_total"), 0);
    client.send(b"still the same?").unwrap();
    assert_eq!(receive(&client).0, b"still the same?");
    stop.store(true, Ordering::Relaxed);
    echo.join().unwrap();
    server.set_nonblocking(true).unwrap();
    while server.recv(&mut [0; 100]).is_ok() {}
    server.set_nonblocking(false).unwrap();
    server.set_read_timeout(Some(gateway::PATIENCE)).unwrap();
    client.send(b"yes").unwrap();
    assert_eq!(receive(&server), (b"yes".to_vec(), upstream));
}

#[test]
fn one_source_with_many_ports_leaves_room_for_others() {
    let server = socket("127.0.0.1:0");
    let mut few = config(&[&server]);
    few.maximum_sessions = 200;
    let gateway = Gateway::start("127.0.0.1:0", few);
    let mut ingress = gateway.dataplane.ingress(&gateway.route, &gateway.attachments[0], 0);
    for port in 1..=200 {
        ingress.receive(&ClientDatagrams {
            client: ([10, 0, 0, 1], port).into(),
            local: None,
            ecn: Ecn::NOT_CAPABLE,
            data: b"one of many",
            segment_size: 11,
        });
    }
    assert_eq!(gateway.metric("sessions_opened_total"), 100);
    assert_eq!(gateway.metric("sessions_refused_total"), 100);
    for _ in 0..20 {
        gateway.client().send(b"another").unwrap();
    }
    gateway.wait_for("others", |gateway| gateway.metric("sessions_opened_total") == 120);
}
