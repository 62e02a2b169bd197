//! The simulation: a base connection of numbered datagrams, a gateway, a client, and the weather
//! between them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
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
    pub(crate) fn calm(delay: Duration) -> Self {
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
    down: Weather {
        delay: Duration::from_millis(2),
        loss: 0.04,
        burst: 1.0,
        duplication: 0.0,
        reordering: 0.0,
        lateness: Duration::ZERO,
    },
    up: Weather {
        delay: Duration::from_millis(2),
        loss: 0.04,
        burst: 1.0,
        duplication: 0.0,
        reordering: 0.0,
        lateness: Duration::ZERO,
    },
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

struct World {
    random: ChaCha8Rng,
    schedule: Schedule<Event>,
    /// Datagrams still to be lost in the current burst, per direction.
    bursts: [u64; 2],
    /// See [`Scenario::bottleneck`], and until when it is busy.
    bottleneck: Option<(Duration, u32)>,
    busy: Timestamp,
    /// Links are FIFO unless they reorder: the latest arrival so far, per direction.
    latest: [Timestamp; 2],
}

impl World {
    fn chance(&mut self, probability: f64) -> bool {
        (self.random.next_u32() as f64) < probability * (u32::MAX as f64)
    }

    /// True when the datagram was lost.
    fn send(
        &mut self,
        weather: &Weather,
        direction: usize,
        client: SocketAddr,
        now: Timestamp,
        datagram: Vec<u8>,
    ) -> bool {
        if self.bursts[direction] > 0 {
            self.bursts[direction] -= 1;
            return true;
        }
        if weather.loss > 0.0 && self.chance(weather.loss / weather.burst) {
            while self.chance(1.0 - 1.0 / weather.burst) {
                self.bursts[direction] += 1;
            }
            return true;
        }
        let mut waits = Duration::ZERO;
        if let Some((each, room)) = self.bottleneck.filter(|_| direction == 0) {
            if self.busy.saturating_since(now) > each * room {
                return true;
            }
            self.busy = self.busy.max(now) + each;
            waits = self.busy.saturating_since(now);
        }
        let copies = if self.chance(weather.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            let mut arrival = now + weather.delay + waits;
            if self.chance(weather.reordering) {
                let late = weather.lateness.as_micros() as u64;
                arrival = arrival
                    + Duration::from_micros(u64::from(self.random.next_u32()) % late.max(1));
            } else {
                arrival = arrival.max(self.latest[direction]);
                self.latest[direction] = arrival;
            }
            let event = if direction == 0 { Event::AtClient } else { Event::AtGateway };
            let event = event(client, datagram.clone());
            self.schedule.plan(arrival, event);
        }
        false
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
    let config =
        GatewayConfig { cache_bytes_per_flow: scenario.cache_bytes, ..GatewayConfig::default() };
    let mut gateway = Gateway::new(config, [9; 32], [8; 32]);
    let mut flow = Flow::new(gateway.clone());
    let mut client_seed = [7; 32];
    client_seed[..8].copy_from_slice(&seed.to_be_bytes());
    let mut client =
        Assist::new(ClientConfig::default().with_live(scenario.live), client_seed, Timestamp::ZERO);
    // The client's address, and its address as the gateway knows it.
    let mut client_address: SocketAddr = "192.0.2.1:4433".parse().unwrap();
    let mut flow_address = client_address;
    let mut world = World {
        random: ChaCha8Rng::seed_from_u64(seed),
        schedule: Schedule::new(),
        bursts: [0; 2],
        bottleneck: scenario.bottleneck,
        busy: Timestamp::ZERO,
        latest: [Timestamp::ZERO; 2],
    };
    let mut out = Outbox::new();
    let mut gateway_counters = FlowCounters::default();
    let (mut lost, mut forwarded, mut delivered, mut cache_high_water) = (0, 0, BTreeSet::new(), 0);
    // The base connection's own handshake takes a moment: the first datagrams come when the client
    // has asked for a gateway.
    for number in 0..scenario.datagrams {
        let at = Timestamp::from_millis(5) + scenario.spacing * number as u32;
        world.schedule.plan(at, Event::Server(number));
    }
    let end = Timestamp::from_millis(5)
        + scenario.spacing * scenario.datagrams as u32
        // Unacknowledged bytes are kept for the length of an outage.
        + Duration::from_millis(12_500);
    let mut now = Timestamp::ZERO;
    let mut steps = 0u64;
    let mut up = scenario.up;
    loop {
        steps += 1;
        assert!(steps < 2_000_000, "seed {seed}: the simulation does not come to an end");
        while let Some(bytes) = client.poll_transmit(now) {
            assert!(is_control(&bytes));
            world.send(&up, 1, client_address, now, bytes);
        }
        let next = [world.schedule.next_at(), client.next_timeout(), flow.next_timeout()]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next.filter(|next| *next <= end) else { break };
        now = now.max(next);
        if client.next_timeout().is_some_and(|at| at <= now) {
            client.handle_timeout(now);
        }
        if flow.next_timeout().is_some_and(|at| at <= now) {
            flow.handle_timeout(now, &mut out);
        }
        if let Some(event) = world.schedule.take(now) {
            match event {
                Event::Server(number) => {
                    if scenario.up_dies_at == Some(number) {
                        up.loss = f64::INFINITY;
                    }
                    if scenario.rebind_at == Some(number) {
                        client_address.set_port(5544);
                    }
                    if scenario.reset_every.is_some_and(|every| number % every == every - 1) {
                        client.reset(now);
                    }
                    if scenario.restart_at == Some(number) {
                        gateway = Gateway::new(config, [9; 32], [6; 32]);
                        flow = Flow::new(gateway.clone());
                    }
                    if !world.chance(scenario.far_loss) {
                        forwarded += 1;
                        let bytes = datagram(seed, number);
                        flow.forward(&bytes, now);
                        lost += u64::from(world.send(&scenario.down, 0, flow_address, now, bytes));
                    }
                    if scenario.hostile && world.chance(0.05) {
                        let bytes = garbage(&mut world.random);
                        client.on_datagram(&bytes, now);
                        let bytes = garbage(&mut world.random);
                        world.schedule.plan(now, Event::AtGateway(client_address, bytes));
                    }
                }
                Event::AtClient(to, bytes) => {
                    if to != client_address {
                        lost += 1;
                    } else if client.on_datagram(&bytes, now) == Datagram::Base {
                        let number = u64::from_be_bytes(bytes[1..9].try_into().unwrap());
                        assert_eq!(
                            bytes,
                            datagram(seed, number),
                            "seed {seed}: a repair is not an exact copy"
                        );
                        delivered.insert(number);
                        client.on_packet_number(PacketNumber::new(number), now);
                    }
                }
                Event::AtGateway(from, bytes) => match gateway.receive(&bytes, from, now, &mut out)
                {
                    Received::Done(_) => {}
                    Received::Begin(begin) => {
                        let mut fresh = [0; 32];
                        world.random.fill_bytes(&mut fresh);
                        flow.begin(begin, fresh, now, &mut out);
                        flow_address = from;
                    }
                    Received::ForFlow if from == flow_address => {
                        flow.control(&bytes, now, &mut out)
                    }
                    Received::ForFlow => {
                        let mut random = [0; 8];
                        world.random.fill_bytes(&mut random);
                        let path =
                            NetworkPath { client: from, gateway: ([192, 0, 2, 1], 443).into() };
                        let decide = || PathUse::Free;
                        let event = flow.control_on_new_path(
                            &bytes,
                            path,
                            || random,
                            decide,
                            now,
                            &mut out,
                        );
                        if event == PathEvent::Validated {
                            flow_address = from;
                        }
                        for bytes in out.datagrams() {
                            world.send(&scenario.down, 0, from, now, bytes.to_vec());
                        }
                        out.clear();
                    }
                },
            }
        }
        for bytes in out.datagrams() {
            world.send(&scenario.down, 0, flow_address, now, bytes.to_vec());
        }
        out.clear();
        gateway_counters.add(&flow.take_counters());
        let gauges = flow.gauges();
        assert!(gauges.cache_bytes <= scenario.cache_bytes as u64);
        cache_high_water = cache_high_water.max(gauges.cache_high_water_bytes);
    }
    let cache_bytes_at_end = flow.gauges().cache_bytes;
    flow.close(GoodbyeReason::Idle, &mut out);
    assert!(flow.gauges().cache_bytes == 0 && gateway.sessions() == 0);
    Outcome {
        client: client.stats(),
        gateway: gateway_counters,
        forwarded,
        lost,
        delivered,
        cache_high_water,
        cache_bytes_at_end,
    }
}
