//! An outage of the last mile that takes thousands of datagrams: what their names cost, and how
//! soon the session is as before.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{ClientConfig, Shim, Timestamp, Verdict};
use packrat_emulation::schedule::Schedule;
use packrat_engine::{Flow, FlowCounters, Gateway, GatewayConfig, Outbox, SenderAnswer};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::ends::{Turn, hear, next};

const BEGIN: Timestamp = Timestamp::from_millis(1000);
const OUT: Timestamp = Timestamp::from_millis(1600);
const OUTAGE: Duration = Duration::from_millis(500);
const LENGTH: usize = 120;

#[derive(Debug, Clone, Copy)]
struct Setting {
    /// One way.
    delay: Duration,
    /// Between the server's datagrams.
    interval: Duration,
    /// Lost towards the client after the outage, per 1000.
    loss_after: u32,
    config: GatewayConfig,
}

impl Setting {
    /// As many datagrams as 100 Mbit/s are with 1452 bytes each: 8,600 a second.
    fn fast() -> Self {
        Self {
            delay: Duration::from_millis(20),
            interval: Duration::from_micros(116),
            loss_after: 0,
            config: GatewayConfig { sender: SenderAnswer::Always, ..GatewayConfig::default() },
        }
    }

    fn end() -> Timestamp {
        OUT + OUTAGE
    }
}

#[derive(Debug)]
enum Event {
    Server(u64),
    ToClient(Vec<u8>),
    ToGateway(Vec<u8>),
}

struct World {
    setting: Setting,
    now: Timestamp,
    random: ChaCha8Rng,
    gateway: Arc<Gateway>,
    flow: Flow,
    shim: Shim<()>,
    schedule: Schedule<Event>,
    arrived: BTreeMap<u64, Timestamp>,
    lost_in_outage: Vec<u64>,
    lost_after: Vec<(u64, Timestamp)>,
    counters: FlowCounters,
    /// Bytes of eACKs when the outage ended; when it was known what it took, and the bytes until
    /// then.
    bytes_before: u64,
    named: Option<(Timestamp, u64)>,
}

fn datagram(number: u64) -> Vec<u8> {
    let mut bytes = vec![0x40; LENGTH];
    ChaCha8Rng::seed_from_u64(number).fill_bytes(&mut bytes[LENGTH - 32..]);
    bytes[1..9].copy_from_slice(&number.to_be_bytes());
    bytes
}

impl World {
    fn new(setting: Setting, seed: u64) -> Self {
        let gateway = Gateway::new(setting.config, [3; 32], [4; 32]);
        Self {
            setting,
            now: BEGIN,
            random: ChaCha8Rng::seed_from_u64(seed),
            flow: Flow::new(Arc::clone(&gateway)),
            gateway,
            shim: Shim::new(ClientConfig::default(), [9; 32], BEGIN),
            schedule: Schedule::new(),
            arrived: BTreeMap::new(),
            lost_in_outage: Vec::new(),
            lost_after: Vec::new(),
            counters: FlowCounters::default(),
            bytes_before: 0,
            named: None,
        }
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.schedule.plan(self.now + after, event);
    }

    fn is_out(&self) -> bool {
        (OUT..Setting::end()).contains(&self.now)
    }

    /// False if it is lost.
    fn down(&mut self, bytes: Vec<u8>) -> bool {
        let lost =
            self.now >= Setting::end() && self.random.next_u32() % 1000 < self.setting.loss_after;
        let passes = !self.is_out() && !lost;
        if passes {
            self.plan(self.setting.delay, Event::ToClient(bytes));
        }
        passes
    }

    fn serve(&mut self, number: u64) {
        let mut bytes = datagram(number);
        if let Some(header) = self.flow.forward(&bytes, self.now) {
            bytes.splice(..0, header);
        }
        if !self.down(bytes) {
            match self.is_out() {
                true => self.lost_in_outage.push(number),
                false => self.lost_after.push((number, self.now)),
            }
        }
        self.plan(self.setting.interval, Event::Server(number + 1));
    }

    fn flush(&mut self, out: &mut Outbox) {
        self.counters.add(&self.flow.take_counters());
        for bytes in out.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>() {
            self.down(bytes);
        }
        out.clear();
        let took = self.lost_in_outage.len() as u64;
        if self.named.is_none() && took > 0 && self.counters.datagrams_missing >= took {
            let bytes = self.shim.assistance().eack_bytes - self.bytes_before;
            self.named = Some((self.now, bytes));
        }
    }

    fn pass(&mut self, bytes: &[u8]) {
        let number = u64::from_be_bytes(bytes[1..9].try_into().unwrap());
        self.arrived.entry(number).or_insert(self.now);
    }

    fn release(&mut self) {
        while let Some(released) = self.shim.poll_deliver() {
            self.pass(&released.datagram);
        }
        while let Some(said) = self.shim.poll_transmit(self.now) {
            if !self.is_out() {
                self.plan(self.setting.delay, Event::ToGateway(said));
            }
        }
        if self.now < Setting::end() {
            self.bytes_before = self.shim.assistance().eack_bytes;
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Server(number) => self.serve(number),
            Event::ToClient(bytes) => {
                if let Verdict::Now { skip, .. } = self.shim.on_datagram(&bytes, (), self.now) {
                    self.pass(&bytes[skip..]);
                }
                self.release();
            }
            Event::ToGateway(said) => {
                let (mut out, client) = (Outbox::new(), SocketAddr::from(([192, 0, 2, 1], 5000)));
                hear(&self.gateway, &mut self.flow, &said, client, [5; 32], self.now, &mut out);
                self.flush(&mut out);
            }
        }
    }

    /// Until so long after the outage.
    fn run(mut self, after: Duration) -> Self {
        self.release();
        self.plan(Duration::from_millis(100), Event::Server(0));
        while self.now < Setting::end() + after {
            let Self { now, flow, shim, schedule, .. } = &mut self;
            match next(now, Some(flow), shim, schedule).unwrap() {
                Turn::Flow(mut out) => self.flush(&mut out),
                Turn::Shim => self.release(),
                Turn::Event(event) => self.happen(event),
            }
        }
        self
    }
}

/// Bytes of eACKs for each datagram that the outage takes, until it is named, and the time in round
/// trips of the last mile.
fn named(setting: Setting, seed: u64) -> (World, f64, f64) {
    let world = World::new(setting, seed).run(Duration::from_millis(400));
    assert!(world.named.is_some(), "not named: {:?}", world.counters);
    let (at, bytes) = world.named.unwrap();
    let each = bytes as f64 / world.lost_in_outage.len() as f64;
    let round_trip = 2.0 * setting.delay.as_secs_f64();
    let round_trips = at.saturating_since(Setting::end()).as_secs_f64() / round_trip;
    (world, each, round_trips)
}

#[test]
fn an_outage_is_named_in_few_bytes_and_three_round_trips() {
    for (delay, interval) in [(20, 116), (10, 116), (50, 116), (30, 300)] {
        let delay = Duration::from_millis(delay);
        let interval = Duration::from_micros(interval);
        let (world, each, round_trips) = named(Setting { delay, interval, ..Setting::fast() }, 1);
        let took = world.lost_in_outage.len();
        println!(
            "{delay:?}, {interval:?}: {took}, {each:.2} bytes each, {round_trips:.2} round trips"
        );
        let counters = &world.counters;
        assert_eq!(counters.resets_gateway + counters.resets_client, 0, "{delay:?}");
        assert!(each < 4.0, "{delay:?}: {each} bytes for each of {took}");
        assert!(round_trips < 3.0, "{delay:?}: {round_trips}");
    }
}

#[test]
fn what_is_lost_after_an_outage_is_repaired_at_once() {
    let setting = Setting { loss_after: 20, ..Setting::fast() };
    let world = World::new(setting, 1).run(Duration::from_millis(600));
    let since = Setting::end() + 6 * setting.delay;
    let until = Setting::end() + Duration::from_millis(500);
    let lost: Vec<_> =
        world.lost_after.iter().filter(|(_, at)| (since..until).contains(at)).collect();
    let repaired = lost.iter().filter(|(number, _)| world.arrived.contains_key(number)).count();
    println!("{repaired} of {}", lost.len());
    assert!(repaired * 10 >= lost.len() * 9, "{repaired} of {}: {:?}", lost.len(), world.counters);
}

#[test]
fn an_outages_newest_cached_datagrams_are_repaired() {
    let config = GatewayConfig { cache_bytes_per_flow: 16 << 20, ..Setting::fast().config };
    let setting = Setting { config, ..Setting::fast() };
    let world = World::new(setting, 1).run(Duration::from_millis(600));
    let within = Setting::end() + 8 * setting.delay;
    let newest = world.lost_in_outage.iter().rev().take(256);
    let repaired =
        newest.filter(|number| world.arrived.get(number).is_some_and(|at| *at < within)).count();
    assert!(repaired >= 240, "{repaired}");
    let counters = &world.counters;
    assert_eq!((counters.resets_gateway, counters.budget_refusals), (0, 0));
    assert!(counters.symbols + counters.repair_copies < 100, "{counters:?}");
}
