//! The cells of the matrix, and the work that each of them is.

use super::amount::Amount;
use crate::stacks::Sender;
use crate::trial::Arm;
use packrat_emulation::scenario::{Scenario, ScenarioError};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::path::Path;

/// Random losses of the last mile, 0 to 1.
pub(super) const LOSS_RATES: [f64; 5] = [0.0, 0.001, 0.005, 0.02, 0.05];
/// Arms that are run at every loss.
pub(super) const LOSSY_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::Packrat, Arm::Split];
/// The networks of Packrat26, whose bottleneck is the far segment.
const PAPER_NETWORKS: [&str; 3] = ["wifi", "cellular", "satellite"];

/// A path, a sender and a loss: the conditions under which the arms are compared.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) scenario: Scenario,
    pub(super) sender: Sender,
    /// True if the loss is the path's own.
    pub(super) own_loss: bool,
}

/// A row of the result: one arm of a cell with one seed.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) cell: Cell,
    pub(super) arm: Arm,
    pub(super) seed: u64,
    pub(super) amount: Amount,
}

/// The paths of the matrix by name: the table's, Packrat26's three, and the profiles if there are
/// recordings for them or if they are requested.
///
/// # Errors
/// [`ScenarioError`], also for an unknown name in `only`.
pub(super) fn paths(
    only: &[String],
    traces: Option<&Path>,
) -> Result<Vec<(Scenario, bool)>, ScenarioError> {
    let profiles: Vec<&str> = Scenario::profiles().collect();
    let mut names: Vec<&str> = Scenario::field_paths().chain(PAPER_NETWORKS).collect();
    if traces.is_some() {
        names.extend(&profiles);
    }
    if !only.is_empty() {
        names = only.iter().map(String::as_str).collect();
    }
    names
        .into_iter()
        .map(|name| {
            let scenario = Scenario::load(name)?;
            let own = profiles.contains(&name);
            match traces {
                Some(traces) if own => Ok((scenario.with_traces(traces)?, own)),
                _ => Ok((scenario, own)),
            }
        })
        .collect()
}

/// All cells of these paths.
pub(super) fn all(paths: &[(Scenario, bool)], senders: &[Sender], losses: &[f64]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (scenario, own_loss) in paths {
        for &sender in senders {
            let cell = |scenario: Scenario| Cell { scenario, sender, own_loss: *own_loss };
            if *own_loss {
                cells.push(cell(scenario.clone()));
            } else {
                let lossy = |loss: &f64| cell(scenario.clone().with_loss(*loss));
                cells.extend(losses.iter().map(lossy));
            }
        }
    }
    cells
}

/// A random choice of `count` cells, in their order.
pub(super) fn sample(cells: Vec<Cell>, count: usize, seed: u64) -> Vec<Cell> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut drawn: Vec<(u64, usize)> =
        (0..cells.len()).map(|index| (random.next_u64(), index)).collect();
    drawn.sort_unstable();
    let mut chosen: Vec<usize> = drawn.into_iter().take(count).map(|(_, index)| index).collect();
    chosen.sort_unstable();
    let mut cells: Vec<Option<Cell>> = cells.into_iter().map(Some).collect();
    chosen.into_iter().filter_map(|index| cells[index].take()).collect()
}

/// The work of these cells: the arms at each loss, and the lossless one once for each path and
/// sender.
pub(super) fn tasks(
    cells: &[Cell],
    arms: &[Arm],
    seeds: std::ops::Range<u64>,
    amount: Amount,
) -> Vec<Task> {
    let mut tasks = Vec::new();
    let same_path = |one: &Cell, other: &Cell| {
        one.scenario.name == other.scenario.name && one.sender == other.sender
    };
    for of_path in cells.chunk_by(same_path) {
        let task = |cell: &Cell, arm, seed| Task { cell: cell.clone(), arm, seed, amount };
        for seed in seeds.clone() {
            let lossless =
                Cell { scenario: of_path[0].scenario.clone().without_loss(), ..of_path[0].clone() };
            tasks.push(task(&lossless, Arm::Ideal, seed));
            for cell in of_path {
                tasks.extend(arms.iter().map(|arm| task(cell, *arm, seed)));
            }
        }
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_thirteen_paths_five_losses_and_all_senders() {
        let cells = all(&paths(&[], None).unwrap(), &Sender::OF_TABLES, &LOSS_RATES);
        assert_eq!(cells.len(), 13 * 5 * Sender::OF_TABLES.len());
        let tasks = tasks(&cells, &LOSSY_ARMS, 1001..1003, Amount::QUICK);
        assert_eq!(tasks.len(), 2 * 13 * Sender::OF_TABLES.len() * (5 * 3 + 1));
    }

    #[test]
    fn a_profile_has_the_loss_that_it_has() {
        let edge = paths(&["lte_edge".to_owned()], None).unwrap();
        let cells = all(&edge, &Sender::OF_TABLES, &LOSS_RATES);
        assert_eq!(cells.len(), Sender::OF_TABLES.len());
        assert!(cells.iter().all(|cell| cell.own_loss && cell.scenario.last_mile.loss == 0.005));
        assert!(
            paths(&["lte_egde".to_owned()], None).unwrap_err().to_string().contains("lte_edge")
        );
    }

    #[test]
    fn the_seed_decides_on_the_sample() {
        let names = |seed| -> Vec<String> {
            sample(all(&paths(&[], None).unwrap(), &Sender::OF_TABLES, &LOSS_RATES), 20, seed)
                .iter()
                .map(|cell| {
                    format!(
                        "{}{:?}{}",
                        cell.scenario.name, cell.sender, cell.scenario.last_mile.loss
                    )
                })
                .collect()
        };
        assert_eq!(names(1).len(), 20);
        assert_eq!(names(1), names(1));
        assert_ne!(names(1), names(2));
    }
}
