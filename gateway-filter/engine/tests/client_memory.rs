//! Memory of a client's shim: little while it has a session and nothing passes. In a program of its own,
//! as the allocator counts for all threads.

#![allow(clippy::unwrap_used)] // a test: clippy only excuses its #[test] functions

use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{AssistState, ClientConfig, Shim};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox, Received};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLIENTS: usize = 200;
/// Bytes of a client with a session of which nothing has passed yet.
const MOST_IDLE: usize = 4096;
const BEGIN: Timestamp = Timestamp::from_millis(1000);

/// A client whose gateway assists it. Of the gateway's end nothing is left.
fn assisted(gateway: &Arc<Gateway>, number: u32, uploads: bool) -> Shim<()> {
    let mut random = ChaCha8Rng::seed_from_u64(number.into());
    let mut seed = || {
        let mut seed = [0; 32];
        random.fill_bytes(&mut seed);
        seed
    };
    let mut out = Outbox::new();
    let mut flow = Flow::new(Arc::clone(gateway));
    let begin = BEGIN + Duration::from_millis(number.into());
    let mut client = Shim::new(ClientConfig::default().with_uploads(uploads), seed(), begin);
    let peer = (std::net::Ipv4Addr::from(0x0a00_0000 + number), 443).into();
    for _ in 0..4 {
        while let Some(question) = client.poll_transmit(begin) {
            match gateway.receive(&question, peer, begin, &mut out) {
                Received::Begin(first) => {
                    flow.begin(first, seed(), begin, &mut out);
                }
                Received::ForFlow => flow.control(&question, begin, &mut out),
                Received::Done(_) => {}
            }
        }
        for answer in out.datagrams() {
            let _ = client.on_datagram(answer, (), begin);
        }
        out.clear();
    }
    assert!(flow.is_assisted());
    assert_eq!(client.assistance().state, AssistState::Established);
    client
}

#[test]
fn a_client_with_a_session_and_no_traffic_is_small() {
    let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
    let mut first = 1;
    for uploads in [false, true] {
        // What a thread and the gateway need once.
        drop(assisted(&gateway, 0, uploads));
        let mut clients = Vec::with_capacity(CLIENTS);
        let region = Region::new(ALLOCATOR);
        clients.extend((first..).take(CLIENTS).map(|number| assisted(&gateway, number, uploads)));
        first += CLIENTS as u32;
        let change = region.change();
        // What is kept of sources at the gateway is counted, too: a few dozen bytes each.
        let heap = (change.bytes_allocated - change.bytes_deallocated) / CLIENTS;
        let bytes = heap + size_of::<Shim<()>>();
        println!(
            "{bytes} bytes of an idle client, {heap} of them beside the shim itself (uploads: {uploads})"
        );
        assert!(bytes <= MOST_IDLE, "{bytes} bytes of an idle client (uploads: {uploads})");
    }
}
