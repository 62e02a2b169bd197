//! Fairness: an assisted download's share of a congested last mile.

use super::data::{Bar, Bars, Figure, Panel, Point};
use super::downloads::{label, subject};
use super::{FigureError, Plan, Settings};
use crate::sender::Sender;
use crate::trial::{Arm, Trial, TrialResult};
use packrat_emulation::scenario::{QueueKind, Scenario};

/// Arms that are compared.
const SHARING_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::Packrat, Arm::Split];

/// Shares of two downloads, of which one is assisted.
pub(super) fn competing(settings: Settings) -> Result<Plan, FigureError> {
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
    let steps = trials.len() as u64;
    let make = move |bench: &super::Bench| {
        let results = bench.run(&trials)?;
        let mut panels = Vec::new();
        for (queue, called) in
            [(QueueKind::DropTail, "drop-tail"), (QueueKind::Red, "adaptive RED")]
        {
            let mut panel = |title: &str, unit: &str, field: fn(&TrialResult) -> f64| {
                let bars = SHARING_ARMS.iter().map(|&arm| {
                    let same = |result: &&TrialResult| result.arm == arm && result.queue == queue;
                    Bar {
                        label: label(arm).to_owned(),
                        subject: subject(arm),
                        value: Point::of(0.0, results.iter().filter(same).map(field)),
                        paper: None,
                    }
                });
                panels.push(Panel::Bars(Bars {
                    title: format!("{title}, {called}"),
                    unit: unit.to_owned(),
                    digits: 2,
                    bars: bars.collect(),
                }));
            };
            panel("Share", "goodput ÷ fair share; 1 is fair", |result| {
                result.competition.as_ref().map_or(0.0, |fairness| fairness.share)
            });
            panel("Jain index", "1 is fair, 0.5 is one takes all", |result| {
                result.competition.as_ref().map_or(0.0, |fairness| fairness.jain)
            });
        }
        let seconds = scenario.traffic.as_ref().and_then(|traffic| traffic.seconds).unwrap_or(0);
        Ok(Figure {
            name: "competing".to_owned(),
            title: "A CUBIC download beside an unassisted one on a congested last mile".to_owned(),
            caption: format!(
                "Medians of {} runs of {seconds} s in virtual time; a queue of one BDP.",
                settings.seeds
            ),
            panels,
        })
    };
    Ok(Plan { steps, make: Box::new(make) })
}
