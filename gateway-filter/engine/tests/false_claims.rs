//! Clients that claim losses which never happened: a gateway's datagrams because of them stay
//! within its budgets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{Assist, ClientConfig, Live, PacketNumber};
use packrat_engine::{Flow, FlowCounters, Gateway, GatewayConfig, Outbox};
use packrat_wire::estimate::Timestamp;
use packrat_wire::is_control;

use crate::ends::hear;

const TICK: Duration = Duration::from_millis(1);
const LENGTH: usize = 1200;
/// Bytes that a session may spend before it has earned anything, and that the sessions of a gateway
/// may spend together.
const SESSION_BURST: u64 = 64 * 1024;
const GATEWAY_BURST: u64 = 4 << 20;
/// Bytes of the latter that one source may spend.
const SOURCE_SAVINGS: u64 = GATEWAY_BURST / 4;

/// A client that keeps from its core most of what arrives, and each repair.
struct Claimer {
    client: Assist,
    flow: Flow,
    address: SocketAddr,
    now: Timestamp,
    number: u64,
    /// Datagrams that it admits to have received, with its packet number: a millisecond later.
    under_way: Vec<(u64, Vec<u8>)>,
    forwarded: u64,
    /// Bytes that the gateway has sent beside what it forwarded and control datagrams.
    extra: u64,
    counters: FlowCounters,
}

impl Claimer {
    fn new(
        gateway: &Arc<Gateway>,
        address: SocketAddr,
        live: Option<Live>,
        now: Timestamp,
    ) -> Self {
        let mut seed = [7; 32];
        seed[..2].copy_from_slice(&address.port().to_be_bytes());
        Self {
            client: Assist::new(ClientConfig::default().with_live(live), seed, now),
            flow: Flow::new(Arc::clone(gateway)),
            address,
            now,
            number: 0,
            under_way: Vec::new(),
            forwarded: 0,
            extra: 0,
            counters: FlowCounters::default(),
        }
    }

    /// A millisecond of its life; in every `each`th a datagram comes from the server, of which it
    /// admits two in five.
    fn tick(&mut self, gateway: &Arc<Gateway>, each: u64) {
        self.now = self.now + TICK;
        let now = self.now;
        let mut out = Outbox::new();
        for (number, datagram) in self.under_way.drain(..) {
            self.client.on_datagram(&datagram, now);
            self.client.on_packet_number(PacketNumber::new(number), now);
        }
        if (now.as_micros() / 1000).is_multiple_of(each) {
            let mut datagram = vec![0x40; LENGTH];
            datagram[LENGTH - 16..LENGTH - 8].copy_from_slice(&self.number.to_be_bytes());
            datagram[LENGTH - 8..].copy_from_slice(&(self.number + 1).to_be_bytes());
            self.flow.forward(&datagram, now);
            self.forwarded += LENGTH as u64;
            if self.number % 5 < 2 {
                self.under_way.push((self.number, datagram));
            }
            self.number += 1;
        }
        if self.flow.next_timeout().is_some_and(|at| at <= now) {
            self.flow.handle_timeout(now, &mut out);
        }
        self.client.handle_timeout(now);
        while let Some(said) = self.client.poll_transmit(now) {
            hear(gateway, &mut self.flow, &said, self.address, [said[9]; 32], now, &mut out);
            for datagram in out.datagrams() {
                if is_control(datagram) {
                    self.client.on_datagram(datagram, now);
                } else {
                    self.extra += datagram.len() as u64;
                }
            }
            out.clear();
        }
        self.extra += out
            .datagrams()
            .filter(|datagram| !is_control(datagram))
            .map(|it| it.len() as u64)
            .sum::<u64>();
        self.counters.add(&self.flow.take_counters());
    }
}

fn address(number: u16) -> SocketAddr {
    // Each its own source.
    let [high, low] = number.to_be_bytes();
    SocketAddr::from(([198, 18, high, low], number + 1))
}

#[test]
fn a_client_that_claims_loss_gets_no_more_than_twice_the_share() {
    let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    let mut claimer = Claimer::new(&gateway, address(1), None, Timestamp::from_millis(1000));
    for _ in 0..10_000 {
        claimer.tick(&gateway, 1);
    }
    let allowed = claimer.forwarded / 2 + SESSION_BURST;
    println!("{} of {allowed} bytes; {:?}", claimer.extra, claimer.counters);
    assert!(claimer.counters.budget_refusals > 0, "it was refused nothing: {:?}", claimer.counters);
    assert!(
        claimer.extra > claimer.forwarded / 4,
        "the claims had no effect: {} bytes",
        claimer.extra
    );
    assert!(claimer.extra <= allowed, "{} of {allowed} bytes", claimer.extra);
    assert!(claimer.counters.repair_pauses > 0, "repairs that never arrive go on for ever");
}

#[test]
fn a_claimed_live_stream_adds_a_thin_streams_early_copies() {
    let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    let tolerance = Duration::from_micros(1);
    let live = Live { tolerance, ..Live::default() };
    let mut claimer = Claimer::new(&gateway, address(1), Some(live), Timestamp::from_millis(1000));
    for _ in 0..10_000 {
        claimer.tick(&gateway, 1);
    }
    let early = claimer.counters.early_copy_bytes;
    println!("{early} of {} bytes; {:?}", claimer.extra, claimer.counters);
    // 64 kB/s, and a quarter of a second of it saved up.
    assert!(early > 320_000, "the claims had no effect: {early} bytes");
    assert!(early <= 10 * 64_000 + 16_000, "{early} bytes of early copies");
    let repairs = claimer.extra - early;
    assert!(repairs <= claimer.forwarded / 2 + SESSION_BURST, "{repairs} bytes");
}

/// Cost of sessions.
struct Spent {
    forwarded: u64,
    extra: u64,
    refusals: u64,
    /// When the last one has ended.
    now: Timestamp,
}

/// 150 claimers, one after the other, each for a third of a second. `address`: of each, by its
/// number.
fn short_sessions(gateway: &Arc<Gateway>, address: impl Fn(u16) -> SocketAddr) -> Spent {
    let mut spent =
        Spent { forwarded: 0, extra: 0, refusals: 0, now: Timestamp::from_millis(1000) };
    for number in 0..150 {
        let mut claimer = Claimer::new(gateway, address(number), None, spent.now);
        for _ in 0..300 {
            claimer.tick(gateway, 5);
        }
        spent.now = claimer.now;
        spent.forwarded += claimer.forwarded;
        spent.extra += claimer.extra;
        spent.refusals += claimer.counters.budget_refusals;
    }
    spent
}

#[test]
fn many_short_sessions_share_the_gateways_budget() {
    let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    let Spent { forwarded, extra, refusals, .. } = short_sessions(&gateway, address);
    let allowed = forwarded / 2 + GATEWAY_BURST;
    println!("{extra} of {allowed} bytes for {forwarded}; {refusals} refusals");
    assert!(
        refusals > 0 && extra > forwarded / 2,
        "the claims had no effect: {extra} bytes, {refusals} refusals"
    );
    assert!(extra <= allowed, "{extra} of {allowed} bytes");
}

#[test]
fn one_sources_short_sessions_leave_repairs_to_others() {
    let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    let one_source = |port| SocketAddr::from(([192, 0, 2, 1], 1000 + port));
    let Spent { forwarded, extra, refusals, now } = short_sessions(&gateway, one_source);
    let allowed = forwarded / 2 + SOURCE_SAVINGS;
    println!("{extra} of {allowed} bytes for {forwarded}; {refusals} refusals");
    assert!(
        refusals > 0 && extra > SOURCE_SAVINGS,
        "the claims had no effect: {extra} bytes, {refusals} refusals"
    );
    assert!(extra <= allowed, "{extra} of {allowed} bytes");
    // A client that comes now gets the full budget of a beginning flow, as if the other had never
    // been.
    let first_flight = |gateway: &Arc<Gateway>| {
        let mut other = Claimer::new(gateway, address(9), None, now);
        for _ in 0..300 {
            other.tick(gateway, 5);
        }
        other.extra
    };
    let untouched = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    let (here, there) = (first_flight(&gateway), first_flight(&untouched));
    assert!(here > 40_000 && here == there, "{here} bytes of repairs, {there} without the others");
}

#[test]
fn a_gateway_without_a_budget_sends_nothing_twice() {
    let config = GatewayConfig { repair_budget: 0.0, ..GatewayConfig::default() };
    let gateway = Gateway::new(config, [9; 32], [8; 32]);
    let tolerance = Duration::from_micros(1);
    for live in [
        None,
        Some(Live {
            selective: false,
            subscribe: false,
            window: Duration::ZERO,
            tolerance,
            symbols: false,
        }),
    ] {
        let mut claimer = Claimer::new(&gateway, address(1), live, Timestamp::from_millis(1000));
        for _ in 0..1000 {
            claimer.tick(&gateway, 1);
        }
        assert!(claimer.counters.datagrams_missing > 100, "{:?}", claimer.counters);
        assert_eq!(claimer.extra, 0);
    }
}

#[test]
fn one_sources_undecodable_eacks_cost_bounded_work() {
    let gateway = Gateway::new(GatewayConfig::default(), [9; 32], [8; 32]);
    let one_source = |port: u16| SocketAddr::from(([192, 0, 2, 1], 1000 + port));
    let start = Timestamp::from_millis(1000);
    let mut claimers: Vec<_> =
        (0..24).map(|port| Claimer::new(&gateway, one_source(port), None, start)).collect();
    let mut honest = Claimer::new(&gateway, address(9), None, start);
    for tick in 0..1500u64 {
        for claimer in &mut claimers {
            claimer.tick(&gateway, 20);
            // It claims to have datagrams that were never sent, and more of them than any sketch
            // decodes.
            for number in 0..if tick % 10 == 0 { 250 } else { 0 } {
                let mut foreign = vec![0x41; 40];
                foreign[24..32].copy_from_slice(&(tick * 1000 + number).to_be_bytes());
                foreign[32..].copy_from_slice(&(tick * 1000 + number + 1).to_be_bytes());
                claimer.client.on_datagram(&foreign, claimer.now);
                claimer.client.on_authentic(claimer.now);
            }
        }
        honest.tick(&gateway, 5);
    }
    let failed: u64 = claimers.iter().map(|claimer| claimer.counters.eacks_failed).sum();
    let work = gateway.work().spent() / 1000;
    println!("{failed} failed decodes, {work} us of work");
    // Each session has its own credit: three at once, and 50 a second.
    assert!(failed > 250 && failed <= 24 * (3 + 76), "{failed} failed decodes");
    assert!(work < 1_500_000 / 2, "{work} us of work in 1.5 s");
    assert!(
        honest.counters.eacks_limited == 0 && honest.counters.repairs > 0,
        "{:?}",
        honest.counters
    );
}
