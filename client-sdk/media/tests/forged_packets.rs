//! An attacker sends packets to a receiver that cannot authenticate its packets: off the path, and
//! beside it with the headers in sight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_engine::{Flow, Gateway, GatewayConfig, Outbox, Received};
use packrat_media::{AssistState, PacketNumbers, RtpAssist, RtpAssistConfig, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const DELAY: Duration = Duration::from_millis(10);
/// Milliseconds of a trial; the attack begins after the first.
const TRIAL: u64 = 20_000;
const CALM: u64 = 2_000;
const SOURCE: u32 = 7;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Forgery {
    None,
    /// Bytes that are no RTP.
    Garbage,
    /// Headers of random sources.
    Sources,
    /// Headers of one source that counts.
    OneSource,
    /// The stream's own header, this far above its newest number.
    Ahead(u16),
    /// The stream's own next packet, as if the attacker knew it.
    Next,
}

/// A packet of SRTP: header in the clear, a payload, a tag.
fn packet(source: u32, number: u16, content: u64) -> Vec<u8> {
    let mut bytes = vec![0x90, 96];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 2]);
    bytes.extend_from_slice(&source.to_be_bytes());
    bytes.extend_from_slice(&[0xbe, 0xde, 0, 1, (3 << 4) | 1]);
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&[content as u8; 80]);
    bytes.extend_from_slice(&content.to_be_bytes());
    bytes.extend_from_slice(&content.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes
}

struct World {
    now: Timestamp,
    gateway: Arc<Gateway>,
    flow: Flow,
    helper: RtpAssist,
}

impl World {
    fn new(numbers: PacketNumbers) -> Self {
        let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
        let now = Timestamp::from_millis(1000);
        let helper = RtpAssist::new(RtpAssistConfig::new(numbers), [9; 32], now);
        Self { now, flow: Flow::new(Arc::clone(&gateway)), gateway, helper }
    }

    fn hear(&mut self, said: &[u8]) -> Vec<Vec<u8>> {
        let address: SocketAddr = "192.0.2.1:5000".parse().unwrap();
        let mut out = Outbox::new();
        match self.gateway.receive(said, address, self.now, &mut out) {
            Received::Done(_) => {}
            Received::Begin(begin) => {
                self.flow.begin(begin, [5; 32], self.now, &mut out);
            }
            Received::ForFlow => self.flow.control(said, self.now, &mut out),
        }
        out.datagrams().map(<[u8]>::to_vec).collect()
    }

    /// Both ends exchange all their messages at once.
    fn talk(&mut self) {
        for _ in 0..4 {
            let said: Vec<_> = std::iter::from_fn(|| self.helper.poll_transmit(self.now)).collect();
            for answer in said.iter().flat_map(|said| self.hear(said)).collect::<Vec<_>>() {
                self.helper.on_datagram(&answer, self.now);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Outcome {
    lost: u64,
    repaired: u64,
    /// Authentic packets that arrived, and that the stack got.
    arrived: u64,
    delivered: u64,
    slowest: Duration,
}

/// `a_second`: forged packets. 500 packets a second, of which 2 % are lost.
fn run(numbers: PacketNumbers, forgery: Forgery, a_second: u64, seed: u64) -> Outcome {
    let mut world = World::new(numbers);
    let (mut path, mut attacker) =
        (ChaCha8Rng::seed_from_u64(seed), ChaCha8Rng::seed_from_u64(seed + 1));
    let mut down: VecDeque<(Timestamp, Vec<u8>)> = VecDeque::new();
    let mut up: VecDeque<(Timestamp, Vec<u8>)> = VecDeque::new();
    let (mut missing, mut number, mut outcome) = (BTreeSet::new(), 0u64, Outcome::default());
    let mut arrived: BTreeMap<Vec<u8>, Timestamp> = BTreeMap::new();
    for tick in 0..TRIAL {
        world.now = world.now + Duration::from_millis(1);
        let now = world.now;
        if tick > 200 && tick % 2 == 0 {
            let bytes = packet(SOURCE, number as u16, number);
            world.flow.forward(&bytes, now);
            if path.next_u32() % 50 == 0 && tick + 300 < TRIAL {
                outcome.lost += u64::from(tick > CALM);
                missing.insert(bytes);
            } else {
                down.push_back((now + DELAY, bytes));
            }
            number += 1;
        }
        let mut out = Outbox::new();
        if world.flow.next_timeout().is_some_and(|at| at <= now) {
            world.flow.handle_timeout(now, &mut out);
        }
        let mut answers: Vec<Vec<u8>> = out.datagrams().map(<[u8]>::to_vec).collect();
        while up.front().is_some_and(|(at, _)| *at <= now) {
            let (_, said) = up.pop_front().unwrap();
            answers.extend(world.hear(&said));
        }
        for answer in answers {
            if path.next_u32() % 50 != 0 {
                down.push_back((now + DELAY, answer));
            }
        }
        let newest = number.saturating_sub(6) as u16;
        let forged = if forgery == Forgery::None || tick <= CALM {
            0
        } else if a_second >= 1000 {
            a_second / 1000
        } else {
            u64::from(tick % (1000 / a_second) == 0)
        };
        for index in 0..forged {
            let content = attacker.next_u64() | 1 << 63;
            let bytes = match forgery {
                Forgery::None => break,
                Forgery::Garbage => [&[0x40; 30][..], &content.to_be_bytes(), &[9; 20]].concat(),
                Forgery::Sources => {
                    packet(attacker.next_u32(), attacker.next_u32() as u16, content)
                }
                Forgery::OneSource => packet(666, ((tick - CALM) * forged + index) as u16, content),
                Forgery::Ahead(distance) => packet(SOURCE, newest.wrapping_add(distance), content),
                Forgery::Next => packet(SOURCE, newest.wrapping_add(1), content),
            };
            world.helper.on_datagram(&bytes, now);
        }
        while down.front().is_some_and(|(at, _)| *at <= now) {
            let (_, bytes) = down.pop_front().unwrap();
            if !packrat_wire::is_control(&bytes) {
                outcome.repaired += u64::from(missing.remove(&bytes) && tick > CALM);
                if arrived.insert(bytes.clone(), now).is_none() {
                    outcome.arrived += 1;
                }
            }
            world.helper.on_datagram(&bytes, now);
        }
        world.helper.handle_timeout(now);
        while let Some(said) = world.helper.poll_transmit(now) {
            if path.next_u32() % 50 != 0 {
                up.push_back((now + DELAY, said));
            }
        }
        while let Some(bytes) = world.helper.poll_deliver() {
            // The stack authenticates it, and drops a second copy.
            if let Some(at) = arrived.get_mut(&bytes).filter(|at| **at != Timestamp::ZERO) {
                outcome.slowest = outcome.slowest.max(now.saturating_since(*at));
                outcome.delivered += 1;
                *at = Timestamp::ZERO;
            }
        }
    }
    assert_eq!(world.helper.assistance().state, AssistState::Established);
    outcome
}

fn compare(numbers: PacketNumbers, cases: &[(Forgery, u64)], share: u64) {
    let hold = Duration::from_millis(200);
    for seed in [1, 2] {
        let calm = run(numbers, Forgery::None, 0, seed);
        assert!(calm.lost > 100 && calm.repaired * 100 >= calm.lost * 95, "{calm:?}");
        for &(forgery, a_second) in cases {
            let attacked = run(numbers, forgery, a_second, seed);
            let case = format!(
                "seed {seed}, {numbers:?}, {forgery:?}, {a_second} a second: {attacked:?}, else {calm:?}"
            );
            assert!(
                attacked.repaired * calm.lost * 100 >= calm.repaired * attacked.lost * share,
                "{case}"
            );
            assert!(
                attacked.delivered >= attacked.arrived - 200 && attacked.slowest <= hold,
                "{case}"
            );
        }
    }
}

const TRANSPORT_WIDE: PacketNumbers = PacketNumbers::TransportWide { extension: 3 };

#[test]
fn an_attacker_off_the_path_costs_no_repair() {
    let cases = [(Forgery::Garbage, 2000), (Forgery::Sources, 2000), (Forgery::OneSource, 2000)];
    compare(TRANSPORT_WIDE, &cases, 95);
    compare(PacketNumbers::Stream, &cases, 95);
}

#[test]
fn forged_headers_far_above_cost_no_repair() {
    let cases =
        [(Forgery::Ahead(1000), 1), (Forgery::Ahead(1000), 20), (Forgery::Ahead(1000), 2000)];
    compare(TRANSPORT_WIDE, &cases, 95);
    compare(PacketNumbers::Stream, &cases, 95);
}

/// A forger of the very next packets ends the assistance, but delays and suppresses no packet.
#[test]
fn forged_next_packets_end_assistance_but_suppress_no_packet() {
    // No repairs are promised here.
    let cases = [(Forgery::Next, 500), (Forgery::Next, 2000), (Forgery::Ahead(3), 2000)];
    compare(TRANSPORT_WIDE, &cases, 0);
    compare(PacketNumbers::Stream, &cases, 0);
}

#[test]
fn a_forged_packet_takes_no_waiting_one_away() {
    let mut world = World::new(TRANSPORT_WIDE);
    world.talk();
    let mut delivered = Vec::new();
    for number in 0..20u16 {
        world.now = world.now + Duration::from_millis(1);
        let bytes = packet(SOURCE, number, number.into());
        world.flow.forward(&bytes, world.now);
        if number != 10 {
            let now = world.now;
            world.helper.on_datagram(&bytes, now);
        }
        // No repair comes.
        while world.helper.poll_transmit(world.now).is_some() {}
        delivered.extend(std::iter::from_fn(|| world.helper.poll_deliver()));
    }
    assert_eq!((delivered.len(), world.helper.waited()), (10, 9));
    let now = world.now;
    for number in 11..20u16 {
        world.helper.on_datagram(&packet(SOURCE, number, 0xee), now);
    }
    world.helper.on_datagram(&packet(SOURCE, 10, 10), now);
    world.helper.handle_timeout(now + Duration::from_secs(2));
    delivered.extend(std::iter::from_fn(|| world.helper.poll_deliver()));
    for number in 0..20u16 {
        let authentic = packet(SOURCE, number, number.into());
        assert!(delivered.contains(&authentic), "{number} was taken away");
    }
}
