//! An outage of the last mile that takes thousands of datagrams: what their names cost, and how
//! soon the session is as before.

use std::collections::BTreeMap;
use std::time::Duration;

use packrat_client::{ClientConfig, Timestamp};
use packrat_engine::{Gateway, GatewayConfig, Outbox, SenderAnswer};

use crate::ends::{Ends, Event, World, datagram};

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

struct Path {
    setting: Setting,
    ends: Ends<(), u64>,
    arrived: BTreeMap<u64, Timestamp>,
    lost_in_outage: Vec<u64>,
    lost_after: Vec<(u64, Timestamp)>,
    /// Bytes of eACKs when the outage ended; when it was known what it took, and the bytes until
    /// then.
    bytes_before: u64,
    named: Option<(Timestamp, u64)>,
}

impl Path {
    /// Until this long after the outage.
    fn run(setting: Setting, seed: u64, after: Duration) -> Self {
        let gateway = Gateway::new(setting.config, [3; 32], [4; 32]);
        let mut path = Self {
            setting,
            ends: Ends::new(gateway, ClientConfig::default(), seed),
            arrived: BTreeMap::new(),
            lost_in_outage: Vec::new(),
            lost_after: Vec::new(),
            bytes_before: 0,
            named: None,
        };
        path.release();
        path.ends.plan(Duration::from_millis(100), Event::Own(0));
        path.run_until(Setting::end() + after);
        path
    }

    fn is_out(&self) -> bool {
        (OUT..Setting::end()).contains(&self.ends.now)
    }

    /// False if it is lost.
    fn passes(&mut self, bytes: Vec<u8>) -> bool {
        let lost = self.ends.now >= Setting::end() && self.ends.happens(self.setting.loss_after);
        let passes = !self.is_out() && !lost;
        if passes {
            self.ends.plan(self.setting.delay, Event::ToClient(bytes));
        }
        passes
    }
}

impl World for Path {
    type Beside = ();
    type Own = u64;

    fn ends(&mut self) -> &mut Ends<(), u64> {
        &mut self.ends
    }

    fn beside(&mut self) {}

    fn happen(&mut self, number: u64) {
        let (bytes, _) = self.ends.forward(datagram(number, LENGTH));
        if !self.passes(bytes) {
            match self.is_out() {
                true => self.lost_in_outage.push(number),
                false => self.lost_after.push((number, self.ends.now)),
            }
        }
        self.ends.plan(self.setting.interval, Event::Own(number + 1));
    }

    fn down(&mut self, bytes: Vec<u8>) {
        self.passes(bytes);
    }

    fn up(&mut self, said: Vec<u8>) {
        if !self.is_out() {
            self.ends.plan(self.setting.delay, Event::ToGateway(said));
        }
        if self.ends.now < Setting::end() {
            self.bytes_before = self.ends.shim.assistance().eack_bytes;
        }
    }

    fn pass(&mut self, bytes: &[u8], (): ()) {
        let number = u64::from_be_bytes(bytes[1..9].try_into().unwrap());
        self.arrived.entry(number).or_insert(self.ends.now);
    }

    fn look_at_gateway(&mut self, _out: &mut Outbox) {
        let took = self.lost_in_outage.len() as u64;
        if self.named.is_none() && took > 0 && self.ends.counters.datagrams_missing >= took {
            let bytes = self.ends.shim.assistance().eack_bytes - self.bytes_before;
            self.named = Some((self.ends.now, bytes));
        }
    }
}

/// Bytes of eACKs for each datagram that the outage takes, until it is named, and the time in round
/// trips of the last mile.
fn named(setting: Setting, seed: u64) -> (Path, f64, f64) {
    let world = Path::run(setting, seed, Duration::from_millis(400));
    assert!(world.named.is_some(), "not named: {:?}", world.ends.counters);
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
        let counters = &world.ends.counters;
        assert_eq!(counters.resets_gateway + counters.resets_client, 0, "{delay:?}");
        assert!(each < 4.0, "{delay:?}: {each} bytes for each of {took}");
        assert!(round_trips < 3.0, "{delay:?}: {round_trips}");
    }
}

#[test]
fn what_is_lost_after_an_outage_is_repaired_at_once() {
    let setting = Setting { loss_after: 20, ..Setting::fast() };
    let world = Path::run(setting, 1, Duration::from_millis(600));
    let since = Setting::end() + 6 * setting.delay;
    let until = Setting::end() + Duration::from_millis(500);
    let lost: Vec<_> =
        world.lost_after.iter().filter(|(_, at)| (since..until).contains(at)).collect();
    let repaired = lost.iter().filter(|(number, _)| world.arrived.contains_key(number)).count();
    println!("{repaired} of {}", lost.len());
    assert!(
        repaired * 10 >= lost.len() * 9,
        "{repaired} of {}: {:?}",
        lost.len(),
        world.ends.counters
    );
}

#[test]
fn an_outages_newest_cached_datagrams_are_repaired() {
    let config = GatewayConfig { cache_bytes_per_flow: 16 << 20, ..Setting::fast().config };
    let setting = Setting { config, ..Setting::fast() };
    let world = Path::run(setting, 1, Duration::from_millis(600));
    let within = Setting::end() + 8 * setting.delay;
    let newest = world.lost_in_outage.iter().rev().take(256);
    let repaired =
        newest.filter(|number| world.arrived.get(number).is_some_and(|at| *at < within)).count();
    assert!(repaired >= 240, "{repaired}");
    let counters = &world.ends.counters;
    assert_eq!((counters.resets_gateway, counters.budget_refusals), (0, 0));
    assert!(counters.symbols + counters.repair_copies < 100, "{counters:?}");
}
