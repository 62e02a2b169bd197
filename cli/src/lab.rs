//! `packrat lab`: the laboratory in virtual time, and its scenarios in real time with the servers
//! and the gateway of the demo.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use packrat_lab::command::{self, LabOptions, RealTrials};
use packrat_lab::statistics::median;
use packrat_lab::{Arm, Trial};
use serde::Serialize;

use crate::demo::{self, ArmName, ArmReport, DemoNetwork, ServerKind};

/// A result as one line of JSON. Fields that virtual time also has have the same names.
#[derive(Debug, Serialize)]
struct RealResult<'a> {
    #[serde(flatten)]
    path: PathAndSeed<'a>,
    goodput_mbps: f64,
    seconds: f64,
    complete: bool,
    #[serde(flatten)]
    losses: Losses,
    resets: u64,
    decode_failures: u64,
    eack_bytes: u64,
    eack_packets: u64,
    cache_max: u64,
    bytes_last_mile: u64,
    /// Bytes from the client on the last mile.
    bytes_last_mile_up: u64,
    /// Bytes of the file that arrived.
    bytes: u64,
    /// Goodput of the unassisted download beside it.
    neighbour_mbps: Option<f64>,
    /// Delay of the emulated path beyond its schedule, in milliseconds, for 99 of 100 datagrams:
    /// with a large delay, the result measures the machine.
    path_late_ms: f64,
}

/// Origin of a result.
#[derive(Debug, Serialize)]
struct PathAndSeed<'a> {
    scenario: &'a str,
    /// Arm of virtual time, or an alternative.
    arm: String,
    sender: &'static str,
    loss: f64,
    seed: u64,
}

/// Losses on the last mile, and their repairs.
#[derive(Debug, Serialize)]
struct Losses {
    lost_last_mile: u64,
    repaired: u64,
    repaired_late: u64,
    /// `null` without a qlog of the server.
    spurious: Option<u64>,
}

/// The demo's options, parsed from a command line.
#[derive(Debug, Parser)]
struct Demo {
    #[command(flatten)]
    options: demo::DemoOptions,
}

/// Runs the command; its exit code.
pub(crate) fn run(options: &LabOptions) -> ExitCode {
    let real = match options.real() {
        Some(Ok(real)) => real,
        Some(Err(error)) => return failed(&error),
        None => return command::run(options),
    };
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(&error),
        };
    match runtime.block_on(measure(&real)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("packrat lab: {error}");
    ExitCode::FAILURE
}

/// An arm in real time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RealArm {
    /// Name of the path in results.
    label: String,
    name: ArmName,
}

/// The arms of a run, virtual time's first.
fn arms(real: &RealTrials) -> Result<Vec<RealArm>, String> {
    let mut arms: Vec<RealArm> = Vec::new();
    for trial in &real.trials {
        let name = match trial.arm {
            Arm::EndToEnd => ArmName::EndToEnd,
            Arm::Ideal => ArmName::Lossless,
            Arm::Packrat | Arm::RepairOnly | Arm::Split => ArmName::Packrat,
        };
        let arm = RealArm { label: trial.arm.name().to_owned(), name };
        if !arms.contains(&arm) {
            arms.push(arm);
        }
    }
    for label in &real.alternatives {
        let name = ArmName::from_str(label, false).ok();
        let Some(name) = name.filter(|name| ArmName::ALTERNATIVES.contains(name)) else {
            let known = ArmName::ALTERNATIVES.map(|name| name.to_string()).join(", ");
            return Err(format!("there is no alternative {label}; choose one of {known}"));
        };
        arms.push(RealArm { label: label.clone(), name });
    }
    Ok(arms)
}

async fn measure(real: &RealTrials) -> Result<(), demo::Error> {
    let arms = arms(real).map_err(demo::Error::Transfer)?;
    let mut table = String::from(TABLE_HEAD);
    let same = |one: &Trial, other: &Trial| {
        one.scenario.last_mile == other.scenario.last_mile
            && one.scenario.queue == other.scenario.queue
    };
    let mut trials = real.trials.clone();
    // Of each path and loss one trial for each seed; its arms run side by side.
    trials.sort_by_key(|trial| trial.seed);
    let mut paths: Vec<Vec<Trial>> = Vec::new();
    for trial in trials {
        match paths.iter_mut().find(|path| same(&path[0], &trial)) {
            Some(path) if path.iter().any(|other| other.seed == trial.seed) => {}
            Some(path) => path.push(trial),
            None => paths.push(vec![trial]),
        }
    }
    for path in &paths {
        let mut rows: Vec<Vec<RealResult<'_>>> = arms.iter().map(|_| Vec::new()).collect();
        for trial in path {
            for (arm, row) in arms.iter().zip(&mut rows) {
                eprintln!("{}: {}, seed {}", trial.scenario.name, arm.label, trial.seed);
                let report = match download(trial, arm, real).await {
                    Ok(report) => report,
                    Err(error) => {
                        // What the others have measured is worth a table.
                        eprintln!("packrat lab: {} with seed {}: {error}", arm.label, trial.seed);
                        continue;
                    }
                };
                let result = result(trial, arm, &report);
                if let Some(lateness) = demo::lateness(std::slice::from_ref(&report)) {
                    eprintln!("packrat lab: seed {}: {lateness}", trial.seed);
                }
                if real.json {
                    let mut out = io::stdout().lock();
                    // A reader that has closed the pipe wants no more.
                    if serde_json::to_writer(&mut out, &result).is_err() || writeln!(out).is_err() {
                        return Ok(());
                    }
                }
                row.push(result);
            }
        }
        table.push_str(&table_of(&rows));
    }
    if !real.json {
        let _ = write!(io::stdout().lock(), "{table}");
    }
    Ok(())
}

/// First lines of the table in Markdown.
const TABLE_HEAD: &str = "| scenario | loss | arm | Mbit/s | least–most | of lossless | least–most | complete | bytes down / file | bytes up / file | neighbour Mbit/s |\n\
     |---|---|---|---|---|---|---|---|---|---|---|\n";

/// The rows of one path: medians over the seeds, and their spread. Ratios compare equal seeds.
fn table_of(rows: &[Vec<RealResult<'_>>]) -> String {
    let lossless = |seed| {
        let all = rows.iter().flatten();
        all.filter(|result| result.path.arm == Arm::Ideal.name())
            .find(|result| result.path.seed == seed)
            .map(|result| result.goodput_mbps)
    };
    let middle = |values: &[f64]| match values.is_empty() {
        true => "–".to_owned(),
        false => format!("{:.2}", median(values.iter().copied())),
    };
    let range = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        if values.is_empty() { "–".to_owned() } else { format!("{least:.2}–{most:.2}") }
    };
    let loss = rows.iter().flatten().map(|result| result.path.loss).fold(0.0, f64::max);
    let mut text = String::new();
    for row in rows {
        let Some(first) = row.first() else { continue };
        let of = |value: fn(&RealResult<'_>) -> Option<f64>| {
            row.iter().filter_map(value).collect::<Vec<f64>>()
        };
        let goodput = of(|result| Some(result.goodput_mbps));
        let ratio: Vec<f64> = row
            .iter()
            .filter_map(|result| Some(result.goodput_mbps / lossless(result.path.seed)?))
            .collect();
        let share = |result: &RealResult<'_>, bytes: u64| {
            (result.bytes > 0).then(|| bytes as f64 / result.bytes as f64)
        };
        let down: Vec<f64> =
            row.iter().filter_map(|result| share(result, result.bytes_last_mile)).collect();
        let up: Vec<f64> =
            row.iter().filter_map(|result| share(result, result.bytes_last_mile_up)).collect();
        // With a neighbour the links also carry its bytes.
        let neighbours = of(|result| result.neighbour_mbps);
        let (down, up) = if neighbours.is_empty() { (down, up) } else { (Vec::new(), Vec::new()) };
        let up = match up.is_empty() {
            true => "–".to_owned(),
            false => format!("{:.3}", median(up.into_iter())),
        };
        text.push_str(&format!(
            "| {} | {:.0} % | {} | {} | {} | {} | {} | {} of {} | {} | {up} | {} |\n",
            first.path.scenario,
            loss * 100.0,
            first.path.arm,
            middle(&goodput),
            range(&goodput),
            middle(&ratio),
            range(&ratio),
            row.iter().filter(|result| result.complete).count(),
            row.len(),
            middle(&down),
            middle(&neighbours),
        ));
    }
    text
}

async fn download(
    trial: &Trial,
    arm: &RealArm,
    real: &RealTrials,
) -> Result<ArmReport, demo::Error> {
    let size = trial.scenario.size.to_string();
    let (seed, parts) = (trial.seed.to_string(), real.parts.display().to_string());
    let patience = real.patience.to_string();
    // Only options with a value of their own. A download without assistance may take as long as in
    // virtual time.
    let Demo { options } = Demo::parse_from([
        "demo",
        "--size",
        &size,
        "--seed",
        &seed,
        "--parts",
        &parts,
        "--patience",
        &patience,
    ]);
    let network = DemoNetwork::of(&trial.scenario, trial.seed);
    demo::download_over(&options, network, arm.name, real.neighbour).await
}

fn result<'a>(trial: &'a Trial, arm: &RealArm, report: &ArmReport) -> RealResult<'a> {
    let assistance = report.assistance.as_ref();
    RealResult {
        path: PathAndSeed {
            scenario: &trial.scenario.name,
            arm: arm.label.clone(),
            sender: match arm.name.server(ServerKind::Caddy) {
                ServerKind::Ngtcp2 => "ngtcp2-bbr2",
                _ => "caddy",
            },
            loss: if arm.name == ArmName::Lossless { 0.0 } else { trial.scenario.last_mile.loss },
            seed: trial.seed,
        },
        // From the request on, as in virtual time.
        goodput_mbps: report.bytes as f64 * 8e-6 / report.transfer_seconds.max(1e-9),
        seconds: report.transfer_seconds,
        complete: report.complete,
        losses: Losses {
            lost_last_mile: report.path.last_mile.downward.link.lost,
            repaired: report.losses.repairs,
            repaired_late: report.losses.repairs_late,
            spurious: report.losses.spurious,
        },
        resets: report.gateway.resets,
        decode_failures: assistance.map_or(0, |assistance| assistance.decode_failures),
        eack_bytes: report.eack_bytes,
        eack_packets: assistance.map_or(0, |assistance| assistance.eacks),
        cache_max: report.gateway.cache_high_water_bytes,
        bytes_last_mile: report.path.last_mile.downward.link.offered_bytes,
        bytes_last_mile_up: report.path.last_mile.upward.link.offered_bytes,
        bytes: report.bytes,
        neighbour_mbps: report.neighbour_mbps,
        path_late_ms: [report.path.far, report.path.last_mile]
            .map(|path| {
                path.downward.lateness.p99_micros.max(path.upward.lateness.p99_micros) as f64 * 1e-3
            })
            .into_iter()
            .fold(0.0, f64::max),
    }
}
