//! The simulation: a base connection of numbered datagrams, a gateway, a client, and the weather
//! between them.

use std::collections::BTreeSet;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{Assist, AssistStats, ClientConfig, Datagram, Live, PacketNumber};
use packrat_emulation::schedule::Schedule;
use packrat_engine::{
    Flow, FlowCounters, Gateway, GatewayConfig, NetworkPath, Outbox, PathEvent, PathUse, Received,
};
use packrat_wire::estimate::Timestamp;
use packrat_wire::is_control;
use packrat_wire::message::GoodbyeReason;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// One direction of the last mile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) delay: Duration,
    pub(crate) loss: f64,
    /// Mean number of datagrams lost in a row.
    pub(crate) burst: f64,
    pub(crate) duplication: f64,
    /// Share of datagrams that are late by up to `lateness`.
    pub(crate) reordering: f64,
    pub(crate) lateness: Duration,
}

impl Weather {
    pub(crate) const fn calm(delay: Duration) -> Self {
        Self {
            delay,
            loss: 0.0,
            burst: 1.0,
            duplication: 0.0,
            reordering: 0.0,
            lateness: Duration::ZERO,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) down: Weather,
    pub(crate) up: Weather,
    pub(crate) datagrams: u64,
    /// Time between two datagrams of the server.
    pub(crate) spacing: Duration,
    pub(crate) cache_bytes: usize,
    /// Time that the last mile takes for each datagram towards the client, and how many may wait.
    pub(crate) bottleneck: Option<(Duration, u32)>,
    /// Share of datagrams lost before the gateway: no gateway can repair them.
    pub(crate) far_loss: f64,
    /// Random control datagrams thrown at both ends.
    pub(crate) hostile: bool,
    /// The client's NAT gives it another port when this datagram passes.
    pub(crate) rebind_at: Option<u64>,
    /// Number of datagrams after which the client asks for a Reset, each time.
    pub(crate) reset_every: Option<u64>,
    /// No datagram of the client arrives any more when this datagram passes.
    pub(crate) up_dies_at: Option<u64>,
    /// The gateway's process starts anew when this datagram passes.
    pub(crate) restart_at: Option<u64>,
    /// The client receives a live stream.
    pub(crate) live: Option<Live>,
}

pub(crate) const WIFI: Scenario = Scenario {
    down: Weather { loss: 0.04, ..Weather::calm(Duration::from_millis(2)) },
    up: Weather { loss: 0.04, ..Weather::calm(Duration::from_millis(2)) },
    datagrams: 3000,
    spacing: Duration::from_micros(480),
    cache_bytes: 256 * 1024,
    bottleneck: None,
    far_loss: 0.0,
    hostile: false,
    rebind_at: None,
    restart_at: None,
    reset_every: None,
    up_dies_at: None,
    live: None,
};

#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) client: AssistStats,
    pub(crate) gateway: FlowCounters,
    pub(crate) forwarded: u64,
    pub(crate) lost: u64,
    pub(crate) delivered: BTreeSet<u64>,
    pub(crate) cache_high_water: u64,
    pub(crate) cache_bytes_at_end: u64,
}

enum Event {
    Server(u64),
    /// With the address it was sent to.
    AtClient(SocketAddr, Vec<u8>),
    /// With the address it came from.
    AtGateway(SocketAddr, Vec<u8>),
}

#[derive(Clone, Copy)]
enum Direction {
    Down,
    Up,
}

struct World<'a> {
    scenario: &'a Scenario,
    seed: u64,
    now: Timestamp,
    random: ChaCha8Rng,
    schedule: Schedule<Event>,
    /// The weather towards the gateway, which may die.
    up: Weather,
    /// Datagrams still to be lost in the current burst, per direction.
    bursts: [u64; 2],
    /// Until when the bottleneck is busy.
    busy: Timestamp,
    /// Links are FIFO unless they reorder: the latest arrival so far, per direction.
    latest: [Timestamp; 2],
    client: Assist,
    client_address: SocketAddr,
    gateway: Arc<Gateway>,
    flow: Flow,
    /// The client's address as the gateway knows it.
    flow_address: SocketAddr,
    out: Outbox,
    outcome: Outcome,
}

/// A gateway with nothing but its keys, and a flow of it.
fn gateway(scenario: &Scenario, key: u8) -> (Arc<Gateway>, Flow) {
    let config =
        GatewayConfig { cache_bytes_per_flow: scenario.cache_bytes, ..GatewayConfig::default() };
    let gateway = Gateway::new(config, [9; 32], [key; 32]);
    let flow = Flow::new(gateway.clone());
    (gateway, flow)
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let mut client_seed = [7; 32];
        client_seed[..8].copy_from_slice(&seed.to_be_bytes());
        let client = ClientConfig::default().with_live(scenario.live);
        let address = "192.0.2.1:4433".parse().unwrap();
        let (gateway, flow) = gateway(scenario, 8);
        Self {
            scenario,
            seed,
            now: Timestamp::ZERO,
            random: ChaCha8Rng::seed_from_u64(seed),
            schedule: Schedule::new(),
            up: scenario.up,
            bursts: [0; 2],
            busy: Timestamp::ZERO,
            latest: [Timestamp::ZERO; 2],
            client: Assist::new(client, client_seed, Timestamp::ZERO),
            client_address: address,
            gateway,
            flow,
            flow_address: address,
            out: Outbox::new(),
            outcome: Outcome::default(),
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        (self.random.next_u32() as f64) < probability * (u32::MAX as f64)
    }

    /// True when the datagram was lost.
    fn send(&mut self, direction: Direction, client: SocketAddr, datagram: Vec<u8>) -> bool {
        let way = direction as usize;
        let weather = [self.scenario.down, self.up][way];
        if self.bursts[way] > 0 {
            self.bursts[way] -= 1;
            return true;
        }
        if weather.loss > 0.0 && self.chance(weather.loss / weather.burst) {
            while self.chance(1.0 - 1.0 / weather.burst) {
                self.bursts[way] += 1;
            }
            return true;
        }
        let is_down = matches!(direction, Direction::Down);
        let mut waits = Duration::ZERO;
        if let Some((each, room)) = self.scenario.bottleneck.filter(|_| is_down) {
            if self.busy.saturating_since(self.now) > each * room {
                return true;
            }
            self.busy = self.busy.max(self.now) + each;
            waits = self.busy.saturating_since(self.now);
        }
        let copies = if self.chance(weather.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            let mut arrival = self.now + weather.delay + waits;
            if self.chance(weather.reordering) {
                let late = weather.lateness.as_micros() as u64;
                arrival = arrival
                    + Duration::from_micros(u64::from(self.random.next_u32()) % late.max(1));
            } else {
                arrival = arrival.max(self.latest[way]);
                self.latest[way] = arrival;
            }
            let event = if is_down { Event::AtClient } else { Event::AtGateway };
            self.schedule.plan(arrival, event(client, datagram.clone()));
        }
        false
    }

    /// Sends what the gateway has for the client at this address.
    fn send_outbox(&mut self, to: SocketAddr) {
        for bytes in mem::take(&mut self.out).datagrams() {
            self.send(Direction::Down, to, bytes.to_vec());
        }
    }

    /// Goes on to the next event. False if there is none before the end.
    fn step(&mut self, end: Timestamp) -> bool {
        while let Some(bytes) = self.client.poll_transmit(self.now) {
            assert!(is_control(&bytes));
            self.send(Direction::Up, self.client_address, bytes);
        }
        let timeouts = [self.client.next_timeout(), self.flow.next_timeout()];
        let next = timeouts.into_iter().chain([self.schedule.next_at()]).flatten().min();
        let Some(next) = next.filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        let is_due = |at: Option<Timestamp>| at.is_some_and(|at| at <= self.now);
        if is_due(self.client.next_timeout()) {
            self.client.handle_timeout(self.now);
        }
        if is_due(self.flow.next_timeout()) {
            self.flow.handle_timeout(self.now, &mut self.out);
        }
        match self.schedule.take(self.now) {
            Some(Event::Server(number)) => self.serve(number),
            Some(Event::AtClient(to, bytes)) => self.hear(to, &bytes),
            Some(Event::AtGateway(from, bytes)) => self.receive(from, &bytes),
            None => {}
        }
        self.send_outbox(self.flow_address);
        self.outcome.gateway.add(&self.flow.take_counters());
        let gauges = self.flow.gauges();
        assert!(gauges.cache_bytes <= self.scenario.cache_bytes as u64);
        let high_water = &mut self.outcome.cache_high_water;
        *high_water = gauges.cache_high_water_bytes.max(*high_water);
        true
    }

    /// The server sends this datagram; with it come the scenario's incidents.
    fn serve(&mut self, number: u64) {
        let scenario = self.scenario;
        if scenario.up_dies_at == Some(number) {
            self.up.loss = f64::INFINITY;
        }
        if scenario.rebind_at == Some(number) {
            self.client_address.set_port(5544);
        }
        if scenario.reset_every.is_some_and(|every| number % every == every - 1) {
            self.client.reset(self.now);
        }
        if scenario.restart_at == Some(number) {
            (self.gateway, self.flow) = gateway(scenario, 6);
        }
        if !self.chance(scenario.far_loss) {
            self.outcome.forwarded += 1;
            let bytes = datagram(self.seed, number);
            self.flow.forward(&bytes, self.now);
            self.outcome.lost += u64::from(self.send(Direction::Down, self.flow_address, bytes));
        }
        if scenario.hostile && self.chance(0.05) {
            let bytes = garbage(&mut self.random);
            self.client.on_datagram(&bytes, self.now);
            let bytes = garbage(&mut self.random);
            self.schedule.plan(self.now, Event::AtGateway(self.client_address, bytes));
        }
    }

    /// The client hears what was sent to this address.
    fn hear(&mut self, to: SocketAddr, bytes: &[u8]) {
        if to != self.client_address {
            self.outcome.lost += 1;
        } else if self.client.on_datagram(bytes, self.now) == Datagram::Base {
            let (seed, number) = (self.seed, u64::from_be_bytes(bytes[1..9].try_into().unwrap()));
            assert_eq!(bytes, datagram(seed, number), "seed {seed}: a repair is not an exact copy");
            self.outcome.delivered.insert(number);
            self.client.on_packet_number(PacketNumber::new(number), self.now);
        }
    }

    /// The gateway receives what has come from this address.
    fn receive(&mut self, from: SocketAddr, bytes: &[u8]) {
        let Self { now, flow, out, random, .. } = self;
        match self.gateway.receive(bytes, from, *now, out) {
            Received::Done(_) => {}
            Received::Begin(begin) => {
                let mut fresh = [0; 32];
                random.fill_bytes(&mut fresh);
                flow.begin(begin, fresh, *now, out);
                self.flow_address = from;
            }
            Received::ForFlow if from == self.flow_address => flow.control(bytes, *now, out),
            Received::ForFlow => {
                let mut challenge = [0; 8];
                random.fill_bytes(&mut challenge);
                let path = NetworkPath { client: from, gateway: ([192, 0, 2, 1], 443).into() };
                let (challenge, decide) = (|| challenge, || PathUse::Free);
                let event = flow.control_on_new_path(bytes, path, challenge, decide, *now, out);
                if event == PathEvent::Validated {
                    self.flow_address = from;
                }
                self.send_outbox(from);
            }
        }
    }
}

/// The datagram with a number: random to the eye, the same each time.
fn datagram(seed: u64, number: u64) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9));
    let length = 1100 + (random.next_u32() % 150) as usize;
    let mut bytes = vec![0; length];
    random.fill_bytes(&mut bytes);
    bytes[0] |= 0x40;
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn garbage(random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = vec![0; 5 + (random.next_u32() % 300) as usize];
    random.fill_bytes(&mut bytes);
    bytes[..4].copy_from_slice(&[packrat_wire::control::FIRST_BYTE, b'P', b'k', b'r']);
    bytes[4] = 0x10 | (bytes[4] & 0x0f);
    bytes
}

pub(crate) fn run(scenario: &Scenario, seed: u64) -> Outcome {
    let mut world = World::new(scenario, seed);
    // The base connection's own handshake takes a moment: the first datagrams come when the client
    // has asked for a gateway.
    let at = |number: u64| Timestamp::from_millis(5) + scenario.spacing * number as u32;
    for number in 0..scenario.datagrams {
        world.schedule.plan(at(number), Event::Server(number));
    }
    // Unacknowledged bytes are kept for the length of an outage.
    let end = at(scenario.datagrams) + Duration::from_millis(12_500);
    let mut steps = 0u64;
    while world.step(end) {
        steps += 1;
        assert!(steps < 2_000_000, "seed {seed}: the simulation does not come to an end");
    }
    let World { mut flow, gateway, client, mut out, outcome, .. } = world;
    let cache_bytes_at_end = flow.gauges().cache_bytes;
    flow.close(GoodbyeReason::Idle, &mut out);
    assert!(flow.gauges().cache_bytes == 0 && gateway.sessions() == 0);
    Outcome { client: client.stats(), cache_bytes_at_end, ..outcome }
}
