//! Programs that report their progress in lines of JSON.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::super::error::DemoError;
use crate::http3::Report;

/// A line of a program: how far it is, and at the end all of it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Line {
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) sha256: String,
    /// Duration of the transfer; above 0 in the last line.
    #[serde(default)]
    pub(super) seconds: f64,
    #[serde(default)]
    pub(super) status: u16,
    #[serde(default)]
    pub(super) partial: bool,
    /// Attempts, if not as many as it has times.
    #[serde(default)]
    pub(super) attempted: Option<u64>,
    #[serde(default)]
    pub(super) wrong: u64,
    #[serde(default)]
    pub(super) freezes: Option<u64>,
    #[serde(default)]
    pub(super) times_ms: Vec<f64>,
}

/// Runs a program to its end: its last line. Calls `progress` with the bytes of each.
pub(super) async fn last_line(
    mut command: Command,
    name: impl std::fmt::Display,
    work: &Path,
    progress: impl Fn(u64),
) -> Result<Line, DemoError> {
    let log = work.join("client.log");
    let errors = File::create(&log).map_err(|error| DemoError::write(&log, error))?;
    let program = PathBuf::from(command.as_std().get_program());
    // A program that is killed leaves its temporary files behind, for the demo to remove.
    command.env("TMPDIR", work);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true);
    let start = |source| DemoError::Start { name: "the client", program: program.clone(), source };
    let mut process = command.spawn().map_err(start)?;
    let mut last = None;
    if let Some(output) = process.stdout.take() {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let Ok(line) = serde_json::from_str::<Line>(&line) else { continue };
            progress(line.bytes);
            last = Some(line);
        }
    }
    let status = process.wait().await.map_err(start)?;
    match last.filter(|line| status.success() && line.seconds > 0.0) {
        Some(line) => Ok(line),
        None => {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            Err(DemoError::Transfer(format!("{name} ended with {status}: {}", log.trim())))
        }
    }
}

impl Line {
    /// The report on a program's download.
    pub(super) fn report(&self, remote: SocketAddr) -> Report {
        Report {
            status: self.status,
            bytes: self.bytes,
            transfer_time: Duration::try_from_secs_f64(self.seconds).unwrap_or_default(),
            sha256: self.sha256.clone(),
            partial: self.partial,
            // It keeps the rest to itself.
            ..Report::new("h3", remote)
        }
    }
}
