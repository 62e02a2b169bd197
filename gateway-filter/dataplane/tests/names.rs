//! A client that knows that it moves cannot be followed by the name of its session. In virtual time.
#![cfg(feature = "virtual-time")]

use packrat_client::Datagram;
use packrat_wire::SessionId;
use packrat_wire::seal::session_of;

use crate::client::{Client, Socket as _, encrypted, transfer};
use crate::network::{self, Socket};

/// The names in the gateway's datagrams until `count` sealed ones have come.
fn names_heard(client: &mut Client<Socket>, count: usize) -> Vec<SessionId> {
    let mut names = Vec::new();
    client.turn_until("sealed datagrams", |client, received| {
        // An echo is asked for now and then.
        if let Some(datagram) = received {
            let now = client.now();
            match client.assist.on_datagram(&datagram, now) {
                Datagram::Control => names.extend(session_of(&datagram)),
                Datagram::Base => client.assist.on_authentic(now),
            }
        }
        names.len() >= count
    });
    names
}

#[test]
fn no_path_sees_a_name_of_another() {
    let (server, gateway, mut client, upstream) = network::connected();
    transfer(&mut client, &server, upstream, 0..100);
    let mut seen: Vec<SessionId> = Vec::new();
    for moves in 1..=3u64 {
        server.say_to(&encrypted(1000 + moves as usize), upstream);
        let heard = names_heard(&mut client, 1);
        assert!(heard.iter().all(|name| *name == heard[0] && !seen.contains(name)), "{heard:?}");
        seen.push(heard[0]);

        client.assist.on_network_change(client.now());
        client.go_on_from(gateway.client());
        // The challenge, and the message that follows the move.
        let heard = names_heard(&mut client, 2);
        assert!(heard.iter().all(|name| *name == heard[0] && !seen.contains(name)), "{heard:?}");
        gateway.wait_for("the move", |gateway| gateway.metric("paths_moved_total") == moves);
    }
    transfer(&mut client, &server, upstream, 100..300);
    assert_eq!(gateway.metric("sessions_opened_total"), 1);
    assert_eq!(gateway.metric("sealed_dropped_total{reason=\"forged\"}"), 0);
}
