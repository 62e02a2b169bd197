//! Forwarding over network namespaces with real sockets and one worker: each gateway's cost of a
//! datagram, side by side.

pub(crate) mod gateways;
pub(crate) mod network;
pub(crate) mod trial;
pub(crate) mod usage;

use crate::Fallible;
use crate::interrupt::Interrupt;
use crate::summary::{Summary, digits, digits_or_dash};
use gateways::{Gateway, Kind, Programs};
use network::Network;
use trial::{Outcome, Trial};

/// One line of the matrix: its name in keys, and its trial.
struct Setting {
    key: String,
    trial: Trial,
    /// True if only gateways that repair are tried.
    assisted_only: bool,
}

/// The settings tried with every gateway: all if `full`, otherwise only settings with targets.
fn settings(full: bool) -> Vec<Setting> {
    let seconds = if full { 3.0 } else { 1.5 };
    let plain = Trial { seconds, ..Trial::PLAIN };
    let mut settings = Vec::new();
    let mut add = |key: String, trial: Trial| {
        let assisted_only = trial.assist;
        settings.push(Setting { key, trial, assisted_only });
    };
    let loads = [("flat_out", 0.0), ("100kpps", 100_000.0)];
    for batch in [50, 10, 1] {
        for (load, rate) in loads {
            if full || rate == 0.0 || batch == 10 {
                add(format!("b{batch}.{load}"), Trial { batch, rate, ..plain });
            }
        }
    }
    for size in [60, 300, 1452] {
        for batch in if full { vec![50, 10, 1] } else { vec![10] } {
            add(format!("s{size}.b{batch}.flat_out"), Trial { size, batch, ..plain });
        }
    }
    for loss in [0.0, 0.04, 0.10] {
        for batch in if full { vec![50, 10, 1] } else { vec![10] } {
            for (load, rate) in loads {
                let percent = (loss * 100.0) as u32;
                let key = format!("cached.loss{percent}.b{batch}.{load}");
                add(key, Trial { batch, rate, assist: true, loss, ..plain });
            }
        }
    }
    add("b10.50kpps".to_owned(), Trial { rate: 50_000.0, ..plain });
    add("b1.50kpps".to_owned(), Trial { batch: 1, rate: 50_000.0, ..plain });
    add(
        "cached.loss4.b10.50kpps".to_owned(),
        Trial { rate: 50_000.0, assist: true, loss: 0.04, ..plain },
    );
    add("upload.b1.flat_out".to_owned(), Trial { batch: 1, upload: true, ..plain });
    add("upload.b10.flat_out".to_owned(), Trial { upload: true, ..plain });
    settings
}

/// Measures and reports the settings whose name contains one of `wanted`, or all.
pub(crate) fn run(
    summary: &mut Summary,
    full: bool,
    wanted: &[String],
    interrupt: &Interrupt,
) -> Fallible {
    let network = match Network::create() {
        Ok(network) => network,
        Err(error) => {
            summary.say(&format!(
                "\nSKIPPED: forwarding: no network namespaces ({error}); it needs root"
            ));
            return Ok(());
        }
    };
    let programs = Programs::find()?;
    let mut settings = settings(full);
    settings.retain(|setting| {
        wanted.is_empty() || wanted.iter().any(|part| setting.key.contains(part))
    });
    let mut outcomes: Vec<Vec<Option<Outcome>>> = Vec::new();
    let kinds = [&[Kind::Direct][..], &Kind::GATEWAYS].concat();
    for &kind in &kinds {
        let column = column(summary, &network, &programs, kind, &settings, interrupt)?;
        outcomes.push(column);
    }
    let of = |kind: Kind, key: &str| {
        let column = kinds.iter().position(|other| *other == kind)?;
        let row = settings.iter().position(|setting| setting.key == key)?;
        outcomes.get(column)?.get(row)?.clone()
    };
    throughput(summary, &settings, &of);
    latency(summary, &of);
    targets(summary, &of);
    Ok(())
}

/// The outcomes of one gateway, by setting; `None` of settings that it lacks.
fn column(
    summary: &mut Summary,
    network: &Network,
    programs: &Programs,
    kind: Kind,
    settings: &[Setting],
    interrupt: &Interrupt,
) -> Fallible<Vec<Option<Outcome>>> {
    let mut column: Vec<Option<Outcome>> = settings.iter().map(|_| None).collect();
    if let Some(reason) = programs.missing(kind) {
        summary.say(&format!("\nSKIPPED: {}: {reason}", kind.name()));
        return Ok(column);
    }
    let gateway = match Gateway::start(network, programs, kind, 1) {
        Ok(gateway) => gateway,
        Err(error) => {
            summary.fail(kind.name(), error);
            return Ok(column);
        }
    };
    for (setting, place) in settings.iter().zip(&mut column) {
        let is_latency = setting.key.ends_with("50kpps") && !setting.assisted_only;
        if (setting.assisted_only && !kind.assists()) || (kind == Kind::Direct && !is_latency) {
            continue;
        }
        eprintln!("{}: {}", kind.key(), setting.key);
        match trial::run(network, &gateway, kind, &setting.trial, interrupt) {
            Ok(outcome) => {
                keep(summary, &setting.key, kind, &outcome);
                *place = Some(outcome);
            }
            Err(error) => summary.fail(&format!("{}: {}", kind.name(), setting.key), error),
        }
        interrupt.check()?;
    }
    Ok(column)
}

fn keep(summary: &mut Summary, key: &str, kind: Kind, outcome: &Outcome) {
    let key = |what: &str| format!("forward.{key}.{}.{what}", kind.key());
    summary.set(&key("kpps"), outcome.kpps);
    summary.set(&key("gbps"), outcome.gbps);
    summary.set(&key("cpu_s_per_mpkt"), outcome.cpu_s_per_mpkt);
    summary.set(&key("softirq_s_per_mpkt"), outcome.softirq_s_per_mpkt);
    summary.set(&key("dropped"), outcome.dropped);
    summary.set(&key("p50_us"), outcome.seen.p50);
    summary.set(&key("p99_us"), outcome.seen.p99);
    if outcome.seen.assisted > 0 {
        let share = outcome.seen.repaired as f64 / outcome.seen.lost.max(1) as f64;
        summary.set(&key("repaired"), share);
        summary
            .set(&key("datagrams_per_eack"), outcome.datagrams / outcome.seen.eacks.max(1) as f64);
    }
}

type Of<'a> = &'a dyn Fn(Kind, &str) -> Option<Outcome>;

fn throughput(summary: &mut Summary, settings: &[Setting], of: Of<'_>) {
    let rows: Vec<_> = settings
        .iter()
        .map(|setting| {
            let cost = |kind| of(kind, &setting.key).map(|outcome| outcome.cpu_s_per_mpkt);
            // A gateway with a cache is compared with the stock proxy without loss, as the proxy
            // cannot repair.
            let base = setting.key.split("loss").nth(1).map_or(setting.key.as_str(), |rest| {
                rest.split_once('.').map_or(rest, |(_, rest)| rest)
            });
            let stock = of(Kind::UdpProxy, base).map(|outcome| outcome.cpu_s_per_mpkt);
            let ratio =
                |kind| digits_or_dash(stock.zip(cost(kind)).map(|(stock, cost)| stock / cost));
            let cell = |kind| {
                of(kind, &setting.key).map_or("–".to_owned(), |outcome| {
                    let drops = if outcome.dropped > 0.001 {
                        format!(", {:.1} % dropped", outcome.dropped * 100.0)
                    } else {
                        String::new()
                    };
                    format!(
                        "{} ({} kpps{drops})",
                        digits(outcome.cpu_s_per_mpkt),
                        digits(outcome.kpps)
                    )
                })
            };
            let mut row = vec![
                setting.key.clone(),
                ratio(Kind::PackratEnvoy),
                ratio(Kind::PackratStandalone),
            ];
            row.extend(Kind::GATEWAYS.map(cell));
            row
        })
        .collect();
    let header = [
        "setting",
        "stock ÷ Packrat in Envoy",
        "stock ÷ standalone",
        "udp_proxy",
        "udp_proxy, GSO writer",
        "Packrat in Envoy",
        "Packrat standalone",
    ];
    let title = "Forwarding: CPU-seconds of the gateway per million datagrams (and rate)";
    summary.table(title, &header, &rows);
    summary.say(
        "\n`bN`: N datagrams per send of the server; `sN`: datagrams of N bytes, else 1200; `cached.lossN`: assisted, N % lost on the last \
         mile, eACKs of the real client, beside the stock proxy that caches nothing and loses nothing; `upload`: client to server.",
    );
}

fn latency(summary: &mut Summary, of: Of<'_>) {
    let mut rows = Vec::new();
    for key in ["b10.50kpps", "b1.50kpps", "cached.loss4.b10.50kpps"] {
        let base = of(Kind::Direct, key.trim_start_matches("cached.loss4."));
        for kind in Kind::GATEWAYS {
            let Some(outcome) = of(kind, key) else { continue };
            let added =
                |value: f64, base: Option<f64>| digits_or_dash(base.map(|base| value - base));
            rows.push(vec![
                key.to_owned(),
                kind.name().to_owned(),
                added(outcome.seen.p50, base.as_ref().map(|base| base.seen.p50)),
                added(outcome.seen.p99, base.as_ref().map(|base| base.seen.p99)),
                format!("{:.3} %", outcome.dropped * 100.0),
            ]);
        }
    }
    let header = ["setting", "gateway", "added p50, µs", "added p99, µs", "dropped"];
    summary.table(
        "Forwarding: latency at 50 kpps, beyond that of the kernel's forwarding",
        &header,
        &rows,
    );
}

/// Key, description, measured value and largest good one of a target.
type Goal = (&'static str, &'static str, Option<f64>, f64);

/// The targets of a gateway.
fn goals(kind: Kind, of: Of<'_>) -> [Goal; 6] {
    let cost = |kind: Kind, key: &str| of(kind, key).map(|outcome| outcome.cpu_s_per_mpkt);
    let cached = |load: &str, other: Kind| {
        let ours = cost(kind, &format!("cached.loss4.b10.{load}"))?;
        Some(ours / cost(other, &format!("b10.{load}"))?)
    };
    let [slow, fast] = ["100kpps", "flat_out"];
    let stock = Kind::UdpProxy;
    let dropped = of(kind, "cached.loss4.b10.50kpps").map(|outcome| outcome.dropped);
    let upload = cost(kind, "upload.b1.flat_out");
    [
        (slow, "cached, 4 % loss, 100 kpps ÷ stock udp_proxy", cached(slow, stock), 0.5),
        (fast, "cached, 4 % loss, flat out ÷ stock udp_proxy", cached(fast, stock), 0.1),
        ("caching.100kpps", "cached, 4 % loss ÷ not cached, 100 kpps", cached(slow, kind), 1.15),
        ("caching.flat_out", "cached, 4 % loss ÷ not cached, flat out", cached(fast, kind), 1.15),
        ("upload", "client to server, CPU-s per million", upload, 2.0),
        ("dropped", "dropped at 50 kpps, cached, 4 % loss", dropped, 0.0),
    ]
}

/// Adds the targets to the summary, and whether they were reached.
fn targets(summary: &mut Summary, of: Of<'_>) {
    let mut rows = Vec::new();
    for kind in [Kind::PackratEnvoy, Kind::PackratStandalone] {
        for (key, what, value, most) in goals(kind, of) {
            if let Some(value) = value {
                summary.set(&format!("ratio.{key}.{}", kind.key()), value);
            }
            rows.push(vec![
                kind.name().to_owned(),
                what.to_owned(),
                digits_or_dash(value),
                format!("≤ {most}"),
                value.map_or("–", |value| if value <= most { "yes" } else { "no" }).to_owned(),
            ]);
        }
    }
    summary.table(
        "Forwarding: targets",
        &["gateway", "what", "measured", "target", "reached"],
        &rows,
    );
}
