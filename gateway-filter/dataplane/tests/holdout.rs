//! Clients that are left without assistance for comparison, and what each arm of the comparison has
//! got.

use std::net::{SocketAddr, UdpSocket};

use packrat_api::route::Hidden;
use packrat_client::{AssistState, ClientConfig, RefusalReason};

use crate::client::{Client, encrypted, transfer};
use crate::gateway::{Gateway, config, receive, socket};

/// Datagrams of a session, more than it needs to be counted.
const DATAGRAMS: usize = 250;

/// A client at this address that has spoken with its server, asked for assistance and heard the answer,
/// and its address at the server.
fn ask(gateway: &Gateway, server: &UdpSocket, last: u8) -> (Client, SocketAddr) {
    let local = format!("127.0.0.{last}:0");
    let mut client = Client::from(&local, gateway.listen, ClientConfig::default());
    let mut upstream = None;
    // When both have spoken twice, the session lasts.
    for round in 0..2 {
        client.socket.send(&[0xc3, round]).unwrap();
        let (question, from) = receive(server);
        assert_eq!(question, [0xc3, round]);
        server.send_to(b"answer", from).unwrap();
        assert_eq!(receive(&client.socket).0, b"answer");
        upstream = Some(from);
    }
    client.take_part_until("an answer", |client| {
        let stats = client.assist.stats();
        stats.refusal.is_some() || stats.state == AssistState::Established && stats.reports > 0
    });
    (client, upstream.unwrap())
}

fn is_held_out(client: &Client) -> bool {
    client.assist.stats().refusal == Some(RefusalReason::Holdout)
}

#[test]
fn held_out_clients_are_forwarded_plainly_and_arms_are_counted() {
    let server = socket("127.0.0.1:0");
    let mut compared = config(&[&server]);
    compared.holdout = 0.5;
    // The choice follows from the key.
    compared.static_key = Some(Hidden::new("11".repeat(32)));
    let gateway = Gateway::start("127.0.0.1:0", compared);
    let asked: Vec<_> = (1..=16).map(|last| (last, ask(&gateway, &server, last))).collect();
    let held_out = asked.iter().filter(|(_, (client, _))| is_held_out(client)).count();
    assert!((1..16).contains(&held_out), "{held_out} of 16");
    // A client whose answer is late asks again.
    assert!(gateway.metric("handshakes_total{result=\"refused_holdout\"}") >= held_out as u64);
    assert_eq!(gateway.metric("sessions_assisted"), 16 - held_out as u64);
    // From another port they are treated as before.
    for (last, (before, _)) in &asked {
        let (again, _) = ask(&gateway, &server, *last);
        assert_eq!(is_held_out(&again), is_held_out(before), "127.0.0.{last}");
    }
    let (held_out, assisted): (Vec<_>, Vec<_>) =
        asked.into_iter().map(|(_, asked)| asked).partition(|(client, _)| is_held_out(client));
    let (mut client, upstream) = assisted.into_iter().next().unwrap();
    transfer(&mut client, &server, upstream, 0..DATAGRAMS);
    let (mut client, upstream) = held_out.into_iter().next().unwrap();
    for number in 0..DATAGRAMS {
        server.send_to(&encrypted(number), upstream).unwrap();
        let mut next = None;
        client.turn_until("the datagram", |_, received| {
            next = received;
            next.is_some()
        });
        assert_eq!(next.unwrap(), encrypted(number), "as it was sent, without a number");
    }
    gateway.dataplane.shutdown();
    for (arm, transfers) in [("yes", 1), ("holdout", 1), ("no", 0)] {
        let of = |name: &str| gateway.metric(&format!("{name}{{assisted=\"{arm}\"}}"));
        assert_eq!(of("transfers_total"), transfers, "{arm}");
        assert!(of("transfer_bytes_total") >= transfers * DATAGRAMS as u64 * 1200, "{arm}");
        assert_eq!(of("transfer_microseconds_total") > 0, transfers > 0, "{arm}");
    }
}
