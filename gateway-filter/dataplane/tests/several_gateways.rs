//! Clients that move to another address, and with it from one of several gateways to another.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail anywhere

mod client;
mod gateway;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use client::{Client, transfer};
use gateway::{Gateway, PATIENCE, config, socket};
use packrat_api::route::Hidden;
use packrat_client::{AssistState, ClientConfig};

/// Servers behind every gateway.
const SERVERS: usize = 4;

fn servers() -> Vec<UdpSocket> {
    let servers: Vec<_> = (0..SERVERS).map(|_| socket("127.0.0.1:0")).collect();
    servers.iter().for_each(|server| server.set_nonblocking(true).unwrap());
    servers
}

fn gateway(servers: &[UdpSocket], key: &str) -> Gateway {
    let mut config = config(&servers.iter().collect::<Vec<_>>());
    config.static_key = Some(Hidden::new(key.repeat(32)));
    Gateway::start("127.0.0.1:0", config)
}

/// The first datagram that comes to any of the servers: which of them, and from where.
fn first(servers: &[UdpSocket]) -> (usize, Vec<u8>, std::net::SocketAddr) {
    let (start, mut buffer) = (Instant::now(), [0; 2000]);
    loop {
        for (number, server) in servers.iter().enumerate() {
            if let Ok((length, from)) = server.recv_from(&mut buffer) {
                return (number, buffer[..length].to_vec(), from);
            }
        }
        assert!(start.elapsed() < PATIENCE, "no server has received anything");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An address whose clients get another server than `server`, at gateways that know nothing of them.
fn address_of_another_server(servers: &[UdpSocket], gateway: &Gateway, server: usize) -> String {
    for host in 2..100 {
        let local = format!("127.0.0.{host}:0");
        gateway.client_from(&local).send(b"who").unwrap();
        if first(servers).0 != server {
            return local;
        }
    }
    panic!("all addresses have the same server");
}

/// An assisted client that a gateway has given a server; which, and where the server sees it.
fn assisted(servers: &[UdpSocket], gateway: &Gateway) -> (Client, usize, std::net::SocketAddr) {
    let mut client = Client::with(gateway.listen, ClientConfig::default());
    client.socket.send(b"hello").unwrap();
    let (server, _, upstream) = first(servers);
    client.establish();
    transfer(&mut client, &servers[server], upstream, 0..200);
    (client, server, upstream)
}

/// The client goes on from `local`, behind `gateway`. Returns the servers that its datagrams come to.
fn moves(servers: &[UdpSocket], client: &mut Client, gateway: &Gateway, local: &str) -> Vec<usize> {
    let sessions = gateway.metric("sessions_begun_total");
    client.socket = gateway.client_from(local);
    client.socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    // Its transport goes on before it knows that anything has changed.
    for number in 0..10 {
        client.socket.send(&[0x41, 0xff, number, 1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
    }
    client.turn_until("a session with the other gateway", |client, received| {
        if let Some(datagram) = received {
            client.assist.on_datagram(&datagram, client.now());
        }
        client.assist.stats().state == AssistState::Established
            && gateway.metric("sessions_begun_total") > sessions
    });
    let mut reached = Vec::new();
    while reached.len() < 10 {
        let (server, datagram, _) = first(servers);
        if datagram.len() == 12 {
            reached.push(server);
        }
    }
    reached
}

#[test]
fn a_client_whose_address_changes_finds_its_server_through_another_gateway() {
    let servers = servers();
    let gateways = ["0f", "0f", "0f"].map(|key| gateway(&servers, key));
    let (mut client, server, _) = assisted(&servers, &gateways[0]);
    let elsewhere = address_of_another_server(&servers, &gateways[0], server);
    for (moved, gateway) in gateways[1..].iter().enumerate() {
        // The third gateway's word is the second one's: the ticket is that of its session.
        assert_eq!(moves(&servers, &mut client, gateway, &elsewhere), [server; 10]);
        assert_eq!(gateway.metric("sessions_taken_over_total"), 1);
        client.socket.send(b"anything").unwrap();
        let (reached, _, upstream) = first(&servers);
        assert_eq!(reached, server);
        let repairs = gateway.metric("repairs_total");
        let numbers = 1000 * (moved + 1)..1000 * (moved + 1) + 200;
        transfer(&mut client, &servers[server], upstream, numbers);
        assert!(gateway.metric("repairs_total") >= repairs + 5, "no repairs after the move");
    }
    // Without a ticket that it can read a gateway goes by the address.
    let stranger = self::gateway(&servers, "aa");
    let reached = moves(&servers, &mut client, &stranger, &elsewhere);
    assert!(reached.iter().all(|reached| *reached != server), "{reached:?}");
    assert_eq!(stranger.metric("sessions_taken_over_total"), 0);
}

/// The messages that say so are lost, or late: its datagrams have begun a session with another server.
#[test]
fn a_client_whose_datagrams_were_there_long_before_its_ticket_gets_its_server_back() {
    let servers = servers();
    let gateways = ["0f"; 2].map(|key| gateway(&servers, key));
    let (mut client, server, _) = assisted(&servers, &gateways[0]);
    let elsewhere = address_of_another_server(&servers, &gateways[0], server);
    client.socket = gateways[1].client_from(&elsewhere);
    client.socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    client.socket.send(&[0x41, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).unwrap();
    assert_ne!(first(&servers).0, server, "nothing is known of it yet");
    client.turn_until("a session with the other gateway", |client, received| {
        if let Some(datagram) = received {
            client.assist.on_datagram(&datagram, client.now());
        }
        gateways[1].metric("sessions_begun_total") > 0
    });
    assert_eq!(gateways[1].metric("sessions_taken_over_total"), 1);
    client.socket.send(b"anything").unwrap();
    let (reached, _, upstream) = first(&servers);
    assert_eq!(reached, server);
    transfer(&mut client, &servers[server], upstream, 1000..1200);
}

#[test]
fn a_client_of_a_server_that_is_gone_gets_one_that_is_there() {
    let servers = servers();
    let before = gateway(&servers, "0f");
    let (mut client, server, _) = assisted(&servers, &before);
    let left: Vec<UdpSocket> = servers
        .iter()
        .enumerate()
        .filter(|(number, _)| *number != server)
        .map(|(_, server)| server.try_clone().unwrap())
        .collect();
    let after = gateway(&left, "0f");
    assert_eq!(moves(&left, &mut client, &after, "127.0.0.9:0").len(), 10);
    assert_eq!(after.metric("sessions_taken_over_total"), 0);
}
