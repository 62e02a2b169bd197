//! Memory of a session: little while no datagrams pass, as much as it needs while they pass, and
//! little again afterwards.

use std::time::Duration;

use packrat_client::{Input, Shim};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::allocator::Since;
use crate::ends::assisted;

const SESSIONS: usize = 500;
/// Most bytes of an idle session, with the memory of its source's address: a hundred thousand of
/// them fit into 200 MiB.
const MOST_IDLE: usize = 1328;
/// Bytes of a datagram's record at most: its entry, and its place in the index, in a queue and a
/// table that double.
const PER_RECORD: usize = 96;
/// Most bytes of a session after a burst that the client has acknowledged: the sketch of the epoch,
/// and a few entries.
const MOST_AFTERWARDS: usize = 3500;
const BEGIN: Timestamp = Timestamp::from_millis(1000);

/// Bytes that are allocated now and were not when the region began, per session.
fn held(region: &Since) -> usize {
    region.held_bytes() / SESSIONS
}

#[test]
fn memory_follows_what_passes() {
    let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
    let mut out = Outbox::new();
    // Memory that a thread and the gateway need once.
    drop(assisted(&gateway, 0, false));
    let mut flows = Vec::with_capacity(SESSIONS);
    let both = Since::now();
    for number in 1..=SESSIONS as u32 {
        let (mut flow, client) = assisted(&gateway, number, false);
        assert_eq!(flow.take_counters().sessions_begun, 1);
        drop(client);
        flows.push(flow);
    }
    let idle = held(&both) + size_of::<Flow>();
    println!("{idle} bytes of an idle session");
    assert!(idle <= MOST_IDLE, "{idle} bytes of an idle session");

    let mut datagram = [0x40; 1200];
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut now = BEGIN + Duration::from_millis(SESSIONS as u64);
    for _ in 0..100 {
        now = now + Duration::from_millis(1);
        for flow in &mut flows {
            random.fill_bytes(&mut datagram[1184..]);
            flow.forward(&datagram, now);
        }
    }
    let busy = held(&both);
    assert!(busy >= 100 * 1200, "{busy} bytes of a session that keeps 100 datagrams");
    // Datagrams that no client has reported are kept for the length of an outage.
    for _ in 0..15 {
        now = now + Duration::from_secs(1);
        for flow in &mut flows {
            flow.handle_timeout(now, &mut out);
            flow.take_counters();
            out.clear();
        }
    }
    let quiet = held(&both) + size_of::<Flow>();
    println!("{busy} bytes after 100 datagrams, {quiet} when it has fallen quiet");
    // No client has reported: forwarded datagrams stay known, without their bytes.
    assert!(
        quiet <= idle + 100 * PER_RECORD,
        "{quiet} bytes of a session that has fallen quiet, {idle} before"
    );
    drop(flows);
}

/// One step of a flow and its client, whose last mile loses every hundredth datagram.
fn step(
    (flow, client): &mut (Flow, Shim<()>),
    datagram: Option<&[u8]>,
    now: Timestamp,
    sent: &mut u32,
    out: &mut Outbox,
) {
    let mut under_way = Vec::new();
    if let Some(datagram) = datagram {
        let header = flow.forward(datagram, now);
        under_way.push([header.as_ref().map_or(&[][..], |header| header), datagram].concat());
    }
    flow.handle_timeout(now, out);
    under_way.extend(out.datagrams().map(<[u8]>::to_vec));
    out.clear();
    for arrived in under_way {
        *sent += 1;
        if !sent.is_multiple_of(100) {
            let _ = client.on_datagram(&arrived, (), now);
        }
    }
    while client.poll_deliver().is_some() {}
    client.handle(Input::Timeout, now);
    while let Some(message) = client.poll_transmit(now) {
        flow.control(&message, now, out);
    }
    for answer in out.datagrams() {
        let _ = client.on_datagram(answer, (), now);
    }
    out.clear();
    flow.take_counters();
}

/// A burst of 300 datagrams for each client, and a quarter of a minute without any.
fn burst(pairs: &mut [(Flow, Shim<()>)], begin: Timestamp, out: &mut Outbox) {
    let mut random = ChaCha8Rng::seed_from_u64(8);
    let (mut datagram, mut sent, mut now) = ([0x40; 1200], 0, begin);
    for _ in 0..300 {
        now = now + Duration::from_millis(1);
        for pair in &mut *pairs {
            random.fill_bytes(&mut datagram[1184..]);
            step(pair, Some(&datagram), now, &mut sent, out);
        }
    }
    for _ in 0..1500 {
        now = now + Duration::from_millis(10);
        for pair in &mut *pairs {
            step(pair, None, now, &mut sent, out);
        }
    }
}

#[test]
fn an_acknowledged_burst_leaves_little_behind() {
    let new_gateway = || Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
    let mut out = Outbox::new();
    let begin = BEGIN + Duration::from_millis(SESSIONS as u64);
    // Memory that a thread needs once.
    let gateway = new_gateway();
    burst(&mut [assisted(&gateway, 0, false)], begin, &mut out);
    let gateway = new_gateway();
    let both = Since::now();
    let mut pairs: Vec<_> =
        (1..=SESSIONS as u32).map(|number| assisted(&gateway, number, false)).collect();
    burst(&mut pairs, begin, &mut out);
    let mut flows = Vec::with_capacity(SESSIONS);
    flows.extend(pairs.into_iter().map(|(flow, _)| flow));
    let afterwards = held(&both);
    println!("{afterwards} bytes after a burst that was acknowledged");
    assert!(
        afterwards <= MOST_AFTERWARDS,
        "{afterwards} bytes after a burst that was acknowledged"
    );
}
