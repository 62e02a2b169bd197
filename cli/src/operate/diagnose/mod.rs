//! `packrat diagnose`: the material for a report about gateways, in one file and without secrets.

mod objects;
mod redact;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};

use super::check::{self, Report};
use super::cluster::{Cluster, is_ready};
use super::error::OperateError;
use super::gateway::AskedGateway;
use super::target::{Target, forwarded};

/// Pages that are fetched beside the checks: the file in the bundle, and the path. Configuration
/// dumps of Envoy are left out: they can contain keys.
const BUNDLE_PAGES: [(&str, &str); 8] = [
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
pub(crate) struct DiagnoseOptions {
    #[command(flatten)]
    target: Target,

    /// The file to write [default: packrat-diagnose-TIME.tar.gz]
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// UDP address to reach the gateway at from here, instead of the listeners that it names
    #[arg(long, value_name = "HOST:PORT")]
    probe: Option<String>,
}

/// Runs `packrat diagnose`.
pub(crate) fn diagnose(options: &DiagnoseOptions) -> Result<ExitCode, OperateError> {
    let probe = options.probe.as_deref();
    let mut bundle = Bundle::default();
    match options.target.single() {
        Some(gateway) => {
            // Not worth a file without an answer.
            gateway.status()?;
            bundle.of_gateway("", &gateway);
            bundle.add("check.json", &json!(check::all(&gateway, probe)));
            bundle.about.insert("gateway".to_owned(), json!(gateway.url().host_str()));
        }
        None => {
            // All of it: a fault in one namespace may have its reason in another.
            let cluster = Cluster::connect(&options.target.cluster, true)?;
            bundle.of_cluster(&cluster, &options.target)?;
            let mut report = Report::silent();
            check::of_cluster(&options.target, probe, &mut report);
            bundle.add("check.json", &json!(report.checks()));
        }
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let file = options
        .file
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("packrat-diagnose-{seconds}.tar.gz")));
    bundle.close();
    write(&file, &bundle.parts, seconds)
        .map_err(|source| OperateError::Write { path: file.clone(), source })?;
    println!(
        "{}: {} parts, no Secrets and no keys; client addresses are as the gateways show them.",
        file.display(),
        bundle.parts.len()
    );
    Ok(ExitCode::SUCCESS)
}

/// Contents of a bundle.
#[derive(Default)]
struct Bundle {
    /// Name and content of every file.
    parts: Vec<(String, String)>,
    /// Parts that could not be fetched, and why.
    missing: Vec<Value>,
    about: Map<String, Value>,
}

impl Bundle {
    fn add(&mut self, name: &str, value: &Value) {
        self.parts.push((name.to_owned(), format!("{value:#}\n")));
    }

    /// Adds a part, or the reason why it is missing.
    fn take<E: std::fmt::Display>(&mut self, name: String, text: Result<String, E>) {
        match text {
            Ok(text) => self.parts.push((name, text)),
            Err(error) => self.missing.push(json!({ "part": name, "why": error.to_string() })),
        }
    }

    fn of_gateway(&mut self, folder: &str, gateway: &AskedGateway) {
        for (name, path) in BUNDLE_PAGES {
            // The standalone gateway has no /server_info; that is no fault.
            self.take(format!("{folder}{name}"), gateway.text(path));
        }
        self.take(format!("{folder}metrics.txt"), gateway.metrics());
    }

    fn of_cluster(&mut self, cluster: &Cluster, target: &Target) -> Result<(), OperateError> {
        // Not worth a file without an answer.
        let version =
            cluster.ask("asking for its version", cluster.client().apiserver_version())?;
        self.about.insert("kubernetes".to_owned(), version.git_version.into());
        objects::collect(self, cluster);
        let pods = match cluster.gateway_pods() {
            Ok(pods) => pods,
            Err(error) => {
                self.missing.push(json!({ "part": "gateways", "why": error.to_string() }));
                return Ok(());
            }
        };
        for (place, pod) in pods {
            if !is_ready(&pod) || !target.wants(&place.edge_gateway) {
                continue;
            }
            let folder = format!("gateways/{place}/");
            match forwarded(cluster, place) {
                Ok(gateway) => self.of_gateway(&folder, &gateway),
                Err(error) => {
                    self.missing.push(json!({ "part": folder, "why": error.to_string() }))
                }
            }
        }
        Ok(())
    }

    /// Adds the bundle's description of itself.
    fn close(&mut self) {
        let mut about = std::mem::take(&mut self.about);
        about.insert("command".to_owned(), env!("CARGO_PKG_VERSION").into());
        about.insert("missing".to_owned(), std::mem::take(&mut self.missing).into());
        self.add("about.json", &Value::Object(about));
    }
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
