//! `packrat lab field`.

use super::amount::Amount;
use super::cells::{self, Cell, FIELD_FAMILY, PROFILE_FAMILY, Task};
use super::report::{self, Folder, Settings};
use super::sharing::{self, SharingRow};
use super::summary::{Summary, compare};
use super::table::{FIRST_SEED, sample_table};
use super::verdict::Verdict;
use crate::arguments::{seed, share};
use crate::batch::{self, Progress};
use crate::harm::Extent;
use crate::network::Oracle;
use crate::stacks::Sender;
use crate::trial::Arm;
use clap::Args;
use packrat_emulation::scenario::Scenario;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Cells of `--quick`, and the seed that draws them.
const QUICK_SAMPLE: (usize, u64) = (65, 1);

/// Options of `packrat lab field`.
#[derive(Debug, Args)]
pub(crate) struct Field {
    /// 65 random cells, shorter downloads, one seed: below three minutes on two cores
    #[arg(long)]
    quick: bool,
    /// The reserved paths and seeds, on which no rule may be chosen. Each use has new seeds, and its
    /// beginning and result become lines of lab/verdicts.csv
    #[arg(long, conflicts_with_all = ["first_seed", "resume", "only"])]
    verdict: bool,
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
    /// Seeds of each cell [default: 3, of profiles 6; with --quick 1]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = FIRST_SEED, value_parser = seed)]
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
    /// Families instead of all: field (the paths with small objects and split connections),
    /// profiles (with --traces), or one of emulation/scenarios/families.toml; may be repeated
    #[arg(long)]
    family: Vec<String>,
    /// Paths instead of all (names or TOML files, with commas between them)
    #[arg(long, value_delimiter = ',', conflicts_with = "family")]
    only: Vec<String>,
    /// Senders instead of the five of the committed tables (s2n-quic's and quinn's); may be
    /// repeated
    #[arg(long)]
    sender: Vec<Sender>,
    /// Arms instead of end-to-end and packrat, and split of the family field; may be repeated
    #[arg(long)]
    arm: Vec<Arm>,
    /// Losses instead of each family's; may be repeated
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
        let verdict = self.verdict.then(Verdict::begin).transpose()?;
        let first_seed = verdict.as_ref().map_or(self.first_seed, Verdict::first_seed);
        let tasks = self.tasks(first_seed)?;
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
        let summary = Summary::of_families(&cells, &rows);
        let sharing = self.shares(first_seed)?;
        folder.write(&rows, &cells, &summary, &sharing)?;
        for family in &summary {
            let _ = writeln!(io::stdout().lock(), "{family}");
            if let Some(verdict) = &verdict {
                verdict.record(&family.to_string())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn shares(&self, first_seed: u64) -> Result<Vec<SharingRow>, Box<dyn Error>> {
        if !self.sharing {
            return Ok(Vec::new());
        }
        let all = || Scenario::field_paths().map(str::to_owned).collect();
        let extent = Extent {
            paths: if self.cells.only.is_empty() { all() } else { self.cells.only.clone() },
            losses: self.cells.loss.clone(),
            seeds: first_seed..first_seed + self.seeds_of(FIELD_FAMILY),
        };
        sharing::measure(&extent, self.jobs)
    }

    /// The number of seeds of a family. A recording is short: each seed shows another part of it.
    fn seeds_of(&self, family: &str) -> u64 {
        let default = match (self.quick, family == PROFILE_FAMILY) {
            (true, _) => 1,
            (false, true) => 6,
            (false, false) => 3,
        };
        self.seeds.unwrap_or(default)
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

    fn tasks(&self, first_seed: u64) -> Result<Vec<Task>, Box<dyn Error>> {
        let CellOptions { family, only, sender, arm, loss } = &self.cells;
        let senders = if sender.is_empty() { &Sender::OF_TABLES[..] } else { sender };
        let mut groups = cells::groups(self.traces.as_deref(), self.verdict)?;
        if let Some(unknown) =
            family.iter().find(|name| groups.iter().all(|group| group.family != **name))
        {
            let known: Vec<&str> = groups.iter().map(|group| group.family.as_str()).collect();
            return Err(format!("there is no family {unknown:?} here; choose of {known:?}").into());
        }
        if !family.is_empty() {
            groups.retain(|group| family.contains(&group.family));
        } else if !only.is_empty() {
            groups = cells::only(groups, only)?;
        }
        let mut cells = cells::all(&groups, senders, loss);
        if self.quick {
            cells = cells::sample(cells, QUICK_SAMPLE.0, QUICK_SAMPLE.1);
        }
        let seeds = |cell: &Cell| first_seed..first_seed + self.seeds_of(&cell.family);
        Ok(cells::tasks(&cells, arm, seeds, self.amount()))
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
