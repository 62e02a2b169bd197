//! Clients that move to another address in mid-transfer, and attackers who pretend to be one. In virtual
//! time.
#![cfg(feature = "virtual-time")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use packrat_client::{ClientConfig, Datagram, Input, PacketNumber, Shim};
use packrat_wire::control::Control;
use packrat_wire::estimate::Timestamp;
use packrat_wire::{MessageCounter, SessionId};

use crate::client::{self, Socket as _, encrypted, transfer};
use crate::gateway::{payload, receive};
use crate::network::{self, Gateway, Socket};

type Client = client::Client<Socket>;

/// A datagram that looks like a QUIC packet with a short header.
fn acknowledgement(number: u8) -> Vec<u8> {
    vec![0x41, 0xff, number, 1, 2, 3, 4, 5, 6, 7, 8, 9]
}

/// Lets the client owe an eACK, and returns it instead of sending it.
fn withheld_message(
    client: &mut Client,
    server: &Socket,
    upstream: SocketAddr,
    number: usize,
) -> Vec<u8> {
    server.say_to(&encrypted(number), upstream);
    client.turn_until("a datagram", |client, received| {
        let Some(datagram) = received else { return false };
        let is_base = client.assist.on_datagram(&datagram, client.now()) == Datagram::Base;
        if is_base {
            client.assist.on_packet_number(PacketNumber::new(number as u64), client.now());
        }
        is_base
    });
    client.withhold()
}

/// Another port, and perhaps another host, for the client; the old socket is returned.
fn move_to(host: &str, client: &mut Client, gateway: &Gateway) -> Socket {
    client.go_on_from(gateway.client_from(host))
}

fn wait_until_moved(client: &mut Client, gateway: &Gateway, moves: u64) {
    client.take_part_until("the move", |_| gateway.metric("paths_moved_total") == moves);
}

/// A client that changes its port keeps its assistance, and the server does not notice.
#[test]
fn a_clients_port_change_keeps_assistance_and_is_hidden() {
    let (server, gateway, mut client, upstream) = network::connected();
    transfer(&mut client, &server, upstream, 0..200);
    for (moves, local) in [(1, "127.0.0.1"), (2, "127.0.0.2"), (3, "127.0.0.1")] {
        let first = moves as usize * 1000;
        let message = withheld_message(&mut client, &server, upstream, first);
        let old = move_to(local, &mut client, &gateway);
        // The base connection is faster than the sealed message.
        for number in 0..10 {
            client.socket.say(&acknowledgement(number));
        }
        client.socket.say(&message);
        client.socket.say(&acknowledgement(10));
        // All of it waits for the proof that the client is there.
        wait_until_moved(&mut client, &gateway, moves);
        for number in 0..11 {
            let expected = (acknowledgement(number), upstream);
            assert_eq!(receive(&server), expected, "the server sees another client");
        }
        old.drain();
        let repairs = gateway.metric("repairs_total");
        transfer(&mut client, &server, upstream, first + 100..first + 300);
        assert!(gateway.metric("repairs_total") >= repairs + 5, "no repairs after the move");
        assert!(old.drain().is_empty(), "the old address still gets something");
        client.socket.say(b"anything");
        assert_eq!(receive(&server), (b"anything".to_vec(), upstream));
    }
    assert_eq!(gateway.metric("sessions_opened_total"), 1);
    assert_eq!(gateway.metric("sessions"), 1);
    assert_eq!(gateway.metric("sessions_begun_total"), 1);
    assert_eq!(gateway.metric("datagrams_claimed_total"), 33);
    assert_eq!(gateway.metric("resets_total{side=\"gateway\",reason=\"decode_failed\"}"), 0);
    gateway.end_sessions();
    assert_eq!(gateway.metric("sessions"), 0);
}

/// A NAT forgets silent clients first, and what their transports send then finds the gateway before any
/// eACK is due.
#[test]
fn a_silent_client_shows_its_move_at_or_soon_after_a_datagram() {
    let (_, server, gateway) = network::alone();
    let mut socket = gateway.client();
    let start = socket.now();
    // The server is to get each datagram once.
    let client = ClientConfig::default().with_copies(false);
    let mut shim: Shim<()> = Shim::new(client, [9; 32], Timestamp::ZERO);
    let now = || Timestamp::ZERO + server.now().saturating_since(start);
    let turn_until = |shim: &mut Shim<()>, socket: &Socket, done: &dyn Fn(&Shim<()>) -> bool| {
        let begun = now();
        while !done(shim) {
            shim.handle(Input::Timeout, now());
            while let Some(said) = shim.poll_transmit(now()) {
                socket.say(&said);
            }
            if let Some((datagram, _)) = socket.hear(Duration::from_millis(1)) {
                shim.on_datagram(&datagram, (), now());
            }
            let waited = now().saturating_since(begun);
            assert!(waited < client::PATIENCE, "waited in vain: {:?}", shim.assistance());
        }
    };
    socket.say(b"hello");
    let (_, upstream) = receive(&server);
    turn_until(&mut shim, &socket, &|shim| shim.assistance().reports > 0);
    // After a shorter silence it expects an answer first.
    for (moves, silent) in (1..).zip([600, 600, 200, 600, 300, 200]) {
        let silence = now() + Duration::from_millis(silent);
        turn_until(&mut shim, &socket, &|_| now() >= silence);
        let eacks = shim.assistance().eacks;
        socket = gateway.client();
        let datagram = acknowledgement(moves);
        shim.on_send(&datagram, now());
        socket.say(&datagram);
        turn_until(&mut shim, &socket, &|_| {
            gateway.metric("paths_moved_total") == u64::from(moves)
        });
        assert_eq!(receive(&server), (datagram, upstream), "the server sees another client");
        assert!(silent < 500 || shim.assistance().eacks == eacks + 1, "one is enough");
    }
    assert_eq!(gateway.metric("datagrams_waited_in_vain_total"), 0);
}

#[test]
fn a_restarted_client_that_moves_is_found_by_its_new_session() {
    let (server, gateway, mut client, upstream) = network::connected();
    transfer(&mut client, &server, upstream, 0..100);
    client.begin_again([77; 32]);
    transfer(&mut client, &server, upstream, 1000..1100);
    assert_eq!(gateway.metric("sessions_begun_total"), 2);
    move_to("127.0.0.1", &mut client, &gateway);
    server.say_to(&encrypted(0), upstream);
    wait_until_moved(&mut client, &gateway, 1);
    let repairs = gateway.metric("repairs_total");
    transfer(&mut client, &server, upstream, 2000..2200);
    assert!(gateway.metric("repairs_total") >= repairs + 5, "no repairs after the move");
    assert_eq!(
        (gateway.metric("sessions_opened_total"), gateway.metric("sessions_begun_total")),
        (1, 2)
    );
    assert_eq!(gateway.metric("handshakes_total{result=\"refused_session\"}"), 0);
}

/// The server's answers to stray datagrams reach their client once it proves to have moved.
#[test]
fn answers_to_stray_datagrams_reach_a_client_that_has_moved() {
    let (server, gateway, mut client, upstream) = network::connected();
    let message = withheld_message(&mut client, &server, upstream, 0);
    move_to("127.0.0.1", &mut client, &gateway);
    client.socket.say(&acknowledgement(1));
    // No session claims it in time.
    let (datagram, another) = receive(&server);
    assert_eq!(datagram, acknowledgement(1));
    assert_ne!(another, upstream);
    assert_eq!(gateway.metric("datagrams_waited_in_vain_total"), 1);
    assert_eq!(gateway.metric("sessions"), 2);
    client.socket.say(&message);
    wait_until_moved(&mut client, &gateway, 1);
    // The server takes this for the client's address until the client speaks again; datagrams that
    // it sends there belong to the client's session all the same.
    let recorded = gateway.metric("datagrams_recorded_total");
    server.say_to(&encrypted(90), another);
    client.turn_until("what was sent to another socket", |client, received| {
        received.is_some_and(|datagram| {
            client.assist.on_datagram(&datagram, client.now()) == Datagram::Base
                && datagram == encrypted(90)
        })
    });
    assert_eq!(gateway.metric("datagrams_recorded_total"), recorded + 1);
    client.socket.say(&acknowledgement(2));
    assert_eq!(receive(&server), (acknowledgement(2), upstream));
    transfer(&mut client, &server, upstream, 100..300);
}

#[test]
fn two_clients_that_get_each_others_address_keep_their_sessions() {
    let (server, gateway, mut one, of_one) = network::connected();
    let (mut other, of_other) = gateway.connect(&server);
    let message = withheld_message(&mut one, &server, of_one, 1);
    let message_of_other = withheld_message(&mut other, &server, of_other, 2);
    std::mem::swap(&mut one.socket, &mut other.socket);
    one.socket.say(&message);
    wait_until_moved(&mut one, &gateway, 1);
    // The address of the other client is taken, until that client shows up at its new one.
    other.socket.say(&message_of_other);
    wait_until_moved(&mut other, &gateway, 2);
    transfer(&mut one, &server, of_one, 1000..1100);
    transfer(&mut other, &server, of_other, 2000..2100);
    one.socket.say(b"one");
    assert_eq!(receive(&server), (b"one".to_vec(), of_one));
    other.socket.say(b"other");
    assert_eq!(receive(&server), (b"other".to_vec(), of_other));
    assert_eq!((gateway.metric("sessions_opened_total"), gateway.metric("sessions")), (2, 2));
    gateway.end_sessions();
    assert_eq!(gateway.metric("sessions"), 0);
}

#[test]
fn plain_clients_are_forwarded_soon_and_without_losses() {
    let (_, server, gateway) = network::alone();
    let _assisted = gateway.connect(&server);
    // A long header, and datagrams that are not QUIC.
    for first in [0xc3, 0x80, 0x16, 0x00] {
        let plain = gateway.client();
        let datagram = [vec![first], payload(1, 500)].concat();
        plain.say(&datagram);
        assert_eq!(receive(&server).0, datagram);
    }
    assert_eq!(gateway.metric("datagrams_waited_total"), 0);
    // Short headers: a few, more than may wait, and large ones.
    for (count, length) in [(5u8, 100), (40, 100), (3, 60_000)] {
        let plain = gateway.client();
        let mut expected = HashSet::new();
        let mut source = None;
        for number in 0..count {
            let datagram = [acknowledgement(number), payload(number.into(), length)].concat();
            plain.say(&datagram);
            expected.insert(datagram);
        }
        while !expected.is_empty() {
            let (datagram, from) = receive(&server);
            assert!(expected.remove(&datagram), "unexpected or twice");
            assert_eq!(*source.get_or_insert(from), from);
        }
        server.say_to(b"answer", source.unwrap());
        assert_eq!(receive(&plain).0, b"answer");
    }
}

/// The gateway's answers to one datagram of `attacker`; all of it together is never larger.
fn answers(attacker: &Socket, datagram: &[u8]) -> Vec<Vec<u8>> {
    attacker.say(datagram);
    let answers = attacker.drain();
    assert!(answers.iter().map(Vec::len).sum::<usize>() <= datagram.len(), "amplified");
    answers
}

#[test]
fn replayed_messages_move_no_client_and_yield_no_data() {
    let (server, gateway, mut client, upstream) = network::connected();
    transfer(&mut client, &server, upstream, 0..100);
    let attacker = gateway.client();
    // Captured, and delivered to the gateway as well.
    let delivered = withheld_message(&mut client, &server, upstream, 500);
    let received = gateway.metric("eacks_received_total");
    client.socket.say(&delivered);
    assert_eq!(gateway.metric("eacks_received_total"), received + 1);
    for _ in 0..20 {
        assert_eq!(answers(&attacker, &delivered), Vec::<Vec<u8>>::new());
    }
    assert_eq!(gateway.metric("sealed_dropped_total{reason=\"replayed\"}"), 20);
    // Captured, and kept from the gateway: authentic until it is seen for the second time.
    let kept = withheld_message(&mut client, &server, upstream, 501);
    let challenge = answers(&attacker, &kept);
    assert!(
        challenge.len() == 1
            && matches!(Control::decode(&challenge[0]), Ok(Control::Sealed { .. }))
    );
    for _ in 0..20 {
        assert_eq!(answers(&attacker, &kept), Vec::<Vec<u8>>::new());
        // The challenge itself is no answer to it.
        assert_eq!(answers(&attacker, &challenge[0]), Vec::<Vec<u8>>::new());
    }
    transfer(&mut client, &server, upstream, 1000..1200);
    assert!(attacker.drain().is_empty(), "the attacker gets data");
    assert_eq!(gateway.metric("paths_moved_total"), 0);
    assert_eq!(gateway.metric("sessions_opened_total"), 1);
}

#[test]
fn a_flood_of_sealed_datagrams_changes_nothing() {
    let (network, server, gateway) = network::alone();
    let (mut client, upstream) = gateway.connect(&server);
    let message = withheld_message(&mut client, &server, upstream, 0);
    let id = packrat_wire::seal::session_of(&message).unwrap();
    client.socket.say(&message);
    let attackers: Vec<_> = (0..20).map(|_| gateway.client()).collect();
    for number in 0..4000u32 {
        let mut datagram = Vec::new();
        // Half of them name the session.
        let guess = SessionId::new(number.wrapping_mul(0x9e37_79b9));
        let session = if number % 2 == 0 { id } else { guess };
        let ciphertext = payload(number as usize, 16 + number as usize % 300);
        let counter = MessageCounter::new(number);
        Control::Sealed { session, counter, ciphertext: &ciphertext }.encode(&mut datagram);
        attackers[number as usize % attackers.len()].say(&datagram);
        network.pass(Duration::from_micros(100));
    }
    transfer(&mut client, &server, upstream, 100..300);
    assert!(gateway.metric("sealed_dropped_total{reason=\"forged\"}") >= 1900);
    assert!(gateway.metric("handshakes_total{result=\"refused_session\"}") >= 1900);
    assert_eq!(gateway.metric("paths_challenged_total"), 0);
    assert_eq!(gateway.metric("sessions_opened_total"), 1);
    for attacker in attackers {
        for answer in attacker.drain() {
            assert!(matches!(Control::decode(&answer), Ok(Control::Refusal { .. })));
        }
    }
}
