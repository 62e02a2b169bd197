//! `packrat demo`: real servers and a real gateway over an emulated network, on one machine and
//! without root.
//!
//! Server → far segment → gateway → last mile → client, all on the loopback interface. Three
//! downloads (or uploads) of the same file: without loss (the ceiling), with loss and without help, and with
//! loss and Packrat.

mod arm;
mod certificate;
mod client;
mod error;
mod flood;
mod gateway;
mod metrics;
mod neighbour;
mod options;
mod page;
mod payload;
mod process;
mod profile;
mod program;
mod qlog;
mod report;
mod screen;
mod server;

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tempfile::TempDir;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use arm::Stage;
use certificate::Certificate;
use error::DemoError;
use options::{ClientKind, ProfileName};
use payload::Payload;
use profile::Network;
use report::DemoReport;

pub(crate) use options::Options;
#[cfg(feature = "lab")]
pub(crate) use {
    error::DemoError as Error, options::ArmName, options::ServerKind,
    profile::Network as DemoNetwork, report::ArmReport, report::lateness,
};

/// The exit status of a command that Ctrl-C ended, by the shells' convention.
const INTERRUPTED_STATUS: u8 = 130;

/// Runs the demo on the calling thread, which must be the main thread or live as long as the
/// process: the demo's processes are tied to it.
pub(crate) fn run(options: &Options) -> ExitCode {
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
async fn demonstrate(options: &Options) -> Result<bool, DemoError> {
    let workplace = Workplace::open(options)?;
    let mut reports = Vec::new();
    for &profile in &options.profile {
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
    options: &Options,
    workplace: &Workplace,
) -> Result<DemoReport, DemoError> {
    let network = Network::new(profile, options);
    let stage = stage(options, network, &workplace.path().join(profile.to_string()), false)?;
    let mut report = DemoReport {
        profile,
        loss: network.loss(),
        gateway: options.gateway,
        server: options.server_name(),
        upload: options.upload,
        rebind_after_seconds: options.rebind_after.map(|after| after.as_secs_f64()),
        moved_to_unmoved: None,
        flooded_to_undisturbed: None,
        arms: Vec::new(),
    };
    for name in options.arms_to_run() {
        let bar = screen::progress_bar(name, stage.payload.size);
        let arm = stage.run(name, |bytes| bar.set_position(bytes)).await;
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

/// Everything that arms share.
fn stage<'a>(
    options: &'a Options,
    network: Network,
    work: &Path,
    neighbour: bool,
) -> Result<Stage<'a>, DemoError> {
    let files = work.join("files");
    fs::create_dir_all(&files).map_err(|error| DemoError::write(&files, error))?;
    let payload = Payload::new(options.seed, options.size.0);
    payload.write(&files.join(arm::FILE_NAME))?;
    let small = files.join(arm::SMALL_FILE);
    fs::write(&small, "ready").map_err(|error| DemoError::write(&small, error))?;
    if options.client == ClientKind::Chromium {
        page::write(&files, options.seed)?;
    }
    let certificate = Certificate::create(work)?;
    Ok(Stage { options, network, payload, files, certificate, work: work.to_owned(), neighbour })
}

/// Makes a download over a network of the laboratory's, beside another one if `neighbour` is true.
#[cfg(feature = "lab")]
pub(crate) async fn download_over(
    options: &Options,
    network: Network,
    arm: options::ArmName,
    neighbour: bool,
) -> Result<report::ArmReport, DemoError> {
    let workplace = Workplace::open(options)?;
    stage(options, network, workplace.path(), neighbour)?.run(arm, |_| {}).await
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
    fn open(options: &Options) -> Result<Self, DemoError> {
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
