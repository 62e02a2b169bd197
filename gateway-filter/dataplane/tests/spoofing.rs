//! Attackers that send in the name of others: with a session of their own and all its keys, or
//! without any. In virtual time.
#![cfg(feature = "virtual-time")]

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use packrat_client::{AssistState, Datagram, PacketNumber};
use packrat_wire::bundle::join;
use packrat_wire::control::Control;
use packrat_wire::is_control;
use packrat_wire::seal::session_of;

use crate::client::{self, Socket as _, encrypted, receive, transfer};
use crate::gateway::config;
use crate::network::{self, Gateway, Network, Socket};

type Client = client::Client<Socket>;

/// Age of a server's first answer from which a session without assistance keeps its path.
const SETTLED: Duration = Duration::from_secs(3);

/// A client of a plain connection, and the address that the server sees it at; both have spoken
/// twice.
fn plain_client(gateway: &Gateway, server: &Socket) -> (Socket, SocketAddr) {
    let client = gateway.client();
    let mut upstream = None;
    for round in 0..2u8 {
        client.say(&[b'q', round]);
        let (question, from) = receive(server);
        assert_eq!(question, [b'q', round]);
        server.say_to(&[b'a', round], from);
        assert_eq!(receive(&client).0, [b'a', round]);
        upstream = Some(from);
    }
    (client, upstream.unwrap())
}

/// Lets the client of a plain connection and its server speak for as long as it takes a session to
/// be settled.
fn settle(client: &Socket, server: &Socket, upstream: SocketAddr) {
    let begun = client.now();
    while client.now().saturating_since(begun) <= SETTLED {
        client.say(b"question");
        assert_eq!(receive(server), (b"question".to_vec(), upstream));
        server.say_to(b"answer", upstream);
        assert_eq!(receive(client).0, b"answer");
        client.pause(Duration::from_millis(10));
    }
}

/// The server sends the client a datagram.
fn send_one(client: &mut Client, server: &Socket, upstream: SocketAddr) {
    server.say_to(&encrypted(5000), upstream);
    client.turn_until("a datagram", |client, received| {
        received.is_some_and(|datagram| {
            client.assist.on_datagram(&datagram, client.now()) == Datagram::Base
        })
    });
}

#[test]
fn a_client_with_all_its_keys_cannot_have_an_address_flooded() {
    let (network, server, gateway) = network::alone();
    let (mut attacker, upstream) = gateway.connect(&server);
    transfer(&mut attacker, &server, upstream, 0..100);
    let victim = network.socket("127.0.0.9");
    let address = victim.address();
    let mut spoofed = 0;
    for number in 1000..1100 {
        // The server speaks, the attacker acknowledges in the victim's name.
        server.say_to(&encrypted(number), upstream);
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
            gateway.receive_from(address, &message);
        }
    }
    let message = attacker.withhold();
    spoofed += message.len();
    gateway.receive_from(address, &message);
    let received = victim.drain();
    assert!(!received.is_empty(), "never challenged");
    assert!(received.iter().all(|datagram| {
        matches!(Control::decode(datagram), Ok(Control::Sealed { ciphertext, .. }) if ciphertext.len() == 25)
    }));
    let bytes: usize = received.iter().map(Vec::len).sum();
    assert!(bytes <= 3 * spoofed, "{bytes} bytes for {spoofed}");
    assert_eq!(gateway.metric("paths_moved_total"), 0);
    // The attacker's session continues at its own path.
    transfer(&mut attacker, &server, upstream, 2000..2100);
}

#[test]
fn a_message_in_somebodys_name_does_not_show_what_they_say() {
    let (server, gateway, mut attacker, of_attacker) = network::connected();
    transfer(&mut attacker, &server, of_attacker, 0..50);
    // Words that could be a QUIC packet of a client that has moved, and such that could not.
    for words in [&b"my first words, in the clear"[..], &b"\xc3 a long header"[..]] {
        let other = gateway.client_from("127.0.0.9");
        send_one(&mut attacker, &server, of_attacker);
        let challenged = gateway.metric("paths_challenged_total");
        let message = attacker.withhold();
        gateway.receive_from(other.address(), &message);
        assert_eq!(gateway.metric("paths_challenged_total"), challenged + 1);
        other.say(words);
        let (said, from) = receive(&server);
        assert_eq!(said, words);
        assert_ne!(from, of_attacker, "the attacker's connection is sent what another one says");
        server.say_to(b"the answer", from);
        let answer =
            std::iter::repeat_with(|| receive(&other).0).find(|datagram| !is_control(datagram));
        assert_eq!(answer.unwrap(), b"the answer");
    }
    assert_eq!(gateway.metric("datagrams_claimed_total"), 0);
}

/// An attacker on the path of another client, who sees the datagrams that arrive there, tries to
/// take the address until the gateway refuses. `others` takes the datagrams of the other client,
/// which continues.
fn try_to_take(
    gateway: &Gateway,
    attacker: &mut Client,
    address: SocketAddr,
    mut others: impl FnMut() -> Vec<Vec<u8>>,
) -> Vec<Vec<u8>> {
    let id = session_of(&attacker.withhold()).unwrap();
    let mut seen = Vec::new();
    let begun = attacker.now();
    while gateway.metric("paths_refused_total") == 0 {
        let now = attacker.now();
        assert!(now.saturating_since(begun) < client::PATIENCE, "neither moved nor refused");
        while let Some(message) = attacker.poll() {
            gateway.receive_from(address, &message);
        }
        for datagram in others() {
            if session_of(&datagram) == Some(id) {
                attacker.assist.on_datagram(&datagram, now);
            }
            seen.push(datagram);
        }
        assert_eq!(gateway.metric("paths_moved_total"), 0, "the address was given away");
        attacker.socket.pause(Duration::from_millis(1));
    }
    seen
}

#[test]
fn a_speaking_client_keeps_its_address_against_any_other_proof() {
    let (server, gateway, mut attacker, of_attacker) = network::connected();
    transfer(&mut attacker, &server, of_attacker, 0..50);
    send_one(&mut attacker, &server, of_attacker);
    let (other, upstream) = plain_client(&gateway, &server);
    settle(&other, &server, upstream);
    let address = other.address();
    let seen = try_to_take(&gateway, &mut attacker, address, || other.drain());
    assert!(seen.iter().all(|datagram| is_control(datagram)), "the attacker's own stream");
    // Its client is notified that it has no session there, in fewer bytes than it sent.
    let is_refusal =
        |datagram: &Vec<u8>| matches!(Control::decode(datagram), Ok(Control::Refusal { .. }));
    let mut told = seen.iter().any(is_refusal);
    while !told {
        told = is_refusal(&receive(&other).0);
    }
    // The other client is not affected.
    server.say_to(b"are you there?", upstream);
    let question =
        std::iter::repeat_with(|| receive(&other).0).find(|datagram| !is_control(datagram));
    assert_eq!(question.unwrap(), b"are you there?");
    other.say(b"yes");
    assert_eq!(receive(&server), (b"yes".to_vec(), upstream));
    assert_eq!(gateway.metric("sessions_closed_total"), 0);
}

#[test]
fn an_answering_assisted_client_keeps_address_and_assistance() {
    let (server, gateway, mut attacker, of_attacker) = network::connected();
    transfer(&mut attacker, &server, of_attacker, 0..50);
    send_one(&mut attacker, &server, of_attacker);
    let (mut other, upstream) = gateway.connect(&server);
    transfer(&mut other, &server, upstream, 0..50);
    let address = other.socket.address();
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
    let (server, gateway, mut client, upstream) = network::connected();
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
    let (_, server, gateway) = network::alone();
    let (client, upstream) = plain_client(&gateway, &server);
    client.say_to(b"x", gateway.second);
    let (said, another) = receive(&server);
    assert_eq!(said, b"x");
    assert_ne!(another, upstream);
    for number in 0..100u8 {
        server.say_to(&[number], upstream);
        assert_eq!(receive(&client).0, [number]);
    }
    // A sealed message that someone else has captured is not enough, either.
    let (mut assisted, upstream) = gateway.connect(&server);
    transfer(&mut assisted, &server, upstream, 0..50);
    send_one(&mut assisted, &server, upstream);
    let message = assisted.withhold();
    assisted.socket.say_to(&message, gateway.second);
    assert_eq!(gateway.metric("paths_moved_total"), 0);
    transfer(&mut assisted, &server, upstream, 1000..1100);
}

/// A socket has a session at each listener, and an assisted session can move to another listener.
#[test]
fn a_socket_has_a_session_per_listener_and_one_can_move() {
    let (network, server, gateway) = network::alone();
    let client = network.socket("127.0.0.1");
    let mut upstreams = HashSet::new();
    for listener in [gateway.listen, gateway.second, gateway.listen] {
        client.say_to(b"question", listener);
        let upstream = receive(&server).1;
        upstreams.insert(upstream);
        server.say_to(b"answer", upstream);
        assert_eq!(receive(&client), (b"answer".to_vec(), listener));
    }
    assert_eq!(upstreams.len(), 2);

    let (mut assisted, upstream) = gateway.connect(&server);
    transfer(&mut assisted, &server, upstream, 0..50);
    assisted.socket.connect(gateway.second);
    server.say_to(&encrypted(5000), upstream);
    assisted.take_part_until("the move", |_| gateway.metric("paths_moved_total") == 1);
    transfer(&mut assisted, &server, upstream, 1000..1100);
}

/// The server answers all that has come with the same.
fn echo(server: &Socket) {
    while let Some((datagram, from)) = server.hear(Duration::ZERO) {
        server.say_to(&datagram, from);
    }
}

#[test]
fn forged_sources_exclude_no_client_and_end_no_used_session() {
    let network = Network::new();
    let server = network.server();
    let mut few = config(&[&server]);
    few.maximum_sessions = 100;
    let gateway = network.gateway(few);
    let (client, upstream) = plain_client(&gateway, &server);
    for round in 0..10u32 {
        for number in round * 100..round * 100 + 100 {
            // Each from an address of its own, to a server that answers.
            let source = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            gateway.receive_from((source, 4000).into(), b"forged");
            echo(&server);
        }
        let newcomer = gateway.client();
        for question in [&b"first"[..], &b"second"[..]] {
            newcomer.say(question);
            echo(&server);
            assert_eq!(receive(&newcomer).0, question, "round {round}");
        }
    }
    assert!(gateway.metric("sessions_evicted_total") > 800);
    assert_eq!(gateway.metric("sessions_refused_total"), 0);
    client.say(b"still the same?");
    assert_eq!(receive(&server), (b"still the same?".to_vec(), upstream));
}

/// Places of a route, and as many datagrams a second as a flood of 1 Mbit/s has for 25,000 places: 2600 of 48
/// bytes with their headers.
const PLACES: u64 = 250;
const FLOOD_PER_SECOND: u64 = 26;
/// The beginning of a connection of QUIC, without a connection ID that the server would return.
const BEGUN: &[u8] = b"\xc3\0\0\0\x01\0\x01chello";

/// A client and its server, as the server sees it.
struct Plain {
    socket: Socket,
    upstream: SocketAddr,
    /// The connection ID that the server has given it.
    id: Vec<u8>,
}

/// A server that answers all that comes: the beginning of a connection with a connection ID that no other
/// has, the rest with the same.
struct Answering {
    socket: Socket,
    given: u64,
}

impl Answering {
    /// Answers the received datagrams; returns the sender of the last one.
    fn answer(&mut self) -> Option<SocketAddr> {
        let mut last = None;
        while let Some((datagram, from)) = self.socket.hear(Duration::ZERO) {
            if datagram == BEGUN {
                self.given += 1;
                let id = self.given.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
                self.socket.say_to(&[&b"\xc3\0\0\0\x01\x01c\x08"[..], &id].concat(), from);
            } else {
                self.socket.say_to(&datagram, from);
            }
            last = Some(from);
        }
        last
    }

    /// The answer to a client, and the address from which it has asked.
    fn ask(&mut self, client: &Socket, question: &[u8]) -> Option<(Vec<u8>, SocketAddr)> {
        client.drain();
        client.say(question);
        let from = self.answer()?;
        Some((client.drain().pop()?, from))
    }
}

/// A flood for longer than any idle timeout: each source sends all of `datagrams`, with
/// the time `between` two of them, to a server that answers. A client that was there before and
/// clients that come during the flood are served at once, and keep their sessions.
fn assert_it_keeps_no_client_out(flood: &str, datagrams: &[&[u8]], between: Duration) {
    let network = Network::new();
    let mut server = Answering { socket: network.server(), given: 0 };
    let mut few = config(&[&server.socket]);
    few.maximum_sessions = PLACES;
    let gateway = network.gateway(few);
    let before = gateway.client();
    let (_, upstream_before) = server.ask(&before, b"before").unwrap();
    let step = Duration::from_secs(1) / FLOOD_PER_SECOND as u32;
    let mut due = BTreeMap::new();
    let mut newcomers: BTreeMap<u64, Plain> = BTreeMap::new();
    for turn in 0..150 * FLOOD_PER_SECOND {
        if turn % datagrams.len() as u64 == 0 {
            let source = IpAddr::from((0x0a00_0000 + turn as u32).to_be_bytes());
            for (at, datagram) in datagrams.iter().enumerate() {
                let time = step * turn as u32 + between * at as u32;
                due.insert((time, turn, at), (SocketAddr::from((source, 4000)), *datagram));
            }
        }
        while let Some(entry) = due.first_entry()
            && entry.key().0 <= step * turn as u32
        {
            let (source, datagram) = entry.remove();
            gateway.receive_from(source, datagram);
            server.answer();
        }
        if turn % (5 * FLOOD_PER_SECOND) == 0 {
            let socket = gateway.client_from(&format!("127.0.1.{}", 1 + newcomers.len()));
            let answer = server.ask(&socket, BEGUN);
            let (answer, upstream) =
                answer.unwrap_or_else(|| panic!("{flood}: a client that comes has no answer"));
            newcomers.insert(turn, Plain { socket, upstream, id: answer[8..].to_vec() });
            let (_, upstream) = server.ask(&before, b"still the same?").unwrap();
            assert_eq!(upstream, upstream_before, "{flood}: a session that is used has ended");
        }
        for (came, Plain { socket, upstream, id }) in &newcomers {
            // After a round trip, and much later.
            if [FLOOD_PER_SECOND / 5, 30 * FLOOD_PER_SECOND].contains(&(turn - came)) {
                let answer = server.ask(socket, &[&[0x41], &id[..], b"more"].concat());
                let from = answer.map(|(_, from)| from);
                assert_eq!(from, Some(*upstream), "{flood}: a client has lost its session");
            }
        }
        network.pass(step);
    }
    assert_eq!(gateway.metric("sessions_refused_total"), 0, "{flood}");
}

#[test]
fn answered_floods_of_forged_sources_exclude_no_client() {
    for count in [1, 2, 3, 10] {
        for between in [Duration::ZERO, Duration::from_millis(2500)] {
            let flood = format!("{count} datagrams a source, {between:?} apart");
            assert_it_keeps_no_client_out(&flood, &vec![&b"forged"[..]; count], between);
        }
    }
}

/// The time that a client which comes during a flood has for the proof of its address. The flood's sources
/// send two datagrams each until they have all lasting places, then `count`; a server answers them.
fn time_for_a_proof(count: u64) -> Duration {
    let network = Network::new();
    let mut server = Answering { socket: network.server(), given: 0 };
    let mut few = config(&[&server.socket]);
    few.maximum_sessions = PLACES;
    let gateway = network.gateway(few);
    let step = Duration::from_secs(1) / FLOOD_PER_SECOND as u32;
    let mut come: Option<(u64, Socket, SocketAddr)> = None;
    for turn in 0.. {
        let each = if turn < 60 * FLOOD_PER_SECOND { 2 } else { count };
        let source = IpAddr::from((0x0a00_0000 + (turn - turn % each) as u32).to_be_bytes());
        gateway.receive_from((source, 4000).into(), b"forged");
        server.answer();
        if turn == 90 * FLOOD_PER_SECOND {
            let client = gateway.client();
            let (_, upstream) = server.ask(&client, BEGUN).unwrap();
            come = Some((turn, client, upstream));
        }
        if let Some((since, client, upstream)) = &come {
            server.socket.say_to(b"still there?", *upstream);
            if client.drain().is_empty() {
                return step * (turn - since) as u32;
            }
        }
        network.pass(step);
    }
    unreachable!("an idle session ends")
}

/// One hundredth of 25,000 places, and of 1 Mbit/s in datagrams of 48 bytes.
#[test]
fn a_flood_leaves_newcomers_a_second_for_each_datagram() {
    println!("datagrams a source | sources a second | seconds for a proof");
    for (count, least, most) in [(1, 0.9, 1.1), (2, 1.8, 2.1), (3, 2.7, 3.1), (10, 9.0, 10.1)] {
        let seconds = time_for_a_proof(count).as_secs_f64();
        let sources = 100.0 * FLOOD_PER_SECOND as f64 / count as f64;
        println!("{count:18} | {sources:16.0} | {seconds:19.2}");
        assert!((least..most).contains(&seconds), "{count}: {seconds}");
    }
}

#[test]
fn floods_of_forged_connections_keep_no_client_out() {
    let guessed = &b"\x41guessed."[..];
    assert_it_keeps_no_client_out("an Initial and a byte", &[BEGUN, b"x"], Duration::ZERO);
    assert_it_keeps_no_client_out("a guess", &[BEGUN, guessed], Duration::from_millis(100));
    let mut bundle = Vec::new();
    assert!(join(&[&[0x41; 45], &[0x42; 45]], &[], &mut bundle));
    assert_it_keeps_no_client_out("a bundle", &[&bundle], Duration::ZERO);
}

#[test]
fn one_source_with_many_ports_leaves_room_for_others() {
    let network = Network::new();
    let server = network.server();
    let mut few = config(&[&server]);
    few.maximum_sessions = 200;
    let gateway = network.gateway(few);
    for port in 1..=200 {
        gateway.receive_from(([10, 0, 0, 1], port).into(), b"one of many");
    }
    assert_eq!(gateway.metric("sessions_opened_total"), 100);
    assert_eq!(gateway.metric("sessions_refused_total"), 100);
    for _ in 0..20 {
        gateway.client().say(b"another");
    }
    assert_eq!(gateway.metric("sessions_opened_total"), 120);
}
