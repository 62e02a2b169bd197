//! Control datagrams: consumed by the gateway, never seen by the server, harmless whatever they
//! contain. What only begins like one is the server's, unless a session is there.

use packrat_client::{ClientConfig, Input, Shim};
use packrat_wire::control::{Control, FIRST_BYTE, PROTOCOL_VERSION};
use packrat_wire::estimate::Timestamp;
use packrat_wire::number;

use crate::client::Client;
use crate::gateway::{self, Gateway, config, payload, receive, socket};

fn garbage(seed: usize, length: usize) -> Vec<u8> {
    let mut bytes = payload(seed, length.max(5));
    bytes[..4].copy_from_slice(&[FIRST_BYTE, b'P', b'k', b'r']);
    bytes
}

#[test]
fn control_datagrams_never_reach_the_server_or_stop_forwarding() {
    let (server, gateway) = gateway::alone();
    let client = gateway.client();
    let mut sent = 0;
    for (seed, length) in
        [5, 6, 8, 16, 20, 21, 40, 64, 100, 500, 1200, 1472, 9000, 65_507].into_iter().enumerate()
    {
        for kind in 0..16u8 {
            let mut bytes = garbage(seed, length);
            assert!(packrat_wire::is_control(&bytes));
            bytes[4] = PROTOCOL_VERSION << 4 | kind;
            if Control::decode(&bytes).is_err() {
                continue;
            }
            client.send(&bytes).unwrap();
            sent += 1;
            gateway.wait_for("the control datagram", |gateway| {
                gateway.metric("control_received_total") == sent
            });
        }
        // The base connection, before, between and after.
        client.send(&payload(seed, 1200)).unwrap();
        let (received, upstream) = receive(&server);
        assert!(received == payload(seed, 1200), "something else reached the server");
        server.send_to(&payload(seed + 50, 1200), upstream).unwrap();
    }
    // What the gateway answers to clients is control too; everything else is the server's, in
    // order.
    let mut next = 0;
    while next < 14 {
        let (received, _) = receive(&client);
        if !packrat_wire::is_control(&received) {
            assert!(received == payload(next + 50, 1200));
            next += 1;
        }
    }
    assert_eq!(gateway.metric("to_server_datagrams_total"), 14);
    assert_eq!(gateway.metric("assistance_panics_total"), 0);
    assert!(gateway.metric("handshakes_total{result=\"malformed\"}") > 0);
}

/// Another protocol's datagrams may begin like control datagrams (docs/PROTOCOL.md, section 2).
#[test]
fn control_like_datagrams_are_forwarded_until_a_session_exists() {
    let (server, gateway) = gateway::alone();
    let lookalikes = || {
        (0..16u8)
            .flat_map(|kind| {
                [1, PROTOCOL_VERSION, PROTOCOL_VERSION + 1].map(|version| version << 4 | kind)
            })
            .filter_map(|byte| {
                let mut bytes = garbage(usize::from(byte), 12);
                bytes[4] = byte;
                Control::decode(&bytes).is_err().then_some(bytes)
            })
    };
    assert!(lookalikes().count() > 40);
    let stranger = gateway.client();
    // Of a client whose session the gateway has forgotten, numbered ones are to be understood.
    for lookalike in lookalikes().filter(|bytes| number::split(bytes).is_none()) {
        stranger.send(&lookalike).unwrap();
        let (received, upstream) = receive(&server);
        assert!(received == lookalike, "the server got something else");
        server.send_to(&lookalike, upstream).unwrap();
        assert!(receive(&stranger).0 == lookalike, "the client got something else");
    }
    assert_eq!(gateway.metric("control_received_total"), 0);

    let mut client = Client::new(gateway.listen);
    client.establish();
    client.socket.send(b"the base connection").unwrap();
    assert_eq!(receive(&server).0, b"the base connection");
    for lookalike in lookalikes() {
        client.socket.send(&lookalike).unwrap();
    }
    client.socket.send(b"goes on").unwrap();
    assert_eq!(receive(&server).0, b"goes on", "control reached the server");
}

#[test]
fn a_discover_is_answered_without_opening_a_session() {
    let (_server, gateway) = gateway::alone();
    let client = gateway.client();
    let mut discover = Vec::new();
    Control::Discover { nonce: 77, versions: &[PROTOCOL_VERSION], noise: &[] }
        .encode(&mut discover);
    client.send(&discover).unwrap();
    let (answer, _) = receive(&client);
    assert!(answer.len() <= discover.len());
    assert!(matches!(Control::decode(&answer), Ok(Control::Offer { nonce: 77, .. })));
    assert_eq!(gateway.metric("sessions_opened_total"), 0);
    gateway.wait_for("the counter", |gateway| {
        gateway.metric("handshakes_total{result=\"offered\"}") == 1
    });
}

#[test]
fn without_room_an_unproven_address_gets_only_a_cookie() {
    let server = socket("127.0.0.1:0");
    let mut small = config(&[&server]);
    // Clients that have not echoed a cookie get half of the room, which is no place here.
    small.maximum_sessions = 1;
    let gateway = Gateway::start("127.0.0.1:0", small);
    let client = gateway.client();
    let mut discover = Vec::new();
    Control::Discover { nonce: 78, versions: &[PROTOCOL_VERSION], noise: &[7; 48] }
        .encode(&mut discover);
    client.send(&discover).unwrap();
    let (answer, _) = receive(&client);
    assert!(matches!(Control::decode(&answer), Ok(Control::Offer { nonce: 78, .. })));
    gateway.wait_for("the counter", |gateway| {
        gateway.metric("handshakes_total{result=\"offered\"}") == 1
    });
    assert_eq!(gateway.metric("sessions_opened_total"), 0);
}

#[test]
fn a_route_without_assistance_says_so() {
    let server = socket("127.0.0.1:0");
    let mut plain = config(&[&server]);
    plain.assist = false;
    let gateway = Gateway::start("127.0.0.1:0", plain);
    let client = gateway.client();
    let mut discover = Vec::new();
    Control::Discover { nonce: 78, versions: &[PROTOCOL_VERSION], noise: &[] }
        .encode(&mut discover);
    client.send(&discover).unwrap();
    assert!(matches!(Control::decode(&receive(&client).0), Ok(Control::Refusal { nonce: 78, .. })));
    client.send(b"forward me").unwrap();
    assert_eq!(receive(&server).0, b"forward me");
    assert_eq!(gateway.metric("handshakes_total{result=\"refused_disabled\"}"), 1);
}

#[test]
fn a_batch_with_control_in_it_is_taken_apart() {
    use packrat_dataplane::ClientDatagrams;
    use packrat_dataplane::socket::Ecn;
    let (server, gateway) = gateway::alone();
    let client = gateway.client();
    let sealed = |seed| {
        let mut bytes = garbage(seed, 100);
        bytes[4] = PROTOCOL_VERSION << 4 | 8;
        bytes
    };
    let datagrams = [payload(1, 100), sealed(2), payload(3, 100), sealed(4), payload(5, 60)];
    let mut ingress = gateway.dataplane.ingress(&gateway.route, &gateway.attachments[0], 0);
    ingress.receive(&ClientDatagrams {
        client: client.local_addr().unwrap(),
        local: None,
        ecn: Ecn::NOT_CAPABLE,
        data: &datagrams.concat(),
        segment_size: 100,
    });
    for expected in [&datagrams[0], &datagrams[2], &datagrams[4]] {
        assert!(receive(&server).0 == **expected);
    }
    assert_eq!(gateway.metric("control_received_total"), 2);
    assert_eq!(gateway.metric("to_server_datagrams_total"), 3);
}

#[test]
fn a_client_is_told_how_much_of_its_first_flight_has_come() {
    let (server, gateway) = gateway::alone();
    let client = gateway.client();
    // Of three datagrams two get through, and the question behind them.
    let now = Timestamp::ZERO;
    let mut shim = Shim::<()>::new(ClientConfig::default(), [7; 32], now);
    shim.handle(Input::FirstFlightBegins, now);
    assert_eq!(shim.poll_transmit(now), None, "the flight goes first");
    for (number, arrives) in [(0, true), (1, false), (2, true)] {
        let datagram = payload(number, 1200);
        assert_eq!(shim.on_send(&datagram, now), None);
        if arrives {
            client.send(&datagram).unwrap();
            assert!(receive(&server).0 == datagram);
        }
    }
    shim.handle(Input::FirstFlightEnds, now);
    client.send(&shim.poll_transmit(now).unwrap()).unwrap();
    let (answer, _) = receive(&client);
    let _ = shim.on_datagram(&answer, (), now);
    let mut again = Vec::new();
    while let Some(datagram) = shim.poll_transmit(now) {
        again.push(datagram);
    }
    for number in 0..3 {
        assert!(again.contains(&payload(number, 1200)), "{number}");
    }
}
