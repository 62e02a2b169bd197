//! `packrat lab harm`.

use super::section::{Extent, Section};
use super::tables;
use crate::arguments::{seed, share};
use crate::batch::{self, Progress};
use crate::trial::TrialResult;
use clap::Args;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `packrat lab harm`.
#[derive(Debug, Args)]
pub(crate) struct Harm {
    /// sharing, objects, pages, video, uploads [default: all of them]
    section: Vec<Section>,
    /// Paths instead of each section's own (names or TOML files, with commas between them)
    #[arg(long, value_delimiter = ',')]
    path: Vec<String>,
    /// Losses instead of 0, 0.01, 0.04; may be repeated
    #[arg(long, value_parser = share)]
    loss: Vec<f64>,
    /// Trials of each kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1001, value_parser = seed)]
    first_seed: u64,
    /// Trials at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// A file for the trials as well, one JSON object a line, as `run --json` prints them
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Harm {
    /// Measures, and prints a table for each section.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        let sections = if self.section.is_empty() { &Section::ALL[..] } else { &self.section };
        let extent = Extent {
            paths: self.path.clone(),
            losses: self.loss.clone(),
            seeds: self.first_seed..self.first_seed + self.seeds,
        };
        let unwritable = |error: io::Error| {
            let path = self.out.clone().unwrap_or_default();
            let path = path.display();
            format!("cannot write {path}: {error}; name a file that you may write with --out")
        };
        let mut out =
            self.out.as_ref().map(std::fs::File::create).transpose().map_err(unwritable)?;
        for &section in sections {
            let trials = section.trials(&extent)?;
            let mut results: Vec<TrialResult> = Vec::with_capacity(trials.len());
            let mut progress = Progress::new(trials.len() as u64);
            batch::run(&trials, self.jobs, |result| {
                let result = result?;
                progress.tick();
                if let Some(out) = &mut out {
                    let line = serde_json::to_string(&result).map_err(io::Error::from);
                    line.and_then(|line| writeln!(out, "{line}")).map_err(unwritable)?;
                }
                results.push(result);
                Ok::<(), Box<dyn Error>>(())
            })?;
            let table = tables::markdown(section, &results, self.seeds as usize);
            // A reader that has gone away wants no more.
            let _ = writeln!(io::stdout().lock(), "{}:\n\n{table}", section.name());
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        harm: Harm,
    }

    #[test]
    fn a_file_has_all_trials() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("harm.jsonl");
        let options = ["harm", "pages", "--path", "dsl", "--loss", "0", "--seeds", "1", "--out"];
        let arguments = options.into_iter().map(Into::into).chain([out.clone().into_os_string()]);
        Command::try_parse_from(arguments).unwrap().harm.run().unwrap();
        let text = std::fs::read_to_string(out).unwrap();
        let trials: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // Two senders, two arms.
        assert_eq!(trials.len(), 4);
        for trial in &trials {
            let pages = &trial["flows"][0]["completions"][0];
            assert_eq!(pages["seconds"].as_array().unwrap().len(), 10, "{trial}");
        }
    }
}
