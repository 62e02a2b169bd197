//! Many sessions: what each of them needs, and what a datagram costs when it belongs to one of many.

use std::error::Error;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use packrat_engine::Flow;
use packrat_estimate::Timestamp;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::engine;
use crate::forwarding::gateways::{Gateway, Kind, Programs};
use crate::forwarding::network::Network;
use crate::forwarding::trial::{self, Trial};
use crate::interrupt::Interrupt;
use crate::summary::{Summary, digits};

/// Datagrams that make a session an active one.
const ACTIVE_DATAGRAMS: usize = 24;
/// Bytes that a session may keep here: little, so that ten thousand of them fit, and the ring wraps.
const CACHE_BYTES: usize = 32 * 1024;
/// Datagrams forwarded to measure one.
const FORWARDED: usize = 200_000;

/// What a process with so many sessions of the engine has measured.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Measured {
    sessions: usize,
    /// Gateway's share of a handshake, seconds.
    handshake: f64,
    /// Bytes of a session without traffic, and of one with [`ACTIVE_DATAGRAMS`] kept.
    idle_bytes: f64,
    active_bytes: f64,
    /// Bytes of an active session after it was quiet for a while.
    quiet_bytes: f64,
    /// Nanoseconds for a datagram of one of them in turn.
    forward_ns: f64,
}

/// Bytes of memory that this process has.
fn memory() -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or_default() * 1024.0
}

/// The workload of a process of its own, whose memory is only that of its sessions.
pub(crate) fn workload(sessions: usize) -> Result<(), Box<dyn Error>> {
    let gateway = engine::gateway(CACHE_BYTES);
    let mut measured = Measured { sessions, ..Measured::default() };
    let mut flows: Vec<Flow> = Vec::with_capacity(sessions);
    let mut spent = Duration::ZERO;
    let before = memory();
    for seed in 0..sessions {
        let (flow, took) = engine::assisted_flow(&gateway, seed as u64)?;
        spent += took;
        flows.push(flow);
    }
    let idle = memory();
    measured.handshake = spent.as_secs_f64() / sessions as f64;
    measured.idle_bytes = (idle - before) / sessions as f64;

    let mut random = ChaCha8Rng::seed_from_u64(3);
    let mut datagram = [0x40; 1200];
    let mut now = Timestamp::from_millis(2000);
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
            out.clear();
        }
    }
    measured.quiet_bytes = measured.idle_bytes + (memory() - idle) / active as f64;

    let mut order: Vec<usize> = (0..sessions).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, random.next_u64() as usize % (index + 1));
    }
    order.truncate(10_000);
    // The first rounds fill the rings.
    let filling = order.len() * 2 * ACTIVE_DATAGRAMS;
    let mut times = Vec::with_capacity(FORWARDED);
    for turn in 0..filling + FORWARDED {
        random.fill_bytes(&mut datagram[1184..]);
        let flow = &mut flows[order[turn % order.len()]];
        let started = Instant::now();
        flow.forward(&datagram, now);
        if turn >= filling {
            times.push(started.elapsed());
        }
    }
    times.sort_unstable();
    times.truncate(FORWARDED * 95 / 100);
    measured.forward_ns = times.iter().sum::<Duration>().as_nanos() as f64 / times.len() as f64;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Measures and reports.
pub(crate) fn run(summary: &mut Summary, full: bool, interrupt: &Interrupt) -> Result<(), Box<dyn Error>> {
    engine_only(summary, full, interrupt)?;
    live(summary, interrupt)
}

fn engine_only(summary: &mut Summary, full: bool, interrupt: &Interrupt) -> Result<(), Box<dyn Error>> {
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
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        let measured: Measured = serde_json::from_slice(&output.stdout)?;
        // Of a single session the memory is lost in that of the process.
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

fn live(summary: &mut Summary, interrupt: &Interrupt) -> Result<(), Box<dyn Error>> {
    let network = match Network::create() {
        Ok(network) => network,
        Err(error) => {
            summary.say(&format!("\nSKIPPED: live sessions: no network namespaces ({error}); it needs root"));
            return Ok(());
        }
    };
    let programs = Programs::find()?;
    let kind = Kind::PackratStandalone;
    if let Some(reason) = programs.missing(kind) {
        summary.say(&format!("\nSKIPPED: live sessions: {reason}"));
        return Ok(());
    }
    let mut rows = Vec::new();
    for sessions in [1, 100, 10_000] {
        for assist in [false, true] {
            eprintln!("live: {sessions} sessions, assist {assist}");
            // A gateway of its own, so that its memory is that of these sessions.
            let gateway = Gateway::start(&network, &programs, kind)?;
            let trial = Trial { sessions, assist, rate: 50_000.0, ..Trial::PLAIN };
            let outcome = trial::run(&network, &gateway, kind, &trial, interrupt)?;
            let name = if assist { "assisted" } else { "plain" };
            let key = |what: &str| format!("scale.live.{sessions}.{name}.{what}");
            summary.set(&key("cpu_s_per_mpkt"), outcome.cpu_s_per_mpkt);
            let [before, idle, end] =
                outcome.memory.map(|memory| (memory - outcome.memory[0]) / sessions as f64);
            let mut memory = vec!["–".to_owned(); 2];
            if sessions >= 10_000 && before == 0.0 {
                summary.set(&key("idle_bytes"), idle);
                summary.set(&key("active_bytes"), end);
                memory = vec![digits(idle), digits(end)];
            }
            let mut row = vec![sessions.to_string(), name.to_owned(), digits(outcome.cpu_s_per_mpkt)];
            row.extend(memory);
            row.push(if assist { outcome.seen.assisted.to_string() } else { "–".to_owned() });
            row.push(format!("{:.3} %", outcome.dropped * 100.0));
            rows.push(row);
        }
    }
    let header = [
        "live sessions",
        "kind",
        "CPU-s per million datagrams, 50 kpps in tens",
        "bytes of the process per session, before traffic",
        "and after",
        "assisted",
        "dropped",
    ];
    summary.table("Data plane: many sessions, with sockets", &header, &rows);
    Ok(())
}
