//! An attacker off the path sends datagrams to the client that seem to be the gateway's. The client
//! does not believe them: repairs go on as without them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{Assist, AssistState, AssistStats, ClientConfig, Datagram, PacketNumber};
use packrat_engine::{Flow, FlowCounters, Gateway, GatewayConfig, Outbox};
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::ends::hear;

const LENGTH: usize = 1200;
const DELAY: Duration = Duration::from_millis(10);
/// Milliseconds of a trial, of which the attack takes all but the first.
const TRIAL: u64 = 12_000;
const CALM: u64 = 2_000;
/// The first millisecond in which the server sends.
const BEGINS: u64 = 200;
/// Number of datagrams of which one is lost on the last mile, in either direction.
const LOST: u32 = 50;

fn datagram(number: u64) -> Vec<u8> {
    let mut datagram = vec![7; LENGTH];
    datagram[0] = 0x40;
    datagram[LENGTH - 16..LENGTH - 8].copy_from_slice(&(number + 1).to_be_bytes());
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    datagram[LENGTH - 8..].copy_from_slice(&mixed.to_be_bytes());
    datagram
}

struct Outcome {
    lost: u64,
    repaired: u64,
    client: AssistStats,
    gateway: FlowCounters,
}

/// When the attacker sends its datagrams.
#[derive(Clone, Copy)]
enum Attack {
    None,
    /// Twice in each millisecond after [`CALM`], of which the losses count.
    Always,
    /// This number, once the session has begun and before the server sends. All losses of the first
    /// second count.
    First(u32),
}

impl Attack {
    fn forged(self, tick: u64) -> u32 {
        match self {
            Self::Always if tick > CALM => 2,
            Self::First(count) if tick == BEGINS - 1 => count,
            _ => 0,
        }
    }

    /// True if losses in this millisecond count.
    fn counts(self, tick: u64) -> bool {
        match self {
            Self::First(_) => tick < BEGINS + 1_000,
            _ => tick > CALM,
        }
    }
}

fn run(seed: u64, attack: Attack) -> Outcome {
    let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
    let mut flow = Flow::new(Arc::clone(&gateway));
    let address: SocketAddr = "192.0.2.1:5000".parse().unwrap();
    let mut now = Timestamp::from_millis(1000);
    let mut client = Assist::new(ClientConfig::default(), [9; 32], now);
    let (mut path, mut attacker) =
        (ChaCha8Rng::seed_from_u64(seed), ChaCha8Rng::seed_from_u64(seed + 1));
    let mut up: VecDeque<(Timestamp, Vec<u8>)> = VecDeque::new();
    let mut down: VecDeque<(Timestamp, Vec<u8>)> = VecDeque::new();
    let (mut missing, mut number) = (BTreeMap::new(), 0);
    let (mut lost, mut repaired, mut counters) = (0, 0, FlowCounters::default());
    for tick in 0..TRIAL {
        now = now + Duration::from_millis(1);
        let mut out = Outbox::new();
        if tick >= BEGINS {
            let bytes = datagram(number);
            flow.forward(&bytes, now);
            if path.next_u32() % LOST == 0 {
                lost += u64::from(attack.counts(tick));
                missing.insert(number, attack.counts(tick));
            } else {
                down.push_back((now + DELAY, bytes));
            }
            number += 1;
        }
        if flow.next_timeout().is_some_and(|at| at <= now) {
            flow.handle_timeout(now, &mut out);
        }
        while let Some((_, said)) = up.pop_front_if(|(at, _)| *at <= now) {
            hear(&gateway, &mut flow, &said, address, [5; 32], now, &mut out);
        }
        for bytes in out.datagrams() {
            if path.next_u32() % LOST != 0 {
                down.push_back((now + DELAY, bytes.to_vec()));
            }
        }
        counters.add(&flow.take_counters());
        for _ in 0..attack.forged(tick) {
            let mut bytes = vec![0x40; 60];
            attacker.fill_bytes(&mut bytes[20..]);
            // The transport drops it.
            assert_eq!(client.on_datagram(&bytes, now), Datagram::Base);
        }
        while let Some((_, bytes)) = down.pop_front_if(|(at, _)| *at <= now) {
            if client.on_datagram(&bytes, now) == Datagram::Base {
                let number = u64::from_be_bytes(*bytes[LENGTH - 16..].first_chunk().unwrap()) - 1;
                client.on_packet_number(PacketNumber::new(number), now);
                repaired += u64::from(missing.remove(&number) == Some(true));
            }
        }
        client.handle_timeout(now);
        while let Some(said) = client.poll_transmit(now) {
            if path.next_u32() % LOST != 0 {
                up.push_back((now + DELAY, said));
            }
        }
    }
    Outcome { lost, repaired, client: client.stats(), gateway: counters }
}

#[test]
fn two_thousand_forged_datagrams_a_second_cost_no_repair() {
    for seed in 0..4 {
        let (calm, attacked) = (run(seed, Attack::None), run(seed, Attack::Always));
        assert_eq!(attacked.client.state, AssistState::Established);
        assert!(calm.lost > 100 && calm.repaired * 100 >= calm.lost * 95, "seed {seed}");
        // Of the losses, and of the repairs without the attack.
        assert!(
            attacked.repaired * calm.lost * 100 >= calm.repaired * attacked.lost * 95,
            "seed {seed}: {} of {}, without the attack {} of {}",
            attacked.repaired,
            attacked.lost,
            calm.repaired,
            calm.lost
        );
        let resets = attacked.gateway.resets_gateway + attacked.gateway.resets_client;
        assert_eq!((resets, attacked.gateway.identifiers_foreign), (0, 0), "seed {seed}");
        // The client holds no longer either, so that the sender learns of losses no later.
        assert!(attacked.client.expired <= calm.client.expired + 5, "seed {seed}");
    }
}

/// Until a client knows a packet number it believes sixteen datagrams, as it may have lost the one
/// that would authenticate them. Its eACKs name forged ones, and are long enough for them.
#[test]
fn early_forged_datagrams_cost_no_repair_and_no_failed_eack() {
    for seed in 0..4 {
        let (calm, attacked) = (run(seed, Attack::First(0)), run(seed, Attack::First(40)));
        assert!(calm.lost > 10 && calm.repaired == calm.lost, "seed {seed}");
        assert!(attacked.lost > 10 && attacked.repaired == attacked.lost, "seed {seed}");
        let Outcome { gateway, .. } = attacked;
        let resets = gateway.resets_gateway + gateway.resets_client;
        // Each is named once.
        assert_eq!((gateway.eacks_failed, resets, gateway.identifiers_foreign), (0, 0, 16));
    }
}
