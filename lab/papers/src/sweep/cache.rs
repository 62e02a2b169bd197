//! The measured segments of one sender: a file that grows while they are measured.

use super::grid::{self, Cell, Period};
use crate::failure::Failure;
use packrat_lab::statistics::{quantile, sorted};
use packrat_lab::{Arm, Sender, Trial, batch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Share of the rate below which harder segments are not measured: they are slower still.
const PRUNED_SHARE: f64 = 0.05;

/// The extent of a measurement: rows of another do not go with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Extent {
    pub(super) sender: Sender,
    /// The sender's stack and the laboratory, with their versions.
    pub(super) versions: String,
    /// The time of a measurement.
    pub(super) period: Period,
    pub(super) seeds: Range<u64>,
}

/// A segment of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Row {
    cell: Cell,
    /// Goodput of each seed, Mbit/s.
    goodput_mbps: Vec<f64>,
}

/// The segments of one sender that have been measured.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) extent: Extent,
    path: PathBuf,
    rows: BTreeMap<Cell, Vec<f64>>,
}

impl Cache {
    /// Opens the file of the sender in this folder, or begins it.
    pub(super) fn open(folder: &Path, extent: Extent) -> Result<Self, Failure> {
        let path = folder.join(format!("{}.jsonl", extent.sender.name()));
        let mut cache = Self { extent, path, rows: BTreeMap::new() };
        fs::create_dir_all(folder).map_err(|source| cache.unusable(source))?;
        let mut kept = cache.line(&cache.extent)?;
        if cache.path.exists() {
            let text = fs::read_to_string(&cache.path).map_err(|source| cache.unusable(source))?;
            // A last line without an end was being written when the command ended.
            let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let of: Extent = cache.parse(lines.next().unwrap_or_default())?;
            if of != cache.extent {
                return Err(cache.foreign(format!("it says {of:?}")));
            }
            for line in lines {
                let Row { cell, goodput_mbps } = cache.parse(line)?;
                cache.rows.insert(cell, goodput_mbps);
                kept.push_str(line);
            }
        }
        fs::write(&cache.path, kept).map_err(|source| cache.unusable(source))?;
        Ok(cache)
    }

    /// Measures the missing segments, the easier ones first. `progress` is called for each.
    pub(super) fn fill(
        &mut self,
        jobs: usize,
        progress: impl FnMut(Cell, f64),
    ) -> Result<(), Failure> {
        self.fill_by(measure, jobs, progress)
    }

    /// Measures the missing ones of these segments, however hard they are.
    pub(super) fn complete(
        &mut self,
        cells: &[Cell],
        jobs: usize,
        mut progress: impl FnMut(Cell, f64),
    ) -> Result<(), Failure> {
        self.measure(cells, &measure, jobs, &mut progress)
    }

    /// Fills as `fill` does, by another measurement: the goodput of a segment with a seed.
    fn fill_by(
        &mut self,
        measure: impl Fn(Cell, &Extent, u64) -> Result<f64, Failure> + Sync,
        jobs: usize,
        mut progress: impl FnMut(Cell, f64),
    ) -> Result<(), Failure> {
        let mut seen = vec![Cell::FIRST];
        let mut wave = seen.clone();
        while !wave.is_empty() {
            self.measure(&wave, &measure, jobs, &mut progress)?;
            let mut next: Vec<Cell> = wave
                .iter()
                .filter(|cell| self.utilisation(**cell) >= PRUNED_SHARE)
                .flat_map(|cell| cell.harder())
                .filter(|cell| !seen.contains(cell))
                .collect();
            next.sort_unstable();
            next.dedup();
            seen.extend(&next);
            wave = next;
        }
        Ok(())
    }

    fn measure(
        &mut self,
        cells: &[Cell],
        measure: &(impl Fn(Cell, &Extent, u64) -> Result<f64, Failure> + Sync),
        jobs: usize,
        progress: &mut impl FnMut(Cell, f64),
    ) -> Result<(), Failure> {
        let mut file = OpenOptions::new()
            .append(true)
            .open(&self.path)
            .map_err(|source| self.unusable(source))?;
        let missing: Vec<Cell> =
            cells.iter().copied().filter(|cell| !self.rows.contains_key(cell)).collect();
        let extent = self.extent.clone();
        batch::each(
            &missing,
            jobs,
            |cell| {
                let goodput = extent.seeds.clone().map(|seed| measure(*cell, &extent, seed));
                let goodput_mbps = goodput.collect::<Result<_, _>>()?;
                Ok::<_, Failure>(Row { cell: *cell, goodput_mbps })
            },
            |row| {
                let row = row?;
                let line = self.line(&row)?;
                file.write_all(line.as_bytes()).map_err(|source| self.unusable(source))?;
                self.rows.insert(row.cell, row.goodput_mbps);
                progress(row.cell, self.utilisation(row.cell));
                Ok::<(), Failure>(())
            },
        )
    }

    /// The number of segments measured.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Goodput over the rate, 0 if a segment was not worth measuring: the median of the seeds.
    pub(super) fn utilisation(&self, cell: Cell) -> f64 {
        self.spread(cell).map_or(0.0, |[_, median, _]| median)
    }

    /// Goodput over the rate: 10th percentile, median and 90th percentile of the seeds.
    pub(super) fn spread(&self, cell: Cell) -> Option<[f64; 3]> {
        let goodput = sorted(self.rows.get(&cell)?.iter().copied());
        Some([0.1, 0.5, 0.9].map(|share| quantile(&goodput, share) / cell.rate_mbps as f64))
    }

    fn line(&self, value: &impl Serialize) -> Result<String, Failure> {
        let text = serde_json::to_string(value).map_err(|error| self.foreign(error.to_string()))?;
        Ok(text + "\n")
    }

    fn parse<'a, T: Deserialize<'a>>(&self, line: &'a str) -> Result<T, Failure> {
        serde_json::from_str(line).map_err(|error| self.foreign(error.to_string()))
    }

    fn unusable(&self, error: io::Error) -> Failure {
        let path = self.path.display();
        format!("cannot use {path}: {error}; name a folder that you may write to with --cache")
            .into()
    }

    fn foreign(&self, reason: String) -> Failure {
        let path = self.path.display();
        format!(
            "{path} was measured with other options, or is damaged ({reason}); remove it, or name another folder with --cache"
        )
        .into()
    }
}

fn measure(cell: Cell, extent: &Extent, seed: u64) -> Result<f64, Failure> {
    let scenario = grid::one_segment(cell, extent.period)?;
    let trial = Trial::new(scenario, Arm::EndToEnd, extent.sender, seed);
    Ok(grid::steady_goodput(&trial, extent.period)?)
}

#[cfg(test)]
impl Cache {
    /// Segments whose goodput a function returns.
    pub(super) fn made_up(sender: Sender, goodput: impl Fn(Cell) -> f64) -> Self {
        let period = Period { settle: 0, seconds: 1 };
        let extent = Extent { sender, versions: String::new(), period, seeds: 1..2 };
        let rows = Cell::all().map(|cell| (cell, vec![goodput(cell)])).collect();
        Self { extent, path: PathBuf::new(), rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_cache_resumes_and_refuses_other_options() {
        let folder = tempfile::tempdir().unwrap();
        let extent = Extent {
            sender: Sender::QuinnNewReno,
            versions: "1".to_owned(),
            period: Period { settle: 1, seconds: 2 },
            seeds: 1..2,
        };
        let text = |cache: &Cache| fs::read_to_string(&cache.path).unwrap();
        // Loss stops this sender on the longer segments, where harder ones are not measured.
        let measure = |cell: Cell, _: &Extent, _| {
            Ok(cell.rate_mbps as f64 / (1 + cell.delay_ms * cell.loss_percent) as f64)
        };
        let mut cache = Cache::open(folder.path(), extent.clone()).unwrap();
        cache.fill_by(measure, 2, |_, _| ()).unwrap();
        let whole = text(&cache);
        assert!(cache.len() > 1 && cache.len() < 150, "{}", cache.len());
        fs::write(&cache.path, &whole[..whole.len() / 2]).unwrap();
        let mut resumed = Cache::open(folder.path(), extent.clone()).unwrap();
        assert!(resumed.len() < cache.len());
        resumed.fill_by(measure, 2, |_, _| ()).unwrap();
        assert_eq!(text(&resumed), whole);
        // No segment is measured twice.
        resumed.fill_by(measure, 1, |cell, _| panic!("{cell:?}")).unwrap();
        let other = Cache::open(
            folder.path(),
            Extent { period: Period { settle: 1, seconds: 3 }, ..extent },
        )
        .unwrap_err();
        assert!(other.to_string().contains("other options"), "{other}");
    }
}
