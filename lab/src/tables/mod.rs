//! Results as tables in Markdown: medians per kind of trial, their spread, and how sure a ratio is.

mod traffic;

use crate::statistics::{median, paired_ratio, quantile, spread};
use crate::trial::{Arm, TrialResult};

/// The parameters of a trial apart from its seed.
fn kind(result: &TrialResult) -> impl PartialEq + use<> {
    (
        result.setting.arm,
        result.setting.sender,
        result.setting.queue.name(),
        result.setting.loss.to_bits(),
        result.setting.burst.to_bits(),
    )
}

/// Neighbouring results of the same kind.
fn groups(results: &[TrialResult]) -> impl Iterator<Item = &[TrialResult]> {
    results.chunk_by(|one, other| kind(one) == kind(other))
}

/// A table of all results; results of two competing flows have another form, and results of other
/// traffic a third one.
pub(crate) fn markdown(results: &[TrialResult]) -> String {
    let pair = |result: &TrialResult| result.competition.is_some() && result.flows.len() == 2;
    if results.iter().all(|result| result.flows.is_empty()) {
        downloads(results)
    } else if results.iter().all(pair) {
        sharing(results)
    } else {
        traffic::markdown(groups(results))
    }
}

fn downloads(results: &[TrialResult]) -> String {
    let mut text = String::from(
        "| scenario | loss | sender | arm | Mbit/s | 10th–90th percentile | worst | complete | ratio | its 95 % interval | lost | far drops | declared lost | spurious | window reductions | repair bytes / lost bytes |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for group in groups(results) {
        let first = &group[0];
        let goodput = median(group.iter().map(|result| result.download.goodput_mbps));
        let (ratio, interval) = to_ideal(results, group, goodput);
        let [low, _, high] = spread(group.iter().map(|result| result.download.goodput_mbps));
        let worst =
            group.iter().map(|result| result.download.goodput_mbps).fold(f64::INFINITY, f64::min);
        let complete = group.iter().filter(|result| result.download.complete).count();
        let counted = |field: fn(&TrialResult) -> u64| {
            median(group.iter().map(|result| field(result) as f64))
        };
        let repair_ratio = median(group.iter().map(|result| {
            let mean = result.assistance.bytes_last_mile as f64 * result.setting.loss.max(1e-9);
            result.assistance.repair_bytes as f64 / mean
        }));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {goodput:.2} | {low:.2}–{high:.2} | {worst:.2} | {complete} of {} | {ratio} | {interval} | {} | {} | {} | {} | {} | {} |\n",
            first.setting.scenario,
            first.loss_in_words(),
            first.setting.sender.name(),
            first.setting.arm.name(),
            group.len(),
            counted(|result| result.assistance.lost_last_mile),
            counted(|result| result.reaction.far_dropped),
            counted(|result| result.reaction.declared_lost),
            counted(|result| result.assistance.spurious),
            counted(|result| result.reaction.congestion_events),
            if first.setting.loss > 0.0 && repair_ratio > 0.0 {
                format!("{repair_ratio:.2}")
            } else {
                "–".to_owned()
            },
        ));
    }
    text
}

/// The ratio of a group to the ideal arm of the same sender and queue, and its 95 % interval.
fn to_ideal(results: &[TrialResult], group: &[TrialResult], goodput: f64) -> (String, String) {
    let first = &group[0];
    let ideals: Vec<&TrialResult> = results
        .iter()
        .filter(|result| result.setting.arm == Arm::Ideal)
        .filter(|result| {
            result.setting.sender == first.setting.sender
                && result.setting.queue == first.setting.queue
        })
        .collect();
    if ideals.is_empty() {
        return ("–".to_owned(), "–".to_owned());
    }
    let ideal = median(ideals.iter().map(|result| result.download.goodput_mbps));
    // The same seeds make a pair.
    let pair = |result: &TrialResult| {
        let ideal = ideals.iter().find(|ideal| ideal.setting.seed == result.setting.seed)?;
        Some((vec![result.download.goodput_mbps], vec![ideal.download.goodput_mbps]))
    };
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = group.iter().filter_map(pair).collect();
    let interval = paired_ratio(&pairs, |sorted| quantile(sorted, 0.5)).map_or_else(
        || "–".to_owned(),
        |interval| format!("{:.3}–{:.3}", interval.low, interval.high),
    );
    (format!("{:.3}", goodput / ideal), interval)
}

fn sharing(results: &[TrialResult]) -> String {
    let mut text = String::from(
        "| scenario | queue | loss | sender | arm | Mbit/s | others Mbit/s | share (1 is fair) | Jain index | dropped | repaired | window reductions |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for group in groups(results) {
        let first = &group[0];
        let of = |field: fn(&TrialResult) -> f64| median(group.iter().map(field));
        let others = of(|result| {
            let Some(competition) = &result.competition else { return 0.0 };
            competition.others_mbps.iter().sum::<f64>() / competition.others_mbps.len() as f64
        });
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {:.2} | {others:.2} | {:.3} | {:.3} | {} | {} | {} |\n",
            first.setting.scenario,
            first.setting.queue.name(),
            first.loss_in_words(),
            first.setting.sender.name(),
            first.setting.arm.name(),
            of(|result| result.download.goodput_mbps),
            of(|result| result.competition.as_ref().map_or(1.0, |fairness| fairness.share)),
            of(|result| result.competition.as_ref().map_or(1.0, |fairness| fairness.jain)),
            of(|result| result.reaction.queue_dropped as f64),
            of(|result| result.assistance.repaired as f64),
            of(|result| result.reaction.congestion_events as f64),
        ));
    }
    text
}
