//! Programs that know nothing of Packrat, as clients of the demo: through an agent where they are
//! assisted, directly where they are not.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::thread::JoinHandle;
use std::time::Duration;

use packrat_agent::{
    Agent, ClientConfig, Counters, DontFragment, Handle, IdentifierScheme, Limits, Service,
    SocksListener, Target,
};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::client::Transfer;
use super::error::DemoError;
use super::options::ClientKind;
use super::report::AssistanceReport;
use crate::get::Report;

const CURL: &str = include_str!("curl.py");
const AIOQUIC: &str = include_str!("aioquic.py");

/// A line of a program: how far it is, and at the end all of it.
#[derive(Debug, Deserialize)]
struct Line {
    bytes: u64,
    #[serde(default)]
    sha256: String,
    #[serde(default)]
    seconds: f64,
    #[serde(default)]
    status: u16,
    #[serde(default)]
    partial: bool,
}

/// Runs a program that downloads from `download.server`, through a SOCKS `proxy` if there is one;
/// calls `progress` with the number of bytes that have arrived.
pub(super) async fn run(
    kind: ClientKind,
    download: &Transfer<'_>,
    proxy: Option<SocketAddr>,
    parts: &Path,
    work: &Path,
    progress: impl Fn(u64),
) -> Result<Report, DemoError> {
    let (script, environment) = match kind {
        ClientKind::Curl | ClientKind::CurlSocks => (CURL, "clients"),
        ClientKind::Aioquic | ClientKind::Packrat => (AIOQUIC, "venv"),
    };
    let python = parts.join(environment).join("bin/python");
    if !python.is_file() {
        return Err(DemoError::PartMissing {
            what: "the client's Python environment",
            path: python,
        });
    }
    let log = work.join("client.log");
    let errors = File::create(&log).map_err(|error| DemoError::write(&log, error))?;
    let mut command = Command::new(&python);
    command.args(["-c", script]).arg(download.server.to_string()).arg(download.file);
    command.arg(download.authority).arg(download.patience.as_secs_f64().to_string());
    command.args(proxy.map(|proxy| format!("socks5h://{proxy}")));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true);
    let start = |source| DemoError::Start { name: "the client", program: python.clone(), source };
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
    match last.filter(|line| status.success() && !line.sha256.is_empty()) {
        Some(line) => Ok(report(&line, download.server)),
        None => {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            Err(DemoError::Transfer(format!("{kind} ended with {status}: {}", log.trim())))
        }
    }
}

fn report(line: &Line, remote: SocketAddr) -> Report {
    Report {
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
        gateway_pinned: false,
        with_token: false,
        // It keeps them to itself.
        received_packet_numbers: Vec::new(),
        declared_lost: 0,
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
    pub(super) fn start(kind: ClientKind, to: SocketAddr) -> Result<Self, DemoError> {
        let any = (Ipv4Addr::LOCALHOST, 0);
        let config = ClientConfig::default().with_scheme(IdentifierScheme::Payload);
        let (name, dont_fragment) = ("demo".to_owned(), DontFragment::default());
        let (mut services, mut socks, mut address, mut proxy) = (Vec::new(), None, None, None);
        if kind == ClientKind::CurlSocks {
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

    /// Its counters.
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
