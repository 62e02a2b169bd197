//! `packrat-papers sweep`.

use super::cache::{Cache, Extent};
use super::grid::{Cell, Period};
use super::{advice, check, report};
use crate::failure::{Failure, unwritable};
use clap::Args;
use packrat_lab::{Sender, drawing};
use std::io::{self, Write};
use std::path::PathBuf;

/// Options of `packrat-papers sweep`.
#[derive(Debug, Args)]
pub(crate) struct Sweep {
    /// The folder of the measured segments, a file for each sender; existing segments are not
    /// measured again
    #[arg(long, default_value = "target/sweep")]
    cache: PathBuf,
    /// Senders instead of all; may be repeated
    #[arg(long)]
    sender: Vec<Sender>,
    /// Seconds of each download that count
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Seconds before them, which do not: start-up
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=600))]
    settle: u64,
    /// Seeds of each segment
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Trials at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Measure the tables of `packrat plan` instead: write the missing rows of cells.csv into this
    /// folder
    #[arg(long, value_name = "FOLDER")]
    plan: Option<PathBuf>,
    /// Also measure this many held-out paths, and write held_out.csv
    #[arg(long, value_name = "PATHS", requires = "plan", default_value_t = 0)]
    plan_check: u64,
    /// Hold 70 predictions for split connections against real ones
    #[arg(long)]
    check: bool,
}

impl Sweep {
    /// Measures the missing segments, writes sweep.csv and sweep.svg, prints the tables.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(folder) = &self.plan {
            let period = Period { settle: self.settle, seconds: self.seconds };
            advice::measure(folder, period, self.seeds, self.jobs)?;
            return match self.plan_check {
                0 => Ok(()),
                paths => advice::check(folder, paths, period, self.seeds, self.jobs),
            };
        }
        let senders = if self.sender.is_empty() { &Sender::ALL[..] } else { &self.sender };
        let mut caches = Vec::new();
        let mut errors = String::new();
        for &sender in senders {
            let extent = Extent {
                sender,
                versions: sender.versions(),
                period: Period { settle: self.settle, seconds: self.seconds },
                seeds: self.first_seed..self.first_seed + self.seeds,
            };
            let mut cache = Cache::open(&self.cache, extent)?;
            eprintln!("{}: {} segments are there", sender.name(), cache.len());
            let progress = |cell: Cell, share| {
                let [rate, delay, loss] = [cell.rate_mbps, cell.delay_ms, cell.loss_percent];
                eprintln!("{} {rate} Mbit/s {delay} ms {loss} %: {share:.2}", sender.name());
            };
            cache.fill(self.jobs, progress)?;
            if self.check {
                cache.complete(&check::cells(), self.jobs, progress)?;
                let checked = check::measure(&check::settings(), &cache, self.jobs)?;
                errors.push_str(&report::errors(sender.name(), &checked));
            }
            caches.push(cache);
        }
        self.file("sweep.csv", &report::csv(&caches))?;
        self.file("sweep.svg", &drawing::svg(&report::heat_map(&caches), 2)?)?;
        // A reader that has gone away wants no more.
        let _ = writeln!(
            io::stdout().lock(),
            "{}\n{}\n{errors}",
            report::classes(&caches),
            report::fingerprints(&caches)
        );
        Ok(())
    }

    fn file(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.cache.join(name);
        std::fs::write(&path, text).map_err(|error| unwritable(&path, &error, "--cache"))
    }
}
