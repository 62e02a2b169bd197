//! Fairness: an assisted download's share of a congested last mile.

use super::downloads::{label, subject};
use super::plan::{Plan, Settings};
use crate::failure::Failure;
use packrat_emulation::scenario::{QueueKind, Scenario};
use packrat_lab::drawing::{Bar, Figure, Panel, Point};
use packrat_lab::{Arm, Sender, Trial, TrialResult};

/// Arms that are compared.
const SHARING_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::Packrat, Arm::Split];

/// Shares of two downloads, of which one is assisted.
pub(super) fn competing(settings: Settings) -> Result<Plan, Failure> {
    let scenario = Scenario::load("competing")?;
    let mut trials = Vec::new();
    for queue in QueueKind::ALL {
        for arm in SHARING_ARMS {
            let scenario = scenario.clone().with_queue(queue);
            let seeds = 1..=settings.seeds;
            trials.extend(
                seeds.map(|seed| Trial::new(scenario.clone(), arm, Sender::S2nCubic, seed)),
            );
        }
    }
    Ok(Plan::of_trials(trials, move |results| {
        let mut panels = Vec::new();
        for (queue, called) in
            [(QueueKind::DropTail, "drop-tail"), (QueueKind::Red, "adaptive RED")]
        {
            let mut panel = |title: &str, unit: &str, field: fn(&TrialResult) -> f64| {
                let bars = SHARING_ARMS.iter().map(|&arm| {
                    let same = |result: &&TrialResult| {
                        result.setting.arm == arm && result.setting.queue == queue
                    };
                    Bar::new(
                        label(arm),
                        subject(arm),
                        Point::of(0.0, results.iter().filter(same).map(field)),
                        None,
                    )
                });
                panels.push(Panel::bars(format!("{title}, {called}"), unit, 2, bars.collect()));
            };
            panel("Share", "goodput ÷ fair share; 1 is fair", |result| {
                result.competition.as_ref().map_or(0.0, |fairness| fairness.share)
            });
            panel("Jain index", "1 is fair, 0.5 is one takes all", |result| {
                result.competition.as_ref().map_or(0.0, |fairness| fairness.jain)
            });
        }
        let seconds = scenario.traffic.as_ref().and_then(|traffic| traffic.seconds).unwrap_or(0);
        Figure::new(
            "competing",
            "A CUBIC download beside an unassisted one on a congested last mile",
            format!(
                "Medians of {} runs of {seconds} s in virtual time; a queue of one BDP.",
                settings.seeds
            ),
            panels,
        )
    }))
}
