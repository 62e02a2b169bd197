//! Downloads over the links of rQUIC23 (docs/REFERENCES.md), another way to the same end.

use super::plan::{Plan, Settings};
use crate::failure::Failure;
use packrat_emulation::scenario::Scenario;
use packrat_lab::drawing::{Axis, Figure, Panel, Point, Series, Subject};
use packrat_lab::{Arm, HELD_OUT, Sender, Trial};

/// Arms that are compared.
const LINK_ARMS: [Arm; 2] = [Arm::EndToEnd, Arm::Packrat];
/// The links of rQUIC23, and a bound of its completion rate at more than 1 % of loss.
const PAPER_LINKS: [(&str, &str, f64); 3] = [
    ("rquic_wifi", "Wi-Fi, 20 Mbit/s, 25 ms", 0.5),
    ("rquic_cellular", "Cellular, 10 Mbit/s, 100 ms", 0.7),
    ("rquic_satellite", "Satellite, 1.5 Mbit/s, 400 ms", 0.8),
];
/// Losses of the last mile, 0 to 1.
const LOSS_RATES: [f64; 5] = [0.0, 0.01, 0.02, 0.03, 0.05];
/// Bound of the completion rate for Wi-Fi at 5 % of loss.
const WORST_COMPLETION: f64 = 0.4;
/// Senders that are compared, with their labels.
const LINK_SENDERS: [(Sender, &str, Subject); 2] = [
    (Sender::S2nCubic, "Packrat, CUBIC", Subject::Packrat),
    (Sender::QuinnNewReno, "Packrat, NewReno", Subject::Variant),
];
fn pairs(
    scenario: &Scenario,
    sender: Sender,
    settings: Settings,
) -> impl Iterator<Item = [Trial; 2]> {
    (0..settings.seeds).map(move |seed| {
        LINK_ARMS.map(|arm| Trial::new(scenario.clone(), arm, sender, HELD_OUT + seed))
    })
}

/// rQUIC23, figure 3.10: the time of an assisted download divided by an unassisted one's.
pub(super) fn completion(settings: Settings) -> Result<Plan, Failure> {
    let mut panels = Vec::new();
    for (name, title, bound) in PAPER_LINKS {
        let scenario = Scenario::load(name)?;
        let mut trials = Vec::new();
        for (sender, ..) in LINK_SENDERS {
            for loss in LOSS_RATES {
                trials.extend(pairs(&scenario.clone().with_loss(loss), sender, settings).flatten());
            }
        }
        panels.push(((name, title, bound), trials));
    }
    Ok(Plan::of_groups(panels, move |panels| {
        let mut drawn = Vec::new();
        for ((name, title, bound), results) in panels {
            let (pairs, _) = results.as_chunks::<2>();
            let mut lines = Vec::new();
            for ((_, label, subject), pairs) in
                LINK_SENDERS.into_iter().zip(pairs.chunks(pairs.len() / LINK_SENDERS.len()))
            {
                let points = LOSS_RATES.into_iter().zip(pairs.chunks(settings.seeds as usize));
                let points = points.map(|(loss, pairs)| {
                    let ratios = pairs.iter().map(|[alone, assisted]| {
                        assisted.download.seconds / alone.download.seconds
                    });
                    Point::of(loss * 100.0, ratios)
                });
                lines.push(Series::line(label, subject, points.collect()));
            }
            let worst = if name == PAPER_LINKS[0].0 { WORST_COMPLETION } else { bound };
            let paper = [(2.0, bound), (3.0, bound), (5.0, worst)];
            let paper = paper.map(|(loss, bound)| Point::exact(loss, bound)).to_vec();
            lines.push(Series::paper("rQUIC23, at most", Subject::Bound, paper));
            drawn.push(Panel::lines(
                title,
                Axis::linear("loss, %").with_ticks(&LOSS_RATES.map(|loss| loss * 100.0)),
                Axis::linear("assisted ÷ unassisted")
                    .with_ticks(&[0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]),
                lines,
            ));
        }
        Figure::new(
            "rquic",
            "Time of a download over the links of rQUIC23",
            format!(
                "Median and quartiles of {} pairs of downloads of 20 MiB (satellite: 5 MiB), held-out seeds; loss in both directions.",
                settings.seeds
            ),
            drawn,
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_links_of_rquic_carry_what_they_are_said_to() {
        for (name, ..) in PAPER_LINKS {
            let scenario = Scenario::load(name).unwrap();
            let mut small = scenario.clone();
            small.size = 1_000_000;
            let trial = Trial::new(small, Arm::EndToEnd, Sender::QuinnNewReno, 1).run().unwrap();
            assert!(
                trial.download.complete
                    && trial.download.goodput_mbps < scenario.last_mile.rate_mbps,
                "{name}"
            );
        }
    }
}
