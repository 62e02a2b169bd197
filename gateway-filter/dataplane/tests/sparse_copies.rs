//! Datagrams of sparse flows are sent twice to clients without a session, if the route is
//! configured so.

use std::net::{SocketAddr, UdpSocket};

use packrat_api::route::RouteConfig;
use packrat_client::ClientConfig;

use crate::client::{Client, transfer};
use crate::gateway::{Gateway, config, receive, socket};

fn copying(server: &UdpSocket) -> RouteConfig {
    let mut config = config(&[server]);
    config.sparse_copies = true;
    config
}

/// A client that has sent this hello, and its address at the server.
fn client(gateway: &Gateway, server: &UdpSocket, hello: &[u8]) -> (UdpSocket, SocketAddr) {
    let client = gateway.client();
    client.send(hello).unwrap();
    let (heard, upstream) = receive(server);
    assert_eq!(heard, hello);
    (client, upstream)
}

fn frame(number: u8) -> Vec<u8> {
    vec![number; 100]
}

#[test]
fn an_unaware_client_gets_each_sparse_datagram_twice() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", copying(&server));
    let (client, upstream) = client(&gateway, &server, &[7; 1200]);
    for number in 0..10 {
        server.send_to(&frame(number), upstream).unwrap();
        assert_eq!(receive(&client).0, frame(number));
        assert_eq!(receive(&client).0, frame(number), "the copy");
    }
    gateway.wait_for("copies", |gateway| gateway.metric("sparse_copies_total") == 10);
    assert_eq!(gateway.metric("sparse_copy_bytes_total"), 1000);
    assert_eq!(gateway.metric("repairs_total"), 0, "a copy is no repair");

    // Switched off while the flow is there, and on again.
    gateway.dataplane.configure(config(&[&server])).unwrap();
    client.send(b"again").unwrap();
    receive(&server);
    for number in 10..15 {
        server.send_to(&frame(number), upstream).unwrap();
        assert_eq!(receive(&client).0, frame(number));
    }
    gateway.dataplane.configure(copying(&server)).unwrap();
    client.send(&[8; 1200]).unwrap();
    receive(&server);
    server.send_to(&frame(15), upstream).unwrap();
    assert_eq!((receive(&client).0, receive(&client).0), (frame(15), frame(15)));
}

#[test]
fn an_unproven_address_gets_three_times_its_bytes() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", copying(&server));
    let (client, upstream) = client(&gateway, &server, &[7; 200]);
    // Two with their copies, one without, and all the others as they come.
    for (number, copies) in [(0, 2), (1, 2), (2, 2), (3, 1), (4, 1)] {
        server.send_to(&frame(number), upstream).unwrap();
        for _ in 0..copies {
            assert_eq!(receive(&client).0, frame(number));
        }
    }
    // The server's random value comes back: it is there.
    let question = [&[0xc3, 0, 0, 0, 1, 0, 8][..], b"chosen!!", &[1; 60]].concat();
    server.send_to(&question, upstream).unwrap();
    assert_eq!(receive(&client).0, question);
    client.send(&[&[0x41][..], b"chosen!!", &[2; 30]].concat()).unwrap();
    receive(&server);
    let mut got = Vec::new();
    server.send_to(&frame(5), upstream).unwrap();
    while got.iter().filter(|datagram| **datagram == frame(5)).count() < 2 {
        got.push(receive(&client).0);
    }
}

#[test]
fn what_comes_in_runs_counts_as_said_by_the_client() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", copying(&server));
    let (client, upstream) = client(&gateway, &server, &[7; 100]);
    // The gateway reads several at once.
    for _ in 0..50 {
        client.send(&[7; 100]).unwrap();
    }
    for _ in 0..50 {
        receive(&server);
    }
    for number in 0..20 {
        server.send_to(&frame(number), upstream).unwrap();
        assert_eq!((receive(&client).0, receive(&client).0), (frame(number), frame(number)));
    }
}

#[test]
fn a_client_with_a_session_gets_repairs_instead() {
    let server = socket("127.0.0.1:0");
    let gateway = Gateway::start("127.0.0.1:0", copying(&server));
    let mut client = Client::from("127.0.0.1:0", gateway.listen, ClientConfig::default());
    client.socket.send(&[7; 1200]).unwrap();
    let (_, upstream) = receive(&server);
    client.establish();
    transfer(&mut client, &server, upstream, 0..50);
    assert_eq!(gateway.metric("sparse_copies_total"), 0);
}
