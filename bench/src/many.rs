//! The cost of many: the same load from few and from many live clients, in every gateway.
//!
//! Each gateway has clients that stay, and gets phases of load: bursts of some datagrams for one client
//! after the other, at a rate for all of them together or flat out. A phase is warmed up, then measured
//! in three windows of their own, whose median counts and whose spread is shown; then system calls are
//! counted, which takes time of its own.

use std::time::{Duration, Instant};

use crate::Fallible;
use crate::forwarding::gateways::{Gateway, Kind, Programs};
use crate::forwarding::network::Network;
use crate::forwarding::trial::{self, Counted, Outcome, Trial};
use crate::interrupt::Interrupt;
use crate::peer::Phase;
use crate::summary::{Summary, digits, digits_or_dash};

/// Number of windows in which a phase is measured.
const MEASURED_WINDOWS: usize = 3;
/// Time after the load at which a gateway should have given memory back.
const QUIET_TIME: Duration = Duration::from_secs(30);
/// Share of the datagrams that the last mile loses where clients are assisted.
const LAST_MILE_LOSS: f64 = 0.01;

/// The sizes of the matrix.
fn sessions(full: bool) -> &'static [usize] {
    if full { &[1, 100, 1000, 10_000] } else { &[1, 100, 10_000] }
}

/// A pattern of load.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Load {
    batch: usize,
    /// Datagrams per second; 0: flat out.
    rate: f64,
}

impl Load {
    const TENS: Self = Self { batch: 10, rate: 50_000.0 };
    const SINGLES: Self = Self { batch: 1, rate: 100_000.0 };

    fn key(self) -> String {
        let Self { batch, rate } = self;
        if rate > 0.0 {
            format!("b{batch}.{}kpps", rate / 1e3)
        } else {
            format!("b{batch}.flat_out")
        }
    }

    /// Warm-up, windows, and the count of system calls.
    fn phases(self, sessions: usize) -> Vec<Counted> {
        let Self { batch, rate } = self;
        // Every session must have been through a burst once, or its memory would be a new
        // session's.
        let round = if rate > 0.0 { sessions as f64 * batch as f64 / rate } else { 0.0 };
        let counted =
            |seconds, system_calls| Counted { phase: Phase { batch, rate, seconds }, system_calls };
        let mut phases = vec![counted(round + 0.5, false)];
        phases.extend([counted(0.7, false); MEASURED_WINDOWS]);
        phases.push(counted(0.6, true));
        phases
    }
}

/// The patterns of the matrix.
fn loads(full: bool) -> Vec<Load> {
    let load = |batch, rate| Load { batch, rate };
    let mut loads = vec![Load::TENS, load(1, 50_000.0), Load::SINGLES, load(10, 0.0)];
    if full {
        loads.extend([load(2, 50_000.0), load(2, 0.0), load(1, 0.0)]);
    }
    loads
}

/// The measurements of one load.
#[derive(Debug, Clone)]
struct Cost {
    /// CPU-seconds per million datagrams: the median of the windows, the least and the most.
    cpu: [f64; 3],
    wakeups: f64,
    system_calls: Option<f64>,
    kpps: f64,
    dropped: f64,
    p99: f64,
}

impl Cost {
    /// The costs of one load, from the outcomes of its phases.
    fn of(phases: &[Outcome]) -> Option<Self> {
        let windows = phases.get(1..=MEASURED_WINDOWS)?;
        let median = |value: fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = windows.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            (values[MEASURED_WINDOWS / 2], values[0], values[MEASURED_WINDOWS - 1])
        };
        let (middle, least, most) = median(|outcome| outcome.cpu_s_per_mpkt);
        Some(Self {
            cpu: [middle, least, most],
            wakeups: median(|outcome| outcome.wakeups).0,
            system_calls: phases.get(MEASURED_WINDOWS + 1)?.system_calls,
            kpps: median(|outcome| outcome.kpps).0,
            dropped: median(|outcome| outcome.dropped).0,
            p99: median(|outcome| outcome.seen.p99).0,
        })
    }
}

/// A measurement: one gateway with one number of clients.
struct Column {
    kind: Kind,
    assist: bool,
    sessions: usize,
    costs: Vec<Option<Cost>>,
    /// Bytes of the process per session: idle, right after the load, and [`QUIET_TIME`] later, if that was
    /// waited for.
    memory: [Option<f64>; 3],
}

impl Column {
    fn name(&self) -> String {
        let name = self.kind.name();
        if self.assist { format!("{name}, assisted") } else { name.to_owned() }
    }
}

/// Gateways, each with true if its clients are assisted.
const MEASURED_GATEWAYS: [(Kind, bool); 7] = [
    (Kind::Direct, false),
    (Kind::UdpProxy, false),
    (Kind::UdpProxyGso, false),
    (Kind::PackratEnvoy, false),
    (Kind::PackratEnvoy, true),
    (Kind::PackratStandalone, false),
    (Kind::PackratStandalone, true),
];

/// The wanted part of the matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// True for the whole matrix.
    pub(crate) full: bool,
    /// Names of loads and gateways, in part, and numbers of sessions: only these.
    pub(crate) parts: &'a [String],
}

impl Wanted<'_> {
    /// True if one of the parts names something of this kind that `is_meant`, or none names any.
    fn admits(&self, all: &[String], name: &str) -> bool {
        let mut named = self.parts.iter().filter(|part| all.iter().any(|one| one.contains(*part)));
        let mut is_any = false;
        named.any(|part| {
            is_any = true;
            name.contains(part.as_str())
        }) || !is_any
    }
}

/// Measures and reports.
pub(crate) fn run(summary: &mut Summary, wanted: Wanted<'_>, interrupt: &Interrupt) -> Fallible {
    let network = match Network::create() {
        Ok(network) => network,
        Err(error) => {
            summary
                .say(&format!("\nSKIPPED: many: no network namespaces ({error}); it needs root"));
            return Ok(());
        }
    };
    let programs = Programs::find()?;
    let full = wanted.full || !wanted.parts.is_empty();
    let all: Vec<String> = loads(full).iter().map(|load| load.key()).collect();
    let mut loads = loads(full);
    loads.retain(|load| wanted.admits(&all, &load.key()));
    let kinds = MEASURED_GATEWAYS.map(|(kind, assist)| key(kind, assist));
    let sizes: Vec<String> = sessions(true).iter().map(usize::to_string).collect();
    let is_size = |size: usize| {
        let mut named = wanted.parts.iter().filter(|part| sizes.contains(part)).peekable();
        if named.peek().is_none() {
            return sessions(full).contains(&size);
        }
        named.any(|part| *part == size.to_string())
    };
    let mut columns = Vec::new();
    for (kind, assist) in MEASURED_GATEWAYS {
        if !wanted.admits(&kinds, &key(kind, assist)) {
            continue;
        }
        if let Some(reason) = programs.missing(kind) {
            summary.say(&format!("\nSKIPPED: {}: {reason}", kind.name()));
            continue;
        }
        for &sessions in sessions(true).iter().filter(|size| is_size(**size)) {
            interrupt.check()?;
            eprintln!("{}: {sessions} clients", key(kind, assist));
            match column(&network, &programs, (kind, assist), sessions, &loads, interrupt) {
                Ok(column) => {
                    keep(summary, &column, &loads);
                    columns.push(column);
                }
                Err(error) => {
                    summary.fail(&format!("{}: {sessions} clients", key(kind, assist)), error);
                }
            }
        }
    }
    operator(summary, &columns, &loads);
    ratios(summary, &columns, &loads);
    costs(summary, &columns, &loads);
    calls(summary, &columns, &loads);
    memory(summary, &columns);
    Ok(())
}

fn key(kind: Kind, assist: bool) -> String {
    format!("{}.{}", kind.key(), if assist { "assisted" } else { "plain" })
}

fn column(
    network: &Network,
    programs: &Programs,
    (kind, assist): (Kind, bool),
    sessions: usize,
    loads: &[Load],
    interrupt: &Interrupt,
) -> Fallible<Column> {
    let loss = if assist { LAST_MILE_LOSS } else { 0.0 };
    let trial = Trial { sessions, assist, loss, ..Trial::PLAIN };
    let phases: Vec<Counted> = loads.iter().flat_map(|load| load.phases(sessions)).collect();
    // A gateway of its own, so that only these sessions use its memory.
    let gateway = Gateway::start(network, programs, kind, 1)?;
    let outcomes = trial::run_phases(network, &gateway, kind, &trial, &phases, interrupt)?;
    let ended = Instant::now();
    let memory = outcomes.last().map_or([0.0; 3], |outcome| outcome.memory);
    let per_session = |bytes: f64| Some((bytes - memory[0]) / sessions as f64);
    // The memory of few sessions is too small beside the process's own.
    let mut later = None;
    if assist && sessions >= 10_000 {
        while ended.elapsed() < QUIET_TIME {
            interrupt.check()?;
            std::thread::sleep(Duration::from_millis(100));
        }
        later = per_session(gateway.memory());
    }
    if let Some(last) =
        outcomes.last().filter(|last| assist && last.seen.assisted < sessions as u64)
    {
        return Err(
            format!("only {} of {sessions} clients were assisted", last.seen.assisted).into()
        );
    }
    Ok(Column {
        kind,
        assist,
        sessions,
        costs: outcomes.chunks(MEASURED_WINDOWS + 2).map(Cost::of).collect(),
        memory: [per_session(memory[1]), per_session(memory[2]), later],
    })
}

fn keep(summary: &mut Summary, column: &Column, loads: &[Load]) {
    let prefix = format!("many.{}.{}", key(column.kind, column.assist), column.sessions);
    for (load, cost) in loads.iter().zip(&column.costs) {
        let Some(cost) = cost else { continue };
        let mut set =
            |what: &str, value| summary.set(&format!("{prefix}.{}.{what}", load.key()), value);
        set("kpps", cost.kpps);
        set("dropped", cost.dropped);
        set("p99_us", cost.p99);
        if column.kind != Kind::Direct {
            set("cpu_s_per_mpkt", cost.cpu[0]);
            set("cpu_s_per_mpkt.least", cost.cpu[1]);
            set("cpu_s_per_mpkt.most", cost.cpu[2]);
            set("wakeups", cost.wakeups);
            if let Some(calls) = cost.system_calls {
                set("system_calls", calls);
            }
        }
    }
    if column.sessions >= 1000 && column.kind != Kind::Direct {
        for (what, bytes) in ["idle", "active", "quiet"].into_iter().zip(column.memory) {
            if let Some(bytes) = bytes {
                summary.set(&format!("{prefix}.{what}_bytes"), bytes);
            }
        }
    }
}

/// The cost of a load in this gateway, CPU-seconds per million.
fn cpu(columns: &[Column], kind: Kind, assist: bool, sessions: usize, load: usize) -> Option<f64> {
    let column = columns
        .iter()
        .find(|column| (column.kind, column.assist, column.sessions) == (kind, assist, sessions))?;
    Some(column.costs.get(load)?.as_ref()?.cpu[0])
}

/// The numbers of sessions, in order.
fn sizes(columns: &[Column]) -> Vec<usize> {
    let mut sizes: Vec<usize> = columns.iter().map(|column| column.sessions).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Processors per Gbit/s of datagrams, and memory of all clients: the needs of a machine.
fn operator(summary: &mut Summary, columns: &[Column], loads: &[Load]) {
    // Gbit in a million datagrams of this size.
    let gigabits = 1e6 * Trial::PLAIN.size as f64 * 8.0 / 1e9;
    let mut rows = Vec::new();
    for column in columns.iter().filter(|column| column.kind != Kind::Direct) {
        let mut row = vec![column.name(), column.sessions.to_string()];
        row.extend(
            loads
                .iter()
                .zip(&column.costs)
                .map(|(_, cost)| digits_or_dash(cost.as_ref().map(|cost| cost.cpu[0] / gigabits))),
        );
        let megabytes = column.memory.map(|bytes| {
            bytes
                .filter(|_| column.sessions >= 1000)
                .map(|bytes| bytes * column.sessions as f64 / 1e6)
        });
        row.extend(megabytes.map(digits_or_dash));
        rows.push(row);
    }
    let loads: Vec<String> = loads.iter().map(|load| load.key()).collect();
    let mut header = vec!["gateway", "clients"];
    header.extend(loads.iter().map(String::as_str));
    header.extend(["MB before traffic", "right after it", "30 s later"]);
    summary.table("Many clients: processors per Gbit/s, and memory", &header, &rows);
}

fn ratios(summary: &mut Summary, columns: &[Column], loads: &[Load]) {
    let packrat = MEASURED_GATEWAYS.into_iter().filter(|(kind, _)| kind.assists());
    let mut rows = Vec::new();
    for (index, load) in loads.iter().enumerate() {
        for (kind, assist) in packrat.clone() {
            for sessions in sizes(columns) {
                let Some(own) = cpu(columns, kind, assist, sessions, index) else { continue };
                let stock = cpu(columns, Kind::UdpProxy, false, sessions, index);
                let gso = cpu(columns, Kind::UdpProxyGso, false, sessions, index);
                let one = cpu(columns, kind, assist, 1, index);
                let ratio = |other: Option<f64>| other.map(|other| own / other);
                let place = format!("{}.{sessions}.{}", key(kind, assist), load.key());
                for (what, other) in [("stock", stock), ("gso", gso), ("one", one)] {
                    if let Some(value) = ratio(other) {
                        summary.set(&format!("ratio.many.{place}.to_{what}"), value);
                    }
                }
                rows.push(vec![
                    load.key(),
                    format!("{}{}", kind.name(), if assist { ", assisted" } else { "" }),
                    sessions.to_string(),
                    digits_or_dash(ratio(stock)),
                    digits_or_dash(ratio(gso)),
                    digits_or_dash(ratio(one)),
                ]);
            }
        }
    }
    let header = [
        "load",
        "gateway",
        "clients",
        "÷ udp_proxy",
        "÷ udp_proxy, GSO writer",
        "÷ own cost with one client",
    ];
    summary.table("Many clients: ratios of CPU time per datagram", &header, &rows);
    summary.say(
        "\n`bN`: bursts of N datagrams of 1200 bytes for one client after the other, all together at the rate. Assisted clients lose 1 % and \
         send eACKs; the other gateways lose nothing.",
    );
}

fn costs(summary: &mut Summary, columns: &[Column], loads: &[Load]) {
    let mut rows = Vec::new();
    for column in columns {
        for (load, cost) in loads.iter().zip(&column.costs) {
            let Some(cost) = cost else { continue };
            let [middle, least, most] = cost.cpu.map(digits);
            let own = if column.kind == Kind::Direct {
                "–".to_owned()
            } else {
                format!("{middle} ({least} to {most})")
            };
            // If the path has no loss, only clients that do not keep up bring the rate down.
            let limited =
                load.rate > 0.0 && cost.kpps < 0.9 * load.rate / 1e3 && cost.dropped < 0.01;
            rows.push(vec![
                load.key(),
                column.name(),
                column.sessions.to_string(),
                own,
                format!("{}{}", digits(cost.kpps), if limited { " (clients)" } else { "" }),
                format!("{:.2} %", cost.dropped * 100.0),
                digits(cost.p99),
            ]);
        }
    }
    let header = [
        "load",
        "gateway",
        "clients",
        "CPU-s per million datagrams (spread of three windows)",
        "kpps delivered",
        "dropped",
        "p99 of the way, µs",
    ];
    summary.table("Many clients: CPU time", &header, &rows);
    summary
        .say("\n(clients): the processor of generator and clients did not keep up with this rate.");
}

fn calls(summary: &mut Summary, columns: &[Column], loads: &[Load]) {
    let mut rows = Vec::new();
    for column in columns.iter().filter(|column| column.kind != Kind::Direct) {
        for (load, cost) in loads.iter().zip(&column.costs) {
            let Some(cost) = cost else { continue };
            rows.push(vec![
                load.key(),
                column.name(),
                column.sessions.to_string(),
                digits(cost.wakeups),
                digits_or_dash(cost.system_calls),
            ]);
        }
    }
    let header = ["load", "gateway", "clients", "waits per datagram", "system calls per datagram"];
    summary.table("Many clients: waits and system calls of the gateway", &header, &rows);
}

fn memory(summary: &mut Summary, columns: &[Column]) {
    let rows: Vec<_> = columns
        .iter()
        .filter(|column| column.sessions >= 1000 && column.kind != Kind::Direct)
        .map(|column| {
            let mut row = vec![column.name(), column.sessions.to_string()];
            row.extend(column.memory.map(digits_or_dash));
            row
        })
        .collect();
    let header =
        ["gateway", "clients", "bytes per client before traffic", "right after it", "30 s later"];
    summary.table("Many clients: memory of the gateway's process", &header, &rows);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_and_the_spread_is_kept() {
        let outcome = |cpu_s_per_mpkt| Outcome { cpu_s_per_mpkt, ..Outcome::default() };
        let phases = [9.0, 3.0, 1.0, 2.0, 7.0].map(outcome);
        assert_eq!(Cost::of(&phases).unwrap().cpu, [2.0, 1.0, 3.0]);
        assert!(Cost::of(&phases[..3]).is_none());
    }

    #[test]
    fn parts_choose_among_what_they_name() {
        let names = ["b1.50kpps".to_owned(), "b10.50kpps".to_owned()];
        let admits = |parts: &[&str], name: &str| {
            let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            Wanted { full: false, parts: &parts }.admits(&names, name)
        };
        assert!(admits(&[], "b1.50kpps") && admits(&["10000"], "b1.50kpps"));
        assert!(admits(&["b10.", "x"], "b10.50kpps") && !admits(&["b10."], "b1.50kpps"));
    }

    #[test]
    fn a_warm_up_visits_every_session() {
        let phases = Load::TENS.phases(10_000);
        assert!(phases[0].phase.seconds >= 2.0 && phases.len() == MEASURED_WINDOWS + 2);
        assert!(phases[..=MEASURED_WINDOWS].iter().all(|counted| !counted.system_calls));
    }
}
