//! `packrat lab field`.

use super::amount::Amount;
use super::cells::{self, LOSS_RATES, LOSSY_ARMS, Task};
use super::report::{self, Folder, Settings};
use super::sharing::{self, SharingRow};
use super::summary::{Summary, compare};
use super::table::{FIRST_SEED, sample_table};
use crate::arguments::share;
use crate::batch::{self, Progress};
use crate::harm::Extent;
use crate::network::Oracle;
use crate::stacks::Sender;
use crate::trial::Arm;
use clap::Args;
use packrat_emulation::scenario::{Scenario, ScenarioError};
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Cells of `--quick`, and the seed that draws them.
const QUICK_SAMPLE: (usize, u64) = (65, 1);

/// Options of `packrat lab field`.
#[derive(Debug, Args)]
pub(crate) struct Field {
    /// A random fifth of the cells, shorter downloads, one seed: about three minutes on two cores
    #[arg(long)]
    quick: bool,
    /// The folder for field.csv, field.json, field-unassisted.svg and field-lossless.svg
    #[arg(long, short, default_value = "target/field")]
    out: PathBuf,
    /// A folder of recordings: the profiles are measured as well, each with the loss that it has
    #[arg(long)]
    traces: Option<PathBuf>,
    /// Trials at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    #[command(flatten)]
    cells: CellOptions,
    /// Factor of the paths' downloads
    #[arg(long)]
    size: Option<f64>,
    /// Small objects of 100 kB and of 1 MB in each row, with a comma between the numbers
    #[arg(long, value_parser = counts)]
    objects: Option<[u64; 2]>,
    /// Seeds of each cell [default: 3, with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// The first seed; seeds from 1001 on were never used to choose anything
    #[arg(long, default_value_t = FIRST_SEED)]
    first_seed: u64,
    /// The operator has named the servers' congestion control (packrat.dev/config.sender)
    #[arg(long)]
    name_senders: bool,
    /// Downloads before the measured one, each a trial in another network: the gateway keeps its
    /// findings about the servers
    #[arg(long, default_value_t = 0)]
    warm: u8,
    /// classification, repair, both: reports of the last mile to assisted clients, to measure a
    /// bound
    #[arg(long)]
    oracle: Option<Oracle>,
    /// Continue an earlier run with the same options; its rows must be of the same program
    #[arg(long)]
    resume: bool,
    /// Also measure shares: a download beside an unassisted one of the same sender, and BBR beside
    /// CUBIC, with losses of 0, 1 and 4 %; field-sharing.csv
    #[arg(long)]
    sharing: bool,
    /// Only print the table of the small sample that the tests compare
    #[arg(long)]
    sample: bool,
}

/// The cells to measure.
#[derive(Debug, Args)]
struct CellOptions {
    /// Paths instead of all (names or TOML files, with commas between them)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Senders instead of the five of the committed tables (s2n-quic's and quinn's); may be
    /// repeated
    #[arg(long)]
    sender: Vec<Sender>,
    /// Arms instead of end-to-end, packrat and split; may be repeated
    #[arg(long)]
    arm: Vec<Arm>,
    /// Losses instead of 0, 0.001, 0.005, 0.02, 0.05; may be repeated
    #[arg(long, value_parser = share)]
    loss: Vec<f64>,
}

fn counts(text: &str) -> Result<[u64; 2], String> {
    let two = text
        .split_once(',')
        .and_then(|(small, large)| Some([small.parse().ok()?, large.parse().ok()?]));
    two.ok_or_else(|| "it must be two numbers, such as 20,10".to_owned())
}

impl Field {
    /// Measures, writes the files, prints the line.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        if self.sample {
            let table = sample_table(self.jobs)?;
            // A reader that has gone away wants no more.
            let _ = write!(io::stdout().lock(), "{table}");
            return Ok(ExitCode::SUCCESS);
        }
        let folder = Folder::create(&self.out)?;
        let tasks = self.tasks()?;
        let amount = self.amount();
        let settings = Settings {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            amount,
            traces: self.traces.is_some(),
        };
        let (mut journal, mut rows) = folder.journal(&settings, self.resume)?;
        rows.retain(|row| tasks.iter().any(|task| row.is_of(task)));
        let order = tasks.clone();
        let tasks = report::missing(tasks, &rows);
        eprintln!("{} rows to measure, {} are there", tasks.len(), rows.len());
        let mut progress = Progress::new(tasks.len() as u64);
        batch::each(&tasks, self.jobs, Task::run, |row| {
            let row = row?;
            folder.append(&mut journal, &row)?;
            rows.push(row);
            progress.tick();
            Ok::<(), Box<dyn Error>>(())
        })?;
        // Resumed rows take the place that they would have had.
        rows.sort_by_cached_key(|row| order.iter().position(|task| row.is_of(task)));
        let cells = compare(&rows);
        let summary = Summary::new(&cells);
        let sharing = self.shares()?;
        folder.write(&rows, &cells, &summary, &sharing)?;
        let _ = writeln!(io::stdout().lock(), "{summary}");
        Ok(ExitCode::SUCCESS)
    }

    fn shares(&self) -> Result<Vec<SharingRow>, Box<dyn Error>> {
        if !self.sharing {
            return Ok(Vec::new());
        }
        let all = || Scenario::field_paths().map(str::to_owned).collect();
        let extent = Extent {
            paths: if self.cells.only.is_empty() { all() } else { self.cells.only.clone() },
            losses: self.cells.loss.clone(),
            seeds: self.seeds_asked(),
        };
        sharing::measure(&extent, self.jobs)
    }

    fn seeds_asked(&self) -> std::ops::Range<u64> {
        let seeds = self.seeds.unwrap_or(if self.quick { 1 } else { 3 });
        self.first_seed..self.first_seed + seeds
    }

    fn amount(&self) -> Amount {
        let default = if self.quick { Amount::QUICK } else { Amount::FULL };
        Amount {
            size: self.size.unwrap_or(default.size),
            objects: self.objects.unwrap_or(default.objects),
            names_senders: self.name_senders,
            warm: self.warm,
            oracle: self.oracle,
        }
    }

    fn tasks(&self) -> Result<Vec<Task>, ScenarioError> {
        let senders =
            if self.cells.sender.is_empty() { &Sender::OF_TABLES[..] } else { &self.cells.sender };
        let losses = if self.cells.loss.is_empty() { &LOSS_RATES[..] } else { &self.cells.loss };
        let paths = cells::paths(&self.cells.only, self.traces.as_deref())?;
        let mut cells = cells::all(&paths, senders, losses);
        if self.quick {
            cells = cells::sample(cells, QUICK_SAMPLE.0, QUICK_SAMPLE.1);
        }
        let arms = if self.cells.arm.is_empty() { &LOSSY_ARMS[..] } else { &self.cells.arm };
        Ok(cells::tasks(&cells, arms, self.seeds_asked(), self.amount()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        field: Field,
    }

    fn field(arguments: &[&str]) -> Field {
        Command::try_parse_from([&["field"], arguments].concat()).unwrap().field
    }

    #[test]
    fn a_run_that_was_interrupted_is_resumed_with_the_same_result() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().to_str().unwrap();
        let cell = ["--only", "dsl", "--sender", "s2n-cubic", "--loss", "0.02", "--out", out];
        let arguments =
            [&cell[..], &["--seeds", "2", "--size", "0.1", "--objects", "1,1"]].concat();
        let measure = |resume: &[&str]| field(&[&arguments[..], resume].concat()).run();
        let path = |name: &str| folder.path().join(name);
        measure(&[]).unwrap();
        let (csv, journal) = (
            std::fs::read_to_string(path("field.csv")).unwrap(),
            std::fs::read_to_string(path("field.jsonl")).unwrap(),
        );
        assert_eq!(csv.lines().count(), 1 + 2 * 4, "{csv}");
        // Killed in the middle of a line.
        std::fs::write(path("field.jsonl"), &journal[..journal.len() * 2 / 3]).unwrap();
        measure(&["--resume"]).unwrap();
        assert_eq!(std::fs::read_to_string(path("field.csv")).unwrap(), csv);
        let svg = std::fs::read_to_string(path("field-lossless.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("dsl"), "{svg}");
        // Rows of other settings are refused.
        let refused = field(&[&cell[..], &["--resume"]].concat()).run().unwrap_err();
        assert!(refused.to_string().contains("field.jsonl cannot be resumed"), "{refused}");
    }
}
