//! A profile of the forwarding path: perf's samples of a gateway at work, as a flame graph.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Fallible;
use crate::flame_graph::Frame;
use crate::forwarding::gateways::{Gateway, Kind, Programs};
use crate::forwarding::network::Network;
use crate::forwarding::trial::{self, Outcome, Trial};
use crate::interrupt::Interrupt;

/// Samples per second of processor time.
const SAMPLE_FREQUENCY: &str = "1999";

/// The gateway whose profile is taken.
const KIND: Kind = Kind::PackratStandalone;

/// Writes `file`: Packrat alone, with cache, 4 % loss, 100,000 datagrams per second in batches of
/// ten.
pub(crate) fn run(file: &Path, interrupt: &Interrupt) -> Fallible {
    let probe =
        Command::new("perf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!(
            "SKIPPED: profile: perf does not run; install it (Debian: apt-get install linux-perf)"
        );
        return Ok(());
    }
    let network = match Network::create() {
        Ok(network) => network,
        Err(error) => {
            println!("SKIPPED: profile: no network namespaces ({error}); it needs root");
            return Ok(());
        }
    };
    let programs = Programs::find()?;
    if let Some(reason) = programs.missing(KIND) {
        return Err(reason.into());
    }
    let gateway = Gateway::start(&network, &programs, KIND, 1)?;
    let directory = tempfile::tempdir()?;
    let samples = directory.path().join("samples");
    let trial = Trial { assist: true, loss: 0.04, rate: 100_000.0, seconds: 5.0, ..Trial::PLAIN };
    let outcome = record(&network, &gateway, &trial, &samples, interrupt)?;
    let script =
        Command::new("perf").args(["script", "-i"]).arg(&samples).stderr(Stdio::null()).output()?;
    let root = Frame::from_perf_script(&String::from_utf8_lossy(&script.stdout));
    if root.samples() == 0 {
        return Err("perf has recorded nothing; `perf record -e cpu-clock true` says why".into());
    }
    let title = format!(
        "Packrat standalone, cached, 4 % loss, {:.0} kpps, {:.2} CPU-s per million datagrams, {} samples",
        outcome.kpps,
        outcome.cpu_s_per_mpkt,
        root.samples()
    );
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(file, root.svg(&title))?;
    println!("{title}\n{}", file.display());
    Ok(())
}

/// Runs the trial while perf records the gateway into `samples`.
fn record(
    network: &Network,
    gateway: &Gateway,
    trial: &Trial,
    samples: &Path,
    interrupt: &Interrupt,
) -> Fallible<Outcome> {
    // The clock instead of the cycle counter: virtual machines have no such counter.
    let mut perf = Command::new("perf")
        .args([
            "record",
            "--quiet",
            "-e",
            "cpu-clock",
            "-F",
            SAMPLE_FREQUENCY,
            "-g",
            "-p",
            &gateway.process_id().to_string(),
            "-o",
        ])
        .arg(samples)
        .args(["--", "sleep", &(trial.seconds + 1.0).to_string()])
        .stdin(Stdio::null())
        .spawn()?;
    let outcome = trial::run(network, gateway, KIND, trial, interrupt);
    // perf ends by itself, at most a second after the trial.
    perf.wait()?;
    outcome
}
