//! The sections' tables, in Markdown.

use super::section::{COMPARED_ARMS, Section};
use crate::statistics::{Interval, median, paired_ratio, quantile, spread};
use crate::traffic::VideoResult;
use crate::trial::{FlowResult, TrialResult};

/// The trials of one setting: without assistance, and with it.
struct Setting<'a> {
    arms: [Vec<&'a TrialResult>; 2],
}

impl<'a> Setting<'a> {
    fn of(results: &'a [TrialResult]) -> Self {
        Self {
            arms: COMPARED_ARMS
                .map(|arm| results.iter().filter(|of| of.setting.arm == arm).collect()),
        }
    }

    /// The values of each arm, pooled.
    fn values(&self, of: impl Fn(&TrialResult) -> Vec<f64>) -> [Vec<f64>; 2] {
        [0, 1].map(|arm| self.arms[arm].iter().flat_map(|result| of(result)).collect())
    }

    /// Assisted over unassisted.
    fn ratio(
        &self,
        of: impl Fn(&TrialResult) -> Vec<f64>,
        statistic: impl Fn(&[f64]) -> f64,
    ) -> Option<Interval> {
        let seeds: Vec<_> = self.arms[1]
            .iter()
            .zip(&self.arms[0])
            .map(|(assisted, unassisted)| (of(assisted), of(unassisted)))
            .collect();
        paired_ratio(&seeds, statistic)
    }
}

fn middle(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.5)
}

fn last_percent(sorted: &[f64]) -> f64 {
    quantile(sorted, 0.99)
}

fn three(values: &[f64], digits: usize) -> String {
    let [low, median, high] = spread(values.iter().copied());
    format!("{low:.digits$} {median:.digits$} {high:.digits$}")
}

fn interval(interval: Option<Interval>) -> String {
    match interval {
        Some(Interval { low, value, high }) => format!("{value:.2} ({low:.2}–{high:.2})"),
        None => "–".to_owned(),
    }
}

/// The table of a section.
pub(super) fn markdown(section: Section, results: &[TrialResult], seeds: usize) -> String {
    let settings = results
        .chunks(seeds * COMPARED_ARMS.len())
        .map(|results| (&results[0], Setting::of(results)));
    let (header, rows): (&str, Vec<String>) = match section {
        Section::Sharing => (
            "| path | loss | senders | share: p10 p50 p90, unassisted | assisted | Jain, unassisted | assisted | neighbour, assisted ÷ unassisted |",
            settings.map(|(first, setting)| sharing(first, &setting)).collect(),
        ),
        Section::Objects | Section::Pages => (
            "| path | loss | sender | object | seconds: p10 p50 p90, unassisted | assisted | p50, assisted ÷ unassisted | p99, assisted ÷ unassisted | unfinished |",
            settings.flat_map(|(first, setting)| completions(first, &setting)).collect(),
        ),
        Section::Video => (
            "| path | loss | sender | Mbit/s: p10 p50 p90, unassisted | assisted | stalled seconds, mean | switches, p50 | first picture, p50 s |",
            settings.map(|(first, setting)| video(first, &setting)).collect(),
        ),
        Section::Uploads => (
            "| path | loss | sender | download, Mbit/s: p10 p50 p90, unassisted | assisted | assisted ÷ unassisted | upload, Mbit/s, unassisted | assisted | assisted ÷ unassisted |",
            settings.map(|(first, setting)| upload(first, &setting)).collect(),
        ),
    };
    let columns = header.matches('|').count() - 1;
    format!("{header}\n|{}\n{}", "---|".repeat(columns), rows.concat())
}

fn sharing(first: &TrialResult, setting: &Setting<'_>) -> String {
    let of = |place: usize, field: fn(&FlowResult) -> f64| {
        move |result: &TrialResult| vec![field(&result.flows[place])]
    };
    let [unassisted, assisted] = setting.values(of(0, |flow| flow.share.unwrap_or(1.0)));
    let [jain, jain_assisted] = setting
        .values(|result| result.competition.iter().map(|fairness| fairness.jain).collect())
        .map(|all| median(all.into_iter()));
    let beside = &first.flows[1];
    let senders = if beside.sender == first.setting.sender {
        first.setting.sender.name().to_owned()
    } else {
        format!("{} beside {}", first.setting.sender.name(), beside.sender.name())
    };
    format!(
        "| {} | {} | {senders} | {} | {} | {jain:.3} | {jain_assisted:.3} | {} |\n",
        first.setting.scenario,
        first.loss_in_words(),
        three(&unassisted, 2),
        three(&assisted, 2),
        interval(setting.ratio(of(1, |flow| flow.goodput_mbps), middle)),
    )
}

fn completions(first: &TrialResult, setting: &Setting<'_>) -> Vec<String> {
    let sizes = first.flows[0].completions.iter().map(|same| same.size);
    let row = |size: u64| {
        let seconds = |result: &TrialResult| {
            let same = result.flows[0].completions.iter().find(|same| same.size == size);
            same.map(|same| same.seconds.clone()).unwrap_or_default()
        };
        let [unassisted, assisted] = setting.values(seconds);
        let unfinished =
            setting.arms.iter().map(|arm| arm.iter().filter(|of| !of.flows[0].complete).count());
        let unfinished: Vec<String> = unfinished.map(|count| count.to_string()).collect();
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            first.setting.scenario,
            first.loss_in_words(),
            first.setting.sender.name(),
            if size == 0 { "page".to_owned() } else { format!("{} kB", size as f64 * 1e-3) },
            three(&unassisted, 3),
            three(&assisted, 3),
            interval(setting.ratio(seconds, middle)),
            interval(setting.ratio(seconds, last_percent)),
            unfinished.join(", "),
        )
    };
    sizes.map(row).collect()
}

fn video(first: &TrialResult, setting: &Setting<'_>) -> String {
    let of = |field: fn(&VideoResult) -> f64| {
        setting.values(move |result| result.flows[0].video.iter().map(field).collect())
    };
    let [unassisted, assisted] = of(|video| video.bitrate_mbps);
    let both = |values: [Vec<f64>; 2], of: fn(&[f64]) -> f64, digits: usize| {
        values.map(|values| format!("{:.digits$}", of(&values))).join(", ")
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let middle = |values: &[f64]| median(values.iter().copied());
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
        first.setting.scenario,
        first.loss_in_words(),
        first.setting.sender.name(),
        three(&unassisted, 2),
        three(&assisted, 2),
        both(of(|video| video.stalled_seconds), mean, 1),
        both(of(|video| video.switches as f64), middle, 0),
        both(of(|video| video.startup_seconds), middle, 2),
    )
}

fn upload(first: &TrialResult, setting: &Setting<'_>) -> String {
    let goodput = |place: usize| move |result: &TrialResult| vec![result.flows[place].goodput_mbps];
    let columns = [1, 0].map(|place| {
        let [unassisted, assisted] = setting.values(goodput(place));
        format!(
            "{} | {} | {}",
            three(&unassisted, 2),
            three(&assisted, 2),
            interval(setting.ratio(goodput(place), middle))
        )
    });
    format!(
        "| {} | {} | {} | {} |\n",
        first.setting.scenario,
        first.loss_in_words(),
        first.flows[1].sender.name(),
        columns.join(" | ")
    )
}
