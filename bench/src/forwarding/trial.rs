//! One trial: a server, a client, a gateway between them, and the gateway's cost in each phase.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use super::gateways::{Gateway, Kind, SERVER_PORT};
use super::network::{Network, Place, SERVER_ADDRESS};
use super::usage::{SystemCalls, Usage};
use crate::Fallible;
use crate::interrupt::Interrupt;
use crate::peer::Phase;
use crate::peer::client::Seen;
use crate::peer::server::{BEGUN_LINE, COMPLETE_LINE, LISTENING_LINE, Served};

/// The parameters of a trial.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial {
    /// Bytes of a datagram.
    pub(crate) size: usize,
    /// Datagrams of one send call.
    pub(crate) batch: usize,
    /// Datagrams per second; 0: as fast as the path delivers them.
    pub(crate) rate: f64,
    /// Seconds.
    pub(crate) seconds: f64,
    /// True if clients ask for assistance, so that the gateway caches.
    pub(crate) assist: bool,
    /// Share of datagrams that the last mile loses.
    pub(crate) loss: f64,
    /// Concurrent clients.
    pub(crate) sessions: usize,
    /// True if clients send and the server receives.
    pub(crate) upload: bool,
}

impl Trial {
    /// 1200 bytes, in batches of ten, as fast as the path delivers them, one client, no cache.
    pub(crate) const PLAIN: Self = Self {
        size: 1200,
        batch: 10,
        rate: 0.0,
        seconds: 2.0,
        assist: false,
        loss: 0.0,
        sessions: 1,
        upload: false,
    };
}

impl Trial {
    /// The only phase of the trial.
    fn phase(&self) -> Phase {
        Phase { batch: self.batch, rate: self.rate, seconds: self.seconds }
    }
}

/// The results of one phase of a trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Datagrams delivered, and per second.
    pub(crate) datagrams: f64,
    pub(crate) kpps: f64,
    /// Payload bits per second delivered.
    pub(crate) gbps: f64,
    /// Seconds of the gateway's processor time per million datagrams delivered.
    pub(crate) cpu_s_per_mpkt: f64,
    /// Waits of the gateway's threads per datagram delivered.
    pub(crate) wakeups: f64,
    /// The gateway's system calls per datagram delivered, if they were counted.
    pub(crate) system_calls: Option<f64>,
    /// Seconds in softirqs of the whole machine per million datagrams delivered; other programs
    /// contribute to it.
    pub(crate) softirq_s_per_mpkt: f64,
    /// Share of the sent datagrams that never reached the last mile.
    pub(crate) dropped: f64,
    /// Bytes of the gateway's memory before the trial, with all clients there, and at the end.
    pub(crate) memory: [f64; 3],
    /// The clients' counts.
    pub(crate) seen: Seen,
}

/// A peer; ends when it is dropped.
struct Peer {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(network: &Network, place: Place, role: &str, arguments: &[String]) -> Fallible<Self> {
        let mut process = network
            .command(place, std::env::current_exe()?)
            .arg(role)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("a peer without output")?;
        Ok(Self { process, lines: BufReader::new(output).lines() })
    }

    fn next_line(&mut self) -> Fallible<String> {
        Ok(self.lines.next().ok_or("a peer has ended too soon; its reason is above")??)
    }

    fn expect(&mut self, line: &str) -> Fallible {
        let said = self.next_line()?;
        if said == line {
            Ok(())
        } else {
            Err(format!("a peer says {said:?} instead of {line:?}").into())
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a trial of one phase through a gateway that is running already.
pub(crate) fn run(
    network: &Network,
    gateway: &Gateway,
    kind: Kind,
    trial: &Trial,
    interrupt: &Interrupt,
) -> Fallible<Outcome> {
    let counted = Counted { phase: trial.phase(), system_calls: false };
    let outcomes = run_phases(network, gateway, kind, trial, &[counted], interrupt)?;
    outcomes.into_iter().next().ok_or_else(|| "a trial without a phase".into())
}

/// A phase, and the counters read in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) phase: Phase,
    /// True if system calls are counted, which takes time of its own: a phase whose cost is of
    /// interest should be without.
    pub(crate) system_calls: bool,
}

/// Runs several phases with the same clients; `trial` sets size, loss, sessions and direction.
pub(crate) fn run_phases(
    network: &Network,
    gateway: &Gateway,
    kind: Kind,
    trial: &Trial,
    phases: &[Counted],
    interrupt: &Interrupt,
) -> Fallible<Vec<Outcome>> {
    interrupt.check()?;
    let progress = tempfile::NamedTempFile::new()?;
    let common = arguments(trial, phases, progress.path());
    let at = |address: String| [&[format!("--address={address}")], &common[..]].concat();

    let before = gateway.memory();
    let mut server = Peer::start(
        network,
        Place::Server,
        "server",
        &at(format!("{SERVER_ADDRESS}:{SERVER_PORT}")),
    )?;
    server.expect(LISTENING_LINE)?;
    let mut arguments = at(kind.address());
    arguments.extend(Network::clients().map(|address| format!("--source={address}")));
    let mut client = Peer::start(network, Place::Client, "client", &arguments)?;
    let first = Usage::of(gateway);
    server.expect(COMPLETE_LINE)?;
    let with_clients = gateway.memory();
    let mut measured = Vec::with_capacity(phases.len());
    for (index, counted) in phases.iter().enumerate() {
        server.expect(BEGUN_LINE)?;
        let begun = if trial.upload && index == 0 { first } else { Usage::of(gateway) };
        let softirq = softirq_seconds();
        let window = Duration::from_secs_f64(counted.phase.seconds * 0.8);
        let calls = counted.system_calls.then(|| SystemCalls::count(gateway, window)).flatten();
        let served: Served = serde_json::from_str(&server.next_line()?)?;
        let used = Usage::of(gateway).since(&begun);
        measured.push((served, used, calls, softirq_seconds() - softirq));
    }
    let end = gateway.memory();
    let seen: Vec<Seen> = serde_json::from_str(&client.next_line()?)?;
    interrupt.check()?;

    let measured = measured.into_iter().zip(phases.iter().map(|counted| counted.phase));
    let outcomes = seen.into_iter().zip(measured).map(|(seen, (measured, phase))| {
        let outcome = outcome(trial, phase, measured, seen, [before, with_clients, end]);
        outcome.ok_or_else(|| format!("nothing came through {}", kind.name()).into())
    });
    outcomes.collect()
}

/// The arguments of both peers.
fn arguments(trial: &Trial, phases: &[Counted], progress: &Path) -> Vec<String> {
    let many = trial.sessions > 1;
    let pause = if many { 2.0 } else { 0.1 };
    let seconds: f64 = phases.iter().map(|counted| counted.phase.seconds + 0.1).sum();
    let limit = seconds + pause + if many { 40.0 } else { 15.0 };
    let mut arguments = vec![
        format!("--size={}", trial.size),
        format!("--sessions={}", trial.sessions),
        format!("--pause={pause}"),
        format!("--limit={limit}"),
        format!("--loss={}", trial.loss),
    ];
    arguments.extend(phases.iter().map(|counted| format!("--phase={}", counted.phase)));
    arguments.extend(many.then(|| format!("--progress={}", progress.display())));
    arguments.extend(trial.upload.then(|| "--upload".to_owned()));
    arguments.extend(trial.assist.then(|| "--assist".to_owned()));
    arguments
}

/// The server's and the gateway's part of a phase: datagrams, use, system calls, seconds in softirqs.
type Measured = (Served, Usage, Option<SystemCalls>, f64);

/// The outcome of a phase; `None` if nothing came through.
fn outcome(
    trial: &Trial,
    phase: Phase,
    (served, used, calls, softirq): Measured,
    seen: Seen,
    memory: [f64; 3],
) -> Option<Outcome> {
    let (datagrams, seconds, sent) = if trial.upload {
        (served.received as f64, served.seconds, seen.sent as f64)
    } else {
        (seen.received as f64, seen.seconds, served.sent as f64)
    };
    if datagrams == 0.0 || seconds == 0.0 {
        return None;
    }
    let rate = datagrams / seconds;
    Some(Outcome {
        datagrams,
        kpps: rate / 1e3,
        gbps: rate * trial.size as f64 * 8.0 / 1e9,
        cpu_s_per_mpkt: used.cpu_seconds / datagrams * 1e6,
        wakeups: used.wakeups as f64 / datagrams,
        // Clients that do not keep up receive for longer than the gateway sends.
        system_calls: calls.map(|calls| calls.per_second() * phase.seconds / datagrams),
        softirq_s_per_mpkt: softirq / datagrams * 1e6,
        dropped: (1.0 - datagrams / sent).max(0.0),
        memory,
        seen,
    })
}

/// Seconds that all processors have spent in softirqs.
fn softirq_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks =
        text.lines().next().and_then(|line| line.split_whitespace().nth(7)?.parse::<f64>().ok());
    // The kernel counts in hundredths of a second here, whatever its own tick is.
    ticks.unwrap_or_default() / 100.0
}
