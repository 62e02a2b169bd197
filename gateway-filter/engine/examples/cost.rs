//! What the engine costs: a datagram that is recorded, an eACK that is decoded and repaired from.
//!
//! ```text
//! cargo run --release -p packrat-engine --example cost
//! ```
//!
//! One assisted flow, 1200-byte datagrams, an eACK of the real client core after every sixteenth. No sockets: what is measured is this crate
//! alone, on one core, with warm caches. For figures that do not depend on what else the machine does, run it under
//! `valgrind --tool=callgrind`.

use std::error::Error;
use std::time::{Duration, Instant};

use packrat_client::{Assist, ClientConfig};
use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox, Received};
use packrat_estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const DATAGRAM: usize = 1200;
const DATAGRAMS_PER_EACK: u64 = 16;
const EACKS: u64 = 20_000;
/// Time between two datagrams: 100 Mbit/s.
const SPACING: Duration = Duration::from_micros(96);

struct Cost {
    forward: Duration,
    eack: Duration,
    repairs: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "| last-mile loss | ns per datagram | ns per eACK | repairs per eACK | ns per datagram, eACKs included |"
    );
    println!("|---|---|---|---|---|");
    for loss in [0.0, 0.04, 0.10] {
        let cost = run(loss)?;
        let forward = cost.forward.as_nanos() as f64 / (EACKS * DATAGRAMS_PER_EACK) as f64;
        let eack = cost.eack.as_nanos() as f64 / EACKS as f64;
        println!(
            "| {:.0} % | {forward:.0} | {eack:.0} | {:.2} | {:.0} |",
            loss * 100.0,
            cost.repairs as f64 / EACKS as f64,
            forward + eack / DATAGRAMS_PER_EACK as f64
        );
    }
    Ok(())
}

fn run(loss: f64) -> Result<Cost, Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
    let mut flow = Flow::new(gateway.clone());
    let mut client = Assist::new(ClientConfig::default(), [3; 32], Timestamp::ZERO);
    let (peer, mut out, mut now) = ("192.0.2.1:443".parse()?, Outbox::new(), Timestamp::ZERO);
    // Discover, Init.
    for _ in 0..2 {
        while let Some(question) = client.poll_transmit(now) {
            if let Received::Begin(begin) = gateway.receive(&question, peer, now, &mut out) {
                flow.begin(begin, [4; 32], now, &mut out);
            }
        }
        out.datagrams().for_each(|answer| {
            client.on_datagram(answer, now);
        });
        out.clear();
    }
    if !flow.is_assisted() {
        return Err("the handshake failed".into());
    }
    let mut cost = Cost { forward: Duration::ZERO, eack: Duration::ZERO, repairs: 0 };
    let mut datagrams = vec![[0u8; DATAGRAM]; DATAGRAMS_PER_EACK as usize];
    let mut number = 0u64;
    for _ in 0..EACKS {
        for datagram in &mut datagrams {
            random.fill_bytes(&mut datagram[DATAGRAM - 16..]);
            datagram[0] = 0x40;
        }
        let started = Instant::now();
        for datagram in &datagrams {
            flow.forward(datagram, now);
        }
        cost.forward += started.elapsed();
        for datagram in &datagrams {
            now = now + SPACING;
            if f64::from(random.next_u32()) >= loss * f64::from(u32::MAX) {
                client.on_datagram(datagram, now);
                client.on_packet_number(number, now);
            }
            number += 1;
        }
        client.handle_timeout(now + Duration::from_millis(10));
        while let Some(eack) = client.poll_transmit(now + Duration::from_millis(10)) {
            let started = Instant::now();
            flow.control(&eack, now, &mut out);
            cost.eack += started.elapsed();
        }
        for datagram in out.datagrams() {
            client.on_datagram(datagram, now);
        }
        out.clear();
    }
    cost.repairs = flow.take_counters().repairs;
    Ok(cost)
}
