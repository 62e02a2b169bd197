//! Assistance over real sockets: a client with Packrat's core gets repaired what its last mile
//! loses.

use packrat_client::{AssistState, Datagram, PacketNumber};

use crate::client::{self, Arrivals, Client, connect, encrypted, transfer_until_repaired};
use crate::gateway::{self, Gateway, config, receive, socket};

#[test]
fn what_the_last_mile_loses_is_repaired_unchanged() {
    let (server, gateway) = gateway::alone();
    let (mut client, upstream) = connect(gateway.listen, &server);
    assert_eq!(gateway.metric("sessions_assisted"), 1);

    // On a busy host a queue seems to stand now and then, whose losses the gateway leaves to the
    // server.
    let mut first = 0;
    while gateway.metric("repairs_total") < 10 {
        let mut arrivals = Arrivals::new(first..first + 200, client.now());
        client.turn_until("all datagrams", |client, received| {
            let now = client.now();
            let Some(datagram) = received else {
                arrivals.send(&server, upstream, now);
                return arrivals.are_complete();
            };
            let number = arrivals.number(&datagram);
            if number.is_some_and(|number| !arrivals.arrive(number, now)) {
                return false;
            }
            let is_base = client.assist.on_datagram(&datagram, now) == Datagram::Base;
            // Late repairs are of an earlier round.
            let is_known = |number: usize| datagram == encrypted(number);
            assert_eq!(is_base, number.is_some() || (0..first).any(is_known), "{first}");
            if let Some(number) = number {
                client.assist.on_packet_number(PacketNumber::new(number as u64), now);
            }
            arrivals.are_complete()
        });
        first += 200;
        assert!(first < 20_000, "nothing is repaired: {:?}", client.assist.stats());
    }
    assert_eq!(gateway.metric("assistance_panics_total"), 0);
    assert_eq!(gateway.metric("resets_total{side=\"gateway\",reason=\"decode_failed\"}"), 0);
    assert!(gateway.metric("cache_high_water_bytes") > 0);
    // Control datagrams went to the gateway alone.
    server.set_nonblocking(true).unwrap();
    assert!(server.recv_from(&mut [0; 10]).is_err());
}

/// A client that has echoed no cookie proves the session with its first message. Datagrams that
/// pass until then are in its set.
#[test]
#[cfg(feature = "virtual-time")]
fn losses_before_the_session_is_proven_are_repaired() {
    use crate::client::Socket as _;
    use crate::network;
    use packrat_client::ClientConfig;

    let (_, server, gateway) = network::alone();
    let mut client = Client::on(gateway.client(), ClientConfig::default());
    client.socket.say(b"hello");
    let (_, upstream) = receive(&server);
    client.turn_until("the session, of which the gateway is not told yet", |client, received| {
        let Some(answer) = received else { return false };
        client.assist.on_datagram(&answer, client.now()) == Datagram::Control
            && client.assist.stats().state == AssistState::Established
    });
    assert_eq!(gateway.metric("sessions_assisted"), 0);
    for number in 0..60 {
        server.say_to(&encrypted(number), upstream);
        let (datagram, _) = receive(&client.socket);
        assert_eq!(datagram, encrypted(number));
        if number != 50 {
            let now = client.now();
            client.assist.on_datagram(&datagram, now);
            client.assist.on_packet_number(PacketNumber::new(number as u64), now);
        }
    }
    client.turn_until("the repair", |client, received| {
        let Some(datagram) = received else { return false };
        client.assist.on_datagram(&datagram, client.now());
        datagram == encrypted(50)
    });
    assert_eq!(gateway.metric("repairs_total"), 1);
    assert_eq!(gateway.metric("resets_total{side=\"gateway\",reason=\"decode_failed\"}"), 0);
}

#[test]
fn a_session_that_ends_says_goodbye_and_frees_its_cache() {
    let (server, gateway) = gateway::alone();
    let (mut client, upstream) = connect(gateway.listen, &server);
    for number in 0..50 {
        server.send_to(&encrypted(number), upstream).unwrap();
    }
    gateway.wait_for("cached datagrams", |gateway| gateway.metric("cache_bytes") > 0);
    gateway.dataplane.shutdown();
    assert_eq!(gateway.metric("cache_bytes"), 0);
    assert_eq!(gateway.metric("sessions_assisted"), 0);
    client.wait_for_goodbye();
}

#[test]
fn switching_assistance_off_ends_it_and_forwarding_goes_on() {
    let (server, gateway) = gateway::alone();
    let (mut client, upstream) = connect(gateway.listen, &server);
    let mut plain = config(&[&server]);
    plain.assist = false;
    gateway.dataplane.configure(plain).unwrap();
    // Without a word from the client.
    gateway.wait_for("the end of assistance", |gateway| gateway.metric("sessions_assisted") == 0);
    client.wait_for_goodbye();
    client.socket.send(b"still here").unwrap();
    assert_eq!(receive(&server), (b"still here".to_vec(), upstream));
    server.send_to(b"answer", upstream).unwrap();
    client.turn_until("the answer", |_, received| {
        received.is_some_and(|datagram| datagram == b"answer")
    });
}

#[test]
fn a_draining_gateway_assists_only_its_current_clients() {
    let (server, gateway) = gateway::alone();
    let mut clients: Vec<_> = (0..10).map(|_| connect(gateway.listen, &server)).collect();
    assert_eq!(gateway.metric("sessions_assisted"), 10);
    gateway.dataplane.drain();
    let repairs = || gateway.metric("repairs_total");
    for (client, upstream) in &mut clients {
        // One datagram in twenty is lost on the way, and repaired.
        transfer_until_repaired(client, &server, *upstream, 0, repairs);
        client.socket.send(b"still here").unwrap();
        assert_eq!(receive(&server), (b"still here".to_vec(), *upstream));
        server.send_to(b"answer", *upstream).unwrap();
        let answered = |_: &mut client::Client, received: Option<Vec<u8>>| {
            received.is_some_and(|it| it == b"answer")
        };
        client.turn_until("the answer", answered);
    }
    // No client begins any more, whatever the configuration becomes; new clients are forwarded.
    let mut other = config(&[&server]);
    other.repair_budget = 0.5;
    gateway.dataplane.configure(other).unwrap();
    let mut late = client::Client::new(gateway.listen);
    late.socket.send(b"new").unwrap();
    assert_eq!(receive(&server).0, b"new");
    late.take_part_until("the refusal", |client| {
        client.assist.stats().state == packrat_client::AssistState::Refused
    });
    assert!(gateway.metric("handshakes_total{result=\"refused_disabled\"}") > 0);
    assert_eq!((gateway.metric("sessions"), gateway.metric("sessions_assisted")), (11, 10));
    // At the end all clients are notified.
    gateway.dataplane.shutdown();
    clients.iter_mut().for_each(|(client, _)| client.wait_for_goodbye());
}

/// As after its Service has been taken off the gateway.
#[test]
fn a_draining_route_serves_only_its_current_clients() {
    let (server, gateway) = gateway::alone();
    let (mut client, upstream) = connect(gateway.listen, &server);
    let mut going = config(&[&server]);
    going.new_clients = false;
    gateway.dataplane.configure(going).unwrap();
    let repairs = || gateway.metric("repairs_total");
    transfer_until_repaired(&mut client, &server, upstream, 0, repairs);
    assert_eq!(gateway.metric("sessions_assisted"), 1);
    let late = client::Client::new(gateway.listen);
    late.socket.send(b"new").unwrap();
    gateway.wait_for("the refusal", |gateway| gateway.metric("sessions_refused_total") > 0);
    assert_eq!(gateway.metric("sessions"), 1);
    server.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2000];
    while let Ok((length, from)) = server.recv_from(&mut buffer) {
        assert!(from == upstream && &buffer[..length] != b"new");
    }
}

#[test]
fn clients_beyond_their_sources_limit_are_forwarded_plainly() {
    let server = socket("127.0.0.1:0");
    let mut limited = config(&[&server]);
    limited.sessions_per_source = 2;
    let gateway = Gateway::start("127.0.0.1:0", limited);
    let _assisted = [connect(gateway.listen, &server), connect(gateway.listen, &server)];
    let mut third = client::Client::new(gateway.listen);
    third.socket.send(b"plain").unwrap();
    let (datagram, upstream) = receive(&server);
    assert_eq!(datagram, b"plain");
    third.take_part_until("the refusal", |client| {
        client.assist.stats().state == packrat_client::AssistState::Refused
    });
    gateway.wait_for("the counter", |gateway| {
        gateway.metric("handshakes_total{result=\"refused_full\"}") > 0
    });
    assert_eq!(gateway.metric("sessions_assisted"), 2);
    server.send_to(b"answer", upstream).unwrap();
    let answered = |_: &mut client::Client, received: Option<Vec<u8>>| {
        received.is_some_and(|it| it == b"answer")
    };
    third.turn_until("the answer", answered);
}

#[test]
fn a_client_that_restarts_on_the_same_path_is_assisted_again() {
    let (server, gateway) = gateway::alone();
    let (mut client, upstream) = connect(gateway.listen, &server);
    for again in 0..3u8 {
        let first = usize::from(again) * 1_000_000;
        let repairs = || gateway.metric("repairs_total");
        transfer_until_repaired(&mut client, &server, upstream, first, repairs);
        assert_eq!(gateway.metric("sessions_begun_total"), u64::from(again) + 1);
        // Like an application that is started again behind the same port.
        client.begin_again([100 + again; 32]);
    }
    assert_eq!(gateway.metric("sessions"), 1);
    assert_eq!(gateway.metric("sessions_assisted"), 1);
    assert_eq!(gateway.metric("handshakes_total{result=\"refused_session\"}"), 0);
    assert_eq!(gateway.metric("resets_total{side=\"gateway\",reason=\"decode_failed\"}"), 0);
    gateway.dataplane.shutdown();
    assert_eq!((gateway.metric("sessions_assisted"), gateway.metric("cache_bytes")), (0, 0));
}
