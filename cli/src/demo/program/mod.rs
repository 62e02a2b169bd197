//! Programs without support for Packrat, as clients of the demo: through an agent when they are
//! assisted, otherwise directly.

mod echo;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::Duration;

use packrat_agent::{
    Agent, ClientConfig, Counters, DontFragment, Handle, IdentifierScheme, Limits, Service,
    SocksListener, Target,
};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::arm::Stage;
use super::client::Transfer;
use super::error::DemoError;
use super::options::{ClientKind, Options, Tunnel};
use super::report::{AssistanceReport, TimesReport};
use super::server::Signalling;
use crate::http3::Report;

/// Script that downloads with curl.
const CURL_SCRIPT: &str = include_str!("curl.py");
/// Script that downloads with aioquic.
const AIOQUIC_SCRIPT: &str = include_str!("aioquic.py");
/// Script that downloads with Chromium.
const CHROMIUM_SCRIPT: &str = include_str!("chromium.py");
/// Script of the transfer through WireGuard.
pub(super) const WIREGUARD_SCRIPT: &str = include_str!("wireguard.py");
/// Script of the transfer by WebRTC.
pub(super) const WEBRTC_SCRIPT: &str = include_str!("webrtc.py");

/// A line of a program: how far it is, and at the end all of it.
#[derive(Debug, Default, Deserialize)]
struct Line {
    bytes: u64,
    #[serde(default)]
    sha256: String,
    /// Duration of the transfer; above 0 in the last line.
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    partial: bool,
    /// Attempts, if not as many as it has times.
    #[serde(default)]
    attempted: Option<u64>,
    #[serde(default)]
    wrong: u64,
    #[serde(default)]
    times_ms: Vec<f64>,
}

/// The work of a client.
#[derive(Debug)]
pub(super) struct Outcome {
    /// Report on the program's download.
    pub(super) report: Report,
    /// Other measurements of the program.
    pub(super) times: Option<TimesReport>,
    /// True if all received data was right; for clients that compare the data themselves, because
    /// their server is not the demo's.
    pub(super) verified: Option<bool>,
}

impl From<Report> for Outcome {
    fn from(report: Report) -> Self {
        Self { report, times: None, verified: None }
    }
}

/// The keys of a tunnel, in the directory of an arm.
pub(super) fn keys(work: &Path) -> PathBuf {
    work.join("wireguard.keys")
}

/// WireGuard's program in user space.
pub(super) fn wireguard_go(parts: &Path) -> Result<PathBuf, DemoError> {
    part(parts, "go-clients/wireguard", "wireguard-go")
}

fn part(parts: &Path, path: &str, what: &'static str) -> Result<PathBuf, DemoError> {
    let path = parts.join(path);
    match path.is_file() {
        true => Ok(path),
        false => Err(DemoError::PartMissing { what, path }),
    }
}

/// The program, with its arguments.
fn command(
    stage: &Stage<'_>,
    download: &Transfer<'_>,
    proxy: Option<SocketAddr>,
    work: &Path,
) -> Result<Command, DemoError> {
    let (options, parts) = (stage.options, &*stage.options.parts);
    let python = |environment: &str| {
        part(parts, &format!("{environment}/bin/python"), "the client's Python environment")
    };
    let script = |environment: &str, script: &str| {
        let mut command = Command::new(python(environment)?);
        command.args(["-c", script]);
        Ok::<_, DemoError>(command)
    };
    let mut command = match options.client {
        ClientKind::Curl | ClientKind::CurlSocks => script("clients", CURL_SCRIPT)?,
        ClientKind::Aioquic | ClientKind::Packrat | ClientKind::Echo => {
            script("venv", AIOQUIC_SCRIPT)?
        }
        ClientKind::QuicGo => Command::new(part(parts, "go-clients/download", "quic-go's client")?),
        ClientKind::Chromium => script("venv", CHROMIUM_SCRIPT)?,
        ClientKind::Wireguard => {
            let mut command = script("venv", WIREGUARD_SCRIPT)?;
            command.arg("get").arg(wireguard_go(parts)?).arg(keys(work));
            command
        }
        ClientKind::Webrtc => {
            let signalling = Signalling::new(work);
            let mut command = script("webrtc", WEBRTC_SCRIPT)?;
            command.arg("receive").arg(signalling.offer).arg(signalling.answer);
            command.arg(download.server.to_string()).arg(options.repeats().to_string());
            return Ok(command);
        }
    };
    command.arg(download.server.to_string()).arg(download.file);
    if options.client != ClientKind::Wireguard {
        command.arg(download.authority);
    }
    command.arg(download.patience.as_secs_f64().to_string());
    command.args(proxy.map(|proxy| format!("socks5h://{proxy}")));
    if options.client == ClientKind::Chromium {
        command.arg(options.repeats().to_string());
        command.arg(&stage.files).arg(&stage.certificate.chain);
    }
    Ok(command)
}

/// Runs a program that downloads from `download.server`, through a SOCKS `proxy` if there is one;
/// calls `progress` with the number of bytes that have arrived.
pub(super) async fn run(
    stage: &Stage<'_>,
    download: &Transfer<'_>,
    proxy: Option<SocketAddr>,
    work: &Path,
    echo: Option<Arc<AtomicU64>>,
    progress: impl Fn(u64),
) -> Result<Outcome, DemoError> {
    let kind = stage.options.client;
    if kind == ClientKind::Echo {
        return echo::run(download.server, stage.options.repeats(), echo.as_deref(), progress)
            .await;
    }
    let command = command(stage, download, proxy, work)?;
    let line = lines(command, kind, work, progress).await?;
    Ok(outcome(kind, line, download.server))
}

/// The program of both ends of a tunnel.
pub(super) fn tunnel_program(parts: &Path) -> Result<PathBuf, DemoError> {
    let path = parts.join("alternatives/tunnel");
    match path.is_file() {
        true => Ok(path),
        false => Err(DemoError::AlternativeMissing { what: "the program of tunnels", path }),
    }
}

/// The program's name for a tunnel.
pub(super) fn tunnel_name(tunnel: Tunnel) -> &'static str {
    match tunnel {
        Tunnel::Hysteria | Tunnel::HysteriaRate => "hysteria",
        Tunnel::Kcp => "kcp",
    }
}

/// Downloads through a tunnel that ends at `download.server`; `rate` is the last mile's, bits per
/// second.
pub(super) async fn through_tunnel(
    tunnel: Tunnel,
    rate: u64,
    stage: &Stage<'_>,
    download: &Transfer<'_>,
    work: &Path,
    progress: impl Fn(u64),
) -> Result<Outcome, DemoError> {
    let mut command = Command::new(tunnel_program(&stage.options.parts)?);
    command.arg("get").arg(tunnel_name(tunnel)).arg(download.server.to_string());
    command.arg(download.file).arg(download.authority);
    command.arg(download.patience.as_secs_f64().to_string());
    if tunnel == Tunnel::HysteriaRate {
        command.arg((rate as f64 * 1e-6).to_string());
    }
    let line = lines(command, tunnel_name(tunnel), work, progress).await?;
    Ok(Outcome { report: report(&line, download.server), times: None, verified: None })
}

/// Runs a program to its end: its last line. Calls `progress` with the bytes of each.
async fn lines(
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

fn outcome(kind: ClientKind, mut line: Line, remote: SocketAddr) -> Outcome {
    let what = match kind {
        ClientKind::Webrtc => "frames shown",
        _ => "pages loaded",
    };
    let times = std::mem::take(&mut line.times_ms);
    let attempted = line.attempted.unwrap_or(times.len() as u64);
    let times = (attempted > 0).then(|| TimesReport::new(what, attempted, None, line.wrong, times));
    // Lost video is missing or wrong for a moment; that is measured.
    let verified = (kind == ClientKind::Webrtc).then_some(line.bytes > 0);
    Outcome { report: report(&line, remote), times, verified }
}

fn report(line: &Line, remote: SocketAddr) -> Report {
    Report {
        protocol: "h3",
        status: line.status,
        remote,
        bytes: line.bytes,
        resumed_from: 0,
        expected_bytes: None,
        location: None,
        connect_time: Duration::ZERO,
        transfer_time: Duration::try_from_secs_f64(line.seconds).unwrap_or_default(),
        sha256: line.sha256.clone(),
        assist: None,
        gateway_key: None,
        with_token: false,
        // It keeps them to itself.
        received_packet_numbers: Vec::new(),
        declared_lost: 0,
        round_trip: None,
        partial: line.partial,
    }
}

/// An agent between a program and the last mile; ends when it is dropped.
pub(super) struct RunningAgent {
    /// The address that the program sends to, instead of the server's.
    pub(super) address: Option<SocketAddr>,
    /// The address of the SOCKS listener, for a program that sends to the server by that.
    pub(super) proxy: Option<SocketAddr>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl RunningAgent {
    pub(super) fn start(options: &Options, to: SocketAddr) -> Result<Self, DemoError> {
        let any = (Ipv4Addr::LOCALHOST, 0);
        let mut config = ClientConfig::default().with_scheme(IdentifierScheme::Payload);
        if let Some(hold) = options.maximum_hold {
            config.access.maximum_hold = Duration::from_millis(hold);
        }
        let (name, dont_fragment) = ("demo".to_owned(), DontFragment::default());
        let (mut services, mut socks, mut address, mut proxy) = (Vec::new(), None, None, None);
        if options.client == ClientKind::CurlSocks {
            let socket = TcpListener::bind(any).map_err(DemoError::Port)?;
            proxy = Some(socket.local_addr().map_err(DemoError::Port)?);
            socks = Some(SocksListener { name, socket, config, dont_fragment, allow: Vec::new() });
        } else {
            let socket = UdpSocket::bind(any).map_err(DemoError::Port)?;
            address = Some(socket.local_addr().map_err(DemoError::Port)?);
            let to = Target::Service(to);
            services.push(Service { name, socket, to, config, dont_fragment });
        }
        let (agent, handle) =
            Agent::new(services, socks, Limits::default()).map_err(DemoError::Runtime)?;
        let thread = std::thread::Builder::new().name("packrat-agent".to_owned());
        let run = move || {
            if let Err(error) = agent.run() {
                eprintln!("packrat demo: the agent has ended: {error}");
            }
        };
        let thread = thread.spawn(run).map_err(DemoError::Runtime)?;
        Ok(Self { address, proxy, handle, thread: Some(thread) })
    }

    /// Counters of the agent.
    pub(super) fn counters(&self) -> Counters {
        self.handle.status().map(|status| status.total()).unwrap_or_default()
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl From<Counters> for AssistanceReport {
    fn from(counters: Counters) -> Self {
        Self {
            sessions: counters.sessions,
            eacks: counters.eacks,
            control_bytes_sent: counters.control_bytes_sent,
            control_bytes_received: counters.control_bytes_received,
            duplicates: counters.duplicates,
            holes: counters.holes,
            filled_in_time: counters.repaired_in_time,
            filled_late: counters.repaired_late,
            expired: counters.given_up,
            ..Self::default()
        }
    }
}
