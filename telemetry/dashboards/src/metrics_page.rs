//! docs/METRICS.md.

use std::fmt::Write;

use crate::Definitions;
use packrat_client::Counters;
use packrat_dataplane::log::Event;
use packrat_dataplane::metrics::{Definition, HISTOGRAMS, Kind, definitions, process};

/// Beginning of the page.
const PAGE_HEAD: &str = include_str!("../data/metrics_head.md");
/// Section about logs.
const LOGS_SECTION: &str = include_str!("../data/metrics_logs.md");
/// Section about OTLP.
const OTLP_SECTION: &str = include_str!("../data/metrics_otlp.md");

/// The beginning of the help of every metric of live streams.
const LIVE_STREAMS: &str = "Live streams: ";

pub(crate) fn page(written: &Definitions) -> String {
    let mut text = PAGE_HEAD.to_owned();
    text.push_str("\n## Figures\n\nThe recording rules, `packrat stat` and the gateway's page compute them. `ratio` is 0 to 1, `points` 0 to 100, `rate5m` alone per second.\n\n");
    for figure in &written.figures {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "- `{}`: **{}.** {}", figure.record, figure.title, figure.help);
    }
    let (streams, flows): (Vec<_>, Vec<_>) = definitions()
        .iter()
        .filter(|definition| definition.kind != Kind::Histogram)
        .partition(|definition| definition.help.starts_with(LIVE_STREAMS));
    text.push_str(
        "\n## Metrics of a route\n\nLabels: `route`, `gateway`, `namespace`, and the labels below. Names ending in `_total` are counters, all others gauges.\nBoth gateways count a client that one relays to the other.\n\n",
    );
    table(&mut text, flows);
    text.push_str("\n### Live streams\n\n");
    table(&mut text, streams);
    text.push_str(
        "\n## Histograms of a route\n\nLabels as above, and `le` in the series `…_bucket`; `…_sum` and `…_count` belong to each. In brackets: the upper bounds of the buckets.\n\n",
    );
    histograms(&mut text);
    text.push_str("\n## Metrics of a gateway's process\n\nLabel: `gateway`.\n\n");
    table(&mut text, process::definitions());
    text.push_str("\n## Metrics of the operator\n\nGauges, at `/metrics` on its health port.\n\n");
    for (name, help) in &written.metrics.operator {
        let _ = writeln!(text, "- `packrat_operator_{name}`: {help}");
    }
    text.push_str(
        "\n## Metrics of an agent\n\n`packrat agent` and `packrat router` serve them with `--metrics`, at `/metrics`, and their status as JSON at `/packrat`.\nLabel: `service`, except where stated. Every SDK has the counters from `sent_datagrams` on.\n\n",
    );
    for (name, help) in &written.metrics.agent {
        let _ = writeln!(text, "- `packrat_agent_{name}`: {help}");
    }
    for (name, help, _) in Counters::default().described() {
        let _ = writeln!(text, "- `packrat_agent_{name}_total`: {}", help.trim());
    }
    text.push('\n');
    text.push_str(LOGS_SECTION);
    text.push('\n');
    for event in Event::ALL {
        let (name, level) = (event.name(), event.level().name());
        let _ = writeln!(text, "- `{name}` ({level}): {}", event.help());
    }
    for (name, level, help) in &written.metrics.events_of_shells {
        let _ = writeln!(text, "- `{name}` ({level}): {help}");
    }
    text.push('\n');
    text.push_str(OTLP_SECTION);
    text
}

fn histograms(text: &mut String) {
    let mut before: &[u64] = &[];
    for (name, same) in families(HISTOGRAMS, |histogram| histogram.name) {
        let all = same.iter().map(|histogram| histogram.bounds).next().unwrap_or_default();
        let bounds = if all == before {
            "the same bounds".to_owned()
        } else {
            all.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
        };
        before = all;
        let meaning = meaning(same.iter().map(|histogram| (histogram.labels, histogram.help)));
        let _ = writeln!(text, "- `{name}` ({bounds}): {meaning}");
    }
}

fn table<'a>(text: &mut String, all: impl IntoIterator<Item = &'a Definition>) {
    for (name, same) in families(all, |definition| definition.name.as_ref()) {
        let meaning = meaning(same.iter().map(|definition| {
            let help = definition.help.as_ref();
            (definition.labels, help.strip_prefix(LIVE_STREAMS).unwrap_or(help))
        }));
        let _ = writeln!(text, "- `{name}`: {meaning}");
    }
}

/// Items by name, in the order in which the names come first.
fn families<'a, T>(
    all: impl IntoIterator<Item = &'a T>,
    name: impl Fn(&'a T) -> &'a str,
) -> Vec<(&'a str, Vec<&'a T>)> {
    let mut families: Vec<(&str, Vec<&T>)> = Vec::new();
    for item in all {
        match families.iter_mut().find(|(known, _)| *known == name(item)) {
            Some((_, same)) => same.push(item),
            None => families.push((name(item), vec![item])),
        }
    }
    families
}

type Labels = &'static [(&'static str, &'static str)];

/// The help of all series of a name: one sentence, or one for each combination of labels.
fn meaning<'a>(series: impl Iterator<Item = (Labels, &'a str)>) -> String {
    let series: Vec<(Labels, &str)> = series.collect();
    let meanings = families(&series, |(_, help)| help);
    let lines: Vec<String> = meanings
        .into_iter()
        .map(|(help, series)| {
            let labels =
                series.iter().map(|(labels, _)| labels).filter(|labels| !labels.is_empty());
            let labels: Vec<String> =
                labels.map(|labels| format!("`{}`", selector(labels))).collect();
            if labels.is_empty() {
                help.to_owned()
            } else {
                format!("{}: {help}", labels.join(", "))
            }
        })
        .collect();
    lines.join(" ")
}

fn selector(labels: Labels) -> String {
    let pairs: Vec<String> =
        labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
    pairs.join(",")
}
