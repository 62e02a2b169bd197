//! `packrat stat`: the gateways' work for their routes.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use packrat_api::sender::SenderKind;
use packrat_figures::Figures;
use packrat_figures::comparison::{Benefit, Comparison, Confidence};
use serde_json::{Value, json};

use super::error::OperateError;
use super::gateway::Route;
use super::output::{
    Align, Format, Paint, Table, bits, bytes, count, milliseconds, or_dash, percent,
};
use super::target::{RouteFigures, TCP_CONNECTIONS, Target};
use super::{finish, memory, warn};

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct Options {
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

pub(crate) fn run(options: &Options) -> ExitCode {
    finish("stat", stat(options))
}

fn stat(options: &Options) -> Result<ExitCode, OperateError> {
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
    let RouteFigures { place, gateways, route, figures, stopped, on_trial } = all;
    let Figures {
        sessions,
        assisted,
        goodput_bits,
        loss,
        hidden,
        saved_retransmissions,
        goodput_gain,
        cache_hits,
        too_late,
        quality,
        overhead,
        repair_bits,
        assistance_cores,
        resets,
        decode_failures,
        evictions,
        budget_refusals,
        cache_bytes,
        cache_usage,
        last_mile_round_trip,
        far_round_trip,
    } = figures;
    let comparison = all.comparison();
    let benefit = benefit_of(all);
    let by_size = route.comparison.iter().flat_map(|status| &status.sizes).map(|size| {
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
    let by_size: Vec<Value> = by_size.collect();
    json!({
        "pod": place.as_ref().map(|place| &place.pod).filter(|pod| !pod.is_empty()),
        "gateways": gateways,
        "gateway": route.configuration.gateway,
        "namespace": route.configuration.namespace,
        "route": route.route,
        "sessions": sessions,
        "sessions_assisted": assisted,
        "goodput_bits_per_second": goodput_bits,
        "last_mile_loss_ratio": loss,
        "loss_hidden_ratio": hidden,
        "saved_retransmissions_per_second": saved_retransmissions,
        "goodput_gain_times": goodput_gain.filter(|_| benefit.interval().is_none()),
        "benefit": {
            "verdict": benefit.short(),
            "speedup_times": benefit.interval().map(|gain| gain.estimate),
            "lower_times": benefit.interval().map(|gain| gain.lower),
            "upper_times": benefit.interval().map(|gain| gain.upper),
            "assisted_sessions": comparison.assisted.count(),
            "holdout_sessions": comparison.holdout.count(),
            "by_size": by_size,
            "gateways_stopped": stopped,
            "gateways_on_trial": on_trial,
        },
        "sender": sender(route),
        "assistance_cores": assistance_cores,
        "repair_bits_per_second": repair_bits,
        "quality_points": quality,
        "cache_hit_ratio": cache_hits,
        "too_late_ratio": too_late,
        "repair_overhead_ratio": overhead,
        "resets_per_second": resets,
        "decode_failure_ratio": decode_failures,
        "evictions_per_second": evictions,
        "budget_refusals_per_second": budget_refusals,
        "cache_bytes": cache_bytes,
        "cache_usage_ratio": cache_usage,
        "last_mile_round_trip_seconds": last_mile_round_trip,
        "far_round_trip_seconds": far_round_trip,
        "totals": route.metrics,
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
fn verdict(all: &RouteFigures) -> (String, Option<Paint>) {
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

fn table(routes: &[RouteFigures], options: &Options) -> String {
    let wide = options.output == Format::Wide;
    let in_cluster = routes.iter().any(|route| route.place.is_some());
    let mut columns = Vec::new();
    if in_cluster {
        let last = if options.by_pod { ("POD", Align::Left) } else { ("PODS", Align::Right) };
        columns.extend([("NAMESPACE", Align::Left), ("GATEWAY", Align::Left), last]);
    }
    columns.extend([
        ("ROUTE", Align::Left),
        ("SESSIONS", Align::Right),
        ("ASSISTED", Align::Right),
        ("GOODPUT", Align::Right),
        ("LOSS", Align::Right),
        ("HIDDEN", Align::Right),
        ("GAIN", Align::Right),
        ("QUALITY", Align::Right),
        ("CACHE", Align::Right),
        ("RESETS", Align::Right),
        // Since the gateways run: after a download, all else is of a moment in which nothing
        // happens.
        ("TOTAL", Align::Right),
        ("REPAIRED", Align::Right),
    ]);
    if wide {
        columns.extend([
            ("SENDER", Align::Left),
            ("BENEFIT", Align::Left),
            ("CORES", Align::Right),
            ("REPAIRS", Align::Right),
            ("SAVED", Align::Right),
            ("HITS", Align::Right),
            ("LATE", Align::Right),
            ("OVERHEAD", Align::Right),
            ("LAST MILE", Align::Right),
            ("FAR", Align::Right),
            ("REFUSED", Align::Right),
            ("EVICTED", Align::Right),
            // Of the clients' datagrams, since the gateways run.
            ("UP MISSING", Align::Right),
            ("UP REPAIRED", Align::Right),
            ("UP LATE", Align::Right),
            // Passed through now, by Envoy.
            ("TCP", Align::Right),
        ]);
    }
    let mut table = Table::new(&columns);
    for all in routes {
        let RouteFigures { place, gateways, route, figures, .. } = all;
        let measured = benefit_of(all).interval();
        let above = |value: Option<f64>, amber: f64, green: f64| {
            value.map(|value| match value {
                _ if value >= green => Paint::Good,
                _ if value >= amber => Paint::Warning,
                _ => Paint::Bad,
            })
        };
        let resets: f64 = route
            .metrics
            .iter()
            .filter(|(name, _)| name.starts_with("packrat_resets_total"))
            .map(|(_, n)| n)
            .sum();
        let total = |name: &str| route.metrics.get(name).copied().unwrap_or_default();
        let per_second = |value: f64| format!("{}/s", count(value));
        let mut cells = Vec::new();
        if let Some(place) = place {
            let last = if options.by_pod { place.pod.clone() } else { gateways.to_string() };
            cells.extend(
                [place.namespace.clone(), place.edge_gateway.clone(), last]
                    .map(|text| (text, None)),
            );
        }
        cells.extend([
            (route.route.clone(), Some(Paint::Strong)),
            (count(figures.sessions), None),
            (count(figures.assisted), None),
            (bits(figures.goodput_bits), None),
            (or_dash(figures.loss, percent), None),
            (or_dash(figures.hidden, percent), above(figures.hidden, 0.8, 0.95)),
            match measured {
                Some(gain) => (times(gain.estimate), None),
                // By a formula, and so marked.
                None => (
                    or_dash(figures.goodput_gain, |gain| format!("~{}", times(gain))),
                    Some(Paint::Soft),
                ),
            },
            (
                or_dash(figures.quality, |value| format!("{value:.2}")),
                above(figures.quality, 98.0, 99.5),
            ),
            (bytes(figures.cache_bytes), None),
            (count(resets), (resets > 0.0).then_some(Paint::Warning)),
            (bytes(total("packrat_to_client_bytes_total")), None),
            (count(total("packrat_repairs_arrived_total")), None),
        ]);
        if wide {
            cells.extend([
                (sender(route), None),
                verdict(all),
                (format!("{:.3}", figures.assistance_cores), None),
                (bits(figures.repair_bits), None),
                (per_second(figures.saved_retransmissions), None),
                (or_dash(figures.cache_hits, percent), above(figures.cache_hits, 0.8, 0.95)),
                (or_dash(figures.too_late, percent), None),
                (or_dash(figures.overhead, percent), None),
                (or_dash(figures.last_mile_round_trip, milliseconds), None),
                (or_dash(figures.far_round_trip, milliseconds), None),
                (per_second(figures.budget_refusals), None),
                (per_second(figures.evictions), None),
                (count(total("packrat_upward_missing_total")), None),
                (count(total("packrat_upward_repaired_total")), None),
                (count(total("packrat_upward_given_up_total")), None),
                (or_dash(route.metrics.get(TCP_CONNECTIONS).copied(), count), None),
            ]);
        }
        table.row(cells);
    }
    table.text()
}
