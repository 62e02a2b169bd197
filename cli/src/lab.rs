//! `packrat lab`: the laboratory in virtual time, and its scenarios in real time with the servers
//! and the gateway of the demo.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use packrat_lab::command::{self, Options, Real};
use packrat_lab::{Arm, Trial, median};
use serde::Serialize;

use crate::demo::{self, ArmName, ArmReport, DemoNetwork};

/// One line of JSON. Fields that virtual time has, too, have the same names.
#[derive(Debug, Serialize)]
struct RealResult<'a> {
    scenario: &'a str,
    arm: Arm,
    sender: &'static str,
    loss: f64,
    seed: u64,
    goodput_mbps: f64,
    seconds: f64,
    complete: bool,
    lost_last_mile: u64,
    repaired: u64,
    repaired_late: u64,
    /// `null` without a qlog of the server.
    spurious: Option<u64>,
    resets: u64,
    decode_failures: u64,
    eack_bytes: u64,
    eack_packets: u64,
    cache_max: u64,
    bytes_last_mile: u64,
    /// Delay of the emulated path beyond its schedule, in milliseconds, for 99 of 100 datagrams:
    /// with a large delay, the result measures the machine.
    path_late_ms: f64,
}

/// Path delay above which a result says more about the machine than about the network: half of the
/// last mile's delay on WiFi.
const TOO_LATE_MS: f64 = 1.0;

/// The demo's options, parsed from a command line.
#[derive(Debug, Parser)]
struct Demo {
    #[command(flatten)]
    options: demo::Options,
}

/// Runs the command; its exit code.
pub(crate) fn run(options: &Options) -> ExitCode {
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

async fn measure(real: &Real) -> Result<(), demo::Error> {
    let mut table =
        String::from("| scenario | loss | sender | arm | Mbit/s |\n|---|---|---|---|---|\n");
    let same = |one: &Trial, other: &Trial| {
        one.arm == other.arm
            && one.scenario.last_mile == other.scenario.last_mile
            && one.scenario.queue == other.scenario.queue
    };
    for trials in real.trials.chunk_by(same) {
        let mut goodputs = Vec::new();
        for trial in trials {
            let report = download(trial, real).await?;
            let result = result(trial, &report);
            goodputs.push(result.goodput_mbps);
            if result.path_late_ms > TOO_LATE_MS {
                eprintln!(
                    "packrat lab: seed {}: the machine is too busy: datagrams left the emulated path up to {:.1} ms late",
                    trial.seed, result.path_late_ms
                );
            }
            if real.json {
                let mut out = io::stdout().lock();
                // A reader that has closed the pipe wants no more.
                if serde_json::to_writer(&mut out, &result).is_err() || writeln!(out).is_err() {
                    return Ok(());
                }
            }
        }
        let (first, goodput) = (&trials[0], median(goodputs.into_iter()));
        let (name, loss) = (&first.scenario.name, first.scenario.last_mile.loss * 100.0);
        table.push_str(&format!(
            "| {name} | {loss:.0} % | caddy | {} | {goodput:.2} |\n",
            first.arm.name()
        ));
    }
    if !real.json {
        let _ = write!(io::stdout().lock(), "{table}");
    }
    Ok(())
}

async fn download(trial: &Trial, real: &Real) -> Result<ArmReport, demo::Error> {
    let size = trial.scenario.size.to_string();
    let (seed, parts) = (trial.seed.to_string(), real.parts.display().to_string());
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
        "600",
    ]);
    let arm = match trial.arm {
        Arm::EndToEnd => ArmName::EndToEnd,
        Arm::Ideal => ArmName::Lossless,
        Arm::Packrat | Arm::RepairOnly | Arm::Split => ArmName::Packrat,
    };
    demo::download_over(&options, DemoNetwork::of(&trial.scenario, trial.seed), arm).await
}

fn result<'a>(trial: &'a Trial, report: &ArmReport) -> RealResult<'a> {
    let assistance = report.assistance.as_ref();
    RealResult {
        scenario: &trial.scenario.name,
        arm: trial.arm,
        sender: "caddy",
        loss: if trial.arm == Arm::Ideal { 0.0 } else { trial.scenario.last_mile.loss },
        seed: trial.seed,
        // From the request on, as in virtual time.
        goodput_mbps: report.bytes as f64 * 8e-6 / report.transfer_seconds.max(1e-9),
        seconds: report.transfer_seconds,
        complete: report.complete,
        lost_last_mile: report.last_mile.downward.link.lost,
        repaired: report.repairs,
        repaired_late: report.repairs_late,
        spurious: report.spurious,
        resets: report.resets,
        decode_failures: assistance.map_or(0, |assistance| assistance.decode_failures),
        eack_bytes: report.eack_bytes,
        eack_packets: assistance.map_or(0, |assistance| assistance.eacks),
        cache_max: report.cache_high_water_bytes,
        bytes_last_mile: report.last_mile.downward.link.offered_bytes,
        path_late_ms: [report.far, report.last_mile]
            .map(|path| {
                path.downward.lateness.p99_micros.max(path.upward.lateness.p99_micros) as f64 * 1e-3
            })
            .into_iter()
            .fold(0.0, f64::max),
    }
}
