//! Datagrams from the client towards the server: numbered by the shim, put in order by the gateway,
//! and sent again by the shim, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use packrat_client::{AssistStats, ClientConfig, ClientEvent, Input, Observer, Timestamp};
use packrat_engine::{Flow, FlowCounters, Gateway, GatewayConfig, Outbox};
use packrat_wire::number;
use rand_chacha::rand_core::RngCore;

use crate::ends::{Ends, Event, World, datagram, number_of};

/// A path, a client's transport and an attacker.
#[derive(Debug, Clone, Copy)]
struct Setting {
    uploads: bool,
    /// The client's transport tolerates losses.
    tolerates_losses: bool,
    delay: Duration,
    /// Round trip between gateway and server.
    far: Duration,
    /// Loss of the last mile, per 1000: towards the gateway, and towards the client.
    loss: [u32; 2],
    /// Late datagrams towards the gateway, per 1000, and how late they come.
    late: (u32, Duration),
    datagrams: u64,
    length: usize,
    interval: Duration,
    /// Longest UDP payload that the last mile carries.
    mtu: usize,
    /// Rate of the last mile towards the gateway, datagrams per second, and room in its queue.
    queue: Option<(u64, usize)>,
    /// When the rate begins to hold.
    queue_from: Timestamp,
    /// Forged numbered datagrams per datagram of the client's.
    forged: u32,
    /// The gateway's memory of its sessions is gone when this datagram leaves.
    restart_at: Option<u64>,
    /// From this datagram on, the gateway forwards datagrams without a session, and answers no
    /// client.
    dies_at: Option<u64>,
    /// The client's system reports at this datagram that its network has changed.
    moves_at: Option<u64>,
    maximum_hold: Duration,
    repair_budget: f64,
}

const CALM: Setting = Setting {
    uploads: true,
    tolerates_losses: false,
    delay: Duration::from_millis(2),
    far: Duration::ZERO,
    loss: [0, 0],
    late: (0, Duration::ZERO),
    datagrams: 4000,
    length: 1000,
    interval: Duration::from_micros(800),
    mtu: 1500,
    queue: None,
    queue_from: Timestamp::ZERO,
    forged: 0,
    restart_at: None,
    dies_at: None,
    moves_at: None,
    maximum_hold: Duration::from_secs(1),
    repair_budget: 0.25,
};

#[derive(Debug)]
enum Occurrence {
    /// The client's transport sends a datagram.
    Sends(u64),
    /// The server answers.
    Answers,
}

#[derive(Debug, Default)]
struct Outcome {
    /// The client's datagrams in the order in which the server got them, and how long after they
    /// were sent.
    arrived: Vec<(u64, Duration)>,
    /// Datagrams at the server that are not the client's.
    strange: u64,
    lost: u64,
    numbered: u64,
    counters: FlowCounters,
    stats: AssistStats,
    most_waiting: usize,
    /// Units of work of the gateway.
    spent: u64,
}

impl Outcome {
    fn out_of_order(&self) -> usize {
        self.arrived.windows(2).filter(|pair| pair[1].0 < pair[0].0).count()
    }

    fn missing(&self, setting: &Setting) -> u64 {
        let numbers: BTreeSet<u64> = self.arrived.iter().map(|(number, _)| *number).collect();
        setting.datagrams - numbers.len() as u64
    }

    /// Times from sending to first arrival of all datagrams that have arrived.
    fn times(&self) -> Vec<Duration> {
        let mut known = BTreeSet::new();
        let first = self.arrived.iter().filter(|(number, _)| known.insert(*number));
        first.map(|(_, time)| *time).collect()
    }

    fn slowest(&self) -> Duration {
        self.times().into_iter().max().unwrap()
    }
}

struct Path {
    setting: Setting,
    ends: Ends<(), Occurrence>,
    sent: BTreeMap<u64, Timestamp>,
    answers: u64,
    dead: bool,
    /// Datagrams that are numbered and not sent, before each sent one.
    skips: u64,
    /// Datagrams that are numbered and not sent, once, before the hundredth.
    leap: Option<u64>,
    skipped: u64,
    /// When the transmitter of the last mile is free.
    free_at: Timestamp,
    outcome: Outcome,
}

impl Path {
    fn new(setting: Setting, seed: u64) -> Self {
        let config = ClientConfig::default()
            .with_uploads(setting.uploads)
            .with_loss_tolerance(setting.tolerates_losses)
            .with_maximum_hold(setting.maximum_hold);
        let ends = Ends::new(Self::gateway(&setting, 4), config, seed);
        Self {
            setting,
            free_at: ends.now,
            ends,
            sent: BTreeMap::new(),
            answers: 0,
            dead: false,
            skips: 0,
            leap: None,
            skipped: 0,
            outcome: Outcome::default(),
        }
    }

    fn gateway(setting: &Setting, secret: u8) -> Arc<Gateway> {
        let repair_budget = setting.repair_budget;
        let config = GatewayConfig { repair_budget, ..GatewayConfig::default() };
        Gateway::new(config, [3; 32], [secret; 32])
    }

    /// The client's transport sends a datagram.
    fn send(&mut self, number: u64) {
        let setting = self.setting;
        if setting.restart_at == Some(number) {
            self.ends.restart(Self::gateway(&setting, 5));
        }
        self.dead |= setting.dies_at == Some(number);
        let now = self.ends.now;
        if setting.moves_at == Some(number) {
            self.ends.shim.handle(Input::NetworkChange, now);
        }
        let mut bytes = datagram(number, setting.length);
        self.sent.insert(number, now);
        let leap = self.leap.filter(|_| number == 100).unwrap_or_default();
        for _ in 0..self.skips + leap {
            self.skipped += 1;
            self.ends.shim.on_send(&vec![self.skipped as u8; 401], now);
        }
        if let Some(header) = self.ends.shim.on_send(&bytes, now) {
            self.outcome.numbered += 1;
            drop(bytes.splice(..0, header));
        }
        self.up(bytes);
        self.release();
        for _ in 0..setting.forged {
            let mut forged = vec![0; setting.length];
            self.ends.random.fill_bytes(&mut forged);
            forged[..5].copy_from_slice(b"\x0bPkr\x29");
            self.ends.plan(setting.delay, Event::ToGateway(forged));
        }
        if number + 1 < setting.datagrams {
            self.ends.plan(setting.interval, Event::Own(Occurrence::Sends(number + 1)));
        }
    }

    fn run(mut self) -> Outcome {
        self.release();
        let begins = Duration::from_millis(200);
        self.ends.plan(begins, Event::Own(Occurrence::Sends(0)));
        let sends = self.setting.interval * self.setting.datagrams as u32;
        self.run_until(self.ends.now + begins + sends + Duration::from_secs(3));
        Outcome {
            counters: self.ends.counters,
            stats: self.ends.shim.assistance(),
            spent: self.ends.gateway.work().spent(),
            ..self.outcome
        }
    }
}

impl World for Path {
    type Beside = ();
    type Own = Occurrence;

    fn ends(&mut self) -> &mut Ends<(), Occurrence> {
        &mut self.ends
    }

    fn beside(&mut self) {}

    fn is_gateway_gone(&self) -> bool {
        self.dead
    }

    fn happen(&mut self, event: Occurrence) {
        match event {
            Occurrence::Sends(number) => self.send(number),
            Occurrence::Answers => {
                self.answers += 1;
                let (bytes, _) = self.ends.forward(datagram((1 << 40) + self.answers, 60));
                self.down(bytes);
            }
        }
    }

    fn look_at_gateway(&mut self, _out: &mut Outbox) {
        let passed = self.ends.counters.upward_numbered as usize;
        let waiting = passed.saturating_sub(self.outcome.arrived.len());
        self.outcome.most_waiting = self.outcome.most_waiting.max(waiting);
    }

    fn up(&mut self, bytes: Vec<u8>) {
        let Setting { loss, late, mtu, queue, queue_from, delay, .. } = self.setting;
        let now = self.ends.now;
        let mut at = now + delay;
        if let Some((rate, room)) = queue.filter(|_| now >= queue_from) {
            let each = Duration::from_micros(1_000_000 / rate);
            let begins = self.free_at.max(now);
            if begins.saturating_since(now) > each * room as u32 {
                self.outcome.lost += 1;
                return;
            }
            self.free_at = begins + each;
            at = self.free_at + delay;
        }
        if self.ends.happens(late.0) {
            at = at + late.1;
        }
        if self.ends.happens(loss[0]) || bytes.len() > mtu {
            self.outcome.lost += 1;
        } else {
            self.ends.schedule.plan(at, Event::ToGateway(bytes));
        }
    }

    fn down(&mut self, bytes: Vec<u8>) {
        if !self.ends.happens(self.setting.loss[1]) {
            self.ends.plan(self.setting.delay, Event::ToClient(bytes));
        }
    }

    fn pass(&mut self, _bytes: &[u8], (): ()) {}

    /// The server gets a datagram, and answers every second one.
    fn serve(&mut self, bytes: &[u8]) {
        let Some(number) = number_of(bytes, self.setting.length) else {
            self.outcome.strange += 1;
            return;
        };
        let time = self.ends.now.saturating_since(self.sent[&number]);
        self.outcome.arrived.push((number, time));
        if number.is_multiple_of(2) {
            self.ends.plan(self.setting.far, Event::Own(Occurrence::Answers));
        }
    }
}

fn run(setting: Setting, seed: u64) -> Outcome {
    Path::new(setting, seed).run()
}

#[test]
fn a_client_without_uploads_sends_plain_datagrams() {
    let setting = Setting { uploads: false, loss: [40, 0], ..CALM };
    let outcome = run(setting, 1);
    assert_eq!((outcome.numbered, outcome.counters.upward_reports), (0, 0));
    assert!(outcome.missing(&setting) > 100, "nothing repairs");
}

#[test]
fn without_loss_every_datagram_has_a_number_and_passes_at_once() {
    let outcome = run(CALM, 1);
    assert_eq!(outcome.missing(&CALM), 0);
    assert_eq!(outcome.numbered, CALM.datagrams);
    let FlowCounters { upward_missing, upward_waited, upward_numbered, .. } = outcome.counters;
    assert_eq!((upward_missing, upward_waited, upward_numbered), (0, 0, CALM.datagrams));
    assert_eq!(outcome.slowest(), CALM.delay);
    // One message in 25 ms.
    assert!(outcome.counters.upward_reports < 150, "{}", outcome.counters.upward_reports);
}

#[test]
fn what_the_last_mile_loses_comes_in_its_place() {
    for (loss, seed) in [(10, 1), (40, 2), (100, 3), (100, 4)] {
        let setting = Setting { loss: [loss, loss], ..CALM };
        let outcome = run(setting, seed);
        assert!(outcome.lost > u64::from(loss) * 3, "{loss}: {}", outcome.lost);
        assert_eq!(outcome.missing(&setting), 0, "{loss} per mille, seed {seed}");
        // A repair that was not needed arrives behind its original.
        assert!(outcome.out_of_order() <= 20, "{loss}: {}", outcome.out_of_order());
        assert!(outcome.slowest() < Duration::from_millis(60), "{loss}: {:?}", outcome.slowest());
        let AssistStats { upward_repairs, upward_missing, .. } = outcome.stats;
        assert!(
            upward_repairs <= upward_missing * 3 / 2 + 10,
            "{upward_repairs} of {upward_missing}"
        );
    }
}

/// The audio of Sidekick24 on its last mile: 264 bytes every 20 ms, 3.6 % of them lost. A lost
/// datagram is there before the next one, in 99 of 100 cases.
#[test]
fn a_stream_of_short_datagrams_is_repaired_between_them() {
    let stream = Setting {
        delay: Duration::from_millis(1),
        loss: [36, 36],
        datagrams: 6000,
        length: 264,
        interval: Duration::from_millis(20),
        maximum_hold: Duration::ZERO,
        ..CALM
    };
    for seed in 1..=3 {
        let outcome = run(stream, seed);
        assert!(outcome.lost > 150, "seed {seed}: {}", outcome.lost);
        assert_eq!((outcome.missing(&stream), outcome.numbered), (0, stream.datagrams));
        let mut times = outcome.times();
        times.sort();
        let late = |share: usize| times[times.len() * share / 1000] - stream.delay;
        println!("seed {seed}: p95 {:?}, p99 {:?}, p99.9 {:?}", late(950), late(990), late(999));
        println!(
            "{} repairs, {} messages",
            outcome.stats.upward_repairs, outcome.counters.upward_reports
        );
        assert!(late(990) < stream.interval, "seed {seed}: {:?}", late(990));
        assert!(outcome.out_of_order() < 60, "seed {seed}: {}", outcome.out_of_order());
    }
}

/// On a short last mile, repairs cause no delay.
#[test]
fn a_sender_that_tolerates_losses_is_repaired_where_it_gains() {
    let tolerant = Setting { tolerates_losses: true, ..CALM };
    let far = Duration::from_millis(40);
    let numbered = |setting: Setting| run(setting, 1).numbered * 100 / setting.datagrams;
    assert_eq!(numbered(tolerant), 0, "the last mile is all of the path");
    assert!(numbered(Setting { far, ..tolerant }) > 95, "a small part");
    assert_eq!(numbered(Setting { loss: [60, 60], ..tolerant }), 0, "whatever it loses");
}

#[test]
fn the_client_tells_of_missing_and_repeated_datagrams() {
    let mut world = Path::new(Setting { loss: [40, 0], ..CALM }, 1);
    let told = Arc::new(Mutex::new((0, 0)));
    let counted = Arc::clone(&told);
    world.ends.shim.observe(Observer::new(move |_, event| {
        let (named, again) = &mut *counted.lock().unwrap();
        match event {
            ClientEvent::HolesReceived { missing, wanted } => {
                *named += u64::from(*wanted) * missing
            }
            ClientEvent::DatagramSentAgain { bytes, .. } => {
                *again += u64::from(*bytes > CALM.length)
            }
            _ => {}
        }
    }));
    let AssistStats { upward_missing, upward_repairs, .. } = world.run().stats;
    let (named, again) = *told.lock().unwrap();
    assert!(upward_repairs > 100 && again == upward_repairs, "{again} of {upward_repairs}");
    // A hole is named again until it is filled.
    assert!(named >= upward_missing, "{named} of {upward_missing}");
}

#[test]
fn what_the_gateway_says_may_get_lost() {
    let setting = Setting { loss: [20, 300], ..CALM };
    let outcome = run(setting, 5);
    assert_eq!(outcome.missing(&setting), 0);
    assert!(outcome.slowest() < Duration::from_millis(100), "{:?}", outcome.slowest());
}

#[test]
fn a_last_datagram_that_is_lost_is_found() {
    // One datagram each 300 ms: no other follows in time.
    let setting = Setting {
        loss: [300, 0],
        datagrams: 40,
        length: 120,
        interval: Duration::from_millis(300),
        ..CALM
    };
    let outcome = run(setting, 6);
    assert!(outcome.lost > 5, "{}", outcome.lost);
    assert_eq!(outcome.missing(&setting), 0);
    assert!(outcome.slowest() < Duration::from_millis(200), "{:?}", outcome.slowest());
}

#[test]
fn overtaking_costs_no_datagram_and_no_more_than_a_round_trip() {
    let setting = Setting { late: (50, Duration::from_millis(3)), ..CALM };
    let outcome = run(setting, 7);
    assert_eq!((outcome.lost, outcome.missing(&setting)), (0, 0));
    assert!(outcome.slowest() < Duration::from_millis(12), "{:?}", outcome.slowest());
    // One repair for each late datagram, at most.
    assert!(outcome.stats.upward_repairs < 260, "{}", outcome.stats.upward_repairs);
}

#[test]
fn forged_numbers_hold_nothing_up_for_long_and_displace_nothing() {
    let setting = Setting { forged: 20, loss: [20, 20], ..CALM };
    for seed in 1..16 {
        let outcome = run(setting, seed);
        // Of 80 lost ones.
        let missing = outcome.missing(&setting);
        assert!(missing <= 8, "seed {seed}: {missing}, {:?}", outcome.counters);
        assert_eq!(outcome.strange, 20 * setting.datagrams, "the server decides about them");
        assert!(outcome.slowest() < Duration::from_millis(300), "{:?}", outcome.slowest());
        let times = outcome.times();
        let late = times.iter().filter(|time| **time > Duration::from_millis(60)).count();
        assert!(late < 400, "seed {seed}: {late}");
    }
}

#[test]
fn a_gateway_that_has_forgotten_the_session_loses_nothing() {
    let setting = Setting { restart_at: Some(2000), ..CALM };
    let outcome = run(setting, 9);
    assert_eq!((outcome.missing(&setting), outcome.strange), (0, 0));
    assert!(outcome.stats.sessions == 2, "{:?}", outcome.stats);
    assert!(outcome.counters.upward_numbered > 2500, "{}", outcome.counters.upward_numbered);
}

#[test]
fn datagrams_go_plain_when_the_gateway_is_gone() {
    let setting = Setting { dies_at: Some(1000), ..CALM };
    let outcome = run(setting, 10);
    // A server without a gateway before it drops numbered datagrams, for a quarter of a second.
    let numbered = outcome.numbered - 1000;
    assert!((200..500).contains(&numbered), "{numbered} numbered for nobody");
    assert!(outcome.missing(&setting) < 600, "{}", outcome.missing(&setting));
}

#[test]
fn a_client_that_moves_goes_plain_until_the_gateway_is_heard() {
    let setting = Setting { moves_at: Some(2000), ..CALM };
    let outcome = run(setting, 11);
    assert_eq!(outcome.missing(&setting), 0);
    let plain = setting.datagrams - outcome.numbered;
    assert!((1..100).contains(&plain), "{plain}");
    assert_eq!(outcome.out_of_order(), 0);
}

#[test]
fn a_path_that_does_not_carry_numbers_gets_none_of_that_length() {
    let setting = Setting { mtu: 1004, ..CALM };
    let outcome = run(setting, 12);
    // The first 64, and one of 64 later ones.
    assert!(outcome.numbered < 130, "{}", outcome.numbered);
    assert!(outcome.missing(&setting) < 130, "{}", outcome.missing(&setting));
    assert!(outcome.slowest() < Duration::from_secs(1));
}

#[test]
fn what_a_queue_loses_is_not_sent_again() {
    // 1250 datagrams per second into 1000, with room for 60 ms.
    let setting = Setting { queue: Some((1000, 60)), ..CALM };
    let outcome = run(setting, 13);
    assert!(outcome.lost > 500, "{}", outcome.lost);
    let AssistStats { upward_repairs, .. } = outcome.stats;
    assert!(upward_repairs < outcome.lost / 20, "{upward_repairs} of {}", outcome.lost);
    assert!(outcome.counters.upward_shown > outcome.lost / 2, "{:?}", outcome.counters);
}

#[test]
fn what_a_policer_loses_is_not_sent_again() {
    // A policer bounds the rate after two seconds.
    let queue_from = Timestamp::from_millis(3000);
    let setting = Setting { queue: Some((1000, 2)), queue_from, datagrams: 4500, ..CALM };
    let outcome = run(setting, 14);
    let AssistStats { upward_repairs, .. } = outcome.stats;
    assert!(outcome.lost > 200, "{}", outcome.lost);
    assert!(upward_repairs < outcome.lost / 3, "{upward_repairs} of {}", outcome.lost);
}

#[test]
fn losses_that_no_sender_answers_are_repaired_within_the_budget() {
    // The same policer for eight seconds, and the sender does not slow down.
    let setting = Setting { queue: Some((1000, 2)), datagrams: 10_000, ..CALM };
    let outcome = run(setting, 14);
    let AssistStats { upward_repairs, .. } = outcome.stats;
    assert!(upward_repairs < setting.datagrams * 35 / 100, "{upward_repairs}");
    assert!(outcome.counters.upward_shown > outcome.lost / 10, "{:?}", outcome.counters);
}

#[test]
fn no_repairs_grant_no_numbers_and_no_hold_waits_for_nothing() {
    let setting = Setting { repair_budget: 0.0, ..CALM };
    assert_eq!(run(setting, 15).numbered, 0);
    let setting = Setting { maximum_hold: Duration::ZERO, loss: [20, 0], ..CALM };
    let outcome = run(setting, 16);
    let at_once = outcome.times().iter().filter(|time| **time == CALM.delay).count();
    assert!(at_once > 3800 && at_once + 120 > outcome.arrived.len(), "{at_once}");
    assert_eq!(outcome.missing(&setting), 0, "it is repaired all the same");
}

#[test]
fn a_client_that_skips_places_costs_work_within_its_credit() {
    // It numbers a thousand datagrams for each that it sends.
    let setting = Setting { datagrams: 1000, interval: Duration::from_micros(100), ..CALM };
    let mut world = Path::new(setting, 17);
    world.skips = 1000;
    let outcome = world.run();
    assert_eq!(outcome.missing(&setting), 0);
    assert!(outcome.counters.upward_missing > 300_000, "{:?}", outcome.counters);
    assert!(outcome.slowest() < Duration::from_secs(1), "{:?}", outcome.slowest());
    assert!(outcome.counters.upward_reports < 1000, "{}", outcome.counters.upward_reports);
    assert!(outcome.most_waiting < 1100, "{}", outcome.most_waiting);
}

#[test]
fn far_places_are_believed_and_open_no_holes() {
    // It numbers half a million datagrams at once and does not send them.
    let setting = Setting { datagrams: 3000, loss: [20, 0], ..CALM };
    let mut world = Path::new(setting, 17);
    world.leap = Some(500_000);
    let outcome = world.run();
    let FlowCounters { upward_missing, upward_repaired, .. } = outcome.counters;
    assert!(upward_missing < 100, "{upward_missing} of {}", outcome.lost);
    // It goes on from there: only losses until the new places are believed are not repaired.
    assert!(upward_repaired > outcome.lost * 3 / 4, "{upward_repaired} of {}", outcome.lost);
    assert!(outcome.missing(&setting) < 3, "{}", outcome.missing(&setting));
    assert!(outcome.spent < 10_000_000, "{} units", outcome.spent);
}

#[test]
fn the_number_is_taken_off_without_a_session_as_well() {
    let gateway = Path::gateway(&CALM, 4);
    let (mut flow, mut out) = (Flow::new(gateway), Outbox::new());
    let numbered = b"\x0bPkr\x29abcbase";
    assert!(number::split(numbered).is_some());
    assert!(flow.receive_upward(numbered, 2, Timestamp::ZERO, &mut out));
    assert_eq!(out.datagrams_to_server().collect::<Vec<_>>(), [(&b"base"[..], 2)]);
    assert!(!flow.receive_upward(b"base", 2, Timestamp::ZERO, &mut out));
}
