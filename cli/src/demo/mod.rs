//! `packrat demo`: real servers and a real gateway over an emulated network, on one machine and
//! without root.
//!
//! Server → far segment → gateway → last mile → client, all on the loopback interface. Three
//! downloads (or uploads) of the same file: without loss (the ceiling), with loss and without help, and with
//! loss and Packrat.

mod arm;
mod both_ends;
mod certificate;
mod client;
mod error;
mod flood;
mod gateway;
mod metrics;
mod neighbour;
mod options;
mod page;
mod parts;
mod payload;
mod process;
mod profile;
mod qlog;
mod report;
mod scene;
mod screen;
mod server;
mod stage;

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tempfile::TempDir;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use client::Client;
use error::DemoError;
use options::ProfileName;
use profile::Network;
use report::DemoReport;
use stage::Stage;

pub(crate) use options::DemoOptions;
#[cfg(feature = "lab")]
pub(crate) use {
    error::DemoError as Error, options::ArmName, options::ServerKind,
    profile::Network as DemoNetwork, report::ArmReport, report::lateness,
};

/// The exit status of a command that Ctrl-C ended, by the shells' convention.
const INTERRUPTED_STATUS: u8 = 130;

/// Runs the demo on the calling thread, which must be the main thread or live as long as the
/// process: the demo's processes are tied to it.
pub(crate) fn run(options: &DemoOptions) -> ExitCode {
    let runtime = match runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&DemoError::Runtime(error)),
    };
    let outcome = runtime.block_on(async {
        // When one ends, the other is dropped, and with it every process and path of the demo.
        tokio::select! {
            outcome = demonstrate(options) => Some(outcome),
            () = interrupted() => None,
        }
    });
    match outcome {
        Some(Ok(true)) => ExitCode::SUCCESS,
        Some(Ok(false)) => {
            eprintln!("packrat demo: a download did not end as it should: see the table");
            ExitCode::FAILURE
        }
        Some(Err(error)) => failed(&error),
        None => {
            eprintln!("packrat demo: interrupted; everything that it had started is ended");
            ExitCode::from(INTERRUPTED_STATUS)
        }
    }
}

fn failed(error: &DemoError) -> ExitCode {
    eprintln!("packrat demo: {error}");
    ExitCode::FAILURE
}

/// Ends with the first signal that asks the command to end.
async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    ) else {
        // Without handlers the signals end the command by themselves, and the kernel ends its
        // processes.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

/// Runs all arms on all networks; true if each succeeded.
async fn demonstrate(options: &DemoOptions) -> Result<bool, DemoError> {
    let workplace = Workplace::open(options)?;
    let mut reports = Vec::new();
    for &profile in &options.network.profile {
        reports.push(demonstrate_on(profile, options, &workplace).await?);
    }
    if let Some(file) = &options.json {
        write_json(file, &reports)?;
    }
    let mut arms = reports.iter().flat_map(|report| &report.arms);
    Ok(arms.all(report::ArmReport::succeeded))
}

/// Runs all arms on one network, and prints their table.
async fn demonstrate_on(
    profile: ProfileName,
    options: &DemoOptions,
    workplace: &Workplace,
) -> Result<DemoReport, DemoError> {
    let network = Network::new(profile, options);
    let stage = Stage::new(options, network, &workplace.path().join(profile.to_string()), false)?;
    let mut report = DemoReport {
        profile,
        loss: network.loss(),
        gateway: options.gateway,
        server: Client::of(options).server_name(options),
        upload: options.upload,
        rebind_after_seconds: options.rebind_after.map(|after| after.as_secs_f64()),
        moved_to_unmoved: None,
        flooded_to_undisturbed: None,
        arms: Vec::new(),
    };
    for name in options.arms_to_run() {
        let bar = screen::progress_bar(name, stage.payload.size);
        let arm = arm::run(&stage, name, |bytes| bar.set_position(bytes)).await;
        bar.finish_and_clear();
        let arm = arm?;
        if io::stderr().is_terminal() || !io::stdout().is_terminal() {
            eprintln!("{}", screen::arm_line(&arm));
        }
        report.arms.push(arm);
    }
    report.compare();
    print!("{}", screen::summary(&report));
    Ok(report)
}

/// Makes a download over a network of the laboratory's, beside another one if `neighbour` is true.
#[cfg(feature = "lab")]
pub(crate) async fn download_over(
    options: &DemoOptions,
    network: Network,
    arm: options::ArmName,
    neighbour: bool,
) -> Result<report::ArmReport, DemoError> {
    let workplace = Workplace::open(options)?;
    let stage = Stage::new(options, network, workplace.path(), neighbour)?;
    arm::run(&stage, arm, |_| {}).await
}

fn write_json(file: &Path, reports: &[DemoReport]) -> Result<(), DemoError> {
    let text = serde_json::to_string_pretty(reports)
        .map_err(|error| DemoError::write(file, error.into()))?;
    fs::write(file, text + "\n").map_err(|error| DemoError::write(file, error))
}

/// The folder for files that the demo makes.
enum Workplace {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Workplace {
    fn open(options: &DemoOptions) -> Result<Self, DemoError> {
        match &options.keep {
            Some(folder) => {
                let absolute = fs::create_dir_all(folder).and_then(|()| folder.canonicalize());
                absolute.map(Self::Kept).map_err(|error| DemoError::write(folder, error))
            }
            None => {
                let folder = tempfile::Builder::new().prefix("packrat-demo-").tempdir();
                folder
                    .map(Self::Temporary)
                    .map_err(|error| DemoError::write(&std::env::temp_dir(), error))
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(folder) => folder,
        }
    }
}
