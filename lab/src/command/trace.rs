//! `packrat-lab trace`.

use super::run::Run;
use super::timeline;
use crate::observer::TraceEvent;
use clap::Args;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Options of `packrat-lab trace`.
#[derive(Debug, Args)]
pub(super) struct Trace {
    #[command(flatten)]
    run: Run,
    /// The picture's file [default: SCENARIO-SENDER-ARM-SEED.svg]
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// The picture begins at this second
    #[arg(long, default_value_t = 0.0)]
    from: f64,
    /// The picture ends at this second [default: at the end of the download]
    #[arg(long)]
    to: Option<f64>,
}

impl Trace {
    /// Runs the trial, prints its events and draws them.
    pub(super) fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        let trials = self.run.trials()?;
        let [trial] = &trials[..] else {
            eprintln!(
                "error: these are {} trials; name one arm, one sender, one loss, and --seeds 1",
                trials.len()
            );
            return Ok(ExitCode::FAILURE);
        };
        let (result, events) = trial.trace()?;
        let end = events.last().map_or(0.0, TraceEvent::at);
        let (from, to) = (self.from, self.to.unwrap_or(end));
        let name = format!(
            "{}-{}-{}-{}",
            result.setting.scenario,
            result.setting.sender.name(),
            result.setting.arm.name(),
            result.setting.seed
        );
        let path = self.output.clone().unwrap_or_else(|| format!("{name}.svg").into());
        let svg = timeline::svg(&result, &events, from..to)?;
        std::fs::write(&path, svg).map_err(|error| {
            format!(
                "cannot write {}: {error}; name a file that you may write with --output",
                path.display()
            )
        })?;
        eprintln!("The picture is in {}.", path.display());
        let mut out = io::BufWriter::new(io::stdout().lock());
        for event in events {
            // A reader that has gone away wants no more.
            if serde_json::to_writer(&mut out, &event).is_err() || writeln!(out).is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        let _ = serde_json::to_writer(&mut out, &result).map(|()| writeln!(out));
        Ok(ExitCode::SUCCESS)
    }
}
