//! Many trials on several threads.

use crate::trial::{Trial, TrialError, TrialResult};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);

/// Lines on the standard error that report the progress of long work.
#[derive(Debug)]
pub struct Progress {
    all: u64,
    done: u64,
    begun: Instant,
    said: Instant,
}

impl Progress {
    /// Work of `all` steps begins.
    pub fn new(all: u64) -> Self {
        let begun = Instant::now();
        Self { all, done: 0, begun, said: begun }
    }

    /// A step is done.
    pub fn tick(&mut self) {
        self.done += 1;
        if self.said.elapsed() >= PROGRESS_INTERVAL {
            self.said = Instant::now();
            eprintln!("{} of {} done, {} s", self.done, self.all, self.begun.elapsed().as_secs());
        }
    }
}

/// Runs all trials, at most `jobs` at a time, and gives their results to `report` in the order of
/// the trials. A trial never depends on another one, nor on the thread it runs on.
///
/// # Errors
/// The first error of `report`; it ends the batch.
pub fn run<E>(
    trials: &[Trial],
    jobs: usize,
    report: impl FnMut(Result<TrialResult, TrialError>) -> Result<(), E>,
) -> Result<(), E> {
    each(trials, jobs, Trial::run, report)
}

/// Runs any work as [`run`] does.
///
/// # Errors
/// As [`run`].
pub fn each<T: Sync, R: Send, E>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
    mut report: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            let (next, sender, work) = (&next, sender.clone(), &work);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    // An error means that the receiver of the results is gone.
                    if sender.send((index, work(item))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting = BTreeMap::new();
        let mut reported = 0;
        for (index, result) in receiver {
            waiting.insert(index, result);
            while let Some(result) = waiting.remove(&reported) {
                report(result)?;
                reported += 1;
            }
        }
        Ok(())
    })
}
