//! Rows as CSV, and the small table that tests compare with a committed one.

use super::amount::Amount;
use super::cells::{self, FIELD_FAMILY, Task};
use super::measure::Row;
use crate::batch;
use crate::stacks::Sender;
use packrat_emulation::scenario::ScenarioError;
use std::error::Error;
use std::fmt::Write;

/// First line of the table.
const CSV_HEADER: &str = "path,sender,loss,arm,seed,split_sender,goodput_mbps,complete,p50_100kB_s,p99_100kB_s,p50_1MB_s,p99_1MB_s,repair_bytes,lost,far_drops,declared_lost,spurious";

/// The first seed of the matrix.
pub(super) const FIRST_SEED: u64 = crate::trial::HELD_OUT;
/// The cells of the sample, and the seed that draws them.
const SAMPLED_CELLS: (usize, u64) = (12, 15);

/// All rows (RFC 4180).
pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = format!("{CSV_HEADER}\n");
    for row in rows {
        let [[p50_small, p99_small], [p50_large, p99_large]] = row.completion();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{:.3},{},{p50_small:.4},{p99_small:.4},{p50_large:.4},{p99_large:.4},{},{},{},{},{}",
            row.path,
            row.sender.name(),
            row.loss,
            row.arm.name(),
            row.seed,
            row.split_sender.map_or("", Sender::name),
            row.goodput_mbps,
            row.complete,
            row.repair_bytes,
            row.lost,
            row.far_drops,
            row.declared_lost,
            row.spurious,
        );
    }
    text
}

/// The sample's work: a few cells with short downloads.
pub(super) fn sample() -> Result<Vec<Task>, ScenarioError> {
    let mut groups = cells::groups(None, false)?;
    groups.retain(|group| group.family == FIELD_FAMILY);
    let cells = cells::all(&groups, &Sender::OF_TABLES, &[]);
    let cells = cells::sample(cells, SAMPLED_CELLS.0, SAMPLED_CELLS.1);
    Ok(cells::tasks(&cells, &[], |_| FIRST_SEED..FIRST_SEED + 1, Amount::SAMPLE))
}

/// The table of the sample, as CSV: the same on every machine until the behaviour of gateway,
/// client or links changes.
///
/// # Errors
/// A scenario is missing, or a trial has no result.
pub fn sample_table(jobs: usize) -> Result<String, Box<dyn Error>> {
    let tasks = sample()?;
    let mut rows = Vec::with_capacity(tasks.len());
    batch::each(&tasks, jobs, Task::run, |row| {
        rows.push(row?);
        Ok::<(), Box<dyn Error>>(())
    })?;
    Ok(csv(&rows))
}
