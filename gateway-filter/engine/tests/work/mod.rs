//! Clients that make the gateway work: what they cost is bounded, and an honest client beside them
//! gets the repairs that it gets without them.

mod attacker;
mod neighbour;

use std::net::SocketAddr;
use std::time::Duration;

use packrat_eack::operations::counted;
use packrat_engine::{FlowCounters, Gateway, GatewayConfig};
use packrat_wire::estimate::Timestamp;

use attacker::Attacker;
use neighbour::{Losses, Neighbour};

const BEGIN: Timestamp = Timestamp::from_millis(1000);
const TICK: Duration = Duration::from_millis(1);
/// Units of work of messages in a second: half of a thread's nanoseconds.
const MOST_WORK: u64 = 500_000_000;

/// Most nanoseconds of an ignored message: as many as a processed one takes.
const IGNORED_WORK: u64 = 2_500;

/// Result of a run.
#[derive(Debug)]
struct Outcome {
    lost: u64,
    repaired: u64,
    /// Counters of the neighbour.
    counters: FlowCounters,
    /// Counters of all attackers.
    attack: FlowCounters,
    /// Units of work in the busiest second, and in the busiest millisecond, after the sessions have
    /// begun.
    busiest_second: u64,
    busiest_tick: u64,
    /// Nanoseconds for which the neighbour's datagrams wait until the thread has done the work
    /// before them, from the shortest to the longest.
    waits: Vec<u64>,
}

impl Outcome {
    /// The wait that one of a hundred datagrams exceeds, in nanoseconds.
    fn wait_p99(&self) -> u64 {
        self.waits[self.waits.len() * 99 / 100]
    }
}

/// A thread that does one thing after the other, each in as many nanoseconds as it is charged for.
#[derive(Debug)]
struct Thread {
    /// Nanoseconds until it is free.
    free: u64,
    spent: u64,
}

impl Thread {
    /// Time at which the thread begins with a message that has arrived at `now`.
    fn turn(&mut self, now: Timestamp) -> Timestamp {
        self.free = self.free.max(now.as_micros() * 1000);
        Timestamp::from_micros(self.free / 1000)
    }

    /// Adds the work that the gateway was charged for since the last call, and `ignored` messages.
    fn work(&mut self, gateway: &Gateway, ignored: u64) {
        let spent = gateway.work().spent();
        self.free += spent - self.spent + ignored * IGNORED_WORK;
        self.spent = spent;
    }
}

/// A run of this many seconds: an honest client, and beside it attackers that do `attack` in each
/// millisecond (number of the attacker and of the millisecond). All share a thread, and in each
/// millisecond the attackers' messages arrive first.
fn run(
    config: GatewayConfig,
    losses: Losses,
    addresses: &[SocketAddr],
    seconds: u64,
    mut attack: impl FnMut(&mut Attacker, usize, u64, Timestamp),
) -> Outcome {
    let gateway = Gateway::new(config, [3; 32], [4; 32]);
    let mut attackers: Vec<Attacker> =
        addresses.iter().map(|address| Attacker::new(&gateway, *address, BEGIN)).collect();
    let mut neighbour = Neighbour::new(&gateway, losses, BEGIN);
    let (mut now, mut attack_counters) = (BEGIN, FlowCounters::default());
    let (mut busiest_second, mut busiest_tick) = (0, 0);
    let mut second_began = gateway.work().spent();
    let mut thread = Thread { free: 0, spent: second_began };
    let mut waits = Vec::new();
    for tick in 0..seconds * 1000 {
        now = now + TICK;
        let before = gateway.work().spent();
        for (number, attacker) in attackers.iter_mut().enumerate() {
            attack(attacker, number, tick, thread.turn(now));
            let counters = attacker.take_counters();
            thread.work(&gateway, counters.eacks_limited);
            attack_counters.add(&counters);
        }
        let turn = thread.turn(now);
        neighbour.tick(&gateway, tick, turn);
        let spent = gateway.work().spent();
        // The handshakes have a budget of their own.
        if tick >= 1000 {
            busiest_tick = busiest_tick.max(spent - before);
            waits.push(thread.free - now.as_micros() * 1000);
        }
        thread.work(&gateway, 0);
        if tick % 1000 == 999 {
            if tick > 1000 {
                busiest_second = busiest_second.max(spent - second_began);
            }
            second_began = spent;
        }
    }
    waits.sort_unstable();
    let (lost, repaired) = neighbour.fate();
    let counters = neighbour.counters;
    Outcome {
        lost,
        repaired,
        counters,
        attack: attack_counters,
        busiest_second,
        busiest_tick,
        waits,
    }
}

fn one_host(count: u16) -> Vec<SocketAddr> {
    (0..count).map(|port| ([198, 51, 100, 1], 5000 + port).into()).collect()
}

fn networks(count: u8) -> Vec<SocketAddr> {
    (0..count).map(|number| ([198, 18, number, 1], 5000 + u16::from(number)).into()).collect()
}

/// The neighbour's repairs are at least 95 % of those without the attack.
fn assert_unharmed(with: &Outcome, without: &Outcome, name: &str) {
    println!(
        "{name}: {} of {} losses repaired, {} of {} without; busiest second {} ms, busiest millisecond {} us, wait p99 {} us (max {}); {} eACKs of the attack decoded, {} failed, {} limited",
        with.repaired,
        with.lost,
        without.repaired,
        without.lost,
        with.busiest_second / 1_000_000,
        with.busiest_tick / 1000,
        with.wait_p99() / 1000,
        with.waits.last().unwrap() / 1000,
        with.attack.eacks_decoded,
        with.attack.eacks_failed,
        with.attack.eacks_limited
    );
    assert!(without.lost > 100 && without.repaired * 10 > without.lost * 9, "{name}: {without:?}");
    assert!(with.repaired * 100 >= without.repaired * 95, "{name}: {with:?}");
}

/// The work is within its bounds: half of a thread's time, and about a millisecond at once.
fn assert_bounded(outcome: &Outcome, name: &str) {
    assert!(outcome.busiest_second <= MOST_WORK + 5_000_000, "{name}: {outcome:?}");
    assert!(outcome.busiest_tick <= 2_500_000, "{name}: {outcome:?}");
}

/// Attackers of one source also delay 99 of 100 of a neighbour's datagrams by at most a
/// millisecond.
fn assert_prompt(with: &Outcome, without: &Outcome, name: &str) {
    assert_bounded(with, name);
    let added = with.wait_p99().saturating_sub(without.wait_p99());
    assert!(added <= 1_000_000, "{name}: {added} ns longer");
}

#[test]
fn foreign_identifiers_do_not_keep_a_thread_at_work() {
    let without = run(GatewayConfig::default(), Losses::EachFiftieth, &[], 6, |_, _, _, _| {});
    for (foreign, sessions) in [(16, 40), (32, 40), (128, 40)] {
        let name = format!("{foreign} invented identifiers in each eACK of {sessions} sessions");
        let outcome = run(
            GatewayConfig::default(),
            Losses::EachFiftieth,
            &one_host(sessions),
            6,
            |attacker, _, _, now| attacker.invent(foreign, now),
        );
        assert_unharmed(&outcome, &without, &name);
        assert_prompt(&outcome, &without, &name);
        // No eACK is decoded that names more of them than any client could honestly have.
        assert_eq!(outcome.attack.eacks_decoded == 0, foreign > 32, "{name}: {outcome:?}");
        assert!(outcome.attack.eacks_limited > 0, "{name}: {outcome:?}");
    }
}

#[test]
fn patient_attackers_take_little_of_a_thread_at_once() {
    let without = run(GatewayConfig::default(), Losses::EachFiftieth, &[], 6, |_, _, _, _| {});
    for (period, busy) in [(2, 1), (20, 10)] {
        for (addresses, whose) in [(one_host(60), "one host"), (networks(60), "60 networks")] {
            let name = format!("60 sessions of {whose} in {busy} of {period} milliseconds");
            let is_one = whose == "one host";
            let invent = |attacker: &mut Attacker, _: usize, tick: u64, now: Timestamp| {
                if tick % period < busy {
                    attacker.invent(32, now);
                }
            };
            let outcome =
                run(GatewayConfig::default(), Losses::EachFiftieth, &addresses, 6, invent);
            assert_unharmed(&outcome, &without, &name);
            match is_one {
                true => assert_prompt(&outcome, &without, &name),
                false => assert_bounded(&outcome, &name),
            }
        }
    }
}

#[test]
fn clients_who_lose_nearly_everything_keep_no_one_waiting() {
    let without = run(GatewayConfig::default(), Losses::EachFiftieth, &[], 6, |_, _, _, _| {});
    for count in [40, 129] {
        let name = format!("eACKs of 40 sessions that lack {count} datagrams each");
        let lose = |attacker: &mut Attacker, _: usize, tick: u64, now: Timestamp| {
            if tick.is_multiple_of(20) {
                attacker.lose(count, now);
            }
        };
        let outcome = run(GatewayConfig::default(), Losses::EachFiftieth, &one_host(40), 6, lose);
        assert_unharmed(&outcome, &without, &name);
        assert_prompt(&outcome, &without, &name);
    }
}

#[test]
fn one_session_can_have_a_twentieth_of_a_thread() {
    for foreign in [8, 32] {
        let outcome = run(
            GatewayConfig::default(),
            Losses::EachFiftieth,
            &one_host(1),
            6,
            |attacker, _, _, now| {
                for _ in 0..10 {
                    attacker.invent(foreign, now);
                }
            },
        );
        // 50 ms of work, and the neighbour's own.
        assert!(outcome.busiest_second <= 60_000_000, "{foreign}: {outcome:?}");
        let processed = outcome.attack.eacks_decoded + outcome.attack.eacks_failed;
        assert!(processed > 100, "{foreign}: {outcome:?}");
    }
}

#[test]
fn others_failing_eacks_leave_a_long_burst_decodable() {
    let config = GatewayConfig::default;
    let without = run(config(), Losses::Bursts, &[], 15, |_, _, _, _| {});
    for (name, addresses) in
        [("8 sessions of one host", one_host(8)), ("24 hosts of as many networks", networks(24))]
    {
        let outcome =
            run(config(), Losses::Bursts, &addresses, 15, |attacker, number, tick, now| {
                if tick > 1000 && (tick + number as u64 * 5).is_multiple_of(20) {
                    attacker.fail(now);
                }
            });
        assert_unharmed(&outcome, &without, name);
        assert_prompt(&outcome, &without, name);
        assert!(outcome.attack.eacks_failed > 4000, "{name}: {outcome:?}");
        assert_eq!(outcome.counters.eacks_limited, 0, "{name}: {outcome:?}");
        assert_eq!(
            outcome.counters.resets_gateway, without.counters.resets_gateway,
            "{name}: {outcome:?}"
        );
    }
}

#[test]
fn a_neighbour_behind_the_same_address_is_not_punished() {
    let alone = run(
        GatewayConfig::default(),
        Losses::BurstsAt([198, 51, 100, 1]),
        &[],
        15,
        |_, _, _, _| {},
    );
    let name = "60 sessions behind the neighbour's own address";
    let outcome = run(
        GatewayConfig::default(),
        Losses::BurstsAt([198, 51, 100, 1]),
        &one_host(60),
        15,
        |attacker, number, tick, now| {
            if tick > 1000 && (tick + number as u64).is_multiple_of(10) {
                attacker.fail(now);
            }
        },
    );
    assert!(outcome.attack.eacks_failed > 20_000, "{outcome:?}");
    assert_unharmed(&outcome, &alone, name);
    assert_prompt(&outcome, &alone, name);
}

#[test]
fn sessions_of_one_host_do_not_hold_the_memory_of_all_caches() {
    let config = || GatewayConfig { cache_bytes_total: 8 << 20, ..GatewayConfig::default() };
    let without = run(config(), Losses::EachFiftieth, &[], 10, |_, _, _, _| {});
    for hogs in [8, 10, 40] {
        let name = format!("{hogs} sessions that keep their caches");
        let outcome =
            run(config(), Losses::EachFiftieth, &one_host(hogs), 10, |attacker, _, tick, now| {
                // First a full cache, then enough to keep it: two datagrams a second.
                for _ in 0..if tick == 0 { 900 } else { u64::from(tick % 500 == 0) } {
                    attacker.forward(now);
                }
                attacker.handle_timeout(now);
            });
        assert_unharmed(&outcome, &without, &name);
        assert_prompt(&outcome, &without, &name);
        assert_eq!(outcome.counters.datagrams_uncached, 0, "{name}: {outcome:?}");
    }
}

#[test]
fn a_cache_that_trickles_gives_back_what_is_old() {
    let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
    let mut hog = Attacker::new(&gateway, ([198, 51, 100, 1], 5000).into(), BEGIN);
    let mut now = BEGIN;
    for _ in 0..900 {
        hog.forward(now);
    }
    let full = hog.cache_bytes();
    assert!(full > 900_000, "{full}");
    for tick in 0..15_000 {
        now = now + TICK;
        if tick % 500 == 0 {
            hog.forward(now);
        }
        hog.handle_timeout(now);
        if tick == 8000 {
            assert!(hog.cache_bytes() >= full, "it is of use for as long as any client holds");
        }
    }
    assert!(hog.cache_bytes() < 30_000, "{}", hog.cache_bytes());
}

#[test]
fn handshakes_of_one_prefix_leave_time_for_those_of_others() {
    let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
    let (mut now, mut begun, mut others, mut asked) = (BEGIN, 0u64, 0u64, 0u64);
    let mut newcomers = Vec::new();
    for tick in 0..4000u64 {
        now = now + TICK;
        // Eight addresses each millisecond, each of a /64 of its own in one /48.
        for number in 0..8 {
            let address: SocketAddr =
                format!("[2001:db8:7:{:x}::1]:5000", (tick * 8 + number) % 65_536).parse().unwrap();
            begun += u64::from(Attacker::begin(&gateway, address, now).is_some());
        }
        if tick % 10 == 5 {
            let address: SocketAddr =
                format!("[2001:db8:{:x}::1]:5000", 0x100 + tick).parse().unwrap();
            asked += 1;
            let session = Attacker::begin(&gateway, address, now);
            others += u64::from(session.is_some());
            newcomers.extend(session);
        }
    }
    println!("{begun} handshakes of one /48 in four seconds; others {others} of {asked}");
    // 16 times what one source may have: per second, and at once.
    assert!(begun <= 5 * 1600, "{begun}");
    assert_eq!(others, asked);
    // A quarter of a thread's time, and the savings.
    assert!(gateway.work().spent() <= 5 * 250_000_000, "{}", gateway.work().spent());
}

#[test]
fn handshakes_leave_a_thread_three_quarters_of_its_time() {
    let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
    let (mut now, mut begun) = (BEGIN, 0u64);
    for tick in 0..2000u32 {
        now = now + TICK;
        for number in 0..4 {
            let address = std::net::Ipv4Addr::from((0x0a00_0000 + tick * 4 + number) << 8 >> 1);
            begun += u64::from(Attacker::begin(&gateway, (address, 5000).into(), now).is_some());
        }
    }
    println!("{begun} handshakes of as many networks in two seconds");
    assert!(begun > 3000, "{begun}");
    assert!(gateway.work().spent() <= 3 * 250_000_000, "{}", gateway.work().spent());
}

/// The cost of a hole is charged when it opens, and when a message names it.
#[test]
fn each_hole_of_an_upload_is_charged() {
    const PLACES: u64 = 1000;
    const OPENED: u64 = 100;
    const TOLD: u64 = 5;
    let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
    let address = networks(1)[0];
    let mut attacker = Attacker::new(&gateway, address, BEGIN);
    attacker.lose(2, BEGIN);
    attacker.take_counters();
    let before = gateway.work().spent();
    // Numbers far ahead are believed when a second one fits.
    (0..3).for_each(|_| attacker.skip(PLACES, BEGIN));
    let opened = gateway.work().spent() - before;
    let holes = attacker.take_counters().upward_missing;
    assert!(holes >= PLACES, "{holes} holes");
    assert!(opened >= OPENED * holes, "{opened} units for {holes} holes");
    let told = |attacker: &mut Attacker, now: Timestamp| {
        let before = gateway.work().spent();
        attacker.handle_timeout(now);
        let counters = attacker.take_counters();
        (counters.upward_reports, gateway.work().spent() - before)
    };
    let mut now = BEGIN;
    let units = loop {
        now = now + TICK;
        match told(&mut attacker, now) {
            (0, _) => assert!(now < BEGIN + Duration::from_secs(1), "it is not told"),
            (_, units) => break units,
        }
    };
    assert!(units >= TOLD * PLACES, "{units} units for {PLACES} holes");
}

#[test]
fn holes_of_uploads_are_looked_at_within_the_credit() {
    let gateway = Gateway::new(GatewayConfig::default(), [3; 32], [4; 32]);
    let mut now = BEGIN;
    let mut attackers: Vec<Attacker> = Vec::new();
    for address in networks(250) {
        now = now + TICK;
        let mut attacker = Attacker::new(&gateway, address, now);
        // It claims to be next to the gateway, so that it gets a message every two milliseconds.
        attacker.lose(2, now);
        attackers.push(attacker);
    }
    let (spent, looked) = (gateway.work().spent(), counted());
    let mut counters = FlowCounters::default();
    for tick in 0..400 {
        now = now + TICK;
        for (number, attacker) in attackers.iter_mut().enumerate() {
            // Its holes stay open for a tenth of a second.
            if (tick + number).is_multiple_of(100) {
                attacker.skip(1000, now);
            }
            attacker.handle_timeout(now);
            counters.add(&attacker.take_counters());
        }
    }
    let (spent, looked) = (gateway.work().spent() - spent, counted() - looked);
    println!("{looked} holes were looked at for {spent} units: {counters:?}");
    assert!(spent > MOST_WORK * 9 / 10 * 2 / 5, "the thread is not at its limit: {counters:?}");
    // A hole in a message costs five units.
    assert!(looked * 5 <= spent, "{looked} holes were looked at for {spent} units");
}
