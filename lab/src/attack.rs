//! `packrat-lab attack`: attackers with full knowledge, driven by random inputs.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use packrat_fuzz_entry::arena::{self, Margins, Violation};

/// Options of `packrat-lab attack`.
#[derive(Debug, Args)]
pub(crate) struct Attack {
    /// Runs, with the seeds 1, 2, 3 …
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Run for this many hours instead
    #[arg(long)]
    hours: Option<f64>,
    /// Longest input, in bytes
    #[arg(long, default_value_t = 300)]
    length: usize,
    /// Runs at the same time
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Continue after a broken promise, and count them all
    #[arg(long)]
    all: bool,
}

/// Findings of one job.
#[derive(Debug, Default)]
struct Found {
    runs: u64,
    margins: Margins,
    violations: Vec<(u64, Duration, Violation)>,
}

/// Runs the command.
pub(crate) fn run(attack: &Attack) -> ExitCode {
    let begun = Instant::now();
    let limit = attack.hours.map(|hours| Duration::from_secs_f64(hours.max(0.0) * 3600.0));
    let next = AtomicU64::new(attack.first_seed);
    let is_over = |seed: u64| match limit {
        Some(limit) => begun.elapsed() >= limit,
        None => seed - attack.first_seed >= attack.seeds,
    };
    let job = || {
        let mut found = Found::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if is_over(seed) {
                return found;
            }
            found.runs += 1;
            match arena::run(&arena::input(seed, attack.length)) {
                Ok(margins) => found.margins.add(&margins),
                Err(violation) => {
                    found.violations.push((seed, begun.elapsed(), violation));
                    if !attack.all {
                        next.store(u64::MAX / 2, Ordering::Relaxed);
                        return found;
                    }
                }
            }
        }
    };
    let found = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..attack.jobs.max(1)).map(|_| scope.spawn(job)).collect();
        let mut all = Found::default();
        for found in jobs.into_iter().filter_map(|job| job.join().ok()) {
            all.runs += found.runs;
            all.margins.add(&found.margins);
            all.violations.extend(found.violations);
        }
        all
    });
    print(&found, begun.elapsed());
    if found.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(found: &Found, elapsed: Duration) {
    let Found { runs, margins, violations } = found;
    let seconds = elapsed.as_secs_f64();
    println!("{runs} runs in {seconds:.0} s, {:.1} a second", *runs as f64 / seconds);
    println!(
        "attackers: {} sessions, {} datagrams; {} repairs of honest clients compared",
        margins.sessions, margins.attacks, margins.repairs
    );
    println!(
        "symbols for attackers: {}; copies of answers to others' names: {}; datagrams recovered from symbols: {}; questions held out: {}",
        margins.symbols, margins.copies, margins.recovered, margins.held_out
    );
    let row = |promise: &str, worst: String, limit: String| {
        println!("{promise:<58} worst {worst:>10}   limit {limit:>10}");
    };
    row(
        "bytes to an unvalidated address for each that came from it",
        format!("{:.2}", margins.amplification),
        format!("{}", Margins::MOST_AMPLIFICATION),
    );
    row(
        "the same where copies of what is sparse are among them",
        format!("{:.2}", margins.copied),
        format!("{}", Margins::MOST_WITH_COPIES),
    );
    row(
        "operations for each unit of work charged",
        format!("{:.2}", margins.work),
        format!("{}", Margins::MOST_WORK),
    );
    row(
        "repairs late or missing against a run without attackers",
        format!("{:.1} %", margins.repairs_lost * 100.0),
        format!("{:.1} %", Margins::MOST_REPAIRS_LOST * 100.0),
    );
    row(
        "delay of a repair against a run without attackers",
        format!("{:?}", margins.repair_delay),
        format!("{:?}", Margins::LATE_AMID_OTHERS),
    );
    row(
        "time that a datagram was kept from a transport",
        format!("{:?}", margins.kept),
        format!("{:?}", Margins::LONGEST_HOLD),
    );
    let mut violations: Vec<_> = violations.iter().collect();
    violations.sort_unstable_by_key(|(_, at, _)| *at);
    for (seed, at, violation) in violations.iter().take(20) {
        println!("BROKEN after {:.1} s by seed {seed}: {violation}", at.as_secs_f64());
    }
    if violations.len() > 1 {
        println!("broken in {} of {runs} runs", violations.len());
    }
}
