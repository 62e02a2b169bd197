//! The comparison of the arms, cell by cell, and in one line.

use super::measure::Row;
use crate::stacks::Sender;
use crate::statistics::{Interval, median, paired_ratio};
use crate::trial::Arm;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// Ratio of an assisted to the unassisted download below which it is slower by more than the
/// uncertainty of the measurement.
const HARMED_RATIO: f64 = 0.98;
/// Ratio of the unassisted download to the lossless one below which loss hurts.
const HURT_RATIO: f64 = 0.9;

/// The arms of one cell: medians over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Comparison {
    family: String,
    pub(super) path: String,
    pub(super) sender: Sender,
    pub(super) loss: f64,
    pub(super) own_loss: bool,
    pub(super) end_to_end_mbps: f64,
    pub(super) packrat_mbps: f64,
    pub(super) split_mbps: f64,
    pub(super) lossless_mbps: f64,
}

impl Comparison {
    pub(super) fn to_unassisted(&self) -> f64 {
        ratio(self.packrat_mbps, self.end_to_end_mbps)
    }

    pub(super) fn to_lossless(&self) -> f64 {
        ratio(self.packrat_mbps, self.lossless_mbps)
    }

    fn unassisted_to_lossless(&self) -> f64 {
        ratio(self.end_to_end_mbps, self.lossless_mbps)
    }

    /// The cell's name, for people.
    fn name(&self) -> String {
        let loss = self.loss * 100.0;
        let loss = if self.own_loss { "its own loss".to_owned() } else { format!("{loss} %") };
        format!("{}, {}, {loss}", self.path, self.sender.name())
    }
}

/// The ratio of two speeds; a stalled download counts as one kilobit per second.
fn ratio(of: f64, to: f64) -> f64 {
    of.max(1e-3) / to.max(1e-3)
}

/// The cells of all rows, in the order of the rows.
pub(super) fn compare(rows: &[Row]) -> Vec<Comparison> {
    let mut cells: Vec<Comparison> = Vec::new();
    for row in rows.iter().filter(|row| row.arm == Arm::EndToEnd) {
        let known = cells.iter().any(|cell| {
            cell.path == row.path && cell.sender == row.sender && cell.loss == row.loss
        });
        if known {
            continue;
        }
        let goodput = |arm: Arm| {
            median(
                rows.iter()
                    .filter(|other| other.path == row.path && other.sender == row.sender)
                    .filter(|other| other.arm == arm)
                    .filter(|other| arm == Arm::Ideal || other.loss == row.loss)
                    .map(|other| other.goodput_mbps),
            )
        };
        cells.push(Comparison {
            family: row.family.clone(),
            path: row.path.clone(),
            sender: row.sender,
            loss: row.loss,
            own_loss: row.own_loss,
            end_to_end_mbps: goodput(Arm::EndToEnd),
            packrat_mbps: goodput(Arm::Packrat),
            split_mbps: goodput(Arm::Split),
            lossless_mbps: goodput(Arm::Ideal),
        });
    }
    cells
}

/// The cells of a family in one line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) family: String,
    pub(super) cells: usize,
    /// Cells in which the assisted download is slower than the unassisted one by more than 2 %.
    pub(super) harmed: usize,
    /// The cell with the lowest assisted ÷ unassisted, and that ratio.
    pub(super) worst: Option<(String, f64)>,
    /// Cells in which loss takes more than a tenth of the unassisted download.
    pub(super) hurt: usize,
    /// Geometric mean over these of assisted ÷ lossless, with the uncertainty of the seeds.
    pub(super) assisted: Option<Interval>,
    /// Geometric means over these: unassisted and split, each ÷ lossless; 0 without split
    /// connections.
    pub(super) unassisted: f64,
    pub(super) split: f64,
}

impl Summary {
    /// Each family of these rows and their cells, in their order.
    pub(super) fn of_families(cells: &[Comparison], rows: &[Row]) -> Vec<Self> {
        cells
            .chunk_by(|one, other| one.family == other.family)
            .map(|of| Self::new(of, rows))
            .collect()
    }

    /// The cells of a family, which are some.
    fn new(cells: &[Comparison], rows: &[Row]) -> Self {
        let worst = cells
            .iter()
            .map(|cell| (cell.name(), cell.to_unassisted()))
            .min_by(|one, other| one.1.total_cmp(&other.1));
        let hurt: Vec<&Comparison> =
            cells.iter().filter(|cell| cell.unassisted_to_lossless() < HURT_RATIO).collect();
        let split = |cell: &&Comparison| ratio(cell.split_mbps, cell.lossless_mbps);
        Self {
            family: cells[0].family.clone(),
            cells: cells.len(),
            harmed: cells.iter().filter(|cell| cell.to_unassisted() < HARMED_RATIO).count(),
            worst,
            hurt: hurt.len(),
            assisted: assisted_to_lossless(&hurt, rows),
            unassisted: geometric_mean(hurt.iter().map(|cell| cell.unassisted_to_lossless())),
            split: geometric_mean(hurt.iter().filter(|cell| cell.split_mbps > 0.0).map(split)),
        }
    }
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value.ln()));
    if count == 0 { 0.0 } else { (sum / f64::from(count)).exp() }
}

/// Geometric mean of assisted ÷ lossless over cells and seeds.
fn assisted_to_lossless(cells: &[&Comparison], rows: &[Row]) -> Option<Interval> {
    let goodput = |seed: u64, arm: Arm, cell: &Comparison| {
        rows.iter()
            .find(|row| {
                row.seed == seed
                    && row.arm == arm
                    && row.path == cell.path
                    && row.sender == cell.sender
                    && (arm == Arm::Ideal || row.loss == cell.loss)
            })
            .map_or(0.0, |row| row.goodput_mbps.max(1e-3))
    };
    let is_here = |row: &&Row| cells.first().is_some_and(|cell| cell.family == row.family);
    let seeds: BTreeSet<u64> = rows.iter().filter(is_here).map(|row| row.seed).collect();
    let pairs: Vec<(Vec<f64>, Vec<f64>)> = seeds
        .into_iter()
        .map(|seed| {
            [Arm::Packrat, Arm::Ideal]
                .map(|arm| cells.iter().map(|cell| goodput(seed, arm, cell)).collect())
                .into()
        })
        .collect();
    paired_ratio(&pairs, |goodputs| geometric_mean(goodputs.iter().copied()))
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {} cells; {} below {HARMED_RATIO} of unassisted",
            self.family, self.cells, self.harmed
        )?;
        if let Some((name, ratio)) = &self.worst {
            write!(formatter, "; worst {ratio:.2} ({name})")?;
        }
        let Some(Interval { low, value, high }) = self.assisted else { return Ok(()) };
        write!(
            formatter,
            "; assisted ÷ lossless in the {} where unassisted < {HURT_RATIO}: {value:.3} ({low:.3} to {high:.3}; unassisted {:.3}",
            self.hurt, self.unassisted,
        )?;
        if self.split > 0.0 {
            write!(formatter, ", best split {:.3}", self.split)?;
        }
        write!(formatter, ")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(loss: f64, arm: Arm, seed: u64, goodput_mbps: f64) -> Row {
        Row {
            family: "field".to_owned(),
            path: "geo".to_owned(),
            sender: Sender::S2nBbr,
            loss,
            own_loss: false,
            arm,
            seed,
            split_sender: None,
            goodput_mbps,
            complete: true,
            objects: [vec![], vec![]],
            repair_bytes: 0,
            lost: 0,
            far_drops: 0,
            declared_lost: 0,
            spurious: 0,
        }
    }

    #[test]
    fn the_line_counts_harm_and_averages_where_loss_hurts() {
        let mut rows: Vec<Row> = (1..=3).map(|seed| row(0.0, Arm::Ideal, seed, 10.0)).collect();
        for (loss, end_to_end, packrat) in [(0.0, 10.0, 6.0), (0.001, 8.0, 8.0), (0.02, 1.0, 2.0)] {
            for seed in 1..=3 {
                // The median comes from the second seed.
                let wobble = seed as f64 - 2.0;
                rows.push(row(loss, Arm::EndToEnd, seed, end_to_end + 0.1 * wobble));
                rows.push(row(loss, Arm::Packrat, seed, packrat - 0.1 * wobble));
                rows.push(row(loss, Arm::Split, seed, 5.0));
            }
        }
        let [summary] = &Summary::of_families(&compare(&rows), &rows)[..] else {
            panic!("one family")
        };
        assert_eq!((summary.cells, summary.harmed, summary.hurt), (3, 1, 2));
        let (worst, ratio) = summary.worst.clone().unwrap();
        assert_eq!(worst, "geo, s2n-bbr, 0 %");
        assert!((ratio - 0.6).abs() < 1e-9);
        let line = summary.to_string();
        assert_eq!(
            line,
            "field: 3 cells; 1 below 0.98 of unassisted; worst 0.60 (geo, s2n-bbr, 0 %); assisted ÷ lossless in the 2 where unassisted < 0.9: 0.400 (0.387 to 0.412; unassisted 0.283, best split 0.500)"
        );
    }

    #[test]
    fn each_family_has_its_own_number_of_seeds() {
        let family = |name: &str, seeds: u64| {
            let arms = [(Arm::Ideal, 10.0), (Arm::EndToEnd, 2.0), (Arm::Packrat, 5.0)];
            let rows =
                (1..=seeds).flat_map(|seed| arms.map(|(arm, mbps)| row(0.02, arm, seed, mbps)));
            let (family, path) = (name.to_owned(), name.to_owned());
            rows.map(|row| Row { family: family.clone(), path: path.clone(), ..row })
                .collect::<Vec<_>>()
        };
        let rows = [family("jitter", 3), family("profiles", 6)].concat();
        let summaries = Summary::of_families(&compare(&rows), &rows);
        let assisted = summaries.iter().map(|of| (&*of.family, of.assisted.unwrap()));
        let assisted: Vec<_> = assisted
            .map(|(family, Interval { low, value, high })| {
                (family, [low, value, high].map(|it| format!("{it:.6}")))
            })
            .collect();
        let half = ["0.500000"; 3].map(str::to_owned);
        assert_eq!(assisted, [("jitter", half.clone()), ("profiles", half)]);
    }
}
