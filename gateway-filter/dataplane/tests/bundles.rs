//! Bundles of a client's datagrams: each of them reaches the server as if it had come alone.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use packrat_dataplane::socket::{
    Destination, Ecn, Family, GsoBatch, Offload, ReceiveBatch, Sender, WhenFull, listener_options,
};
use packrat_wire::bundle::join;

use crate::client::{Client, connect, encrypted};
use crate::gateway::{self, Gateway, PATIENCE, config, receive, socket};

/// Acknowledgements as QUIC's look.
const ACKNOWLEDGEMENTS: [&[u8]; 3] = [&[0x41; 30], &[0x42; 25], &[0x43; 38]];

fn bundle(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(join(&ACKNOWLEDGEMENTS, message, &mut out));
    out
}

/// The datagrams that the server gets, with their marks and senders.
fn receive_marked(server: &UdpSocket, count: usize) -> Vec<(Vec<u8>, Ecn, SocketAddr)> {
    let (mut batch, mut received) = (ReceiveBatch::new(8), Vec::new());
    let start = std::time::Instant::now();
    while received.len() < count {
        assert!(start.elapsed() < PATIENCE, "{} of {count}", received.len());
        if batch.receive(server.as_fd()).is_err() {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        for message in batch.messages() {
            for datagram in message.datagrams() {
                received.push((datagram.to_vec(), message.ecn, message.source.unwrap()));
            }
        }
    }
    received
}

fn send_marked(socket: &UdpSocket, datagram: &[u8], mark: Ecn) {
    let destination = Destination {
        address: None,
        source: None,
        family: Family::of(&socket.local_addr().unwrap()),
        leaves_as_v4: true,
        when_full: WhenFull::Wait,
    };
    let batch = GsoBatch::single(datagram, mark);
    Sender::default().send(socket.as_fd(), &Offload::default(), &destination, &[batch]);
}

/// The client's next eACK.
fn next_eack(client: &mut Client, server: &UdpSocket, upstream: SocketAddr) -> Vec<u8> {
    server.send_to(&encrypted(7), upstream).unwrap();
    let mut eack = None;
    client.turn_until("a datagram of the server's", |client, received| {
        let Some(datagram) = received else { return false };
        let now = client.now();
        client.assist.on_datagram(&datagram, now);
        if datagram != encrypted(7) {
            return false;
        }
        client.assist.on_authentic(now);
        let later = now + Duration::from_millis(20);
        client.assist.handle_timeout(later);
        eack = client.assist.poll_transmit(later);
        true
    });
    eack.expect("an eACK is due")
}

/// All datagrams of a bundle arrive in order with its mark, and the gateway receives the message.
#[test]
fn a_bundle_arrives_completely_in_order_with_mark_and_message() {
    let server = socket("127.0.0.1:0");
    listener_options(server.as_fd(), true).unwrap();
    let gateway = Gateway::start("127.0.0.1:0", config(&[&server]));
    let (mut client, upstream) = connect(gateway.listen, &server);
    for mark in [Ecn::NOT_CAPABLE, Ecn::CAPABLE_0, Ecn::CONGESTION] {
        let eack = next_eack(&mut client, &server, upstream);
        let before = gateway.metric("eacks_received_total");
        send_marked(&client.socket, &bundle(&eack), mark);
        let received = receive_marked(&server, 3);
        assert_eq!(received, ACKNOWLEDGEMENTS.map(|one| (one.to_vec(), mark, upstream)));
        gateway.wait_for("the eACK", |gateway| gateway.metric("eacks_received_total") > before);
    }
    // The same message again is a replay; the server has to judge the datagram in front of it.
    let eack = next_eack(&mut client, &server, upstream);
    for _ in 0..2 {
        client.socket.send(&bundle(&eack)).unwrap();
    }
    assert_eq!(receive_marked(&server, 6).len(), 6);
    assert_eq!(gateway.metric("assistance_panics_total"), 0);
}

#[test]
fn of_a_bundle_without_a_session_one_datagram_goes_on() {
    let (server, gateway) = gateway::alone();
    // Its session is over, or with another gateway: the message belongs to no session here.
    let stranger = gateway.client();
    stranger.send(&bundle(b"\x0bPkr\x28 of another session, and long enough for a seal")).unwrap();
    // The newest acknowledgement is enough, and a forged source has no more of the gateway.
    assert_eq!(receive(&server).0, ACKNOWLEDGEMENTS[2]);
    stranger.send(b"next").unwrap();
    assert_eq!(receive(&server).0, b"next");
}

/// A datagram that only begins like a bundle is the base connection's, or dropped.
#[test]
fn a_bundles_beginning_alone_is_forwarded_or_dropped() {
    let (server, gateway) = gateway::alone();
    let mut broken = bundle(b"");
    broken[5] = 200;
    // Without a session it belongs to a protocol that this gateway does not know.
    let stranger = gateway.client();
    stranger.send(&broken).unwrap();
    assert_eq!(receive(&server).0, broken);
    // With one it is a message that the gateway does not understand.
    let (client, _) = connect(gateway.listen, &server);
    let before = gateway.metric("control_received_total");
    client.socket.send(&broken).unwrap();
    gateway.wait_for("the message", |gateway| gateway.metric("control_received_total") > before);
    client.socket.send(b"@next").unwrap();
    assert_eq!(receive(&server).0, b"@next");
}
