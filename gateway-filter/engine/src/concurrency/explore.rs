//! Explorer of schedules: runs a test in many orders of its threads' steps, which a seed decides.
//!
//! A step ends when a thread locks something or touches an atomic. The random walk takes any thread
//! for each step. Probabilistic concurrency testing prefers one thread to another and changes its
//! mind a few times, which finds errors that need a thread to stand still for long (Burckhardt10).
//! Neither reorders memory: every atomic is sequentially consistent here.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

/// Number of schedules of each kind.
const SCHEDULE_COUNT: usize = 2_000;
/// Changes of mind in one schedule.
const SCHEDULE_CHANGES: usize = 3;
/// A test that takes more steps waits for what never comes.
const MOST_STEPS: usize = 50_000;
/// Seed of the schedules unless another one is given.
const DEFAULT_SEED: u64 = 1;
/// Memory of a thread's stack; a larger stack ends the process.
const STACK_BYTES: usize = 1 << 20;

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    value.map_or(default, |value| {
        value.parse().unwrap_or_else(|_| panic!("{variable} is no number: {value}"))
    })
}

/// Runs `test` in many orders. The environment may choose others: `PACKRAT_SCHEDULE_SEED`, and
/// `PACKRAT_SCHEDULES` for their number.
pub(super) fn explore(test: fn()) {
    let seed = number("PACKRAT_SCHEDULE_SEED", DEFAULT_SEED);
    let count = number("PACKRAT_SCHEDULES", SCHEDULE_COUNT as u64) as usize;
    run("random walk", seed, RandomScheduler::new_from_seed(seed, count), test);
    run("changes of mind", seed, PctScheduler::new_from_seed(seed, SCHEDULE_CHANGES, count), test);
}

fn run(kind: &str, seed: u64, scheduler: impl Scheduler + 'static, test: fn()) {
    let mut config = Config::default();
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    config.stack_size = STACK_BYTES;
    let runner = Runner::new(scheduler, config);
    if let Err(failure) = catch_unwind(AssertUnwindSafe(move || runner.run(test))) {
        eprintln!("failed by the {kind}: PACKRAT_SCHEDULE_SEED={seed} repeats it");
        resume_unwind(failure);
    }
}
