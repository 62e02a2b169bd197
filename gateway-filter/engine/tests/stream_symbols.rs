//! Symbols to a group: one repairs another loss at each receiver, old receivers have no
//! disadvantage, and each that can't use them still has repairs.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use packrat_client::{Assist, ClientConfig, Datagram, Live, PacketNumber};
use packrat_engine::{
    Gateway, GatewayConfig, Stream, StreamConfig, StreamCounters, StreamOutbox, Target,
};
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::IdentifierScheme;
use packrat_wire::seal::session_of;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const DELAY: u64 = 10;

/// Fate of symbols on their way to one receiver.
#[derive(Clone, Copy, PartialEq)]
enum Symbols {
    Pass,
    Lost,
    /// A bit is another one: as from an attacker without the key.
    Forged,
}

struct Member {
    address: SocketAddr,
    assist: Assist,
    loss: f64,
    /// Most milliseconds by which datagrams are late.
    jitter: u64,
    symbols: Symbols,
    received: BTreeSet<u64>,
    first: Option<u64>,
}

struct World {
    now: u64,
    random: ChaCha8Rng,
    stream: Stream,
    members: Vec<Member>,
    down: Vec<(u64, usize, Vec<u8>)>,
    up: VecDeque<(u64, usize, Vec<u8>)>,
    number: u64,
    length: usize,
    counters: StreamCounters,
    out: StreamOutbox,
}

impl World {
    fn new(seed: u64) -> Self {
        let gateway = Gateway::new(GatewayConfig::default(), [1; 32], [2; 32]);
        let config = StreamConfig {
            group_repairs_from: Some(3),
            cache_bytes: 256 * 1024,
            ..StreamConfig::default()
        };
        Self {
            now: 1,
            random: ChaCha8Rng::seed_from_u64(seed),
            stream: Stream::new(gateway, config, [3; 32]),
            members: Vec::new(),
            down: Vec::new(),
            up: VecDeque::new(),
            number: 0,
            length: 240,
            counters: StreamCounters::default(),
            out: StreamOutbox::new(),
        }
    }

    fn join(&mut self, loss: f64, symbols: bool) -> usize {
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        let live = Live {
            selective: true,
            subscribe: true,
            window: Duration::from_millis(400),
            tolerance: Duration::ZERO,
            symbols,
        };
        let config = ClientConfig::default().with_live(live).with_scheme(IdentifierScheme::Payload);
        let number = self.members.len() as u8;
        self.members.push(Member {
            address: ([10, 0, number, 1], 1000).into(),
            assist: Assist::new(config, seed, Timestamp::from_millis(self.now)),
            loss,
            jitter: 0,
            symbols: Symbols::Pass,
            received: BTreeSet::new(),
            first: None,
        });
        self.members.len() - 1
    }

    fn packet(&self, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        ChaCha8Rng::seed_from_u64(number).fill_bytes(&mut bytes);
        bytes[0] = 0x80;
        bytes[1..9].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    fn deliver(&mut self, index: usize, bytes: &[u8], is_symbol: bool) {
        let member = &self.members[index];
        let mut bytes = bytes.to_vec();
        match member.symbols {
            Symbols::Lost if is_symbol => return,
            Symbols::Forged if is_symbol => bytes[40] ^= 1,
            _ => {}
        }
        let late = u64::from(self.random.next_u32()) % (member.jitter + 1);
        if f64::from(self.random.next_u32()) >= member.loss * f64::from(u32::MAX) {
            self.down.push((self.now + DELAY + late, index, bytes));
        }
    }

    fn drain(&mut self) {
        let sent: Vec<(Target, Vec<u8>)> =
            self.out.datagrams().map(|(target, bytes)| (target, bytes.to_vec())).collect();
        self.out.clear();
        for (target, bytes) in sent {
            let is_symbol = target == Target::Group && session_of(&bytes).is_some();
            for index in 0..self.members.len() {
                if target == Target::Group || target == Target::One(self.members[index].address) {
                    self.deliver(index, &bytes, is_symbol);
                }
            }
        }
        self.counters.add(&self.stream.take_counters());
    }

    /// Runs for this many milliseconds, with a packet in each if the stream is on.
    fn run(&mut self, milliseconds: u64, on: bool) {
        for _ in 0..milliseconds {
            self.now += 1;
            let now = Timestamp::from_millis(self.now);
            if on {
                let bytes = self.packet(self.number);
                self.number += 1;
                self.stream.forward(&bytes, now);
                for index in 0..self.members.len() {
                    self.deliver(index, &bytes, false);
                }
                self.stream.send_symbols(now, &mut self.out);
                self.drain();
            }
            while self.up.front().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, index, bytes) = self.up.pop_front().unwrap();
                let (from, mut seed) = (self.members[index].address, [0; 32]);
                self.random.fill_bytes(&mut seed);
                self.stream.receive(&bytes, from, || seed, now, &mut self.out);
                self.drain();
            }
            let due;
            (due, self.down) = self.down.drain(..).partition(|(at, ..)| *at <= self.now);
            for (_, index, bytes) in due {
                self.arrive(index, &bytes, now);
            }
            self.stream.handle_timeout(now, &mut self.out);
            self.drain();
            for index in 0..self.members.len() {
                let member = &mut self.members[index];
                member.assist.handle_timeout(now);
                while let Some(bytes) = member.assist.poll_transmit(now) {
                    if f64::from(self.random.next_u32()) >= member.loss * f64::from(u32::MAX) {
                        self.up.push_back((self.now + DELAY, index, bytes));
                    }
                }
            }
        }
    }

    fn arrive(&mut self, index: usize, bytes: &[u8], now: Timestamp) {
        let mut arrived = vec![];
        if self.members[index].assist.on_datagram(bytes, now) == Datagram::Base {
            arrived.push(bytes.to_vec());
        }
        loop {
            for bytes in arrived.drain(..) {
                let number = u64::from_be_bytes(bytes[1..9].try_into().unwrap());
                assert_eq!(bytes, self.packet(number), "not an exact copy");
                let member = &mut self.members[index];
                let first = *member.first.get_or_insert(number);
                member.received.insert(number);
                if let Some(place) = number.checked_sub(first) {
                    member.assist.on_packet_number(PacketNumber::new(place), now);
                }
            }
            let member = &mut self.members[index];
            let Some(bytes) = member.assist.poll_recovered() else { return };
            assert_eq!(member.assist.on_datagram(&bytes, now), Datagram::Base);
            arrived.push(bytes);
        }
    }

    /// Packets that a member misses, from a while after its first one until a while ago.
    fn missing(&self, member: usize) -> usize {
        let member = &self.members[member];
        let first = member.first.unwrap() + 200;
        (first..self.number - 500).filter(|number| !member.received.contains(number)).count()
    }

    fn recovered(&self, member: usize) -> u64 {
        self.members[member].assist.stats().recovered_from_group
    }

    /// Symbols and repairs per packet of the stream.
    fn per_packet(&self) -> f64 {
        (self.counters.stream_symbols + self.counters.stream_repairs) as f64 / self.number as f64
    }
}

#[test]
fn one_symbol_repairs_another_loss_at_each_receiver() {
    let mut world = World::new(11);
    for _ in 0..16 {
        world.join(0.1, true);
    }
    world.run(1000, false);
    world.run(3000, true);
    for member in 0..16 {
        assert!(world.missing(member) <= 2, "member {member} misses {}", world.missing(member));
        assert!(world.recovered(member) > 150, "{}", world.recovered(member));
    }
    // Repairs to each, or to all who miss the same, were 1.6.
    assert!(world.per_packet() < 0.4, "{} {:?}", world.per_packet(), world.counters);
    assert_eq!(world.counters.stream_resets, 0);
}

#[test]
fn long_packets_have_two_halves() {
    let mut world = World::new(12);
    world.length = 1200;
    for _ in 0..6 {
        world.join(0.1, true);
    }
    world.run(500, false);
    world.run(2000, true);
    for member in 0..6 {
        assert!(world.missing(member) <= 2, "member {member} misses {}", world.missing(member));
        assert!(world.recovered(member) > 50, "{}", world.recovered(member));
    }
}

#[test]
fn nothing_is_sent_where_nothing_is_lost_or_nobody_takes_it() {
    for (loss, symbols) in [(0.0, true), (0.1, false)] {
        let mut world = World::new(13);
        for _ in 0..8 {
            world.join(loss, symbols);
        }
        world.run(500, false);
        world.run(1500, true);
        assert_eq!(world.counters.stream_symbols, 0);
        assert!((0..8).all(|member| world.missing(member) <= 2 && world.recovered(member) == 0));
    }
}

#[test]
fn receivers_without_symbols_have_their_repairs() {
    let mut world = World::new(14);
    for member in 0..16 {
        world.join(0.1, member % 4 != 0);
    }
    world.run(1000, false);
    for member in [1, 2] {
        world.members[member].symbols = Symbols::Lost;
        world.members[member + 4].symbols = Symbols::Forged;
    }
    world.run(2500, true);
    assert!(world.counters.stream_symbols > 150, "{:?}", world.counters);
    for member in 0..16 {
        assert!(world.missing(member) <= 10, "member {member} misses {}", world.missing(member));
        let has_symbols = member % 4 != 0 && world.members[member].symbols == Symbols::Pass;
        assert_eq!(world.recovered(member) > 0, has_symbols, "member {member}");
    }
}

#[test]
fn a_late_receiver_soon_uses_symbols_and_misses_nothing_before() {
    let mut world = World::new(15);
    for _ in 0..8 {
        world.join(0.1, true);
    }
    world.run(1000, false);
    world.run(1000, true);
    let late = world.join(0.1, true);
    world.run(2000, true);
    assert!(world.missing(late) <= 2, "{}", world.missing(late));
    assert!(world.recovered(late) > 80, "{}", world.recovered(late));
}

#[test]
fn datagrams_out_of_order_are_recovered_all_the_same() {
    let mut world = World::new(16);
    for _ in 0..8 {
        let member = world.join(0.1, true);
        world.members[member].jitter = 6;
    }
    world.run(500, false);
    world.run(2000, true);
    for member in 0..8 {
        assert!(world.missing(member) <= 2, "member {member} misses {}", world.missing(member));
        assert!(world.recovered(member) > 80, "{}", world.recovered(member));
    }
}

#[test]
fn the_loss_of_a_few_does_not_drive_the_rate_for_all() {
    let mut world = World::new(17);
    for member in 0..24 {
        world.join(if member < 2 { 0.4 } else { 0.05 }, true);
    }
    world.run(500, false);
    world.run(2000, true);
    let symbols = world.counters.stream_symbols as f64 / world.number as f64;
    assert!(symbols < 0.35, "{symbols}");
    assert!((2..24).all(|member| world.missing(member) <= 2));
}
