//! docs/METRICS.md.

use std::fmt::Write;

use packrat_client::Counters;
use packrat_dataplane::log::Event;
use packrat_dataplane::metrics::{Definition, HISTOGRAMS, Kind, definitions, process};
use packrat_figures::FIGURES;

use crate::{AGENT_METRICS, OPERATOR_METRICS};

const HEAD: &str = include_str!("metrics_head.md");
const LOGS: &str = include_str!("metrics_logs.md");
const OTLP: &str = include_str!("metrics_otlp.md");

/// Events of the shells around the data plane: name, level, cause and keys.
const EVENTS_OF_SHELLS: [(&str, &str, &str); 6] = [
    ("ready", "info", "`packrat-gateway` serves: `listen`, `metrics`, `stream`, `version`."),
    ("failed", "error", "`packrat-gateway` could not start, and ends: `error`."),
    ("hook_panicked", "error", "A fault in the module's code in Envoy; Envoy goes on: `hook`."),
    ("metric_refused", "error", "Envoy has refused a metric, and does not show it: `name`."),
    (
        "admin_endpoint_refused",
        "warning",
        "Envoy has refused a path of its administration interface, and does not serve it: `path`.",
    ),
    (
        "otlp_failed",
        "warning",
        "The OpenTelemetry collector could not be reached, or refused: `url`, `error`. One line until it takes data again. As `error`: Envoy's configuration names no usable collector, and nothing is sent.",
    ),
];

pub(crate) fn page() -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n## Figures\n\nWhat people decide by. The recording rules compute them; `packrat stat` and the gateway's page compute the same from two readings.\n\n| recorded as | unit | what |\n|---|---|---|\n");
    for figure in FIGURES {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | **{}.** {} |",
            figure.record,
            figure.unit.name(),
            figure.title,
            figure.help
        );
    }
    text.push_str(
        "\n## Metrics of a route\n\nLabels: `route`, `gateway`, `namespace`, and those that are named. A client that one\ngateway relays to another has a session, and its datagrams count, at both.\n\n",
    );
    table(&mut text, definitions());
    text.push_str(
        "\n## Histograms of a route\n\nLabels as above, and `le` in the series `…_bucket`; `…_sum` and `…_count` belong to each. In Envoy the series are counters.\n\n| histogram | upper bounds of its buckets | what |\n|---|---|---|\n",
    );
    for histogram in HISTOGRAMS {
        let bounds: Vec<String> = histogram.bounds.iter().map(u64::to_string).collect();
        let labels: Vec<String> =
            histogram.labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(
            text,
            "| `{}{labels}` | {} | {} |",
            histogram.name,
            bounds.join(", "),
            histogram.help
        );
    }
    text.push_str("\n## Metrics of a gateway's process\n\nLabel: `gateway`.\n\n");
    table(&mut text, process::definitions());
    text.push_str(
        "\n## Metrics of the operator\n\nGauges, at `/metrics` on its health port.\n\n| metric | what |\n|---|---|\n",
    );
    for (name, help) in OPERATOR_METRICS {
        let _ = writeln!(text, "| `packrat_operator_{name}` | {help} |");
    }
    text.push_str(
        "\n## Metrics of an agent\n\n`packrat agent` and `packrat router` serve them with `--metrics`, at `/metrics`, and their status as JSON at `/packrat`.\nLabel: `service`, except where a metric has none. The counters from `sent_datagrams` on are the figures that every SDK has, too.\n\n| metric | type | what |\n|---|---|---|\n",
    );
    for (name, kind, help) in AGENT_METRICS {
        let _ = writeln!(text, "| `packrat_agent_{name}` | {kind} | {help} |");
    }
    for (name, help, _) in Counters::default().described() {
        let _ = writeln!(text, "| `packrat_agent_{name}_total` | counter | {} |", help.trim());
    }
    text.push('\n');
    text.push_str(LOGS);
    text.push_str("\n| event | level | when, and its keys |\n|---|---|---|\n");
    for event in Event::ALL {
        let _ =
            writeln!(text, "| `{}` | {} | {} |", event.name(), event.level().name(), event.help());
    }
    for (name, level, help) in EVENTS_OF_SHELLS {
        let _ = writeln!(text, "| `{name}` | {level} | {help} |");
    }
    text.push('\n');
    text.push_str(OTLP);
    text
}

fn table(text: &mut String, all: &[Definition]) {
    text.push_str("| metric | type | what |\n|---|---|---|\n");
    for definition in all.iter().filter(|definition| definition.kind != Kind::Histogram) {
        let _ = writeln!(
            text,
            "| `{}` | {} | {} |",
            definition.series(),
            definition.kind.name(),
            definition.help
        );
    }
}
