//! Arbitrary programs and peers at the TURN server: for the fuzz target, and the test of its corpus.

use std::net::SocketAddr;
use std::time::Duration;

use packrat_client::Timestamp;

use super::allocation::MOST_PEERS;
use super::client::Client;
use super::{MOST_ALLOCATIONS, Server, Step, TurnCredentials};
use crate::allow::Destinations;

/// The time of day of every step.
const UNIX_SECONDS: u64 = 1_800_000_000;

/// Runs the steps that the bytes describe. Each begins with its kind, the program's number, and the
/// length of the rest.
///
/// # Panics
/// When the server breaks a promise.
pub(crate) fn check(mut data: &[u8]) {
    let users = [("alice".to_owned(), "wonderland".to_owned())].into();
    let credentials = TurnCredentials { users, secret: Some("north".to_owned()) };
    let mut server = Server::new(credentials, Destinations::default(), [7; 32]);
    let mut clients = vec![Client::new("alice", "wonderland"); 4];
    let mut now = Timestamp::from_millis(1000);
    while let [kind, program, length, rest @ ..] = data {
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        data = rest;
        let from = SocketAddr::from(([127, 0, 0, 1], 1 + u16::from(program % 4)));
        let client = &mut clients[usize::from(program % 4)];
        let peer = peer(bytes);
        let datagram = match kind % 8 {
            0 => bytes.to_vec(),
            1 => client.allocate(),
            2 => client.refresh(u32::from(peer.port())),
            3 => client.permit(&[peer]),
            4 => client.bind(0x4000 + u16::from(*program), peer),
            5 => super::client::send(peer, bytes),
            6 => super::client::in_channel(0x4000 + u16::from(*program), bytes),
            _ => {
                now = now + Duration::from_secs(u64::from(peer.port()));
                server.expire(now).into_iter().for_each(|number| server.end(number));
                continue;
            }
        };
        step(&mut server, client, from, &datagram, now);
        assert!(server.allocations.len() <= 4.min(MOST_ALLOCATIONS));
        assert_eq!(server.programs.len(), server.allocations.len());
    }
}

fn step(
    server: &mut Server,
    client: &mut Client,
    from: SocketAddr,
    datagram: &[u8],
    now: Timestamp,
) {
    match server.on_datagram(from, datagram, now, || UNIX_SECONDS) {
        Step::Answer(answer) => drop(client.hear(&answer)),
        Step::Open(opening) => {
            let relayed = SocketAddr::from(([198, 51, 100, 1], from.port()));
            // One of the programs never gets a socket.
            let relayed = (from.port() != 4).then_some(relayed);
            let answer = server.opened(opening, relayed, now);
            assert!(answer.is_some_and(|answer| client.hear(&answer).is_signed));
        }
        Step::End(number, answer) => {
            server.end(number);
            assert!(client.hear(&answer).is_signed);
        }
        Step::Relay(number, to, payload) => {
            assert!(server.permits(number, to.ip(), now), "{to} is not permitted");
            assert_eq!(server.program(number), Some(from), "another program's allocation");
            assert!(!to.ip().is_loopback() && payload.len() <= datagram.len());
            let framed = super::indication(to, payload, 1).unwrap_or_default();
            assert_eq!(super::client::received(&framed), Some((to, payload.to_vec())));
        }
        Step::Refused => {}
    }
    let most = server.allocations.values().map(super::Allocation::peers).max();
    assert!(most.unwrap_or_default() <= MOST_PEERS);
}

/// The address in the first bytes.
fn peer(bytes: &[u8]) -> SocketAddr {
    let byte = |index: usize| bytes.get(index).copied().unwrap_or_default();
    let port = u16::from_be_bytes([byte(0), byte(1)]);
    match byte(2) {
        127 => SocketAddr::from(([127, 0, 0, 1], port)),
        128.. => SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, byte(3).into()], port)),
        one => SocketAddr::from(([192, 0, 2, one], port)),
    }
}

#[cfg(test)]
#[test]
fn the_fuzz_targets_corpus() {
    let expected = ["empty", "call", "expiry", "refusals"];
    packrat_fuzz_entry::corpus::run("turn", &expected, check);
}
