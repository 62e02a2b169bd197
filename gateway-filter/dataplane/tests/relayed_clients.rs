//! Clients that move to another gateway of the same address, while theirs is still there: it keeps
//! the session, and their server sees no other path. In virtual time.
#![cfg(feature = "virtual-time")]

use std::net::SocketAddr;
use std::time::Duration;

use packrat_api::route::{Hidden, RouteConfig};
use packrat_client::ClientConfig;
use packrat_wire::bundle::join;
use packrat_wire::control::{Control, RefusalReason};
use packrat_wire::peer::{PeerKey, PeerKind, PeerMessage};
use packrat_wire::seal::session_of;

use crate::client::{self, Socket as _, transfer};
use crate::gateway::{config, payload, receive};
use crate::network::{Gateway, Network, Socket};

type Client = client::Client<Socket>;

/// Gateways with one key that know each other.
fn fleet(network: &Network, servers: &[&Socket], count: usize) -> Vec<Gateway> {
    let config = with_key(servers, []);
    let gateways: Vec<_> = (0..count).map(|_| network.gateway(config.clone())).collect();
    introduce(&gateways, servers);
    gateways
}

/// A server, and gateways with one key before it.
fn one_server(count: usize) -> (Network, Socket, Vec<Gateway>) {
    let network = Network::new();
    let server = network.server();
    let gateways = fleet(&network, &[&server], count);
    (network, server, gateways)
}

fn with_key(servers: &[&Socket], peers: impl IntoIterator<Item = SocketAddr>) -> RouteConfig {
    let mut config = config(servers);
    config.static_key = Some(Hidden::new("0f".repeat(32)));
    config.peers = peers.into_iter().collect();
    config
}

/// Gives each gateway the list of all these gateways.
fn introduce(gateways: &[Gateway], servers: &[&Socket]) {
    let config = with_key(servers, gateways.iter().map(|gateway| gateway.listen));
    for gateway in gateways {
        gateway.configure(config.clone());
    }
}

/// The client continues from another port behind this gateway.
fn go_to(client: &mut Client, gateway: &Gateway) {
    client.go_on_from(gateway.client());
    client.assist.on_network_change(client.now());
}

/// The address from which the server gets a datagram of the client's transport.
fn ask(client: &mut Client, server: &Socket, number: usize) -> SocketAddr {
    let question = [&[0x41, 0xff][..], &payload(number, 30)].concat();
    client.socket.say(&question);
    let mut from = None;
    client.take_part_until("the question at the server", |_| {
        while let Some((received, address)) = server.hear(Duration::ZERO) {
            from = (received == question).then_some(address).or(from);
        }
        from.is_some()
    });
    from.unwrap()
}

#[test]
fn a_client_between_gateways_keeps_its_session_and_server_path() {
    let (_, server, gateways) = one_server(3);
    let (mut client, upstream) = gateways[0].connect(&server);
    transfer(&mut client, &server, upstream, 0..200);
    let sessions = client.assist.stats().sessions;
    // Others, itself, and one that has relayed it before.
    for (step, gateway) in [1, 2, 0, 1, 1, 2].into_iter().enumerate() {
        go_to(&mut client, &gateways[gateway]);
        let from = ask(&mut client, &server, step);
        assert_eq!(from, upstream, "step {step}: the server sees another path");
        let repairs = gateways[0].metric("repairs_total");
        transfer(&mut client, &server, upstream, 1000 * (step + 1)..1000 * (step + 1) + 200);
        assert!(gateways[0].metric("repairs_total") >= repairs + 5, "step {step}: no repairs");
    }
    assert_eq!(client.assist.stats().sessions, sessions, "the session is the same");
    for relay in &gateways[1..] {
        assert_eq!(relay.metric("sessions_begun_total"), 0);
        assert!(relay.metric("sessions_relayed_total") >= 2);
        assert_eq!(relay.metric("sessions_taken_over_total"), 0);
    }
}

#[test]
fn a_relayed_clients_bundle_is_split_by_its_sessions_gateway() {
    let (_, server, gateways) = one_server(2);
    let (mut client, upstream) = gateways[0].connect(&server);
    go_to(&mut client, &gateways[1]);
    assert_eq!(ask(&mut client, &server, 1), upstream);
    let acknowledgements: [Vec<u8>; 2] = [5, 6].map(|seed| [b"@", &payload(seed, 30)[..]].concat());
    let mut bundle = Vec::new();
    assert!(join(&acknowledgements, b"", &mut bundle));
    client.socket.say(&bundle);
    let mut received = Vec::new();
    while received.len() < 2 {
        let (datagram, from) = receive(&server);
        assert_eq!(from, upstream);
        received.push(datagram);
    }
    assert_eq!(received, acknowledgements);
}

#[test]
fn a_relayed_client_continues_at_the_relay_after_its_gateway() {
    let network = Network::new();
    let servers = [(); 3].map(|()| network.server());
    let all: Vec<&Socket> = servers.iter().collect();
    let mut gateways = fleet(&network, &all, 2);
    let mut client = Client::on(gateways[0].client(), ClientConfig::default());
    client.socket.say(b"hello");
    // It may belong to another gateway's client, and waits for a word of that one.
    network.pass(Duration::from_millis(250));
    let heard = all.iter().find_map(|server| Some((*server, server.hear(Duration::ZERO)?.1)));
    let (server, upstream) = heard.unwrap();
    client.establish();
    go_to(&mut client, &gateways[1]);
    assert_eq!(ask(&mut client, server, 1), upstream);
    gateways.remove(0).shutdown();
    introduce(&gateways, &all);
    let begun = gateways[0].metric("sessions_begun_total");
    client.take_part_until("a session with the other gateway", |client| {
        client.is_established() && gateways[0].metric("sessions_begun_total") > begun
    });
    let upstream = ask(&mut client, server, 2);
    transfer(&mut client, server, upstream, 0..200);
    assert!(gateways[0].metric("repairs_total") >= 5);
}

/// The client's gateway is gone without a word, so that relayed datagrams are not refused; only the
/// list shows it.
#[test]
fn a_relay_ends_when_its_gateway_is_not_in_the_list_any_more() {
    let (_, server, gateways) = one_server(2);
    let (mut client, upstream) = gateways[0].connect(&server);
    transfer(&mut client, &server, upstream, 0..100);
    go_to(&mut client, &gateways[1]);
    assert_eq!(ask(&mut client, &server, 1), upstream);
    gateways[1].configure(with_key(&[&server], [gateways[1].listen]));
    let another = ask(&mut client, &server, 2);
    assert_ne!(another, upstream, "the gateway's own way to the server");
    client.take_part_until("a session with the other gateway", |client| {
        gateways[1].metric("sessions_begun_total") > 0 && client.is_established()
    });
    let upstream = ask(&mut client, &server, 3);
    transfer(&mut client, &server, upstream, 1000..1200);
    assert!(gateways[1].metric("repairs_total") >= 5);
}

/// A gateway that is gone without a word, or does not answer.
#[test]
fn a_client_that_no_gateway_knows_begins_anew_soon() {
    let (network, server, mut gateways) = one_server(2);
    let silent = network.server();
    let (mut client, _) = gateways[0].connect(&server);
    gateways.remove(0).shutdown();
    let peers = [gateways[0].listen, silent.address()];
    gateways[0].configure(with_key(&[&server], peers));
    go_to(&mut client, &gateways[0]);
    client.socket.say(&[0x41, 0xff, 1, 2, 3, 4, 5, 6, 7, 8]);
    client.take_part_until("a session", |client| {
        client.is_established() && gateways[0].metric("sessions_begun_total") > 0
    });
    let upstream = ask(&mut client, &server, 1);
    transfer(&mut client, &server, upstream, 0..100);
}

/// A sealed datagram that a client would send to its gateway now.
fn sealed(client: &mut Client) -> Vec<u8> {
    client.assist.on_network_change(client.now());
    loop {
        let message = client.withhold();
        if session_of(&message).is_some() {
            return message;
        }
    }
}

/// An attacker forges the address of a plain client, and names a session of its own.
#[test]
fn a_forged_datagram_leads_no_other_client_to_another_gateway() {
    let (network, server, gateways) = one_server(2);
    let (mut attacker, _) = gateways[0].connect(&server);
    let victim = gateways[1].client();
    victim.say(b"hello");
    let (_, upstream) = receive(&server);
    server.say_to(b"welcome", upstream);
    assert_eq!(receive(&victim).0, b"welcome");
    for _ in 0..3 {
        // From the victim's own socket: to the gateway it is all the same.
        victim.say(&sealed(&mut attacker));
    }
    assert_eq!(gateways[1].metric("control_received_total"), 3);
    network.pass(Duration::from_millis(100));
    victim.say(b"question");
    let (question, from) = receive(&server);
    assert_eq!((question.as_slice(), from), (&b"question"[..], upstream));
    assert_eq!(gateways[1].metric("sessions_relayed_total"), 0);
    assert_eq!(gateways[1].metric("inquiries_total"), 0);
}

/// Two gateways, and a client of the second whose NAT's port an attacker has foreseen: the second takes it for a
/// client of the first.
fn named_before(network: &Network, server: &Socket) -> (Vec<Gateway>, Socket) {
    let gateways = fleet(network, &[server], 2);
    let (mut attacker, _) = gateways[0].connect(server);
    let victim = gateways[1].client();
    victim.say(&sealed(&mut attacker));
    gateways[1].wait_for("the relay", |gateway| gateway.metric("sessions_relayed_total") == 1);
    (gateways, victim)
}

/// The attacker foresees the port which a NAT will give the victim, and is there first. `sent`: the victim's
/// datagrams, whatever their form, with these ones in them.
fn assert_it_reaches_its_own_server(moved: &[Vec<u8>], sent: &[Vec<u8>]) {
    let network = Network::new();
    let server = network.server();
    let (gateways, victim) = named_before(&network, &server);
    sent.iter().for_each(|datagram| victim.say(datagram));
    let from: Vec<_> = moved
        .iter()
        .map(|datagram| {
            let (received, from) = receive(&server);
            assert_eq!(received, *datagram);
            from
        })
        .collect();
    server.say_to(b"answer", *from.last().unwrap());
    // (what the gateway of the attacker has sent there has been dropped by its host, or is first)
    while receive(&victim).0 != b"answer" {}
    assert_eq!(gateways[0].metric("sessions"), 1, "nothing of the victim's has come there");
    assert_eq!(gateways[1].metric("datagrams_waited_in_vain_total"), moved.len() as u64);
}

fn short_headers(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| [&[0x41][..], &payload(number, 40)].concat()).collect()
}

/// A datagram with a number in front, as the session of a client has it that has moved.
fn numbered(base: &[u8]) -> Vec<u8> {
    let datagram = [&[0x0b, b'P', b'k', b'r', 0x29, 1, 2, base[1]][..], base].concat();
    assert!(packrat_wire::number::split(&datagram).is_some_and(|(_, found)| found == base));
    datagram
}

fn bundled(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut bundle = Vec::new();
    assert!(join(datagrams, &[], &mut bundle));
    bundle
}

#[test]
fn a_client_at_a_previously_named_address_reaches_its_server() {
    let moved = short_headers(4);
    assert_it_reaches_its_own_server(&moved, &moved);
    let numbered: Vec<_> = moved.iter().map(|base| numbered(base)).collect();
    assert_it_reaches_its_own_server(&moved, &numbered);
    let bundles: Vec<_> = moved.chunks(2).map(bundled).collect();
    assert_it_reaches_its_own_server(&moved, &bundles);
}

/// A client at a previously named address reaches its own server, in order, even if more datagrams
/// come than may wait.
#[test]
fn such_a_client_reaches_its_server_in_order_despite_overflow() {
    let moved = short_headers(80);
    let sent = moved.chunks(2).flat_map(|two| [numbered(&two[0]), two[1].clone()]);
    let network = Network::new();
    let server = network.server();
    let (gateways, victim) = named_before(&network, &server);
    sent.for_each(|datagram| victim.say(&datagram));
    let received: Vec<_> = moved.iter().map(|_| receive(&server).0).collect();
    assert_eq!(received, moved);
    assert_eq!(gateways[0].metric("sessions"), 1);
}

/// Anyone who can reach the listener can write to it.
#[test]
fn gateways_believe_each_other_alone() {
    let (_, server, gateways) = one_server(2);
    let (mut client, _) = gateways[0].connect(&server);
    let session = session_of(&sealed(&mut client)).unwrap();
    let key = PeerKey::new(&[0x0f; 32]);
    let stranger = gateways[0].client();
    for kind in [PeerKind::Inquiry, PeerKind::Mine] {
        let message = PeerMessage { kind, nonce: 7, session };
        // Even with the key: from an address that is no gateway's.
        stranger.say(&key.seal(&message));
        assert_eq!(stranger.hear(Duration::from_secs(10)), None, "it was answered");
    }
    assert_eq!(gateways[0].metric("control_dropped_total"), 2);
    assert_eq!(gateways[0].metric("sessions"), 1, "nothing was opened for it");
}

/// Clients that all move at once, among gateways that become fewer and more.
#[test]
fn gateways_that_come_and_go_keep_every_client_at_its_server() {
    let (network, server, mut gateways) = one_server(3);
    let mut clients: Vec<(Client, SocketAddr)> =
        (0..6).map(|number| gateways[number % 3].connect(&server)).collect();
    let mut changed = 0;
    for step in 0..6 {
        match step {
            2 => {
                gateways.remove(0).shutdown();
                introduce(&gateways, &[&server]);
            }
            4 => {
                let config = with_key(&[&server], []);
                gateways.push(network.gateway(config));
                introduce(&gateways, &[&server]);
            }
            _ => {}
        }
        for (number, (client, upstream)) in clients.iter_mut().enumerate() {
            go_to(client, &gateways[(number + step) % gateways.len()]);
            let from = ask(client, &server, 100 * step + number);
            changed += usize::from(from != *upstream);
            *upstream = from;
        }
    }
    // Clients of the gateway that has ended have another path to the server, once.
    assert!(changed <= 4, "{changed} changes of path in 36 moves");
}

/// The next message that another gateway has been sent, and its sender.
fn peer_message(gateway: &Socket, key: &PeerKey) -> (PeerMessage, SocketAddr) {
    let (datagram, from) = receive(gateway);
    (key.open(&datagram).expect("a message of a gateway"), from)
}

/// A relay that another session has displaced is still read, for its gateway's datagrams in flight.
#[test]
fn a_former_relays_late_message_moves_no_present_client() {
    let (network, server, gateways) = one_server(1);
    let key = PeerKey::new(&[0x0f; 32]);
    let others = [(); 2].map(|()| network.server());
    let peers = others.iter().map(Socket::address).chain([gateways[0].listen]);
    gateways[0].configure(with_key(&[&server], peers));
    let (mut client, upstream) = gateways[0].connect(&server);
    // A client names a session, at this path, and one of the other gateways answers that it has it.
    // Returns the session, and the relay's address.
    let path = gateways[0].client();
    let relay_to = |home: usize, sealed: &[u8], id: u8| {
        let mut sealed = sealed.to_vec();
        sealed[5..9].fill(id);
        path.say(&sealed);
        let asked = others.each_ref().map(|other| peer_message(other, &key).0);
        let mine = PeerMessage { kind: PeerKind::Mine, ..asked[home] };
        others[home].say_to(&key.seal(&mine), gateways[0].listen);
        let (relayed, relay) = receive(&others[home]);
        assert_eq!(relayed, sealed);
        (asked[home], relay)
    };
    let sealed = sealed(&mut client);
    let (former, former_relay) = relay_to(0, &sealed, 1);
    // Another client gets the path, and leaves it.
    client.go_on_from(path.again());
    client.assist.on_network_change(client.now());
    assert_eq!(ask(&mut client, &server, 1), upstream);
    go_to(&mut client, &gateways[0]);
    assert_eq!(ask(&mut client, &server, 2), upstream);
    // A third one comes, whose session the other gateway has. (A path asks once a second.)
    network.pass(Duration::from_secs(1));
    let question = [&[0x41][..], &payload(3, 20)].concat();
    path.say(&question);
    let (current, relay) = relay_to(1, &sealed, 2);
    let moved = |relay: PeerMessage| key.seal(&PeerMessage { kind: PeerKind::Moved, ..relay });
    others[0].say_to(&moved(former), former_relay);
    others[1].say_to(&moved(current), relay);
    assert_eq!(receive(&others[1]), (question, relay));
    let wrong = others[0].hear(Duration::from_secs(10));
    assert_eq!(wrong, None, "the former gateway has got what waits for the other one's word");
}

/// A gateway, a double of another one, and the key of their messages.
fn beside_a_double(network: &Network, server: &Socket) -> (Vec<Gateway>, Socket, PeerKey) {
    let gateways = fleet(network, &[server], 1);
    let double = network.server();
    let peers = [gateways[0].listen, double.address()];
    gateways[0].configure(with_key(&[server], peers));
    (gateways, double, PeerKey::new(&[0x0f; 32]))
}

/// One who reads and writes on the gateways' network has the Moved of another session's relay, of an earlier
/// relay of the same session, and of the one to which it belongs.
#[test]
fn a_moved_proves_the_relay_and_session_it_was_asked_for() {
    let network = Network::new();
    let server = network.server();
    let (gateways, home, key) = beside_a_double(&network, &server);
    let (mut client, _) = gateways[0].connect(&server);
    let mut sealed = sealed(&mut client);
    sealed[5..9].fill(1);
    // A client comes whose session the other gateway has.
    let come = || {
        let path = gateways[0].client();
        path.say(&sealed);
        let asked = peer_message(&home, &key).0;
        home.say_to(&key.seal(&PeerMessage { kind: PeerKind::Mine, ..asked }), gateways[0].listen);
        let relay = receive(&home).1;
        // It proves its address. The gateway asks whether it has.
        path.say(&sealed);
        assert_eq!(receive(&home), (sealed.clone(), relay));
        let arrival = PeerMessage { kind: PeerKind::Arrival, ..asked };
        assert_eq!(peer_message(&home, &key), (arrival, relay));
        (path, relay, PeerMessage { kind: PeerKind::Moved, ..asked })
    };
    let (first, first_relay, earlier) = come();
    let question = |number| [&[0x41][..], &payload(number, 20)].concat();
    first.say(&question(1));
    home.say_to(&key.seal(&earlier), first_relay);
    assert_eq!(receive(&home), (question(1), first_relay));
    let (second, second_relay, own) = come();
    second.say(&question(2));
    let other = PeerMessage { session: packrat_wire::SessionId::new(7), ..own };
    for replayed in [earlier, other, PeerMessage { nonce: 0, ..own }] {
        home.say_to(&key.seal(&replayed), second_relay);
        assert_eq!(home.hear(Duration::from_millis(20)), None, "{replayed:?} has proved it");
    }
    home.say_to(&key.seal(&own), second_relay);
    assert_eq!(receive(&home), (question(2), second_relay));
}

/// The gateway that has the session answers to where its client is, and not elsewhere.
#[test]
fn an_arrival_is_confirmed_where_the_client_is_alone() {
    let network = Network::new();
    let server = network.server();
    let (gateways, _other, key) = beside_a_double(&network, &server);
    let relay = network.server();
    let mut client = Client::on(gateways[0].client(), ClientConfig::default());
    client.establish();
    let session = session_of(&sealed(&mut client)).unwrap();
    let message = PeerMessage { kind: PeerKind::Arrival, nonce: 7, session };
    let arrival = key.seal(&message);
    relay.say_to(&arrival, gateways[0].listen);
    assert_eq!(relay.hear(Duration::from_secs(1)), None, "its client is elsewhere");
    // Now it is behind the other gateway.
    relay.connect(gateways[0].listen);
    client.go_on_from(relay.again());
    client.assist.on_network_change(client.now());
    ask(&mut client, &server, 1);
    let others = PeerMessage { session: packrat_wire::SessionId::new(!session.get()), ..message };
    let datagrams = [key.seal(&others), arrival];
    datagrams.iter().for_each(|datagram| relay.say_to(datagram, gateways[0].listen));
    let heard = std::iter::from_fn(|| relay.hear(Duration::from_secs(1)));
    let answers: Vec<_> = heard.filter_map(|(answer, _)| key.open(&answer)).collect();
    assert_eq!(answers, [PeerMessage { kind: PeerKind::Moved, ..message }]);
}

/// Clients that move while the secret of the gateways changes, which the gateways hear of one after the other.
#[test]
fn a_change_of_the_gateways_secret_ends_and_delays_no_session() {
    let (_, server, gateways) = one_server(2);
    let (mut client, upstream) = gateways[0].connect(&server);
    let sessions = client.assist.stats().sessions;
    let secrets = |gateway: &Gateway, secrets: &[&str]| {
        let mut config = with_key(&[&server], gateways.iter().map(|gateway| gateway.listen));
        config.peer_keys = secrets.iter().map(|secret| Hidden::new(secret.repeat(32))).collect();
        gateway.configure(config);
    };
    let mut number = 0;
    let mut move_about = |client: &mut Client| {
        for gateway in [1, 0, 1] {
            go_to(client, &gateways[gateway]);
            number += 1;
            assert_eq!(ask(client, &server, number), upstream, "move {number}");
        }
    };
    for gateway in &gateways {
        secrets(gateway, &["01"]);
    }
    move_about(&mut client);
    for step in [&["01", "02"][..], &["02", "01"], &["02"]] {
        for gateway in &gateways {
            secrets(gateway, step);
            move_about(&mut client);
        }
    }
    assert_eq!(client.assist.stats().sessions, sessions, "the session is the same");
    assert_eq!(gateways[1].metric("sessions_begun_total"), 0);
    // Without an announcement they would not understand each other.
    secrets(&gateways[0], &["03"]);
    go_to(&mut client, &gateways[1]);
    client.take_part_until("a session with the other gateway", |_| {
        gateways[1].metric("sessions_begun_total") == 1
    });
}

/// The last mile of a client may be slow, and its next message be late or lost.
#[test]
fn a_silent_client_is_refused_when_a_gateway_does_not_answer() {
    let (network, server, gateways) = one_server(1);
    let silent = network.server();
    let (mut client, _) = gateways[0].connect(&server);
    let peers = [gateways[0].listen, silent.address()];
    gateways[0].configure(with_key(&[&server], peers));
    let mut unknown = sealed(&mut client);
    unknown[5..9].fill(7);
    let stranger = gateways[0].client();
    stranger.say(&unknown);
    let (refusal, _) = receive(&stranger);
    let Ok(Control::Refusal { nonce, reason, .. }) = Control::decode(&refusal) else {
        panic!("no refusal: {refusal:?}")
    };
    assert_eq!((nonce.to_be_bytes().as_slice(), reason), (&unknown[5..13], RefusalReason::Session));
}
