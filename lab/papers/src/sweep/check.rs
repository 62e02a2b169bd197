//! Predictions held against connections that are really split (Splitting25, section 6).

use super::cache::Cache;
use super::grid::{self, Cell};
use super::paths::Path;
use crate::failure::Failure;
use packrat_lab::statistics::median;
use packrat_lab::{Arm, Trial, batch};
use serde::Serialize;

/// Delays of both segments whose sum is 80 ms, as the grid counts.
const DELAYS_MILLIS: [[u64; 2]; 5] = [[1, 80], [20, 60], [40, 40], [60, 20], [80, 1]];
/// Rates of both segments without losses, in Mbit/s, whose smaller one is 10.
const LOSSLESS_MBPS: [[u64; 2]; 4] = [[10, 10], [10, 20], [10, 50], [50, 10]];
/// Rates of both segments with losses, in Mbit/s, whose smaller one is 10.
const LOSSY_MBPS: [[u64; 2]; 2] = [[10, 50], [50, 10]];
/// Losses of both segments, in percent.
const LOSSES_PERCENT: [[u64; 2]; 5] = [[0, 4], [1, 3], [2, 2], [3, 1], [4, 0]];

/// A path, predicted and measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Checked {
    pub(super) far: Cell,
    pub(super) near: Cell,
    /// Shares of the rate.
    pub(super) predicted: f64,
    pub(super) measured: f64,
}

impl Checked {
    /// Predicted over measured, minus 1.
    pub(super) fn error(&self) -> f64 {
        self.predicted / self.measured.max(1e-3) - 1.0
    }
}

/// The 70 paths that are checked.
pub(super) fn settings() -> Vec<Path> {
    let mut paths = Vec::new();
    for delays in DELAYS_MILLIS {
        let rates_and_losses = LOSSLESS_MBPS.map(|rates| (rates, [0, 0])).into_iter().chain(
            LOSSY_MBPS.into_iter().flat_map(|rates| LOSSES_PERCENT.map(|losses| (rates, losses))),
        );
        paths.extend(rates_and_losses.filter_map(|(rates, losses)| {
            let [far, near] = [0, 1].map(|n| Cell {
                rate_mbps: rates[n],
                delay_ms: delays[n],
                loss_percent: losses[n],
            });
            Some(Path { far, near, whole: far.compose(near)? })
        }));
    }
    paths
}

/// Segments of the checked paths. For a segment without a download a prediction would be 0.
pub(super) fn cells() -> Vec<Cell> {
    let mut cells: Vec<Cell> =
        settings().into_iter().flat_map(|Path { far, near, .. }| [far, near]).collect();
    cells.sort_unstable();
    cells.dedup();
    cells
}

/// Splits the connection on each of these paths, with the cache's sender on both halves.
pub(super) fn measure(paths: &[Path], cache: &Cache, jobs: usize) -> Result<Vec<Checked>, Failure> {
    let extent = &cache.extent;
    let split = |path: &Path| -> Result<Checked, Failure> {
        let scenario = grid::two_segments(path.far, path.near, extent.period)?;
        let mut goodput = Vec::new();
        for seed in extent.seeds.clone() {
            let trial = Trial::new(scenario.clone(), Arm::Split, extent.sender, seed);
            goodput.push(grid::steady_goodput(&trial, extent.period)?);
        }
        let [predicted, _] = path.predictions(cache);
        let measured = median(goodput.into_iter()) / path.whole.rate_mbps as f64;
        Ok(Checked { far: path.far, near: path.near, predicted, measured })
    };
    let mut checked = Vec::with_capacity(paths.len());
    batch::each(paths, jobs, split, |one| {
        checked.push(one?);
        Ok::<(), Failure>(())
    })?;
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventy_paths_of_80_ms_and_10_mbit_are_checked() {
        let paths = settings();
        assert_eq!(paths.len(), 70);
        for Path { whole, .. } in paths {
            assert_eq!((whole.rate_mbps, whole.delay_ms), (10, 80));
            assert!([0, 4].contains(&whole.loss_percent));
        }
    }
}
