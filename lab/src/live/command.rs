//! `packrat-lab live`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use packrat_emulation::scenario::Scenario;
use serde::Serialize;

use super::media::{Arm, MediaResult, MediaTrial};
use super::multicast::{MulticastArm, MulticastResult, MulticastTrial};
use super::stream::Stream;
use crate::statistics::{Interval, pooled_quantile};

/// Options of `packrat-lab live`.
#[derive(Debug, Args)]
pub struct LiveOptions {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// One stream, one receiver
    Media(Media),
    /// One stream, many receivers
    Multicast(Multicast),
}

#[derive(Debug, Args)]
struct Multicast {
    /// wifi, cellular, satellite, sat_long, wifi_burst, or a TOML file
    scenario: String,
    /// Loss of the last mile instead of the scenario's, 0 to 1
    #[arg(long)]
    loss: Option<f64>,
    /// end-to-end, packrat, packrat-group, packrat-symbols; may be repeated [default: all]
    #[arg(long)]
    arm: Vec<MulticastArm>,
    /// Number of receivers; may be repeated [default: 16]
    #[arg(long)]
    receivers: Vec<usize>,
    /// Packets per second
    #[arg(long, default_value_t = 1000)]
    rate: u64,
    /// Trials of each kind, with the seeds 1, 2, 3 …
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Seconds of stream per trial
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// One JSON object per trial instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Media {
    /// wifi, cellular, satellite, sat_long, wifi_burst, or a TOML file
    scenario: String,
    /// Loss of the last mile instead of the scenario's, 0 to 1; may be repeated
    #[arg(long)]
    loss: Vec<f64>,
    /// audio, video
    #[arg(long, default_value = "audio")]
    stream: Stream,
    /// end-to-end, packrat, repair-only, every-eack, no-early-copies, ideal; may be repeated
    /// [default: all]
    #[arg(long)]
    arm: Vec<Arm>,
    /// Trials of each kind, with the seeds 1, 2, 3 …
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Seconds of stream per trial
    #[arg(long, default_value_t = 180)]
    seconds: u64,
    /// In real time, between sockets of the loopback interface; all trials at once [default arms:
    /// end-to-end and packrat]
    #[arg(long)]
    real: bool,
    /// Bytes that the gateway keeps, instead of 20 kB for audio and 100 kB for video
    #[arg(long)]
    cache: Option<usize>,
    /// One JSON object per trial instead of a table
    #[arg(long)]
    json: bool,
}

impl LiveOptions {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn std::error::Error>> {
        let outcome = match &self.action {
            Action::Media(media) => media.run(),
            Action::Multicast(multicast) => multicast.run(),
        };
        match outcome {
            // A reader that has gone away, like `head`, wants no more.
            Err(error) if !error.downcast_ref().is_some_and(is_broken_pipe) => Err(error),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

fn print_json(value: &impl Serialize) -> Result<(), Box<dyn std::error::Error>> {
    let mut out = io::stdout().lock();
    out.write_all(serde_json::to_string(value)?.as_bytes())?;
    writeln!(out)?;
    Ok(())
}

impl Media {
    fn run(&self) -> Result<(), Box<dyn std::error::Error>> {
        let scenario = Scenario::load(&self.scenario)?.require_constant_links()?;
        let losses =
            if self.loss.is_empty() { vec![scenario.last_mile.loss] } else { self.loss.clone() };
        let arms = match self.arm.is_empty() {
            true if self.real => vec![Arm::EndToEnd, Arm::Packrat],
            true => Arm::ALL.to_vec(),
            false => self.arm.clone(),
        };
        let (mut results, mut trials) = (Vec::new(), Vec::new());
        for loss in losses {
            for &arm in &arms {
                for seed in 1..=self.seeds {
                    let scenario = scenario.clone().with_loss(loss);
                    let mut trial = MediaTrial::new(scenario, self.stream, arm, seed);
                    trial.duration = Duration::from_secs(self.seconds);
                    if let Some(cache) = self.cache {
                        trial.gateway.cache_bytes_per_flow = cache;
                    }
                    if self.real {
                        trials.push(trial);
                        continue;
                    }
                    let result = trial.run();
                    if self.json {
                        print_json(&result)?;
                    }
                    results.push(result);
                }
            }
        }
        for result in in_real_time(trials)? {
            if !result.on_time {
                eprintln!(
                    "packrat lab: seed {}: the machine is too busy: the emulated path was late",
                    result.seed
                );
            }
            if self.json {
                print_json(&result)?;
            }
            results.push(result);
        }
        if !self.json {
            io::stdout().lock().write_all(table(&results).as_bytes())?;
        }
        Ok(())
    }
}

/// Runs all trials at once; results are in the same order.
fn in_real_time(trials: Vec<MediaTrial>) -> Result<Vec<MediaResult>, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let running: Vec<_> = trials
            .into_iter()
            .map(|trial| tokio::spawn(async move { trial.run_in_real_time().await }))
            .collect();
        let mut results = Vec::new();
        for trial in running {
            results.push(trial.await?.map_err(|error| error.to_string())?);
        }
        Ok(results)
    })
}

/// The milliseconds that this share of all latencies of these streams does not exceed, with a 95 %
/// interval.
fn latency(group: &[MediaResult], share: f64) -> String {
    let streams: Vec<Vec<f64>> = group
        .iter()
        .map(|result| {
            result.experience.latencies.iter().map(|micros| *micros as f64 / 1e3).collect()
        })
        .collect();
    pooled_quantile(&streams, share).map_or_else(
        || "–".to_owned(),
        |Interval { low, value, high }| format!("{value:.0} | {low:.0}–{high:.0}"),
    )
}

/// Means per kind of trial, but for latencies, whose quantiles are of all streams together; as a
/// table in Markdown.
fn table(results: &[MediaResult]) -> String {
    let mut text = String::from(
        "| scenario | loss | stream | arm | p50 ms | its 95 % interval | p99 ms | its 95 % interval | p99.9 ms | its 95 % interval | stalls | stalled ms | skipped | client packets | client share | retransmissions | spurious | repaired | early copies | Resets | cache mean |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for group in results.chunk_by(|one, other| (one.arm, one.loss) == (other.arm, other.loss)) {
        let [first, ..] = group else { continue };
        let mean = |value: &dyn Fn(&MediaResult) -> f64| {
            group.iter().map(value).sum::<f64>() / group.len() as f64
        };
        text.push_str(&format!(
            "| {} | {:.0} % | {} | {} | {} | {} | {} | {:.1} | {:.0} | {:.1} | {:.0} | {:.2} % | {:.1} | {:.1} | {:.0} | {:.0} | {:.1} | {:.0} |\n",
            first.scenario,
            first.loss * 100.0,
            first.stream.name(),
            first.arm.name(),
            latency(group, 0.5),
            latency(group, 0.99),
            latency(group, 0.999),
            mean(&|result| result.experience.stalls as f64),
            mean(&|result| result.experience.stalled_ms),
            mean(&|result| result.experience.skipped as f64),
            mean(&|result| result.traffic.client.packets as f64),
            mean(&|result| result.client_share * 100.0),
            mean(&|result| result.retransmissions as f64),
            mean(&|result| result.spurious as f64),
            mean(&|result| result.gateway.repaired as f64),
            mean(&|result| result.gateway.early_copies as f64),
            mean(&|result| result.gateway.resets as f64),
            mean(&|result| result.gateway.cache_mean),
        ));
    }
    // In real time the cache is not sampled all the time.
    text.replace("NaN", "–")
}

impl Multicast {
    fn run(&self) -> Result<(), Box<dyn std::error::Error>> {
        let mut scenario = Scenario::load(&self.scenario)?.require_constant_links()?;
        if let Some(loss) = self.loss {
            scenario = scenario.with_loss(loss);
        }
        let arms = if self.arm.is_empty() { MulticastArm::ALL.to_vec() } else { self.arm.clone() };
        let receivers = if self.receivers.is_empty() { vec![16] } else { self.receivers.clone() };
        let mut results = Vec::new();
        for &receivers in &receivers {
            for &arm in &arms {
                for seed in 1..=self.seeds {
                    let mut trial = MulticastTrial::new(scenario.clone(), arm, seed);
                    trial.duration = Duration::from_secs(self.seconds);
                    trial.receivers = receivers;
                    trial.rate = self.rate;
                    let result = trial.run();
                    if self.json {
                        print_json(&result)?;
                    }
                    results.push(result);
                }
            }
        }
        if !self.json {
            io::stdout().lock().write_all(multicast_table(&results).as_bytes())?;
        }
        Ok(())
    }
}

/// Means per kind of trial, as a table in Markdown.
fn multicast_table(results: &[MulticastResult]) -> String {
    let mut text = String::from(
        "| scenario | loss | receivers | arm | requests/s each | server's retransmissions/s | dropped | repairs | to the group | symbols | symbols and repairs per packet | their bytes | p50 ms | p99 ms | p99.9 ms | eACKs/s each | decode failures | Resets | cache max | under repair each | state each |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for group in
        results.chunk_by(|one, other| (one.arm, one.receivers) == (other.arm, other.receivers))
    {
        let [first, ..] = group else { continue };
        let mean = |value: &dyn Fn(&MulticastResult) -> f64| {
            group.iter().map(value).sum::<f64>() / group.len() as f64
        };
        text.push_str(&format!(
            "| {} | {:.0} % | {} | {} | {:.3} | {:.2} | {:.1} | {:.0} | {:.0} | {:.0} | {:.3} | {:.3} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {:.0} | {:.2} | {:.0} |\n",
            first.scenario,
            first.loss * 100.0,
            first.receivers,
            first.arm.name(),
            mean(&|result| result.requests_per_second),
            mean(&|result| result.retransmissions_per_second),
            mean(&|result| result.dropped as f64),
            mean(&|result| result.repair.repairs as f64),
            mean(&|result| result.repair.group_repairs as f64),
            mean(&|result| result.repair.symbols as f64),
            mean(&|result| result.repair.per_packet),
            mean(&|result| result.repair.bytes_share),
            mean(&|result| result.latency.latency_p50_ms as f64),
            mean(&|result| result.latency.latency_p99_ms as f64),
            mean(&|result| result.latency.latency_p999_ms as f64),
            mean(&|result| result.cost.eacks_per_second),
            mean(&|result| result.cost.decode_failures as f64),
            mean(&|result| result.cost.resets as f64),
            mean(&|result| result.cost.cache_max as f64),
            mean(&|result| result.cost.outstanding_mean),
            mean(&|result| result.cost.state_mean),
        ));
    }
    text
}
