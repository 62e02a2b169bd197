//! Shares on the paths of the matrix: a download beside an unassisted one.

use crate::batch;
use crate::harm::{Extent, Section};
use crate::stacks::Sender;
use crate::trial::{Arm, TrialResult};
use serde::Serialize;
use std::error::Error;
use std::fmt::Write;

/// First line of the table.
const CSV_HEADER: &str = "path,sender,beside,loss,arm,seed,goodput_mbps,beside_mbps,share,jain,repair_bytes,lost,far_drops,declared_lost,spurious";

/// Two downloads of one trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SharingRow {
    path: String,
    sender: Sender,
    /// The neighbour's sender; the neighbour is not assisted.
    beside: Sender,
    /// Mean loss of the last mile, 0 to 1.
    loss: f64,
    arm: Arm,
    seed: u64,
    goodput_mbps: f64,
    beside_mbps: f64,
    /// Goodput over the mean of both: 1 is fair.
    share: f64,
    jain: f64,
    /// Repair bytes of the first download.
    repair_bytes: u64,
    lost: u64,
    far_drops: u64,
    declared_lost: u64,
    spurious: u64,
}

impl SharingRow {
    /// `None` of a trial that has not two downloads.
    fn of(result: &TrialResult) -> Option<Self> {
        let [first, beside] = &result.flows[..] else { return None };
        let fairness = result.competition.as_ref()?;
        Some(Self {
            path: result.setting.scenario.clone(),
            sender: first.sender,
            beside: beside.sender,
            loss: result.setting.loss,
            arm: first.arm,
            seed: result.setting.seed,
            goodput_mbps: first.goodput_mbps,
            beside_mbps: beside.goodput_mbps,
            share: fairness.share,
            jain: fairness.jain,
            repair_bytes: first.losses.repair_bytes,
            lost: first.losses.lost_last_mile,
            far_drops: result.reaction.far_dropped,
            declared_lost: first.losses.declared_lost,
            spurious: first.losses.spurious,
        })
    }
}

/// Runs the trials.
pub(super) fn measure(extent: &Extent, jobs: usize) -> Result<Vec<SharingRow>, Box<dyn Error>> {
    let trials = Section::Sharing.trials(extent)?;
    eprintln!("{} trials of shares", trials.len());
    let mut rows = Vec::with_capacity(trials.len());
    batch::run(&trials, jobs, |result| {
        rows.extend(SharingRow::of(&result?));
        Ok::<(), Box<dyn Error>>(())
    })?;
    Ok(rows)
}

/// All rows (RFC 4180).
pub(super) fn csv(rows: &[SharingRow]) -> String {
    let mut text = format!("{CSV_HEADER}\n");
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{:.3},{:.3},{:.4},{:.4},{},{},{},{},{}",
            row.path,
            row.sender.name(),
            row.beside.name(),
            row.loss,
            row.arm.name(),
            row.seed,
            row.goodput_mbps,
            row.beside_mbps,
            row.share,
            row.jain,
            row.repair_bytes,
            row.lost,
            row.far_drops,
            row.declared_lost,
            row.spurious,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_emulation::scenario::Traffic;

    #[test]
    fn a_row_has_both_downloads_and_the_columns_of_its_header() {
        let extent = Extent { paths: vec!["dsl".into()], losses: vec![0.01], seeds: 1001..1002 };
        let mut trials = Section::Sharing.trials(&extent).unwrap();
        // A BBR download beside a CUBIC one, assisted.
        let mut trial = trials.swap_remove(5);
        let mut traffic: Traffic = trial.scenario.traffic.take().unwrap();
        (traffic.seconds, traffic.settle_seconds) = (Some(4), 1);
        trial.scenario.traffic = Some(traffic);
        let row = SharingRow::of(&trial.run().unwrap()).unwrap();
        assert_eq!(
            (row.sender, row.beside, row.arm),
            (Sender::S2nBbr, Sender::S2nCubic, Arm::Packrat)
        );
        let mean = (row.goodput_mbps + row.beside_mbps) / 2.0;
        assert!((row.share - row.goodput_mbps / mean).abs() < 1e-9, "{row:?}");
        assert!(mean * 2.0 > 5.0 && mean * 2.0 <= 16.0, "{row:?}");
        let text = csv(&[row]);
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [15, 15]);
    }
}
