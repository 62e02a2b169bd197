//! `packrat diagnose`: what a report about a gateway needs, in one file and without secrets.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use super::error::OperateError;
use super::gateway::Gateway;
use super::{Target, check, finish};

/// What is asked for beside the checks: the file in the bundle, and the path. Configuration dumps of Envoy are left out: they
/// can contain keys.
const PARTS: [(&str, &str); 8] = [
    ("status.json", "/packrat"),
    ("sessions.json", "/packrat/sessions?limit=1000"),
    ("events.json", "/packrat/events?after=0&limit=1024"),
    ("log.json", "/packrat/log"),
    ("envoy-server.json", "/server_info"),
    ("envoy-listeners.json", "/listeners?format=json"),
    ("envoy-memory.json", "/memory"),
    ("envoy-runtime.json", "/runtime"),
];

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: Target,

    /// The file to write [default: packrat-diagnose-TIME.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// UDP address to reach the gateway at from here, instead of the listeners that it names
    #[arg(long, value_name = "HOST:PORT")]
    probe: Option<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    finish("diagnose", diagnose(options))
}

fn diagnose(options: &Options) -> Result<ExitCode, OperateError> {
    let gateway = options.target.gateway();
    // Not worth a file when nobody answers.
    gateway.status()?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let file =
        options.file.clone().unwrap_or_else(|| PathBuf::from(format!("packrat-diagnose-{seconds}.tar.gz")));
    let parts = collect(&gateway, options.probe.as_deref());
    write(&file, &parts, seconds).map_err(|source| OperateError::Write { path: file.clone(), source })?;
    println!(
        "{}: {} parts, no keys; client addresses are as the gateway shows them.",
        file.display(),
        parts.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Name and content of every file.
fn collect(gateway: &Gateway, probe: Option<&str>) -> Vec<(String, String)> {
    let mut parts = Vec::new();
    let mut missing = Vec::new();
    for (name, path) in PARTS {
        match gateway.text(path) {
            Ok(text) => parts.push((name.to_owned(), text)),
            // The standalone gateway has no /server_info; that is no fault.
            Err(error) => missing.push(json!({ "part": name, "why": error.to_string() })),
        }
    }
    match gateway.metrics() {
        Ok(text) => parts.push(("metrics.txt".to_owned(), text)),
        Err(error) => missing.push(json!({ "part": "metrics.txt", "why": error.to_string() })),
    }
    let checks = check::all(gateway, probe);
    parts.push(("check.json".to_owned(), format!("{:#}\n", json!(checks))));
    let about = json!({
        "command": env!("CARGO_PKG_VERSION"),
        "gateway": gateway.url().host_str(),
        "missing": missing,
    });
    parts.push(("about.json".to_owned(), format!("{about:#}\n")));
    parts
}

fn write(file: &Path, parts: &[(String, String)], seconds: u64) -> io::Result<()> {
    let encoder = GzEncoder::new(File::create(file)?, Compression::default());
    let mut archive = tar::Builder::new(encoder);
    for (name, text) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(seconds);
        archive.append_data(&mut header, format!("packrat-diagnose/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?;
    Ok(())
}
