//! Memory of a client's shim: little while it has a session without datagrams, bounded while many
//! pass.

use std::time::Duration;

use packrat_client::{Input, Shim};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::allocator::Since;
use crate::ends::assisted;

const CLIENTS: usize = 200;
/// Most bytes of a client with a session in which no datagram has passed yet.
const MOST_IDLE: usize = 4128;
/// Number of datagrams without a loss after which a client has at most [`MOST_BUSY`] bytes, and
/// [`MOST_TRIMMED`] after it has been idle.
const DATAGRAMS: u32 = 40_000;
const MOST_BUSY: usize = 300 << 10;
const MOST_TRIMMED: usize = 32 << 10;
const BEGIN: Timestamp = Timestamp::from_millis(1000);

/// Both ends, with a last mile between them.
struct Path {
    client: Shim<()>,
    flow: Flow,
    now: Timestamp,
    sent: u64,
}

impl Path {
    fn new() -> Self {
        let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
        let (flow, client) = assisted(&gateway, 1, false);
        Self { client, flow, now: BEGIN + Duration::from_secs(1), sent: 0 }
    }

    /// A datagram of the server's; `false`: the last mile loses it.
    fn send(&mut self, arrives: bool) {
        let mut bytes = vec![0x40; 1200];
        ChaCha8Rng::seed_from_u64(self.sent).fill_bytes(&mut bytes[1..]);
        self.sent += 1;
        self.now = self.now + Duration::from_micros(96);
        if let Some(header) = self.flow.forward(&bytes, self.now) {
            drop(bytes.splice(..0, header));
        }
        if arrives {
            let _ = self.client.on_datagram(&bytes, (), self.now);
        }
        self.talk();
    }

    /// Delivers each end's messages to the other one.
    fn talk(&mut self) {
        let mut out = Outbox::new();
        if self.client.next_timeout().is_some_and(|at| at <= self.now) {
            self.client.handle(Input::Timeout, self.now);
        }
        if self.flow.next_timeout().is_some_and(|at| at <= self.now) {
            self.flow.handle_timeout(self.now, &mut out);
        }
        while let Some(said) = self.client.poll_transmit(self.now) {
            self.flow.control(&said, self.now, &mut out);
        }
        for said in out.datagrams() {
            let _ = self.client.on_datagram(said, (), self.now);
        }
        while self.client.poll_deliver().is_some() {}
    }
}

/// Bytes that are freed with a client.
fn freed_with(client: Shim<()>) -> usize {
    let region = Since::now();
    drop(client);
    region.freed_bytes()
}

#[test]
fn a_client_that_loses_nothing_remembers_no_datagrams() {
    let mut path = Path::new();
    (0..DATAGRAMS).for_each(|_| path.send(true));
    let said = path.client.memory();
    let bytes = freed_with(path.client);
    assert!((bytes * 3 / 4..bytes * 4 / 3).contains(&said), "it says {said} of {bytes} bytes");
    println!("{bytes} bytes of a client after {DATAGRAMS} datagrams");
    assert!(bytes <= MOST_BUSY, "{bytes} bytes after {DATAGRAMS} datagrams");
}

#[test]
fn an_idle_client_gives_its_memory_back_and_goes_on() {
    let mut path = Path::new();
    (0..DATAGRAMS).for_each(|number| path.send(number % 100 != 50));
    path.now = path.now + Duration::from_secs(10);
    path.client.handle(Input::Idle, path.now);
    let before = path.client.assistance().filled_in_time;
    for number in 0..200 {
        path.send(number % 100 != 50);
    }
    path.now = path.now + Duration::from_secs(1);
    path.talk();
    let filled = path.client.assistance().filled_in_time - before;
    assert!(filled >= 1, "{filled} of two holes filled after it was idle");
    path.client.handle(Input::Idle, path.now);
    let bytes = freed_with(path.client);
    println!("{bytes} bytes of a client that was busy and is idle");
    assert!(bytes <= MOST_TRIMMED, "{bytes} bytes of an idle client");
}

#[test]
fn a_client_with_a_session_and_no_traffic_is_small() {
    let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
    let mut first = 1;
    for uploads in [false, true] {
        // Memory that a thread and the gateway need once.
        drop(assisted(&gateway, 0, uploads));
        let mut clients = Vec::with_capacity(CLIENTS);
        let region = Since::now();
        clients.extend((first..).take(CLIENTS).map(|number| assisted(&gateway, number, uploads).1));
        first += CLIENTS as u32;
        // The gateway's memory of sources is counted as well: a few dozen bytes each.
        let heap = region.held_bytes() / CLIENTS;
        let bytes = heap + size_of::<Shim<()>>();
        println!(
            "{bytes} bytes of an idle client, {heap} of them beside the shim itself (uploads: {uploads})"
        );
        assert!(bytes <= MOST_IDLE, "{bytes} bytes of an idle client (uploads: {uploads})");
    }
}
