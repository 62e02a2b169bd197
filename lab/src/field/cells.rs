//! The cells of the matrix, and the work that each of them is.

use super::amount::Amount;
use crate::stacks::Sender;
use crate::trial::Arm;
use packrat_emulation::scenario::{Family, Scenario, ScenarioError};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use std::ops::Range;
use std::path::Path;

/// Random losses of the last mile, 0 to 1.
const LOSS_RATES: [f64; 5] = [0.0, 0.001, 0.005, 0.02, 0.05];
/// Arms of the first family at every loss.
const LOSSY_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::Packrat, Arm::Split];
/// Arms of the other families at every loss.
const PLAIN_ARMS: [Arm; 2] = [Arm::EndToEnd, Arm::Packrat];
/// The networks of Packrat26, whose bottleneck is the far segment.
const PAPER_NETWORKS: [&str; 3] = ["wifi", "cellular", "satellite"];

/// Name of the family of the paths above and of the networks of Packrat26.
pub(super) const FIELD_FAMILY: &str = "field";
/// Name of the family of last miles that people have.
pub(super) const PROFILE_FAMILY: &str = "profiles";
/// Paths that differ in one property.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) family: String,
    pub(super) paths: Vec<Scenario>,
    /// Random losses of the last mile; empty if each path has its own.
    pub(super) losses: Vec<f64>,
}

/// A path, a sender and a loss: the conditions under which the arms are compared.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) family: String,
    pub(super) scenario: Scenario,
    pub(super) sender: Sender,
    /// True if the loss is the path's own.
    pub(super) own_loss: bool,
}

impl Cell {
    /// True if small objects and split connections belong to it.
    fn is_whole(&self) -> bool {
        self.family == FIELD_FAMILY
    }
}

/// A row of the result: one arm of a cell with one seed.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) cell: Cell,
    pub(super) arm: Arm,
    pub(super) seed: u64,
    pub(super) amount: Amount,
}

/// The families of the matrix, with the paths that may be measured: with `verdict` the reserved
/// paths of each family that has some, otherwise the others. The profiles are among them if there
/// are recordings.
///
/// # Errors
/// [`ScenarioError`].
pub(super) fn groups(traces: Option<&Path>, verdict: bool) -> Result<Vec<Group>, ScenarioError> {
    let load = |names: Vec<&'static str>| names.into_iter().map(Scenario::load);
    let mut groups = vec![Group {
        family: FIELD_FAMILY.to_owned(),
        paths: load(Scenario::field_paths().chain(PAPER_NETWORKS).collect())
            .collect::<Result<_, _>>()?,
        losses: LOSS_RATES.to_vec(),
    }];
    if let Some(traces) = traces {
        let paths = load(Scenario::profiles().collect());
        groups.push(Group {
            family: PROFILE_FAMILY.to_owned(),
            paths: paths.map(|path| path?.with_traces(traces)).collect::<Result<_, _>>()?,
            losses: Vec::new(),
        });
    }
    groups.extend(Family::all()?.iter().map(|family| Group {
        family: family.name.clone(),
        paths: family.paths.iter().filter(|path| path.reserved == verdict).cloned().collect(),
        losses: family.losses.clone(),
    }));
    Ok(groups)
}

/// The paths with these names or of these files, in their families; files are of the first.
///
/// # Errors
/// [`ScenarioError`], also for an unknown or a reserved name.
pub(super) fn only(mut groups: Vec<Group>, names: &[String]) -> Result<Vec<Group>, ScenarioError> {
    let profiles: Vec<&str> = Scenario::profiles().collect();
    for name in names {
        if groups.iter().any(|group| group.paths.iter().any(|path| path.name == *name)) {
            continue;
        }
        let path = Scenario::load(name)?;
        if profiles.contains(&path.name.as_str()) {
            let family = PROFILE_FAMILY.to_owned();
            groups.push(Group { family, paths: vec![path], losses: Vec::new() });
        } else {
            groups[0].paths.push(path);
        }
    }
    for group in &mut groups {
        group.paths.retain(|path| {
            names.iter().any(|name| {
                *name == path.name || Path::new(name).file_stem() == Some(path.name.as_ref())
            })
        });
    }
    Ok(groups)
}

/// All cells of these paths; `losses` instead of each family's if there are some.
pub(super) fn all(groups: &[Group], senders: &[Sender], losses: &[f64]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for Group { family, paths, losses: own } in groups {
        let losses = if losses.is_empty() { own } else { losses };
        for scenario in paths {
            for &sender in senders {
                let cell = |scenario: Scenario| Cell {
                    family: family.clone(),
                    scenario,
                    sender,
                    own_loss: own.is_empty(),
                };
                if own.is_empty() {
                    cells.push(cell(scenario.clone()));
                } else {
                    cells.extend(losses.iter().map(|loss| cell(scenario.clone().with_loss(*loss))));
                }
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
/// sender. Split connections and small objects belong to the first family, unless `arms` names some.
pub(super) fn tasks(
    cells: &[Cell],
    arms: &[Arm],
    seeds: impl Fn(&Cell) -> Range<u64>,
    amount: Amount,
) -> Vec<Task> {
    let mut tasks = Vec::new();
    let same_path = |one: &Cell, other: &Cell| {
        one.scenario.name == other.scenario.name && one.sender == other.sender
    };
    for of_path in cells.chunk_by(same_path) {
        let whole = of_path[0].is_whole();
        let own = if whole { &LOSSY_ARMS[..] } else { &PLAIN_ARMS };
        let arms = if arms.is_empty() { own } else { arms };
        let amount = if whole { amount } else { Amount { objects: [0, 0], ..amount } };
        let task = |cell: &Cell, arm, seed| Task { cell: cell.clone(), arm, seed, amount };
        for seed in seeds(&of_path[0]) {
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
