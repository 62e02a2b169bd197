//! `packrat stat`: the gateways' work for their routes.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use packrat_api::sender::SenderKind;
use packrat_figures::comparison::{Benefit, Comparison, Confidence};
use serde_json::{Value, json};

use super::cluster::Place;
use super::error::OperateError;
use super::gateway::Route;
use super::output::{
    Align, Format, Paint, Table, bits, bytes, count, milliseconds, or_dash, percent,
};
use super::target::{RouteFigures, TCP_CONNECTIONS, Target};
use super::{memory, warn};

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct StatOptions {
    #[command(flatten)]
    target: Target,

    /// Only this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    /// A row for each gateway Pod, instead of one for all Pods of an EdgeGateway
    #[arg(long)]
    by_pod: bool,

    /// Seconds that are looked at
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    window: f64,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds between 0.1 and 3600".to_owned()),
    }
}

/// Runs `packrat stat`.
pub(crate) fn stat(options: &StatOptions) -> Result<ExitCode, OperateError> {
    let is_asked_for_everything = options.target.is_default() && options.route.is_none();
    let last = is_asked_for_everything.then(|| memory::last_download("stat")).flatten();
    let window = Duration::from_secs_f64(options.window);
    let gateways = options.target.gateways();
    let measured = gateways.and_then(|gateways| gateways.figures(window, options.by_pod));
    let measured = match measured {
        Ok(measured) => measured,
        Err(error) => {
            // Who has no cluster has a client.
            if let Some(last) = last.filter(|_| options.output != Format::Json) {
                println!("{}", memory::text(&last));
            }
            return Err(error);
        }
    };
    warn("stat", &measured.problems);
    let mut routes = measured.routes;
    if let Some(name) = &options.route {
        let mut known: Vec<String> = routes.iter().map(|route| route.route.route.clone()).collect();
        known.dedup();
        routes.retain(|route| route.route.route == *name);
        if routes.is_empty() {
            return Err(OperateError::NoRoute { name: name.clone(), known: known.join(", ") });
        }
    }
    match options.output {
        Format::Json => {
            let all: Vec<Value> = routes.iter().map(as_json).collect();
            let mut answer = json!({ "window_seconds": options.window, "routes": all });
            if let Some(last) = last {
                answer["last_download"] = json!(last);
            }
            println!("{answer:#}");
        }
        Format::Table | Format::Wide => {
            print!("{}", table(&routes, options));
            if let Some(last) = last {
                println!("\n{}", memory::text(&last));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(all: &RouteFigures) -> Value {
    let RouteFigures { place, gateways, route, figures, .. } = all;
    json!({
        "pod": place.as_ref().map(|place| &place.pod).filter(|pod| !pod.is_empty()),
        "gateways": gateways,
        "gateway": route.configuration.gateway,
        "namespace": route.configuration.namespace,
        "route": route.route,
        "sessions": figures.sessions,
        "sessions_assisted": figures.assisted,
        "goodput_bits_per_second": figures.goodput_bits,
        "last_mile_loss_ratio": figures.loss,
        "loss_hidden_ratio": figures.hidden,
        "saved_retransmissions_per_second": figures.saved_retransmissions,
        "goodput_gain_times": figures.goodput_gain.filter(|_| benefit_of(all).interval().is_none()),
        "benefit": benefit_as_json(all),
        "sender": sender(route),
        "assistance_cores": figures.assistance_cores,
        "repair_bits_per_second": figures.repair_bits,
        "quality_points": figures.quality,
        "cache_hit_ratio": figures.cache_hits,
        "too_late_ratio": figures.too_late,
        "repair_overhead_ratio": figures.overhead,
        "resets_per_second": figures.resets,
        "decode_failure_ratio": figures.decode_failures,
        "evictions_per_second": figures.evictions,
        "budget_refusals_per_second": figures.budget_refusals,
        "cache_bytes": figures.cache_bytes,
        "cache_usage_ratio": figures.cache_usage,
        "last_mile_round_trip_seconds": figures.last_mile_round_trip,
        "far_round_trip_seconds": figures.far_round_trip,
        "totals": route.metrics,
    })
}

fn benefit_as_json(all: &RouteFigures) -> Value {
    let benefit = benefit_of(all);
    let comparison = all.comparison();
    let sizes = all.route.comparison.iter().flat_map(|status| &status.sizes);
    let by_size = sizes.map(|size| {
        let comparison = Comparison::from_buckets(&size.assisted, &size.holdout);
        let gain = comparison.benefit(Confidence::Usual).interval();
        json!({
            "least_bytes": size.least_bytes,
            "assisted_sessions": comparison.assisted.count(),
            "holdout_sessions": comparison.holdout.count(),
            "speedup_times": gain.map(|gain| gain.estimate),
            "lower_times": gain.map(|gain| gain.lower),
            "upper_times": gain.map(|gain| gain.upper),
        })
    });
    json!({
        "verdict": benefit.short(),
        "speedup_times": benefit.interval().map(|gain| gain.estimate),
        "lower_times": benefit.interval().map(|gain| gain.lower),
        "upper_times": benefit.interval().map(|gain| gain.upper),
        "assisted_sessions": comparison.assisted.count(),
        "holdout_sessions": comparison.holdout.count(),
        "by_size": by_size.collect::<Vec<_>>(),
        "gateways_stopped": all.stopped,
        "gateways_on_trial": all.on_trial,
    })
}

/// The benefit of assistance on a route, as measured on all gateways together.
fn benefit_of(all: &RouteFigures) -> Benefit {
    match &all.route.comparison {
        Some(_) => match all.comparison().benefit(Confidence::Usual) {
            // One is configured.
            Benefit::NoHoldout => {
                Benefit::NotEnough { assisted: all.comparison().assisted.count(), holdout: 0 }
            }
            benefit => benefit,
        },
        None => Benefit::NoHoldout,
    }
}

/// The verdict for people: the measurement, and the decision that followed.
fn verdict(all: &RouteFigures) -> Cell {
    let benefit = benefit_of(all);
    let text = benefit.short().replace('×', "x");
    let of = |count: usize| if all.gateways > 1 { format!(" on {count}") } else { String::new() };
    if all.stopped > 0 {
        return (format!("stopped by itself{}: slower; {text}", of(all.stopped)), Some(Paint::Bad));
    }
    if all.on_trial > 0 {
        return (format!("on trial{}: {text}", of(all.on_trial)), Some(Paint::Warning));
    }
    let paint = benefit.interval().and_then(|gain| match gain {
        gain if gain.lower > 1.0 => Some(Paint::Good),
        gain if gain.upper < 1.0 => Some(Paint::Bad),
        _ => None,
    });
    (text, paint)
}

/// The verdict about the route's senders: the sessions' findings since the gateways run, or the
/// configuration.
fn sender(route: &Route) -> String {
    let total = |name: &str| route.metrics.get(name).copied().unwrap_or_default();
    let (tolerant, answering) =
        (total("packrat_senders_tolerant_total"), total("packrat_senders_answering_total"));
    let configured = route.configuration.sender;
    if configured != SenderKind::Any {
        return format!("{} (configured)", configured.name());
    }
    match (tolerant > 0.0, answering > 0.0) {
        (false, false) => "not known".to_owned(),
        (false, true) => "answers losses".to_owned(),
        (true, false) => "tolerates losses".to_owned(),
        (true, true) => {
            format!("{} tolerate losses", percent(tolerant / (tolerant + answering)))
        }
    }
}

fn times(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}x") } else { format!("{value:.1}x") }
}

/// A column of the table: name, alignment, a route's cell.
type Column = (&'static str, Align, fn(&RouteFigures) -> Cell);
type Cell = (String, Option<Paint>);

const COLUMNS: [Column; 12] = [
    ("ROUTE", Align::Left, |all| (all.route.route.clone(), Some(Paint::Strong))),
    ("SESSIONS", Align::Right, |all| plain(count(all.figures.sessions))),
    ("ASSISTED", Align::Right, |all| plain(count(all.figures.assisted))),
    ("GOODPUT", Align::Right, |all| plain(bits(all.figures.goodput_bits))),
    ("LOSS", Align::Right, |all| plain(or_dash(all.figures.loss, percent))),
    ("HIDDEN", Align::Right, |all| better_above(all.figures.hidden, percent, [0.8, 0.95])),
    ("GAIN", Align::Right, gain),
    ("QUALITY", Align::Right, |all| {
        better_above(all.figures.quality, |value| format!("{value:.2}"), [98.0, 99.5])
    }),
    ("CACHE", Align::Right, |all| plain(bytes(all.figures.cache_bytes))),
    ("RESETS", Align::Right, resets),
    // Since the gateways run: after a download, all else is of a moment in which nothing happens.
    ("TOTAL", Align::Right, |all| plain(bytes(total(all, "packrat_to_client_bytes_total")))),
    ("REPAIRED", Align::Right, |all| plain(count(total(all, "packrat_repairs_arrived_total")))),
];

const WIDE_COLUMNS: [Column; 16] = [
    ("SENDER", Align::Left, |all| plain(sender(&all.route))),
    ("BENEFIT", Align::Left, verdict),
    ("CORES", Align::Right, |all| plain(format!("{:.3}", all.figures.assistance_cores))),
    ("REPAIRS", Align::Right, |all| plain(bits(all.figures.repair_bits))),
    ("SAVED", Align::Right, |all| per_second(all.figures.saved_retransmissions)),
    ("HITS", Align::Right, |all| better_above(all.figures.cache_hits, percent, [0.8, 0.95])),
    ("LATE", Align::Right, |all| plain(or_dash(all.figures.too_late, percent))),
    ("OVERHEAD", Align::Right, |all| plain(or_dash(all.figures.overhead, percent))),
    ("LAST MILE", Align::Right, |all| {
        plain(or_dash(all.figures.last_mile_round_trip, milliseconds))
    }),
    ("FAR", Align::Right, |all| plain(or_dash(all.figures.far_round_trip, milliseconds))),
    ("REFUSED", Align::Right, |all| per_second(all.figures.budget_refusals)),
    ("EVICTED", Align::Right, |all| per_second(all.figures.evictions)),
    // Of the clients' datagrams, since the gateways run.
    ("UP MISSING", Align::Right, |all| plain(count(total(all, "packrat_upward_missing_total")))),
    ("UP REPAIRED", Align::Right, |all| plain(count(total(all, "packrat_upward_repaired_total")))),
    ("UP LATE", Align::Right, |all| plain(count(total(all, "packrat_upward_given_up_total")))),
    // Passed through now, by Envoy.
    ("TCP", Align::Right, |all| {
        plain(or_dash(all.route.metrics.get(TCP_CONNECTIONS).copied(), count))
    }),
];

const IN_CLUSTER_COLUMNS: [Column; 2] = [
    ("NAMESPACE", Align::Left, |all| plain_of(all, |place| &place.namespace)),
    ("GATEWAY", Align::Left, |all| plain_of(all, |place| &place.edge_gateway)),
];
const POD_COLUMN: Column = ("POD", Align::Left, |all| plain_of(all, |place| &place.pod));
const PODS_COLUMN: Column = ("PODS", Align::Right, |all| plain(all.gateways.to_string()));

fn plain(text: String) -> Cell {
    (text, None)
}

fn plain_of(all: &RouteFigures, text: fn(&Place) -> &String) -> Cell {
    plain(all.place.as_ref().map(text).cloned().unwrap_or_default())
}

fn per_second(value: f64) -> Cell {
    plain(format!("{}/s", count(value)))
}

/// A value that is amber from the first bound, green from the second.
fn better_above(value: Option<f64>, show: fn(f64) -> String, [amber, green]: [f64; 2]) -> Cell {
    let paint = value.map(|value| match value {
        _ if value >= green => Paint::Good,
        _ if value >= amber => Paint::Warning,
        _ => Paint::Bad,
    });
    (or_dash(value, show), paint)
}

fn total(all: &RouteFigures, series: &str) -> f64 {
    all.route.metrics.get(series).copied().unwrap_or_default()
}

fn gain(all: &RouteFigures) -> Cell {
    match benefit_of(all).interval() {
        Some(gain) => plain(times(gain.estimate)),
        // By a formula, and so marked.
        None => (
            or_dash(all.figures.goodput_gain, |gain| format!("~{}", times(gain))),
            Some(Paint::Soft),
        ),
    }
}

fn resets(all: &RouteFigures) -> Cell {
    let all = all.route.metrics.iter().filter(|(name, _)| name.starts_with("packrat_resets_total"));
    let resets: f64 = all.map(|(_, count)| count).sum();
    (count(resets), (resets > 0.0).then_some(Paint::Warning))
}

fn table(routes: &[RouteFigures], options: &StatOptions) -> String {
    let mut columns = Vec::new();
    if routes.iter().any(|route| route.place.is_some()) {
        columns.extend(IN_CLUSTER_COLUMNS);
        columns.push(if options.by_pod { POD_COLUMN } else { PODS_COLUMN });
    }
    columns.extend(COLUMNS);
    if options.output == Format::Wide {
        columns.extend(WIDE_COLUMNS);
    }
    let heads: Vec<_> = columns.iter().map(|(name, align, _)| (*name, *align)).collect();
    let mut table = Table::new(&heads);
    for all in routes {
        table.row(columns.iter().map(|(_, _, cell)| cell(all)).collect());
    }
    table.text()
}
