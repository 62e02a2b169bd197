//! The measurement of one row: a large download, and many small objects.

use super::amount::OBJECT_BYTES;
use super::cells::Task;
use crate::stacks::Sender;
use crate::statistics::{quantile, sorted};
use crate::trial::{Arm, TIME_LIMIT, Trial, TrialError, TrialResult};
use packrat_emulation::scenario::Scenario;
use serde::{Deserialize, Serialize};

/// The measurement of one arm of one cell with one seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) family: String,
    pub(super) path: String,
    pub(super) sender: Sender,
    /// Mean loss of the last mile, 0 to 1; of the lossless arm 0.
    pub(super) loss: f64,
    /// True if the loss is the path's own.
    pub(super) own_loss: bool,
    pub(super) arm: Arm,
    pub(super) seed: u64,
    /// The sender at the gateway of a split connection: the one with the highest goodput.
    pub(super) split_sender: Option<Sender>,
    pub(super) goodput_mbps: f64,
    /// True if the whole download arrived.
    pub(super) complete: bool,
    /// Seconds from request to last byte, for each size and each object.
    pub(super) objects: [Vec<f64>; 2],
    /// Repair bytes of the large download.
    pub(super) repair_bytes: u64,
    pub(super) lost: u64,
    pub(super) far_drops: u64,
    pub(super) declared_lost: u64,
    pub(super) spurious: u64,
}

impl Row {
    /// Median and 99th percentile of the completion of small objects, seconds, for each size.
    pub(super) fn completion(&self) -> [[f64; 2]; 2] {
        [0, 1].map(|size| {
            let times = sorted(self.objects[size].iter().copied());
            [0.5, 0.99].map(|share| quantile(&times, share))
        })
    }

    /// The row that a task makes, apart from its measurements.
    pub(super) fn is_of(&self, task: &Task) -> bool {
        self.path == task.cell.scenario.name
            && self.sender == task.cell.sender
            && self.loss.to_bits() == task.cell.scenario.last_mile.loss.to_bits()
            && self.arm == task.arm
            && self.seed == task.seed
    }
}

impl Task {
    /// Runs it in virtual time, on this thread.
    ///
    /// # Errors
    /// [`TrialError`].
    pub(super) fn run(&self) -> Result<Row, TrialError> {
        let mut scenario = self.cell.scenario.clone();
        scenario.size = ((scenario.size as f64 * self.amount.size) as u64).max(OBJECT_BYTES[1]);
        let (result, split_sender) = self.download(&scenario)?;
        let mut objects = [Vec::new(), Vec::new()];
        for ((size, count), seconds) in
            OBJECT_BYTES.iter().zip(self.amount.objects).zip(&mut objects)
        {
            scenario.size = *size;
            for number in 0..count {
                let trial = self.trial(&scenario, self.seed * 1000 + number, split_sender);
                let result = trial.run()?;
                // An object that never arrives counts as one that arrives at the limit.
                let limit = TIME_LIMIT.as_secs_f64();
                seconds.push(if result.download.complete {
                    result.download.seconds
                } else {
                    limit
                });
            }
        }
        Ok(Row {
            family: self.cell.family.clone(),
            path: self.cell.scenario.name.clone(),
            sender: self.cell.sender,
            loss: self.cell.scenario.last_mile.loss,
            own_loss: self.cell.own_loss,
            arm: self.arm,
            seed: self.seed,
            split_sender,
            goodput_mbps: result.download.goodput_mbps,
            complete: result.download.complete,
            objects,
            repair_bytes: result.assistance.repair_bytes,
            lost: result.assistance.lost_last_mile,
            far_drops: result.reaction.far_dropped,
            declared_lost: result.reaction.declared_lost,
            spurious: result.assistance.spurious,
        })
    }

    /// The large download; of a split connection that with the best sender at the gateway.
    fn download(&self, scenario: &Scenario) -> Result<(TrialResult, Option<Sender>), TrialError> {
        if self.arm != Arm::Split {
            return Ok((self.trial(scenario, self.seed, None).run()?, None));
        }
        let mut best: Option<(TrialResult, Sender)> = None;
        for sender in Sender::OF_TABLES {
            let result = self.trial(scenario, self.seed, Some(sender)).run()?;
            if best
                .as_ref()
                .is_none_or(|(best, _)| result.download.goodput_mbps > best.download.goodput_mbps)
            {
                best = Some((result, sender));
            }
        }
        match best {
            Some((result, sender)) => Ok((result, Some(sender))),
            None => Ok((self.trial(scenario, self.seed, None).run()?, None)),
        }
    }

    fn trial(&self, scenario: &Scenario, seed: u64, split_sender: Option<Sender>) -> Trial {
        let mut trial = Trial::new(scenario.clone(), self.arm, self.cell.sender, seed);
        trial.split_sender = split_sender.unwrap_or(self.cell.sender);
        trial.warm = self.amount.warm;
        trial.oracle = self.amount.oracle;
        if self.amount.names_senders {
            trial.name_sender();
        }
        trial
    }
}
