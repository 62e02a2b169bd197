//! Results of traffic as a table in Markdown: one row for each flow of a kind of trial, with
//! everything pooled over the seeds.

use crate::statistics::{median, spread};
use crate::traffic::VideoResult;
use crate::trial::{Completions, FlowResult, TrialResult};

/// First lines of the table.
const TABLE_HEADER: &str = "\
| scenario | loss | flow | sender | arm | Mbit/s: p10 p50 p90 | share | unfinished | seconds of objects and pages: p50 p99 | video: Mbit/s, stalls, switches |\n\
|---|---|---|---|---|---|---|---|---|---|\n";

/// A table of these results, which are grouped by everything but their seed.
pub(crate) fn markdown<'a>(groups: impl Iterator<Item = &'a [TrialResult]>) -> String {
    let mut text = TABLE_HEADER.to_owned();
    for group in groups {
        for place in 0..group[0].flows.len() {
            let flows: Vec<&FlowResult> = group.iter().map(|result| &result.flows[place]).collect();
            text.push_str(&row(&group[0], &flows));
        }
    }
    text
}

fn row(first: &TrialResult, flows: &[&FlowResult]) -> String {
    let flow = flows[0];
    let [low, middle, high] = spread(flows.iter().map(|flow| flow.goodput_mbps));
    let share = match flow.share {
        Some(_) => format!("{:.2}", median(flows.iter().filter_map(|flow| flow.share))),
        None => "–".to_owned(),
    };
    format!(
        "| {} | {} | {} | {} | {} | {low:.2} {middle:.2} {high:.2} | {share} | {} | {} | {} |\n",
        first.setting.scenario,
        first.loss_in_words(),
        if flow.direction == "up" { format!("{} (up)", flow.name) } else { flow.name.clone() },
        flow.sender.name(),
        flow.arm.name(),
        flows.iter().filter(|flow| !flow.complete).count(),
        completions(flows),
        video(flows),
    )
}

/// Times of all seeds, by size.
fn pooled(flows: &[&FlowResult]) -> Vec<Completions> {
    Completions::of(flows.iter().flat_map(|flow| {
        flow.completions
            .iter()
            .flat_map(|same| same.seconds.iter().map(|seconds| (same.size, *seconds)))
    }))
}

fn completions(flows: &[&FlowResult]) -> String {
    let all: Vec<String> = pooled(flows)
        .iter()
        .map(|same| {
            let of = match same.size {
                0 => "page".to_owned(),
                size => format!("{} kB", size as f64 * 1e-3),
            };
            format!("{of}: {:.3} {:.3}", same.p50, same.p99)
        })
        .collect();
    if all.is_empty() { "–".to_owned() } else { all.join("; ") }
}

fn video(flows: &[&FlowResult]) -> String {
    let of = |field: fn(&VideoResult) -> f64| {
        median(flows.iter().filter_map(|flow| flow.video.as_ref()).map(field))
    };
    if flows[0].video.is_none() {
        return "–".to_owned();
    }
    format!(
        "{:.2}, {}, {}",
        of(|video| video.bitrate_mbps),
        of(|video| video.stalls as f64),
        of(|video| video.switches as f64)
    )
}
