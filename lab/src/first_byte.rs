//! `packrat-lab first-byte`: the time from a connection's first datagram to the first byte of an answer,
//! with the copies of thin datagrams and without them.

use crate::arguments::share;
use crate::batch;
use crate::stacks::Sender;
use crate::statistics::{quantile, sorted};
use crate::trial::{Arm, HELD_OUT, Trial, TrialResult};
use clap::Args;
use packrat_emulation::scenario::Scenario;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// Bytes of the answer.
const ANSWER_BYTES: u64 = 1000;

/// Options of `packrat-lab first-byte`.
#[derive(Debug, Args)]
pub struct FirstByte {
    /// Paths, as for `run`; may be several
    #[arg(default_values = ["wifi", "cellular", "ingress_lte", "ingress_wifi"])]
    path: Vec<String>,
    /// Loss of the last mile, 0 to 1; may be repeated
    #[arg(long, default_values = ["0", "0.04", "0.1"], value_parser = share)]
    loss: Vec<f64>,
    /// The server's stack and congestion control
    #[arg(long, default_value = "s2n-cubic")]
    sender: Sender,
    /// Connections of each kind, with the seeds 1001, 1002 …
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Connections at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// A way to make the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Without loss, and without assistance.
    Lossless,
    /// Without assistance.
    EndToEnd,
    /// Assisted, without copies.
    WithoutCopies,
    /// An assisted connection without knowledge of the last mile.
    First,
    /// Assisted; client and gateway remember the losses of an earlier connection.
    Known,
}

impl Way {
    const ALL: [Self; 5] =
        [Self::Lossless, Self::EndToEnd, Self::WithoutCopies, Self::First, Self::Known];

    fn name(self) -> &'static str {
        match self {
            Self::Lossless => "lossless",
            Self::EndToEnd => "end-to-end",
            Self::WithoutCopies => "assisted, no copies",
            Self::First => "first connection",
            Self::Known => "last mile known",
        }
    }

    /// The trial of one such connection.
    pub fn trial(self, scenario: &Scenario, sender: Sender, seed: u64) -> Trial {
        let arm = match self {
            Self::Lossless => Arm::Ideal,
            Self::EndToEnd => Arm::EndToEnd,
            Self::WithoutCopies | Self::First | Self::Known => Arm::Packrat,
        };
        let mut scenario = scenario.clone();
        scenario.size = ANSWER_BYTES;
        let mut trial = Trial::new(scenario, arm, sender, seed);
        if self == Self::WithoutCopies {
            trial.client = trial.client.with_copies(false);
            trial.gateway.early_copies = 0.0;
        }
        trial.known = self == Self::Known;
        trial
    }
}

impl FirstByte {
    /// Runs the connections, and prints a row for each path, loss and way.
    ///
    /// # Errors
    /// The path is unknown.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        let mut out = io::stdout().lock();
        let _ = writeln!(
            out,
            "| path | loss | connection | ms p50 | p90 | p99 | p99.9 | worst, its seed | p99 beyond lossless, last-mile round trips | bytes to client | bytes to server |\n\
             | -- | -- | -- | -- | -- | -- | -- | -- | -- | -- | -- |"
        );
        let mut failed = false;
        for path in &self.path {
            let base = Scenario::load(path)?;
            let round_trip = 2.0 * base.last_mile.delay_ms as f64;
            for &loss in &self.loss {
                let scenario = base.clone().with_loss(loss);
                let mut lossless = 0.0;
                for way in Way::ALL {
                    let trials: Vec<Trial> = (HELD_OUT..)
                        .take(self.seeds as usize)
                        .map(|seed| way.trial(&scenario, self.sender, seed))
                        .collect();
                    let mut results = Vec::new();
                    let _ = batch::run(&trials, self.jobs, |result| -> io::Result<()> {
                        match result {
                            Ok(result) => results.push(result),
                            Err(error) => {
                                failed = true;
                                eprintln!("error: {error}");
                            }
                        }
                        Ok(())
                    });
                    let times = first_bytes(&results);
                    let p99 = quantile(&times, 0.99);
                    if way == Way::Lossless {
                        lossless = p99;
                    }
                    let mean = |bytes: fn(&TrialResult) -> u64| {
                        results.iter().map(bytes).sum::<u64>() / (results.len() as u64).max(1)
                    };
                    let _ = writeln!(
                        out,
                        "| {path} | {} % | {} | {:.1} | {:.1} | {p99:.1} | {:.1} | {} | {:.2} | {} | {} |",
                        loss * 100.0,
                        way.name(),
                        quantile(&times, 0.5),
                        quantile(&times, 0.9),
                        quantile(&times, 0.999),
                        slowest(&results),
                        (p99 - lossless) / round_trip,
                        mean(|result| result.links.last_mile_down[1]),
                        mean(|result| result.links.last_mile_up[1]),
                    );
                    let _ = out.flush();
                }
            }
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// The slowest connection, milliseconds, and its seed.
fn slowest(results: &[TrialResult]) -> String {
    let time = |result: &TrialResult| result.download.first_byte.unwrap_or(f64::INFINITY) * 1e3;
    let slowest = results.iter().max_by(|one, other| time(one).total_cmp(&time(other)));
    slowest
        .map_or_else(String::new, |result| format!("{:.1}, {}", time(result), result.setting.seed))
}

/// Milliseconds to the first byte, ascending; infinite for a connection without an answer.
pub fn first_bytes(results: &[TrialResult]) -> Vec<f64> {
    sorted(results.iter().map(|result| result.download.first_byte.unwrap_or(f64::INFINITY) * 1e3))
}
