//! The measurements that `packrat plan` looks its answers up in: cells, and held-out paths that show
//! how far its predictions are off. Both are CSV files in `telemetry/figures`.

use super::grid::{self, Period};
use crate::failure::{Failure, unwritable};
use packrat_emulation::scenario::{QueueSettings, Scenario, ScenarioError, Segment};
use packrat_lab::statistics::median;
use packrat_lab::{Arm, HELD_OUT, Sender, Trial, batch};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// Senders that stand for NewReno, CUBIC and BBR.
const PAPER_SENDERS: [Sender; 3] = [Sender::QuinnNewReno, Sender::S2nCubic, Sender::S2nBbr];
/// Senders of a connection that ends at the gateway's place.
const EDGE_SENDERS: [Sender; 2] = [Sender::S2nCubic, Sender::S2nBbr];
/// Mbit/s.
const RATES_MBPS: [u64; 1] = [20];
/// Round trips of a whole path, milliseconds.
const WHOLE_MILLIS: [u64; 5] = [4, 20, 60, 120, 200];
/// Round trips of the far segment, milliseconds.
const FAR_MILLIS: [u64; 2] = [2, 60];
const LAST_MILE: [u64; 4] = [4, 20, 60, 120];
/// Per mille, in both directions.
const LOSSES_PERMILLE: [u64; 6] = [0, 1, 5, 10, 20, 40];
/// Losses of far segments of held-out paths; most of these lose no packets.
const FAR_LOSSES: [u64; 5] = [0, 0, 0, 1, 5];
const LAST_MILE_LOSSES: [u64; 10] = [0, 1, 2, 4, 7, 10, 15, 20, 30, 40];
/// A queue holds at least this many bytes: see [`grid`].
const SMALLEST_QUEUE: u64 = 32 * 1472;
/// The first line of each file.
const CELLS_HEAD: &str = "sender,arm,rate_mbps,far_ms,last_mile_ms,loss_permille,mbps\n";
const HELD_OUT_HEAD: &str = "sender,rate_mbps,far_ms,far_loss_permille,last_mile_ms,loss_permille,end_to_end_mbps,assisted_mbps,terminated_mbps\n";

/// A path of two segments. The round trips are milliseconds, losses per mille.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TwoSegments {
    rate_mbps: u64,
    far_ms: u64,
    far_loss: u64,
    last_mile_ms: u64,
    loss: u64,
}

impl TwoSegments {
    /// The bottleneck is the last mile, as in most deployments.
    fn scenario(self, period: Period) -> Result<Scenario, ScenarioError> {
        let mut scenario = Scenario::load("wifi")?;
        scenario.name = "plan".to_owned();
        let round_trip = self.far_ms + self.last_mile_ms;
        let set = |segment: &mut Segment, rate: u64, delay: u64, loss: u64| {
            segment.rate_mbps = rate as f64;
            segment.delay_ms = delay;
            segment.loss = loss as f64 / 1e3;
            let bytes = (rate * 1000 / 8 * round_trip).max(SMALLEST_QUEUE) as usize;
            let queue = QueueSettings::drop_tail(bytes);
            (segment.down.queue, segment.up.queue) = (Some(queue), Some(queue));
        };
        set(&mut scenario.far, 1000, self.far_ms / 2, self.far_loss);
        set(&mut scenario.last_mile, self.rate_mbps, self.last_mile_ms / 2, self.loss);
        Ok(scenario.with_traffic(period.download()))
    }

    /// The median of downloads with these seeds: single ones differ by half if a sender recovers
    /// from one loss for long, and a plan needs an expectation.
    fn goodput(
        self,
        sender: Sender,
        arm: Arm,
        edge: Sender,
        seeds: Range<u64>,
        period: Period,
    ) -> Result<f64, Failure> {
        let one = |seed| {
            let mut trial = Trial::new(self.scenario(period)?, arm, sender, seed);
            trial.split_sender = edge;
            Ok::<f64, Failure>(grid::goodput(&trial)?)
        };
        Ok(median(seeds.map(one).collect::<Result<Vec<_>, _>>()?.into_iter()))
    }
}

/// A cell, as the beginning of its row.
fn key(sender: Sender, arm: Arm, path: TwoSegments) -> String {
    let TwoSegments { rate_mbps, far_ms, last_mile_ms, loss, .. } = path;
    format!("{},{},{rate_mbps},{far_ms},{last_mile_ms},{loss},", sender.name(), arm.name())
}

/// All cells. A path without assistance needs no second segment.
fn cells() -> Vec<(Sender, Arm, TwoSegments)> {
    let mut cells = Vec::new();
    for sender in PAPER_SENDERS {
        for rate_mbps in RATES_MBPS {
            for loss in LOSSES_PERMILLE {
                let path = |far_ms, last_mile_ms| TwoSegments {
                    rate_mbps,
                    far_ms,
                    far_loss: 0,
                    last_mile_ms,
                    loss,
                };
                cells.extend(WHOLE_MILLIS.map(|whole| (sender, Arm::EndToEnd, path(0, whole))));
                for far in FAR_MILLIS {
                    cells.extend(LAST_MILE.map(|near| (sender, Arm::Packrat, path(far, near))));
                }
            }
        }
    }
    cells
}

/// Writes the missing rows of `cells.csv` in the folder, with this many seeds for each.
pub(super) fn measure(
    folder: &Path,
    period: Period,
    seeds: u64,
    jobs: usize,
) -> Result<(), Failure> {
    let path = folder.join("cells.csv");
    let known = fs::read_to_string(&path).unwrap_or_else(|_| CELLS_HEAD.to_owned());
    fs::write(&path, &known).map_err(|error| unwritable(&path, &error, "--plan"))?;
    let mut file = OpenOptions::new()
        .append(true)
        .open(&path)
        .map_err(|error| unwritable(&path, &error, "--plan"))?;
    let known: BTreeSet<&str> =
        known.lines().filter_map(|line| Some(&line[..=line.rfind(',')?])).collect();
    let missing: Vec<_> = cells()
        .into_iter()
        .filter(|(sender, arm, path)| !known.contains(key(*sender, *arm, *path).as_str()))
        .collect();
    eprintln!("{} cells are missing", missing.len());
    batch::each(
        &missing,
        jobs,
        |&(sender, arm, path)| {
            let goodput = path.goodput(sender, arm, sender, 1..1 + seeds, period)?;
            Ok::<_, Failure>(format!("{}{goodput:.3}\n", key(sender, arm, path)))
        },
        |row| file.write_all(row?.as_bytes()).map_err(|error| unwritable(&path, &error, "--plan")),
    )
}

/// Writes `held_out.csv` in the folder: random paths between the cells', with other seeds.
pub(super) fn check(
    folder: &Path,
    paths: u64,
    period: Period,
    seeds: u64,
    jobs: usize,
) -> Result<(), Failure> {
    let mut random = ChaCha8Rng::seed_from_u64(HELD_OUT);
    let mut between = |low: u64, high: u64| low + random.next_u64() % (high - low + 1);
    let drawn: Vec<(Sender, u64, TwoSegments)> = (0..paths)
        .map(|number| {
            let path = TwoSegments {
                rate_mbps: between(10, 30),
                far_ms: 2 * between(1, 30),
                far_loss: FAR_LOSSES[between(0, 4) as usize],
                last_mile_ms: 2 * between(2, 60),
                loss: LAST_MILE_LOSSES[between(0, 9) as usize],
            };
            (PAPER_SENDERS[number as usize % PAPER_SENDERS.len()], HELD_OUT + number * seeds, path)
        })
        .collect();
    let file = folder.join("held_out.csv");
    let mut text = HELD_OUT_HEAD.to_owned();
    batch::each(
        &drawn,
        jobs,
        |&(sender, first_seed, path)| {
            let seeds = first_seed..first_seed + seeds;
            let measure = |arm, edge| path.goodput(sender, arm, edge, seeds.clone(), period);
            let end_to_end = measure(Arm::EndToEnd, sender)?;
            let assisted = measure(Arm::Packrat, sender)?;
            let mut terminated = 0.0_f64;
            for edge in EDGE_SENDERS {
                terminated = terminated.max(measure(Arm::Split, edge)?);
            }
            let TwoSegments { rate_mbps, far_ms, far_loss, last_mile_ms, loss } = path;
            Ok::<_, Failure>(format!(
                "{},{rate_mbps},{far_ms},{far_loss},{last_mile_ms},{loss},{end_to_end:.3},{assisted:.3},{terminated:.3}\n",
                sender.name()
            ))
        },
        |row| {
            text.push_str(&row?);
            fs::write(&file, &text).map_err(|error| unwritable(&file, &error, "--plan"))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_row_of_its_own() {
        let keys: BTreeSet<String> =
            cells().into_iter().map(|(sender, arm, path)| key(sender, arm, path)).collect();
        assert_eq!(keys.len(), cells().len());
        assert_eq!(keys.len(), 3 * 6 * (5 + 2 * 4));
    }
}
