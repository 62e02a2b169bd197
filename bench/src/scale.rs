//! Many sessions: the memory of each, and the cost of a datagram that belongs to one of many.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use packrat_engine::Flow;
use packrat_instructions::scene;
use packrat_wire::estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::Fallible;
use crate::forwarding::gateways::{Gateway, Kind, Programs};
use crate::forwarding::network::Network;
use crate::forwarding::trial::{self, Outcome, Trial};
use crate::interrupt::Interrupt;
use crate::summary::{Summary, digits};

/// Datagrams that make a session an active one.
const ACTIVE_DATAGRAMS: usize = 24;
/// Bytes that a session may cache here: few, so that ten thousand sessions fit, and the ring wraps.
const CACHE_BYTES: usize = 32 * 1024;
/// Datagrams forwarded to measure the cost of one.
const FORWARDED_DATAGRAMS: usize = 200_000;

/// Sessions, true if they are assisted, and workers.
const LIVE_SETTINGS: [(usize, bool, usize); 6] = [
    (100, false, 1),
    (100, false, 2),
    (100, true, 1),
    (100, true, 2),
    (10_000, true, 1),
    (10_000, true, 2),
];

/// The measurements of a process with a given number of engine sessions.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Measured {
    sessions: usize,
    /// Seconds of the gateway's part of a handshake.
    handshake: f64,
    /// Bytes of a session without traffic, and of one with [`ACTIVE_DATAGRAMS`] cached.
    idle_bytes: f64,
    active_bytes: f64,
    /// Bytes of an active session after a quiet period.
    quiet_bytes: f64,
    /// Nanoseconds to forward a datagram, with the sessions in turn.
    forward_ns: f64,
}

/// Bytes of memory that this process uses.
fn memory() -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() * 1024.0
}

/// The workload of a separate process, so that only its sessions use its memory.
pub(crate) fn workload(sessions: usize) -> Fallible {
    let gateway = scene::gateway(CACHE_BYTES);
    let mut measured = Measured { sessions, ..Measured::default() };
    let mut flows: Vec<Flow> = Vec::with_capacity(sessions);
    let mut spent = Duration::ZERO;
    let before = memory();
    for seed in 0..sessions {
        let (mut flow, took) = scene::assisted_flow(&gateway, seed as u64)?;
        // As the data plane does after each call.
        flow.take_counters();
        spent += took;
        flows.push(flow);
    }
    let idle = memory();
    measured.handshake = spent.as_secs_f64() / sessions as f64;
    measured.idle_bytes = (idle - before) / sessions as f64;

    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut datagram = [0x40; 1200];
    let mut now = scene::begin_of(sessions as u64 + 1000);
    let active = sessions.min(2000);
    for flow in flows.iter_mut().take(active) {
        for _ in 0..ACTIVE_DATAGRAMS {
            random.fill_bytes(&mut datagram[1184..]);
            flow.forward(&datagram, now);
        }
    }
    measured.active_bytes = measured.idle_bytes + (memory() - idle) / active as f64;
    let mut out = packrat_engine::Outbox::new();
    for _ in 0..5 {
        now = now + Duration::from_secs(2);
        for flow in flows.iter_mut().take(active) {
            flow.handle_timeout(now, &mut out);
            flow.take_counters();
            out.clear();
        }
    }
    measured.quiet_bytes = measured.idle_bytes + (memory() - idle) / active as f64;

    measured.forward_ns = forward_nanos(&mut flows, &mut random, &mut datagram, now);
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Nanoseconds to forward a datagram, with the sessions in turn.
fn forward_nanos(
    flows: &mut [Flow],
    random: &mut ChaCha8Rng,
    datagram: &mut [u8],
    now: Timestamp,
) -> f64 {
    let mut order: Vec<usize> = (0..flows.len()).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, random.next_u64() as usize % (index + 1));
    }
    order.truncate(10_000);
    // The first rounds fill the rings.
    let filling = order.len() * 2 * ACTIVE_DATAGRAMS;
    let mut times = Vec::with_capacity(FORWARDED_DATAGRAMS);
    for turn in 0..filling + FORWARDED_DATAGRAMS {
        random.fill_bytes(&mut datagram[1184..]);
        let flow = &mut flows[order[turn % order.len()]];
        let started = Instant::now();
        flow.forward(datagram, now);
        if turn >= filling {
            times.push(started.elapsed());
        }
    }
    times.sort_unstable();
    times.truncate(FORWARDED_DATAGRAMS * 95 / 100);
    times.iter().sum::<Duration>().as_nanos() as f64 / times.len() as f64
}

/// Measures and reports.
pub(crate) fn run(summary: &mut Summary, full: bool, interrupt: &Interrupt) -> Fallible {
    engine_only(summary, full, interrupt)?;
    live(summary, interrupt)
}

fn engine_only(summary: &mut Summary, full: bool, interrupt: &Interrupt) -> Fallible {
    let mut rows = Vec::new();
    for sessions in [1, 100, 10_000, 100_000, 1_000_000] {
        if sessions > 10_000 && !full {
            continue;
        }
        interrupt.check()?;
        eprintln!("engine: {sessions} sessions");
        let output = Command::new(std::env::current_exe()?)
            .args(["workload", "sessions", &sessions.to_string()])
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            summary.fail(&format!("engine: {sessions} sessions"), error.into());
            continue;
        }
        let measured: Measured = serde_json::from_slice(&output.stdout)?;
        // The memory of few sessions is too small beside the process's own.
        if sessions >= 10_000 {
            summary.set("session.idle_bytes", measured.idle_bytes);
            summary.set("session.active_bytes", measured.active_bytes);
            summary.set("session.quiet_bytes", measured.quiet_bytes);
            summary.set("session.handshakes_per_second", 1.0 / measured.handshake);
        }
        summary.set(&format!("scale.engine.{sessions}.forward_ns"), measured.forward_ns);
        let bytes = |value: f64| if sessions < 10_000 { "–".to_owned() } else { digits(value) };
        rows.push(vec![
            sessions.to_string(),
            digits(measured.forward_ns),
            bytes(measured.idle_bytes),
            bytes(measured.active_bytes),
            bytes(measured.quiet_bytes),
            digits(1.0 / measured.handshake),
        ]);
    }
    let header = [
        "assisted sessions",
        "ns per datagram, sessions in random order",
        "bytes of an idle session",
        "of one with 24 datagrams kept",
        "of one that has fallen quiet",
        "handshakes per second and core",
    ];
    summary.table("Engine: many sessions, no sockets", &header, &rows);
    Ok(())
}

fn live(summary: &mut Summary, interrupt: &Interrupt) -> Fallible {
    let network = match Network::create() {
        Ok(network) => network,
        Err(error) => {
            summary.say(&format!(
                "\nSKIPPED: live sessions: no network namespaces ({error}); it needs root"
            ));
            return Ok(());
        }
    };
    let programs = Programs::find()?;
    let mut rows = Vec::new();
    for kind in [Kind::PackratStandalone, Kind::PackratEnvoy] {
        if let Some(reason) = programs.missing(kind) {
            summary.say(&format!("\nSKIPPED: live sessions, {}: {reason}", kind.name()));
            continue;
        }
        for (sessions, assist, workers) in LIVE_SETTINGS {
            interrupt.check()?;
            eprintln!(
                "{}: {sessions} live sessions, assist {assist}, {workers} workers",
                kind.key()
            );
            let trial = Trial { sessions, assist, rate: 50_000.0, ..Trial::PLAIN };
            // A separate gateway, so that only these sessions use its memory.
            let outcome = Gateway::start(&network, &programs, kind, workers)
                .and_then(|gateway| trial::run(&network, &gateway, kind, &trial, interrupt));
            let name = if assist { "assisted" } else { "plain" };
            match outcome {
                Ok(outcome) => {
                    let key =
                        format!("scale.live.{}.{sessions}.{name}.workers{workers}", kind.key());
                    rows.push(live_row(summary, &key, kind, &trial, workers, &outcome));
                }
                Err(error) => {
                    summary.fail(&format!("{}: {sessions} {name} sessions", kind.name()), error)
                }
            }
        }
    }
    let header = [
        "gateway",
        "live sessions",
        "kind",
        "workers",
        "CPU-s per million datagrams, 50 kpps in tens",
        "bytes of the process per session, before traffic",
        "and after",
        "assisted",
        "dropped",
    ];
    summary.table("Data plane: many sessions, with sockets", &header, &rows);
    Ok(())
}

/// The table row of one trial. Adds its figures to the summary.
fn live_row(
    summary: &mut Summary,
    key: &str,
    kind: Kind,
    trial: &Trial,
    workers: usize,
    outcome: &Outcome,
) -> Vec<String> {
    let sessions = trial.sessions;
    summary.set(&format!("{key}.cpu_s_per_mpkt"), outcome.cpu_s_per_mpkt);
    summary.set(&format!("{key}.dropped"), outcome.dropped);
    let [_, idle, end] =
        outcome.memory.map(|memory| (memory - outcome.memory[0]) / sessions as f64);
    let mut memory = ["–".to_owned(), "–".to_owned()];
    if sessions >= 10_000 {
        summary.set(&format!("{key}.idle_bytes"), idle);
        summary.set(&format!("{key}.active_bytes"), end);
        memory = [digits(idle), digits(end)];
    }
    let [idle, end] = memory;
    let assisted = if trial.assist { outcome.seen.assisted.to_string() } else { "–".to_owned() };
    vec![
        kind.name().to_owned(),
        sessions.to_string(),
        if trial.assist { "assisted" } else { "plain" }.to_owned(),
        workers.to_string(),
        digits(outcome.cpu_s_per_mpkt),
        idle,
        end,
        assisted,
        format!("{:.3} %", outcome.dropped * 100.0),
    ]
}
