//! The client's datagram shim and the gateway, with the real numbers between them, in virtual time.

mod senders;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_client::{
    AssistState, ClientConfig, IdentifierScheme, Input, Released, Shim, ShimStats, Timestamp,
    Verdict,
};
use packrat_engine::{FlowCounters, Gateway, GatewayConfig, Outbox, SenderAnswer, SenderMemory};
use packrat_wire::number;
use rand_chacha::rand_core::RngCore;

use crate::ends::{Ends, Event, World, datagram, number_of};

const CLIENT: &str = "192.0.2.1:5000";
const SERVER_ROUND_TRIP: Duration = Duration::from_millis(1);
const MAXIMUM_HOLD: Duration = Duration::from_secs(1);

/// A path, a server and an attacker.
#[derive(Debug, Clone, Copy)]
struct Setting {
    scheme: IdentifierScheme,
    maximum_hold: Duration,
    delay: Duration,
    /// Loss of the last mile, in both directions, per 1000.
    loss: u32,
    /// Number of the server's datagrams of which the last mile loses exactly one, as a policer
    /// does.
    loses_one_of: Option<u64>,
    /// Loss before the gateway, per 1000.
    far_loss: u32,
    datagrams: u64,
    /// Number of datagrams in a row with the same bytes.
    same: u64,
    interval: Duration,
    length: usize,
    /// Longest UDP payload that the last mile carries.
    mtu: usize,
    /// Forged datagrams per datagram of the server's, with and without a number.
    forged: [u32; 2],
    /// The gateway's memory of its sessions is gone when this datagram passes.
    restart_at: Option<u64>,
    /// The client sends no datagrams from this one on.
    up_dies_at: Option<u64>,
    sender: SenderAnswer,
    /// The shim spreads bursts.
    spread: bool,
}

const CALM: Setting = Setting {
    scheme: IdentifierScheme::Trailer,
    maximum_hold: MAXIMUM_HOLD,
    delay: Duration::from_millis(5),
    loss: 0,
    loses_one_of: None,
    far_loss: 0,
    datagrams: 4000,
    same: 1,
    interval: Duration::from_micros(800),
    length: 1000,
    mtu: 1500,
    forged: [0, 0],
    restart_at: None,
    up_dies_at: None,
    sender: SenderAnswer::Always,
    spread: false,
};

#[derive(Debug, Default)]
struct Outcome {
    /// The server's datagrams in the order in which the transport got them, with the wait in the
    /// shim.
    delivered: Vec<(u64, Duration)>,
    /// Datagrams that the transport got at one time: the last time, their number, and the largest
    /// number.
    at_once: (Timestamp, usize, usize),
    /// Forged datagrams that the transport got.
    forged: u64,
    lost: u64,
    plain: u64,
    counters: FlowCounters,
    kept: u64,
    numbered: u64,
    recovered: u64,
    /// `Some`: sessions begin in another way from then on.
    tipped: Option<bool>,
}

impl Outcome {
    fn out_of_order(&self) -> usize {
        self.delivered.windows(2).filter(|pair| pair[1].0 < pair[0].0).count()
    }

    fn longest_wait(&self) -> Duration {
        self.delivered.iter().map(|(_, wait)| *wait).max().unwrap()
    }

    /// Datagrams that never came.
    fn missing(&self, setting: &Setting) -> u64 {
        let numbers: BTreeSet<u64> = self.delivered.iter().map(|(number, _)| *number).collect();
        setting.datagrams - numbers.len() as u64
    }

    /// Datagrams that came once more.
    fn repeated(&self) -> usize {
        let numbers: BTreeSet<u64> = self.delivered.iter().map(|(number, _)| *number).collect();
        self.delivered.len() - numbers.len()
    }

    fn is_complete(&self, setting: &Setting) -> bool {
        self.missing(setting) == 0
    }
}

struct Path {
    setting: Setting,
    /// The next event is the server's datagram with this number.
    ends: Ends<Timestamp, u64>,
    passed: u64,
    outcome: Outcome,
}

impl Path {
    fn new(setting: Setting, seed: u64, client: SocketAddr, senders: Arc<SenderMemory>) -> Self {
        Self::at(Timestamp::from_millis(1000), setting, seed, client, senders)
    }

    /// A path from this time on.
    fn at(
        now: Timestamp,
        setting: Setting,
        seed: u64,
        client: SocketAddr,
        senders: Arc<SenderMemory>,
    ) -> Self {
        let config =
            GatewayConfig { sender: setting.sender, sender_trials: 2, ..GatewayConfig::default() };
        let gateway = Gateway::remembering(config, [3; 32], [4; 32], Arc::default(), senders);
        let of_client = ClientConfig::default()
            .with_scheme(setting.scheme)
            .with_maximum_hold(setting.maximum_hold)
            .with_spread_bursts(setting.spread);
        let mut ends = Ends { client, ..Ends::at(now, gateway, of_client, seed) };
        ends.flow.on_server_answered(SERVER_ROUND_TRIP);
        Self { setting, ends, passed: 0, outcome: Outcome::default() }
    }

    fn run(mut self) -> Outcome {
        self.release();
        // The session first.
        self.ends.plan(Duration::from_millis(100), Event::Own(0));
        self.run_until(self.ends.now + Duration::from_millis(8100));
        self.ends.shim.handle(Input::Close, self.ends.now);
        self.release();
        let ShimStats { kept, numbered, recovered, .. } = self.ends.shim.stats();
        Outcome { counters: self.ends.counters, kept, numbered, recovered, ..self.outcome }
    }
}

impl World for Path {
    type Beside = Timestamp;
    type Own = u64;

    fn ends(&mut self) -> &mut Ends<Timestamp, u64> {
        &mut self.ends
    }

    fn beside(&mut self) -> Timestamp {
        self.ends.now
    }

    fn look_at_gateway(&mut self, out: &mut Outbox) {
        for event in out.take_events() {
            if let packrat_engine::Event::SendersJudged { tolerant, .. } = event {
                self.outcome.tipped = Some(tolerant);
            }
        }
    }

    fn down(&mut self, bytes: Vec<u8>) {
        let lost = self.ends.happens(self.setting.loss);
        self.outcome.lost += u64::from(lost);
        if !lost && bytes.len() <= self.setting.mtu {
            self.ends.plan(self.setting.delay, Event::ToClient(bytes));
        }
    }

    fn up(&mut self, said: Vec<u8>) {
        let dead = self.setting.up_dies_at.is_some_and(|at| self.passed >= at);
        if !dead && !self.ends.happens(self.setting.loss) {
            self.ends.plan(self.setting.delay, Event::ToGateway(said));
        }
    }

    fn pass(&mut self, bytes: &[u8], arrived: Timestamp) {
        let now = self.ends.now;
        match number_of(bytes, self.setting.length) {
            Some(number) => {
                self.outcome.delivered.push((number, now.saturating_since(arrived)));
                let (at, count, most) = self.outcome.at_once;
                let count = if at == now { count + 1 } else { 1 };
                self.outcome.at_once = (now, count, most.max(count));
            }
            None => self.outcome.forged += 1,
        }
    }

    /// The server sends this datagram.
    fn happen(&mut self, number: u64) {
        let setting = self.setting;
        if setting.restart_at == Some(number) {
            self.ends.restart(Gateway::new(GatewayConfig::default(), [3; 32], [5; 32]));
            self.ends.flow.on_server_answered(SERVER_ROUND_TRIP);
        }
        self.passed = number;
        if !self.ends.happens(setting.far_loss) {
            let bytes = datagram(number / setting.same, setting.length);
            let (bytes, is_numbered) = self.ends.forward(bytes);
            self.outcome.plain += u64::from(!is_numbered);
            match setting.loses_one_of {
                Some(of) if number.is_multiple_of(of) => self.outcome.lost += 1,
                _ => self.down(bytes),
            }
        }
        for (kind, count) in setting.forged.into_iter().enumerate() {
            for _ in 0..count {
                let mut forged = vec![0; setting.length];
                self.ends.random.fill_bytes(&mut forged);
                forged[0] = 0x41;
                if kind == 0 {
                    forged[..5].copy_from_slice(b"\x0bPkr\x29");
                }
                self.ends.plan(setting.delay, Event::ToClient(forged));
            }
        }
        if number + 1 < setting.datagrams {
            self.ends.plan(setting.interval, Event::Own(number + 1));
        }
    }
}

fn world(setting: Setting, seed: u64) -> Path {
    Path::new(setting, seed, CLIENT.parse().unwrap(), Arc::default())
}

fn run(setting: Setting, seed: u64) -> Outcome {
    world(setting, seed).run()
}

#[test]
fn without_loss_nothing_waits_and_every_datagram_has_a_number() {
    let outcome = run(CALM, 1);
    assert!(outcome.is_complete(&CALM));
    assert_eq!((outcome.kept, outcome.plain, outcome.out_of_order()), (0, 0, 0));
    assert_eq!(outcome.numbered, CALM.datagrams);
}

#[test]
fn what_the_last_mile_loses_comes_in_its_place() {
    for seed in 1..6 {
        let setting = Setting { loss: 40, ..CALM };
        let outcome = run(setting, seed);
        assert!(outcome.lost > 100 && outcome.is_complete(&setting), "seed {seed}: {outcome:?}");
        assert!(outcome.kept > 500, "seed {seed}: {}", outcome.kept);
        // A duplicate, of a probe, an early copy or a repair that was not needed, arrives behind
        // its original.
        let copies = outcome.counters.early_copies as usize;
        assert!(outcome.out_of_order() <= 5 + copies, "seed {seed}: {}", outcome.out_of_order());
        assert!(outcome.longest_wait() < Duration::from_millis(60), "{:?}", outcome.longest_wait());
    }
}

/// A socket's default receive buffer takes 92 such datagrams.
#[test]
fn what_has_waited_comes_in_steps_where_bursts_are_spread() {
    let setting = Setting {
        delay: Duration::from_millis(30),
        loss: 20,
        datagrams: 5000,
        interval: Duration::from_micros(96),
        length: 1200,
        ..CALM
    };
    for seed in 1..3 {
        let [at_once, spread] =
            [false, true].map(|spread| run(Setting { spread, ..setting }, seed));
        let most = |outcome: &Outcome| outcome.at_once.2;
        assert!(most(&at_once) > 200, "seed {seed}: {}", most(&at_once));
        assert!(most(&spread) <= 64, "seed {seed}: {}", most(&spread));
        // The same datagrams, in the same order, not much later.
        let [numbers, of_spread] = [&at_once, &spread]
            .map(|outcome| outcome.delivered.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        assert!(numbers == of_spread, "seed {seed}");
        let [mean, of_spread] = [&at_once, &spread].map(|outcome| {
            outcome.delivered.iter().map(|(_, wait)| *wait).sum::<Duration>()
                / outcome.delivered.len() as u32
        });
        assert!(of_spread < mean * 2, "seed {seed}: {mean:?} {of_spread:?}");
        let longer = spread.longest_wait().saturating_sub(at_once.longest_wait());
        assert!(longer < at_once.longest_wait() / 2, "seed {seed}: {longer:?}");
    }
}

#[test]
fn a_loss_before_a_number_is_known_to_fit_keeps_the_wait() {
    // The first one's repair goes without a number, because none has arrived so far.
    let setting = Setting { loses_one_of: Some(1000), ..CALM };
    let outcome = run(setting, 1);
    assert!(outcome.lost == 4 && outcome.is_complete(&setting), "{outcome:?}");
    assert!(outcome.out_of_order() <= 1, "the first one; what is lost later is waited for");
}

/// A flow as of games and tunnels, whose transport may act upon duplicates.
const PROGRAM: Setting = Setting {
    scheme: IdentifierScheme::Payload,
    loss: 30,
    datagrams: 1500,
    interval: Duration::from_micros(4800),
    length: 1200,
    ..CALM
};
/// Longest holds: without waits, and with them.
const HOLDS: [Duration; 2] = [Duration::ZERO, MAXIMUM_HOLD];

#[test]
fn a_program_gets_each_datagram_once() {
    let settings = [
        PROGRAM,
        Setting { length: 200, loss: 100, ..PROGRAM },
        // Symbols repair as well, and a repair is behind a thousand others.
        Setting { delay: Duration::from_millis(60), interval: CALM.interval, ..PROGRAM },
        Setting { interval: Duration::from_micros(100), datagrams: 9000, ..LONG },
        // Too long for a number.
        Setting { length: 1470, ..PROGRAM },
        // Places begin anew.
        Setting { restart_at: Some(700), ..PROGRAM },
    ];
    for (at, setting) in settings.into_iter().enumerate() {
        for (maximum_hold, seed) in
            HOLDS.into_iter().flat_map(|hold| [1, 2, 3, 4].map(|seed| (hold, seed)))
        {
            let setting = Setting {
                scheme: PROGRAM.scheme,
                loss: setting.loss.max(30),
                maximum_hold,
                ..setting
            };
            let outcome = run(setting, seed);
            let what = format!("setting {at}, {maximum_hold:?}, seed {seed}");
            assert_eq!(outcome.counters.early_copies, 0, "{what}");
            // Without a number, a repair that crosses its original is not known.
            let has_numbers = setting.length <= 1464;
            assert!(outcome.repeated() == 0 || !has_numbers, "{what}: {}", outcome.repeated());
            // There are repairs, which could come twice.
            assert!(outcome.missing(&setting) < outcome.lost, "{what}: {:?}", outcome.counters);
        }
    }
}

#[test]
fn a_programs_rare_answers_come_once() {
    // Each one is the newest for long, and the eACK that would prove its number may get lost.
    let interval = Duration::from_millis(400);
    let rare = Setting { loss: 300, datagrams: 12, interval, length: 200, ..PROGRAM };
    for (seed, maximum_hold) in (1..60).flat_map(|seed| HOLDS.map(|hold| (seed, hold))) {
        let outcome = run(Setting { maximum_hold, ..rare }, seed);
        assert_eq!(outcome.repeated(), 0, "{maximum_hold:?}, seed {seed}");
    }
}

/// Each of the equal datagrams counts, as heartbeats do.
#[test]
fn what_a_server_sends_twice_comes_twice() {
    for (path, maximum_hold) in
        [PROGRAM, LONG].into_iter().flat_map(|path| HOLDS.map(|hold| (path, hold)))
    {
        for loss in [0, 30] {
            let setting = Setting { scheme: PROGRAM.scheme, maximum_hold, loss, same: 2, ..path };
            let outcome = run(setting, 1);
            let delivered = outcome.delivered.len() as u64;
            assert!(delivered + outcome.lost >= setting.datagrams, "{setting:?}: {delivered}");
        }
    }
}

#[test]
fn early_copies_leave_the_budget_to_repairs() {
    // Two thirds of a flow's datagrams have copies: far more bytes than repairs may take.
    let interval = Duration::from_millis(15);
    let setting = Setting { loss: 100, interval, datagrams: 500, ..CALM };
    for seed in 1..4 {
        let FlowCounters { early_copies, budget_refusals, .. } = run(setting, seed).counters;
        assert!(early_copies > 30, "seed {seed}: {early_copies}");
        assert_eq!(budget_refusals, 0, "seed {seed}: {early_copies} copies");
    }
}

#[test]
fn a_stream_of_datagrams_has_early_copies_of_hardly_any() {
    let setting = Setting { loss: 100, delay: Duration::from_millis(20), ..CALM };
    for seed in 1..4 {
        let outcome = run(setting, seed);
        // Behind the first ones, the last ones.
        assert!(outcome.counters.early_copies <= 40, "seed {seed}: {:?}", outcome.counters);
    }
}

/// A last mile whose round trip lasts as long as 75 datagrams.
const LONG: Setting = Setting { delay: Duration::from_millis(30), ..CALM };

#[test]
fn on_a_long_last_mile_symbols_repair_sooner_than_a_round_trip() {
    for seed in 1..6 {
        let setting = Setting { loss: 20, ..LONG };
        let outcome = run(setting, seed);
        assert!(outcome.is_complete(&setting), "seed {seed}");
        let FlowCounters { symbol_bytes, repairs, .. } = outcome.counters;
        // Of 80 lost ones; the rest were lost before the loss was known, or two together.
        assert!(outcome.recovered >= 40, "seed {seed}: {} recovered", outcome.recovered);
        // A question is answered, even if symbols may do it.
        assert!(repairs < outcome.lost, "seed {seed}: {repairs} repairs");
        let share = symbol_bytes as f64 / (setting.datagrams * setting.length as u64) as f64;
        assert!((0.01..0.09).contains(&share), "seed {seed}: {share} of the bytes");
        let copies = outcome.counters.early_copies as usize;
        assert!(outcome.out_of_order() <= 20 + copies, "seed {seed}: {}", outcome.out_of_order());
        // Holes of the second half wait for symbols.
        let later = outcome.delivered.iter().filter(|(number, _)| *number > 2000);
        let waits: Vec<f64> =
            later.map(|(_, wait)| wait.as_secs_f64()).filter(|wait| *wait > 0.0).collect();
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        assert!(mean < 0.045, "seed {seed}: {mean} s, where a repair takes 0.06 s");
    }
}

#[test]
fn no_symbols_without_loss_or_if_a_repair_is_as_fast() {
    assert_eq!(run(LONG, 1).counters.symbols, 0);
    let outcome = run(Setting { loss: 20, ..CALM }, 1);
    assert!(outcome.lost > 40);
    assert_eq!((outcome.counters.symbols, outcome.recovered), (0, 0));
}

#[test]
fn what_the_far_segment_loses_is_waited_for_by_no_one() {
    let setting = Setting { far_loss: 50, ..CALM };
    let outcome = run(setting, 1);
    assert!(outcome.delivered.len() < 3950);
    assert_eq!((outcome.kept, outcome.out_of_order()), (0, 0));
}

#[test]
fn forged_datagrams_make_others_wait_for_the_patience_at_most() {
    // Twenty times as many as genuine ones, 25,000 a second.
    for (forged, path) in
        [[20, 0], [0, 20], [10, 10]].map(|forged| [(forged, CALM), (forged, LONG)]).concat()
    {
        let setting = Setting { loss: 20, forged, ..path };
        let outcome = run(setting, 7);
        let arrived = outcome.delivered.len() as u64;
        assert!(arrived + 60 >= setting.datagrams, "{forged:?}: {arrived}");
        assert_eq!(outcome.forged, 20 * setting.datagrams, "{forged:?}: all pass");
        assert!(outcome.longest_wait() <= MAXIMUM_HOLD, "{:?}", outcome.longest_wait());
        let waited = outcome.delivered.iter().map(|(_, wait)| wait.as_secs_f64()).sum::<f64>();
        let most = 0.01 + 4.0 * setting.delay.as_secs_f64();
        assert!(waited / (arrived as f64) < most, "{forged:?}: {waited} s");
    }
}

/// The share of the last mile's losses that its transport got all the same, in three seeds with
/// these forged datagrams per genuine one, with numbers and plain; 1250 genuine ones are sent per
/// second.
fn repaired(forged: [u32; 2]) -> f64 {
    let (mut missing, mut lost) = (0, 0);
    for seed in 1..4 {
        let setting = Setting { loss: 40, forged, datagrams: 9000, ..CALM };
        let outcome = run(setting, seed);
        let numbers: BTreeSet<u64> = outcome.delivered.iter().map(|(number, _)| *number).collect();
        missing += setting.datagrams - numbers.len() as u64;
        lost += setting.datagrams * u64::from(setting.loss) / 1000;
    }
    println!("{:?} forged per second: {missing} of {lost} missing", forged.map(|one| 1250 * one));
    1.0 - missing as f64 / lost as f64
}

#[test]
fn forged_datagrams_cost_hardly_a_repair() {
    for forged in [[2, 0], [20, 0], [0, 2], [0, 20], [10, 10]] {
        let repaired = repaired(forged);
        assert!(repaired >= 0.95, "{forged:?}: {repaired}");
    }
}

#[test]
fn a_path_that_carries_no_numbers_carries_the_datagrams() {
    // Datagrams of 1000 bytes pass; with a number they do not.
    let setting = Setting { mtu: 1004, datagrams: 2000, loss: 10, ..CALM };
    let outcome = run(setting, 1);
    // More vanish at once than an eACK can name: these are the sender's to repeat.
    assert!(outcome.delivered.len() >= 1900, "{}", outcome.delivered.len());
    assert!(outcome.plain > 1400, "{} went plain", outcome.plain);
}

#[test]
fn datagrams_too_long_for_a_number_pass_and_are_repaired() {
    let setting = Setting { length: 1470, loss: 30, datagrams: 2000, ..CALM };
    let outcome = run(setting, 1);
    assert!(outcome.is_complete(&setting));
    assert_eq!((outcome.kept, outcome.numbered, outcome.plain), (0, 0, 2000));
    assert!(outcome.counters.repairs > 40);
}

#[test]
fn a_new_sessions_numbers_begin_anew_and_order_goes_on() {
    let setting = Setting { restart_at: Some(2000), loss: 10, ..CALM };
    let outcome = run(setting, 3);
    assert!(outcome.counters.repairs > 20, "{:?}", outcome.counters);
    // An early copy may come twice.
    let after: BTreeSet<u64> = outcome
        .delivered
        .iter()
        .map(|(number, _)| *number)
        .filter(|number| *number > 3000)
        .collect();
    assert_eq!(after.len(), 999, "repaired by the next session");
    assert!(outcome.longest_wait() <= MAXIMUM_HOLD);
}

#[test]
fn a_client_without_its_gateway_still_takes_numbers_off() {
    let setting = Setting { up_dies_at: Some(100), datagrams: 8000, ..CALM };
    let mut world = world(setting, 3);
    world.release();
    let outcome = world.run();
    assert!(outcome.is_complete(&setting), "{}", outcome.delivered.len());
    assert_eq!(outcome.forged, 0, "a number reached the transport");
    assert!(outcome.plain < 10);
}

/// Passes a datagram, and the datagrams that it releases.
fn pass<M: Clone>(
    shim: &mut Shim<M>,
    datagram: &[u8],
    beside: M,
    now: Timestamp,
    mut deliver: impl FnMut(&[u8], M),
) {
    if let Verdict::Now { skip, metadata } = shim.on_datagram(datagram, beside, now) {
        deliver(&datagram[skip..], metadata);
    }
    while let Some(Released { datagram, metadata }) = shim.poll_deliver() {
        deliver(&datagram, metadata);
    }
}

#[test]
fn datagrams_pass_in_order_with_what_belongs_to_them() {
    let mut world = world(CALM, 1);
    world.release();
    while world.ends.shim.assistance().state != AssistState::Established
        || world.ends.shim.assistance().reports == 0
    {
        world.run_until(world.ends.now + Duration::from_millis(1));
    }
    let numbered: Vec<Vec<u8>> = (0..20)
        .map(|number| {
            let base = datagram(number, 500);
            let header = world.ends.flow.forward(&base, world.ends.now).unwrap();
            [&header[..], &base].concat()
        })
        .collect();
    assert!(numbered.iter().all(|datagram| number::split(datagram).is_some()));
    // The fifth comes last.
    let order = (0..20).filter(|number| *number != 5).chain([5]);
    let batch = order.map(|at| (&numbered[at][..], at));
    let mut shim: Shim<usize> = Shim::new(ClientConfig::default(), [9; 32], world.ends.now);
    let mut passed = Vec::new();
    for (bytes, at) in batch.clone() {
        pass(&mut shim, bytes, at, world.ends.now, |bytes, at| {
            assert_eq!(bytes, numbered[at], "without an agreement these are the transport's own");
            passed.push(at);
        });
    }
    assert!(passed.iter().copied().eq(batch.clone().map(|(_, at)| at)), "no session: as they come");

    let (now, mut seen) = (world.ends.now, Vec::new());
    for (bytes, at) in batch {
        pass(&mut world.ends.shim, bytes, Timestamp::from_millis(at as u64), now, |base, at| {
            assert_eq!(base, datagram(at.as_micros() / 1000, 500));
            seen.push(at.as_micros() / 1000);
        });
    }
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
}
