//! Neither a datagram nor an eACK allocates anything once a session has found its size.

use std::time::Duration;

use packrat_client::{Assist, ClientConfig, Datagram, PacketNumber};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::allocator::Since;
use crate::ends::hear;

const PER_EACK: usize = 16;
const SPACING: Duration = Duration::from_micros(100);

#[test]
fn nothing_is_allocated_per_datagram_or_eack() {
    let now = Timestamp::from_millis(1000);
    let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
    let mut flow = Flow::new(gateway.clone());
    let mut client = Assist::new(ClientConfig::default(), [3; 32], now);
    let (peer, mut out) = ("192.0.2.1:443".parse().unwrap(), Outbox::new());
    for _ in 0..3 {
        while let Some(question) = client.poll_transmit(now) {
            hear(&gateway, &mut flow, &question, peer, [4; 32], now, &mut out);
        }
        out.datagrams().for_each(|answer| {
            client.on_datagram(answer, now);
        });
        out.clear();
    }
    assert!(flow.is_assisted());

    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut datagrams = vec![[0x40u8; 1200]; PER_EACK];
    let (mut now, mut number, mut eacks, mut repairs) = (now, 0u64, 0u64, 0u64);
    let (mut for_datagrams, mut for_eacks) = (0, 0u64);
    for turn in 0..6000 {
        let steady = turn >= 4000;
        for (number, datagram) in (number..).zip(&mut datagrams) {
            datagram[1..9].copy_from_slice(&number.to_be_bytes());
            random.fill_bytes(&mut datagram[1184..]);
        }
        let region = Since::now();
        for datagram in &datagrams {
            let _ = flow.forward(datagram, now);
        }
        for_datagrams += if steady { region.allocations() } else { 0 };
        for datagram in &datagrams {
            now = now + SPACING;
            if random.next_u32() % 25 != 0 {
                client.on_datagram(datagram, now);
                client.on_packet_number(PacketNumber::new(number), now);
            }
            number += 1;
        }
        client.handle_timeout(now);
        while let Some(eack) = client.poll_transmit(now) {
            let region = Since::now();
            flow.control(&eack, now, &mut out);
            for_eacks += if steady { region.allocations() as u64 } else { 0 };
            eacks += u64::from(steady);
        }
        for datagram in out.datagrams() {
            if client.on_datagram(datagram, now) == Datagram::Base {
                repairs += u64::from(steady);
                client.on_packet_number(
                    PacketNumber::new(u64::from_be_bytes(datagram[1..9].try_into().unwrap())),
                    now,
                );
            }
        }
        out.clear();
    }
    assert!(eacks > 1000 && repairs > 1000, "{eacks} eACKs, {repairs} repairs");
    assert_eq!(for_datagrams, 0, "allocations for 32,000 datagrams");
    // The map of missing datagrams is a tree: it has a node while it is not empty.
    assert!(
        for_eacks <= eacks + repairs,
        "{for_eacks} allocations for {eacks} eACKs with {repairs} repairs"
    );
}
