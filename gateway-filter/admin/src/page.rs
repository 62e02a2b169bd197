//! The page for people: the overview of a gateway as HTML and SVG, without scripts or other assets.

mod chart;
mod escape;

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packrat_api::status::{ComparisonStatus, Stage};
use packrat_dataplane::{Dataplane, Route};
use packrat_figures::Figures;
use packrat_figures::comparison::{Benefit, Comparison, Confidence, medians};
use packrat_figures::text::{age, bits, bytes, count, milliseconds, percent, times};
use serde_json::Value;

use crate::history::History;
use chart::{Chart, Line};
use escape::escape;

/// Style sheet of the page.
const STYLE_SHEET: &str = include_str!("page/style.css");
/// Window of the large figures.
const FIGURES_WINDOW: Duration = Duration::from_secs(300);
/// Seconds after which the page reloads.
const REFRESH_SECONDS: u32 = 5;
/// Sessions in the list.
const LISTED_SESSIONS: usize = 10;
/// Events in the list.
const LISTED_EVENTS: usize = 15;

/// The page.
pub(crate) fn page(dataplane: Option<&Dataplane>, history: &History) -> String {
    let routes = dataplane.map(Dataplane::routes).unwrap_or_default();
    let gateway = routes.first().map_or_else(|| "gateway".to_owned(), |route| route.gateway_name());
    let mut html = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"refresh\" content=\"{REFRESH_SECONDS}\">\
         <title>Packrat · {name}</title><style>{STYLE_SHEET}</style></head><body>\
         <header><h1>Packrat <span>{name}</span></h1>{state}<p class=\"version\">version {version}</p></header><main>",
        name = escape(&gateway),
        state = state(dataplane),
        version = env!("CARGO_PKG_VERSION"),
    );
    if routes.is_empty() {
        html.push_str("<p class=\"empty\">No route is configured yet.</p>");
    }
    for route in &routes {
        section(&mut html, route, history);
    }
    if let Some(dataplane) = dataplane {
        sessions(&mut html, dataplane, &routes);
        events(&mut html, dataplane);
    }
    html.push_str(
        "</main><footer>Figures are taken over the last five minutes, curves over the last fifteen at most. \
         For machines: <code>/packrat</code>, <code>/packrat/sessions</code>, <code>/packrat/events</code>, \
         <code>/metrics</code>.</footer></body></html>\n",
    );
    html
}

fn state(dataplane: Option<&Dataplane>) -> &'static str {
    match dataplane {
        Some(dataplane) if dataplane.is_draining() => "<span class=\"pill warn\">draining</span>",
        Some(_) => "<span class=\"pill good\">serving</span>",
        None => "<span class=\"pill warn\">waiting for its configuration</span>",
    }
}

fn section(html: &mut String, route: &Arc<Route>, history: &History) {
    let summary = route.summary();
    let listeners: Vec<String> = route.listeners().iter().map(ToString::to_string).collect();
    let (figures, _) = history.figures(route.name(), FIGURES_WINDOW).unwrap_or_default();
    let assist =
        if summary.assist { "" } else { "<span class=\"pill warn\">assistance is off</span>" };
    let comparison = route.comparison();
    let _ = write!(
        html,
        "<section><h2>{} <small>{}</small>{assist}{stage}</h2>\
         <p class=\"way\">{} &rarr; {}</p><div class=\"tiles\">",
        escape(route.name()),
        escape(&summary.namespace),
        escape(&if listeners.is_empty() { "no listener".to_owned() } else { listeners.join(", ") }),
        escape(&endpoints(&summary.endpoints)),
        stage = stage(comparison.as_ref()),
    );
    let benefit = comparison
        .as_ref()
        .map_or(Benefit::NoHoldout, |comparison| all_sizes(comparison).benefit(Confidence::Usual));
    tiles(html, &figures, benefit);
    html.push_str("</div>");
    proof(html, &figures, comparison.as_ref(), benefit);
    html.push_str("<div class=\"charts\">");
    charts(html, &history.curve(route.name(), Instant::now()));
    html.push_str("</div>");
    details(html, &figures, route);
    html.push_str("</section>");
}

/// The consequence of the comparison.
fn stage(comparison: Option<&ComparisonStatus>) -> String {
    match comparison.map(|comparison| (comparison.stage, comparison.retry_seconds)) {
        Some((Stage::Stopped, retry)) => format!(
            "<span class=\"pill warn\">assistance has stopped by itself: assisted sessions were slower; \
             tried again in {}</span>",
            age(retry.unwrap_or_default() as f64)
        ),
        Some((Stage::Trial, _)) => {
            "<span class=\"pill warn\">assistance is on trial, for half of the clients</span>"
                .to_owned()
        }
        Some((Stage::Assisting, _)) | None => String::new(),
    }
}

fn all_sizes(status: &ComparisonStatus) -> Comparison {
    let mut all = Comparison::default();
    for size in &status.sizes {
        all.merge(&Comparison::from_buckets(&size.assisted, &size.holdout));
    }
    all
}

/// The benefit of assistance, as measured, and its cost.
fn proof(
    html: &mut String,
    figures: &Figures,
    status: Option<&ComparisonStatus>,
    benefit: Benefit,
) {
    let _ = write!(html, "<p class=\"proof\"><b>Benefit:</b> {}.", escape(&benefit.to_string()));
    if let Some(status) = status {
        let _ = write!(html, " Medians: {}.", escape(&medians(&all_sizes(status))));
        for size in &status.sizes {
            let comparison = Comparison::from_buckets(&size.assisted, &size.holdout);
            if let Benefit::Measured(_) = comparison.benefit(Confidence::Usual) {
                let _ = write!(
                    html,
                    " From {}: {}.",
                    bytes(size.least_bytes as f64),
                    escape(&comparison.benefit(Confidence::Usual).short())
                );
            }
        }
    }
    let _ = write!(
        html,
        " <b>Cost:</b> {:.3} cores, {} of repairs.</p>",
        figures.assistance_cores,
        bits(figures.repair_bits)
    );
}

fn endpoints(all: &[std::net::SocketAddr]) -> String {
    let mut shown: Vec<String> = all.iter().take(3).map(ToString::to_string).collect();
    if all.len() > shown.len() {
        shown.push(format!("and {} more", all.len() - shown.len()));
    }
    shown.join(", ")
}

/// The class of a tile whose value is good, or to be watched, from these bounds on.
fn rating(value: Option<f64>, good: f64, warn: f64) -> &'static str {
    match value {
        Some(value) if value >= good => "good",
        Some(value) if value >= warn => "warn",
        Some(_) => "bad",
        None => "",
    }
}

fn tiles(html: &mut String, figures: &Figures, benefit: Benefit) {
    let hidden_class = rating(figures.hidden, 0.95, 0.8);
    let quality_class = rating(figures.quality, 99.5, 98.0);
    let measured = benefit.interval();
    let gain_class = match measured {
        Some(gain) if gain.lower > 1.0 => "good",
        Some(gain) if gain.upper < 1.0 => "bad",
        _ => "",
    };
    let gain_hint = match measured {
        Some(gain) => format!("{} to {}, 95 % confidence", times(gain.lower), times(gain.upper)),
        None => "for a loss-based sender; not measured".to_owned(),
    };
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    for (class, label, value, hint) in [
        (
            hidden_class,
            "loss hidden",
            or_dash(figures.hidden.map(percent)),
            "of the last mile's losses, senders never saw this share",
        ),
        (
            gain_class,
            if measured.is_some() {
                "goodput gain, measured"
            } else {
                "goodput gain, by a formula"
            },
            or_dash(measured.map(|gain| times(gain.estimate)).or(figures.goodput_gain.map(times))),
            &gain_hint,
        ),
        (
            quality_class,
            "quality",
            or_dash(figures.quality.map(|quality| format!("{quality:.2}"))),
            "100: no sender had to send anything again",
        ),
        (
            "",
            "resends saved",
            format!("{}/s", count(figures.saved_retransmissions)),
            "retransmissions that senders did not have to make",
        ),
        ("", "goodput", bits(figures.goodput_bits), "to all clients of the route"),
        (
            "",
            "sessions",
            count(figures.sessions),
            &format!("{} of them assisted", count(figures.assisted)),
        ),
    ] {
        let _ = write!(
            html,
            "<div class=\"tile {class}\"><b>{label}</b><strong>{value}</strong><i>{hint}</i></div>"
        );
    }
}

fn charts(html: &mut String, curve: &[(f64, Figures)]) {
    let line =
        |name: &'static str, class: &'static str, value: &dyn Fn(&Figures) -> Option<f64>| Line {
            name,
            class,
            points: curve.iter().map(|(age, figures)| (*age, value(figures))).collect(),
        };
    let visible = |figures: &Figures| Some(figures.loss? * (1.0 - figures.hidden.unwrap_or(0.0)));
    for chart in [
        Chart {
            title: "Goodput to clients",
            format: bits,
            binary: false,
            lines: vec![line("goodput", "a fill", &|figures| Some(figures.goodput_bits))],
        },
        Chart {
            title: "Last-mile loss",
            format: percent,
            binary: false,
            lines: vec![
                line("on the last mile", "b fill", &|figures| figures.loss),
                line("that senders see", "c", &visible),
            ],
        },
        Chart {
            title: "Repairs that arrived",
            format: |value| format!("{}/s", count(value)),
            binary: false,
            lines: vec![line("repairs", "a fill", &|figures| Some(figures.saved_retransmissions))],
        },
        Chart {
            title: "Cache in use",
            format: bytes,
            binary: true,
            lines: vec![line("bytes", "d fill", &|figures| Some(figures.cache_bytes))],
        },
    ] {
        chart.draw(html);
    }
}

fn details(html: &mut String, figures: &Figures, route: &Arc<Route>) {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let budget = route.summary().repair_budget;
    html.push_str("<dl>");
    for (label, value, bad) in [
        ("last-mile loss", or_dash(figures.loss.map(percent)), false),
        ("last-mile round trip", or_dash(figures.last_mile_round_trip.map(milliseconds)), false),
        ("far round trip", or_dash(figures.far_round_trip.map(milliseconds)), false),
        ("cache hit ratio", or_dash(figures.cache_hits.map(percent)), false),
        (
            "too late",
            or_dash(figures.too_late.map(percent)),
            figures.too_late.unwrap_or(0.0) > 0.05,
        ),
        (
            "repair overhead",
            format!("{} of {}", or_dash(figures.overhead.map(percent)), percent(budget)),
            figures.overhead.unwrap_or(0.0) > 0.9 * budget,
        ),
        (
            "budget refusals",
            format!("{}/s", count(figures.budget_refusals)),
            figures.budget_refusals > 1.0,
        ),
        ("Resets", format!("{}/s", count(figures.resets)), figures.resets > 0.01),
        (
            "decode failures",
            or_dash(figures.decode_failures.map(percent)),
            figures.decode_failures.unwrap_or(0.0) > 0.01,
        ),
        (
            "cache",
            format!(
                "{}, {}",
                bytes(figures.cache_bytes),
                or_dash(figures.cache_usage.map(percent))
            ),
            figures.cache_usage.unwrap_or(0.0) > 0.9,
        ),
    ] {
        let class = if bad { " class=\"bad\"" } else { "" };
        let _ = write!(html, "<div{class}><dt>{label}</dt><dd>{value}</dd></div>");
    }
    html.push_str("</dl>");
}

fn sessions(html: &mut String, dataplane: &Dataplane, routes: &[Arc<Route>]) {
    html.push_str(
        "<section><h2>Sessions <small>those that have carried most</small></h2><div class=\"scroll\"><table><thead><tr>\
         <th>session<th>route<th>client<th class=\"n\">age<th class=\"n\">to client<th class=\"n\">loss\
         <th class=\"n\">repaired<th class=\"n\">round trip<th class=\"n\">cache<th>assisted</tr></thead><tbody>",
    );
    let mut rows: Vec<_> = routes
        .iter()
        .flat_map(|route| {
            dataplane
                .sessions(route, LISTED_SESSIONS)
                .into_iter()
                .map(move |row| (route.name(), row))
        })
        .collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.to_client_bytes));
    for (route, row) in rows.iter().take(LISTED_SESSIONS) {
        let share = |part: u64, whole: u64| {
            if whole == 0 { "–".to_owned() } else { percent(part as f64 / whole as f64) }
        };
        let round_trip = row.last_mile_round_trip_microseconds as f64 / 1e6;
        let _ = write!(
            html,
            "<tr><td>{}<td>{}<td><code>{}</code><td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}\
             <td class=\"n\">{}<td class=\"n\">{}<td>{}</tr>",
            row.session,
            escape(route),
            escape(row.client.as_deref().unwrap_or("–")),
            age(row.seconds),
            bytes(row.to_client_bytes as f64),
            share(row.missing, row.recorded),
            share(row.repairs_arrived, row.missing),
            if round_trip > 0.0 { milliseconds(round_trip) } else { "–".to_owned() },
            bytes(row.cache_bytes as f64),
            if row.assistance.is_some() { "yes" } else { "no" },
        );
    }
    if rows.is_empty() {
        html.push_str("<tr><td colspan=\"10\" class=\"empty\">No client is there.</tr>");
    }
    html.push_str("</tbody></table></div></section>");
}

fn events(html: &mut String, dataplane: &Dataplane) {
    html.push_str("<section><h2>Events <small>newest first</small></h2><ol class=\"events\">");
    let newest = dataplane.logger().newest();
    let lines =
        dataplane.logger().recent(newest.saturating_sub(LISTED_EVENTS as u64), LISTED_EVENTS);
    for line in lines.iter().rev() {
        let field = |key: &str| line.fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let time = field("ts").get(11..19).unwrap_or_default().to_owned();
        let rest: Vec<String> = line
            .fields
            .iter()
            .filter(|(key, _)| {
                !["ts", "level", "event", "gateway", "namespace", "public_key"]
                    .contains(&key.as_str())
            })
            .map(|(key, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("<span>{}</span> {}", escape(key), escape(&value))
            })
            .collect();
        let _ = write!(
            html,
            "<li class=\"{}\"><time>{}</time><b>{}</b><p>{}</p></li>",
            escape(field("level")),
            escape(&time),
            escape(field("event")),
            rest.join(" · ")
        );
    }
    if lines.is_empty() {
        html.push_str("<li class=\"empty\">Nothing has happened yet.</li>");
    }
    html.push_str("</ol></section>");
}
