//! The arena of the knowing attacker: gateway, data plane and clients together, and attackers who
//! use all their knowledge: the keys of their own sessions, the documents and golden vectors, the
//! addresses of others, and the numbers of others' base connections, which are in the clear.
//!
//! ```text
//!   server --- data plane in virtual time ---- last mile ---- honest clients (core and transport)
//!                    ^      ^                                        ^
//!                    |      +-- from any address --+                 | in the gateway's name
//!                    +-- from their own -- attackers ----------------+
//! ```
//!
//! Four oracles check every step: see [`Oracle`]. The third compares with a run that only lacks the
//! attackers.
//!
//! Input: a byte of conditions (six bits; its upper two: sessions that attackers have at first), then
//! steps ([`attacker`]).

mod attacker;
mod base;
mod honest;
mod places;
mod steps;
mod vectors;
mod verdict;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use attacker::Attacker;
use steps::Steps;
use verdict::Kept;
pub use verdict::{Margins, Oracle, Violation};
use world::{Conditions, World};

/// Longest time that attackers have.
const LONGEST: Duration = Duration::from_secs(3);
/// Time in which the honest sessions come to rest afterwards.
const REST: Duration = Duration::from_millis(400);
/// Most steps of an input.
const MOST_STEPS: usize = 400;

type Repairs = Vec<BTreeMap<u64, Timestamp>>;

thread_local! {
    /// The runs without attackers.
    static TWINS: RefCell<BTreeMap<Conditions, Repairs>> = const { RefCell::new(BTreeMap::new()) };
}

/// Runs the steps; panics when a promise is broken.
pub fn knowing_attacker(data: &[u8]) {
    if let Err(violation) = run(data) {
        panic!("{violation}");
    }
}

/// Runs the steps.
///
/// # Errors
/// The promise that was broken.
pub fn run(data: &[u8]) -> Result<Margins, Violation> {
    let (&first, steps) = data.split_first().unwrap_or((&0, &[]));
    let conditions = Conditions::new(first);
    let mut world = World::new(conditions);
    let mut attacker = Attacker::default();
    let mut steps = Steps::new(steps);
    attacker.arrive(&mut world, usize::from(first >> 6))?;
    for _ in 0..MOST_STEPS {
        if steps.is_empty() || world.elapsed() > LONGEST {
            break;
        }
        attacker.step(&mut world, &mut steps)?;
    }
    world.pass(REST)?;
    world.check_newcomer()?;
    world.check_arms()?;
    world.margins.recovered = world.honest[0].recovered();
    let twin = twin(conditions);
    compare(&mut world, &twin)?;
    Ok(world.margins)
}

/// A random input of up to `longest` bytes.
pub fn input(seed: u64, longest: usize) -> Vec<u8> {
    let word = |number: u64| base::scatter(seed << 16 ^ number);
    let length = word(0) as usize % longest.max(1) + 1;
    (1..=length as u64).map(|number| word(number) as u8).collect()
}

/// The repairs of the run without attackers.
fn twin(conditions: Conditions) -> Repairs {
    TWINS.with_borrow_mut(|twins| {
        let repairs = twins.entry(conditions).or_insert_with(|| {
            let mut world = World::new(conditions);
            world.pass(LONGEST + REST * 3).expect("no promise is broken without attackers");
            for (number, client) in world.honest.iter().take(2).enumerate() {
                let is_held_out = conditions.holds_out && number == 1;
                assert_eq!(
                    (client.is_assisted(), client.is_held_out()),
                    (!is_held_out, is_held_out)
                );
            }
            let by_symbols = world.honest[0].recovered() > 0;
            assert_eq!(by_symbols, conditions.codes, "{conditions:?}");
            let repairs = world.repairs();
            let copied = repairs.last().is_some_and(|repairs| !repairs.is_empty());
            assert_eq!(copied, conditions.copies, "{conditions:?}");
            repairs
        });
        repairs.clone()
    })
}

/// Compares the honest clients' repairs with a run without attackers.
fn compare(world: &mut World, twin: &Repairs) -> Kept {
    let (mut expected, mut lost) = (0u64, 0u64);
    for ((client, with), without) in world.honest.iter().zip(&world.repairs()).zip(twin) {
        let late = |time: Timestamp| time + client.tolerated(time);
        let is_compared = |time: Timestamp| late(time) <= world.now && !client.is_doubtful(time);
        let mut compared: Vec<_> = without.iter().filter(|(_, time)| is_compared(**time)).collect();
        compared.sort_by_key(|(_, time)| **time);
        let mut doubts = Vec::new();
        for (number, time) in compared {
            expected += 1;
            match with.get(number) {
                Some(at) if *at <= late(*time) => {
                    let delay = at.saturating_since(*time);
                    world.margins.repair_delay = world.margins.repair_delay.max(delay);
                }
                _ if client.may_have_believed(*time) => {
                    let is_over = |from: &Timestamp| *time > *from + Margins::LONGEST_DOUBT;
                    if doubts.last().is_none_or(is_over) {
                        doubts.push(*time);
                    }
                }
                _ => lost += 1,
            }
        }
        Oracle::Neighbours.is_kept(doubts.len() <= Margins::MOST_DOUBTS, || {
            format!("forged datagrams have cost repairs {} times", doubts.len())
        })?;
    }
    world.margins.repairs = expected;
    world.margins.repairs_lost = lost as f64 / expected.max(1) as f64;
    let is_kept = world.margins.repairs_lost <= Margins::MOST_REPAIRS_LOST;
    Oracle::Neighbours.is_kept(is_kept, || format!("{lost} of {expected} are late or missing"))
}
