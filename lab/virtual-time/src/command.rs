//! `packrat lab`.

use crate::batch;
use crate::sender::Sender;
use crate::trial::{Arm, Trial, TrialResult};
use clap::{Args, Subcommand};
use packrat_lab::scenario::{Scenario, ScenarioError};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Options of `packrat lab`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run trials and print their results
    Run(Run),
    /// Run one trial and print everything that happened in it, one JSON object per event
    Trace(Run),
}

#[derive(Debug, Args)]
struct Run {
    /// wifi, cellular, satellite, sat_long, wifi_burst, or a TOML file
    scenario: String,
    /// Loss of the last mile instead of the scenario's, 0 to 1; may be repeated
    #[arg(long, value_parser = share)]
    loss: Vec<f64>,
    /// s2n-cubic, s2n-bbr; may be repeated [default: s2n-cubic]
    #[arg(long)]
    sender: Vec<Sender>,
    /// end-to-end, packrat, repair-only, split, ideal; may be repeated [default: all]
    #[arg(long)]
    arm: Vec<Arm>,
    /// Trials of each kind, with the seeds 1, 2, 3 …
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Trials at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Bytes of a download instead of the scenario's
    #[arg(long)]
    size: Option<u64>,
    /// Longest time an acknowledgement is withheld, milliseconds, instead of the client's default
    #[arg(long)]
    maximum_hold: Option<u64>,
    /// Repairs as a share of the forwarded bytes, instead of the gateway's default
    #[arg(long)]
    repair_budget: Option<f64>,
    /// One JSON object per trial instead of a table of medians
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..1.0).contains(&share) { Ok(share) } else { Err("it must be at least 0 and below 1".to_owned()) }
}

/// Runs the command; its exit code.
pub fn run(options: &Options) -> ExitCode {
    let (Action::Run(run) | Action::Trace(run)) = &options.action;
    let trials = match run.trials() {
        Ok(trials) => trials,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    if matches!(options.action, Action::Trace(_)) {
        return trace(&trials);
    }
    let mut results = Vec::new();
    let mut failed = false;
    let outcome: io::Result<()> = batch::run(&trials, run.jobs, |result| {
        match result {
            Ok(result) if run.json => {
                let mut out = io::stdout().lock();
                serde_json::to_writer(&mut out, &result)?;
                writeln!(out)?;
            }
            Ok(result) => results.push(result),
            Err(error) => {
                failed = true;
                eprintln!("error: {error}");
            }
        }
        Ok(())
    });
    // A reader that has gone away, like `head`, wants no more; that is no failure of the trials.
    if outcome.is_ok() && !run.json {
        let _ = write!(io::stdout().lock(), "{}", table(&results));
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn trace(trials: &[Trial]) -> ExitCode {
    let [trial] = trials else {
        eprintln!(
            "error: these are {} trials; name one arm, one sender, one loss, and --seeds 1",
            trials.len()
        );
        return ExitCode::FAILURE;
    };
    let (result, events) = match trial.trace() {
        Ok(outcome) => outcome,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    for event in events {
        if serde_json::to_writer(&mut out, &event).is_err() || writeln!(out).is_err() {
            return ExitCode::SUCCESS;
        }
    }
    let _ = serde_json::to_writer(&mut out, &result).map(|()| writeln!(out));
    ExitCode::SUCCESS
}

impl Run {
    fn trials(&self) -> Result<Vec<Trial>, ScenarioError> {
        let mut scenario = Scenario::load(&self.scenario)?;
        scenario.size = self.size.unwrap_or(scenario.size);
        let losses = if self.loss.is_empty() { vec![scenario.last_mile.loss] } else { self.loss.clone() };
        let senders = if self.sender.is_empty() { vec![Sender::S2nCubic] } else { self.sender.clone() };
        let arms = if self.arm.is_empty() { Arm::ALL.to_vec() } else { self.arm.clone() };
        let mut trials = Vec::new();
        for loss in losses {
            for &sender in &senders {
                for &arm in &arms {
                    for seed in (self.first_seed..).take(self.seeds as usize) {
                        let scenario = scenario.clone().with_loss(loss);
                        let mut trial = Trial::new(scenario, arm, sender, seed);
                        if let Some(hold) = self.maximum_hold {
                            trial.client.maximum_hold = Duration::from_millis(hold);
                        }
                        if let Some(budget) = self.repair_budget {
                            trial.gateway.repair_budget = budget;
                        }
                        trials.push(trial);
                    }
                }
            }
        }
        Ok(trials)
    }
}

/// Medians per kind of trial, as a table in Markdown. The ratio is that to the ideal arm of the same sender.
fn table(results: &[TrialResult]) -> String {
    let mut text = String::from(
        "| scenario | loss | sender | arm | Mbit/s | ratio | lost | declared lost | spurious | window reductions | repair bytes / lost bytes |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut rest = results;
    while let Some(first) = rest.first() {
        let same = |result: &&TrialResult| {
            (result.arm, result.sender) == (first.arm, first.sender) && result.loss == first.loss
        };
        let count = rest.iter().take_while(same).count();
        let (group, others) = rest.split_at(count);
        rest = others;
        let ideal: Vec<f64> = results
            .iter()
            .filter(|result| result.arm == Arm::Ideal && result.sender == first.sender)
            .map(|result| result.goodput_mbps)
            .collect();
        let goodput = median(group.iter().map(|result| result.goodput_mbps));
        let ratio = if ideal.is_empty() {
            "–".to_owned()
        } else {
            format!("{:.3}", goodput / median(ideal.into_iter()))
        };
        let counted =
            |field: fn(&TrialResult) -> u64| median(group.iter().map(|result| field(result) as f64));
        let repair_ratio = median(group.iter().map(|result| {
            let mean = result.bytes_last_mile as f64 * result.loss.max(1e-9);
            result.repair_bytes as f64 / mean
        }));
        text.push_str(&format!(
            "| {} | {:.0} % | {} | {} | {goodput:.2} | {ratio} | {} | {} | {} | {} | {} |\n",
            first.scenario,
            first.loss * 100.0,
            first.sender.name(),
            first.arm.name(),
            counted(|result| result.lost_last_mile),
            counted(|result| result.declared_lost),
            counted(|result| result.spurious),
            counted(|result| result.congestion_events),
            if first.loss > 0.0 && repair_ratio > 0.0 {
                format!("{repair_ratio:.2}")
            } else {
                "–".to_owned()
            },
        ));
    }
    text
}

/// The middle one, or the mean of the two in the middle; 0 of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[length / 2],
        length => f64::midpoint(values[length / 2 - 1], values[length / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
