//! The work for a figure.

use crate::failure::Failure;
use indicatif::ProgressBar;
use packrat_lab::batch::{self, Progress};
use packrat_lab::drawing::Figure;
use packrat_lab::{Trial, TrialResult};
use std::cell::RefCell;

/// The extent of the measurements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Bytes of a download.
    pub(crate) size: u64,
    /// Trials of each kind.
    pub(crate) seeds: u64,
    /// Trials at the same time.
    pub(crate) jobs: usize,
}

/// The making of a figure.
type Make = Box<dyn FnOnce(&Bench) -> Result<Figure, Failure>>;

/// The work for a figure.
pub(crate) struct Plan {
    /// Ticks of the progress bar.
    pub(super) steps: u64,
    pub(super) make: Make,
}

impl Plan {
    /// Work of this many steps.
    pub(super) fn new(
        steps: u64,
        make: impl FnOnce(&Bench) -> Result<Figure, Failure> + 'static,
    ) -> Self {
        Self { steps, make: Box::new(make) }
    }

    /// Trials, and a figure of their results.
    pub(super) fn of_trials(
        trials: Vec<Trial>,
        draw: impl FnOnce(Vec<TrialResult>) -> Figure + 'static,
    ) -> Self {
        Self::new(trials.len() as u64, move |bench| Ok(draw(bench.run(&trials)?)))
    }

    /// Groups of trials, such as those of a panel, and a figure of their results.
    pub(super) fn of_groups<K: 'static>(
        groups: Vec<(K, Vec<Trial>)>,
        draw: impl FnOnce(Vec<(K, Vec<TrialResult>)>) -> Figure + 'static,
    ) -> Self {
        Self::new(groups.iter().map(|(_, trials)| trials.len() as u64).sum(), move |bench| {
            let run = |(key, trials): (K, Vec<Trial>)| Ok((key, bench.run(&trials)?));
            Ok(draw(groups.into_iter().map(run).collect::<Result<_, Failure>>()?))
        })
    }
}

/// The threads and the progress bar of the work for figures.
pub(crate) struct Bench {
    pub(super) jobs: usize,
    pub(super) progress: ProgressBar,
    /// Lines for a standard error that is not a terminal.
    pub(super) lines: RefCell<Progress>,
}

impl Bench {
    /// Counts a finished step.
    pub(crate) fn tick(&self) {
        self.progress.inc(1);
        if self.progress.is_hidden() {
            self.lines.borrow_mut().tick();
        }
    }

    /// Runs trials; a step each.
    pub(crate) fn run(&self, trials: &[Trial]) -> Result<Vec<TrialResult>, Failure> {
        let mut results = Vec::with_capacity(trials.len());
        batch::run(trials, self.jobs, |result| {
            results.push(result?);
            self.tick();
            Ok::<(), Failure>(())
        })?;
        Ok(results)
    }
}
