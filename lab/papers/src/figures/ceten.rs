//! The dumbbell of CETEN04 (docs/REFERENCES.md): stock senders, CETEN's, and stock ones that are assisted.

use super::plan::{Plan, Settings};
use crate::failure::Failure;
use packrat_emulation::path::CrossTrafficConfig;
use packrat_emulation::scenario::{Scenario, Segment};
use packrat_lab::drawing::{Axis, Figure, Panel, Point, Series, Subject};
use packrat_lab::{Arm, HELD_OUT, Sender, Trial, TrialResult};

/// Shares of packets that the bottleneck corrupts.
const CORRUPTION_RATES: [f64; 6] = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2];
/// Flows at once.
const FLOW_COUNTS: [u64; 3] = [1, 10, 50];
/// Mean lengths of bursts in time: the transmission of this many packets of 2.4 ms (appendix A).
const BURST_PACKETS: [u64; 4] = [1, 4, 8, 16];
const TRANSMISSION_MS: f64 = 2.4;
/// The rates of the bottleneck beside which flows of both kinds are, Mbit/s, and the corruption there.
const FRIENDLINESS_RATES: [f64; 3] = [5.0, 25.0, 100.0];
const CORRUPTION_BESIDE: f64 = 0.01;
/// Flows together, and how many of them answer as CETEN does.
const FRIENDLY_FLOWS: u64 = 50;
const OF_CETEN: [u64; 5] = [0, 10, 25, 40, 45];

/// A way to meet corruption.
#[derive(Debug, Clone, Copy)]
struct Way {
    label: &'static str,
    subject: Subject,
    sender: Sender,
    arm: Arm,
}

/// TCP as it is.
const STOCK_WAY: Way = Way {
    label: "end to end",
    subject: Subject::EndToEnd,
    sender: Sender::QuinnNewReno,
    arm: Arm::EndToEnd,
};
/// TCP with Packrat's repairs.
const PACKRAT_WAY: Way =
    Way { label: "Packrat", subject: Subject::Packrat, arm: Arm::Packrat, ..STOCK_WAY };
const CETEN_P: Way =
    Way { label: "CETEN_P", subject: Subject::Variant, sender: Sender::CetenP, ..STOCK_WAY };
const CETEN_A: Way =
    Way { label: "CETEN_A", subject: Subject::Split, sender: Sender::CetenA, ..STOCK_WAY };
/// Ways that are compared.
const ALL_WAYS: [Way; 4] = [STOCK_WAY, CETEN_P, CETEN_A, PACKRAT_WAY];

fn flows_of(scenario: &Scenario, count: u64) -> Scenario {
    let mut scenario = scenario.clone();
    if let Some(flow) = scenario.traffic.as_mut().and_then(|traffic| traffic.flows.first_mut()) {
        flow.count = count;
    }
    scenario
}

fn together(result: &TrialResult) -> f64 {
    result.flows.iter().map(|flow| flow.goodput_mbps).sum()
}

fn jain(result: &TrialResult) -> f64 {
    result.competition.as_ref().map_or(1.0, |fairness| fairness.jain)
}

/// The trials of a panel: each way at each corruption.
fn over_corruption(scenario: &Scenario, corruption: &[f64], seeds: u64) -> Vec<Trial> {
    let mut trials = Vec::new();
    for Way { sender, arm, .. } in ALL_WAYS {
        for loss in corruption {
            let scenario = scenario.clone().with_loss(*loss);
            trials.extend(
                (0..seeds).map(|seed| Trial::new(scenario.clone(), arm, sender, HELD_OUT + seed)),
            );
        }
    }
    trials
}

fn panel(
    title: String,
    unit: &str,
    ticks: &[f64],
    corruption: &[f64],
    (results, seeds): (&[TrialResult], u64),
    field: fn(&TrialResult) -> f64,
) -> Panel {
    let per_way = corruption.len() * seeds as usize;
    let series = ALL_WAYS.into_iter().zip(results.chunks(per_way)).map(|(way, results)| {
        let points = corruption.iter().zip(results.chunks(seeds as usize));
        Series::line(
            way.label,
            way.subject,
            points
                .map(|(loss, results)| Point::of(loss * 100.0, results.iter().map(field)))
                .collect(),
        )
    });
    Panel::lines(
        title,
        Axis::linear("corrupted, %")
            .with_ticks(&corruption.iter().map(|loss| loss * 100.0).collect::<Vec<_>>()),
        Axis::linear(unit).with_ticks(ticks),
        series.collect(),
    )
}

/// Ticks of an axis in Mbit/s.
const MBPS_TICKS: [f64; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
/// Ticks of an axis with an index of fairness.
const INDEX_TICKS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// CETEN04, figures 3 and 6: goodput and fairness over the corruption of the bottleneck.
pub(super) fn corruption(settings: Settings) -> Result<Plan, Failure> {
    let scenario = Scenario::load("ceten")?;
    let groups = FLOW_COUNTS.map(|count| {
        let scenario = flows_of(&scenario, count);
        (count, over_corruption(&scenario, &CORRUPTION_RATES, settings.seeds))
    });
    Ok(Plan::of_groups(groups.into(), move |groups| {
        let mut panels = Vec::new();
        for (count, results) in groups {
            let title = if count == 1 { "One flow".to_owned() } else { format!("{count} flows") };
            let mut add = |title: String, unit, ticks: &[f64], field| {
                let results = (&results[..], settings.seeds);
                panels.push(panel(title, unit, ticks, &CORRUPTION_RATES, results, field));
            };
            add(format!("{title}: goodput together"), "Mbit/s", &MBPS_TICKS, together);
            if count > 1 {
                add(format!("{title}: Jain's index"), "1 is fair", &INDEX_TICKS, jain);
            }
        }
        Figure::new(
            "ceten",
            "Flows behind a bottleneck that corrupts packets",
            format!(
                "NewReno alone and assisted, and CETEN's answers to loss. Median and quartiles of {} trials of 120 s, of which 20 do not count, held-out seeds. CETEN04 has no numbers of its figures in its text: at high corruption CETEN_A has about ten times stock TCP, and up to 10 % all indices are 0.95 to 1.",
                settings.seeds
            ),
            panels,
        )
    }))
}

/// CETEN04, figures 5 and 11: one flow beside others of constant rate, and with corruption in bursts.
pub(super) fn company_and_bursts(settings: Settings) -> Result<Plan, Failure> {
    let scenario = Scenario::load("ceten")?;
    let mut beside = scenario.clone();
    beside.last_mile.cross_traffic =
        Some(CrossTrafficConfig { rate_mbps: 1.0, on_ms: 2500.0, off_ms: 10_000.0, flows: 5 });
    let mut kinds = vec![("Beside five flows of constant rate".to_owned(), beside, 0)];
    for packets in BURST_PACKETS {
        let mut scenario = scenario.clone();
        scenario.last_mile.burst_ms = Some(TRANSMISSION_MS * packets as f64);
        let title = match packets {
            1 => "Bursts of one packet's time".to_owned(),
            _ => format!("Bursts of {packets} packets' time"),
        };
        kinds.push((title, scenario, 1));
    }
    let groups = kinds.into_iter().map(|(title, scenario, from)| {
        let corruption = &CORRUPTION_RATES[from..];
        ((title, corruption), over_corruption(&scenario, corruption, settings.seeds))
    });
    Ok(Plan::of_groups(groups.collect(), move |groups| {
        let panels = groups.into_iter().map(|((title, corruption), results)| {
            let results = (&results[..], settings.seeds);
            panel(title, "Mbit/s", &MBPS_TICKS, corruption, results, together)
        });
        Figure::new(
            "ceten5",
            "One flow beside others, and with corruption in bursts",
            format!(
                "Each other flow sends 1 Mbit/s for 2.5 s and pauses for 10 s, on average, in random intervals. Bursts are times in which everything is lost. Median and quartiles of {} trials of 120 s, of which 20 do not count, held-out seeds.",
                settings.seeds
            ),
            panels.collect(),
        )
    }))
}

/// The dumbbell with this bottleneck, some of whose flows meet corruption in one way, and the others in the stock one.
fn beside(scenario: &Scenario, rate_mbps: f64, way: Way, of_way: u64, seconds: u64) -> Scenario {
    let mut scenario = scenario.clone().with_loss(CORRUPTION_BESIDE);
    let set = |segment: &mut Segment| segment.rate_mbps = rate_mbps;
    set(&mut scenario.last_mile);
    if let Some(traffic) = &mut scenario.traffic {
        (traffic.seconds, traffic.settle_seconds) = (Some(seconds), seconds / 4);
        let flow = traffic.flows[0].clone();
        let of = |way: Way, count| {
            let mut flow = flow.clone();
            (flow.count, flow.sender, flow.arm) =
                (count, Some(way.sender.name().to_owned()), Some(way.arm.name().to_owned()));
            flow.name = Some(way.label.to_owned());
            flow
        };
        traffic.flows = [of(STOCK_WAY, FRIENDLY_FLOWS - of_way), of(way, of_way)]
            .into_iter()
            .filter(|flow| flow.count > 0)
            .collect();
    }
    scenario
}

/// Mean goodput of the flows that are stock, Mbit/s.
fn of_stock(result: &TrialResult) -> f64 {
    let stock: Vec<f64> = result
        .flows
        .iter()
        .filter(|flow| flow.sender == STOCK_WAY.sender && flow.arm == STOCK_WAY.arm)
        .map(|flow| flow.goodput_mbps)
        .collect();
    stock.iter().sum::<f64>() / stock.len().max(1) as f64
}

/// Ways of flows beside stock ones.
const OTHER_WAYS: [Way; 3] = [CETEN_P, CETEN_A, PACKRAT_WAY];

/// A panel over the share of flows that are not stock. `relative`: to the same seeds without any of
/// the others.
fn friendly_panel(
    title: String,
    unit: &str,
    (results, seeds): (&[TrialResult], usize),
    value: &dyn Fn(&TrialResult) -> f64,
    relative: bool,
) -> Panel {
    let ways = OTHER_WAYS.into_iter().zip(results.chunks(OF_CETEN.len() * seeds));
    let series = ways.map(|(way, results)| {
        let alone = &results[..seeds];
        let points = OF_CETEN.into_iter().zip(results.chunks(seeds)).map(|(count, results)| {
            let values = results.iter().zip(alone).map(|(result, alone)| {
                let unit = if relative { value(alone) } else { 1.0 };
                value(result) / unit
            });
            Point::of(count as f64 * 100.0 / FRIENDLY_FLOWS as f64, values)
        });
        Series::line(way.label, way.subject, points.collect())
    });
    Panel::lines(
        title,
        Axis::linear("of the flows, %").with_ticks(&[0.0, 25.0, 50.0, 75.0, 100.0]),
        Axis::linear(unit).with_ticks(&[0.0, 0.25, 0.5, 0.75, 1.0, 1.25]),
        series.collect(),
    )
}

/// CETEN04, figures 7 to 10: the share left to stock flows beside others, and the use of the
/// bottleneck.
pub(super) fn friendliness(settings: Settings) -> Result<Plan, Failure> {
    let scenario = Scenario::load("ceten")?;
    let trials_of = |rate: f64| -> Vec<Trial> {
        let mut trials = Vec::new();
        // A fast bottleneck has enough packets in less time.
        let seconds = if rate > 50.0 { 40 } else { 80 };
        for way in OTHER_WAYS {
            for count in OF_CETEN {
                let scenario = beside(&scenario, rate, way, count, seconds);
                trials.extend((0..settings.seeds).map(|seed| {
                    Trial::new(scenario.clone(), STOCK_WAY.arm, STOCK_WAY.sender, HELD_OUT + seed)
                }));
            }
        }
        trials
    };
    let groups = FRIENDLINESS_RATES.map(|rate| (rate, trials_of(rate)));
    Ok(Plan::of_groups(groups.into(), move |groups| {
        let mut panels = Vec::new();
        for (rate, results) in groups {
            let used = |result: &TrialResult| together(result) / rate;
            let results = (&results[..], settings.seeds as usize);
            let title = format!("{rate} Mbit/s: a stock flow");
            panels.push(friendly_panel(title, "÷ without the others", results, &of_stock, true));
            let title = format!("{rate} Mbit/s: use of the bottleneck");
            panels.push(friendly_panel(title, "of its rate", results, &used, false));
        }
        Figure::new(
            "ceten7",
            "Stock flows beside others, at 1 % of corruption",
            format!(
                "Fifty flows, of which a part answers to loss as CETEN does, or is assisted. Median and quartiles of {} pairs of trials of 80 s (100 Mbit/s: 40 s), of which a quarter does not count, held-out seeds. CETEN04: beside CETEN_A a stock flow keeps a tenth at 5 Mbit/s, and nine tenths at 100; CETEN_P takes 5 % at most.",
                settings.seeds
            ),
            panels,
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(scenario: Scenario) -> Scenario {
        let mut scenario = scenario;
        if let Some(traffic) = &mut scenario.traffic {
            (traffic.seconds, traffic.settle_seconds) = (Some(20), 5);
        }
        scenario
    }

    #[test]
    fn the_dumbbell_has_the_requested_flows_and_helps_them_all() {
        let scenario = short(flows_of(&Scenario::load("ceten").unwrap(), 4).with_loss(0.05));
        let [alone, assisted] = [STOCK_WAY, PACKRAT_WAY]
            .map(|way| Trial::new(scenario.clone(), way.arm, way.sender, 1).run().unwrap());
        assert_eq!((alone.flows.len(), assisted.flows.len()), (4, 4));
        assert!(
            together(&assisted) > 1.5 * together(&alone),
            "{} {}",
            together(&assisted),
            together(&alone)
        );
    }

    #[test]
    fn senders_informed_of_corruption_are_faster_only_with_it() {
        let goodput = |way: Way, loss: f64| {
            let scenario = short(Scenario::load("ceten").unwrap()).with_loss(loss);
            together(&Trial::new(scenario, way.arm, way.sender, 1).run().unwrap())
        };
        let [stock, probabilistic, adaptive] =
            [STOCK_WAY, CETEN_P, CETEN_A].map(|way| goodput(way, 0.05));
        assert!(
            probabilistic > 1.2 * stock && adaptive > 2.0 * stock,
            "{stock} {probabilistic} {adaptive}"
        );
        let [stock, probabilistic, adaptive] =
            [STOCK_WAY, CETEN_P, CETEN_A].map(|way| goodput(way, 0.0));
        for one in [probabilistic, adaptive] {
            assert!((one / stock - 1.0).abs() < 0.05, "{stock} {probabilistic} {adaptive}");
        }
    }

    #[test]
    fn a_mixed_dumbbell_has_both_kinds() {
        let scenario = beside(&Scenario::load("ceten").unwrap(), 5.0, CETEN_A, 45, 4);
        let result = Trial::new(scenario, STOCK_WAY.arm, STOCK_WAY.sender, 1).run().unwrap();
        let count = |sender| result.flows.iter().filter(|flow| flow.sender == sender).count();
        assert_eq!((count(STOCK_WAY.sender), count(Sender::CetenA)), (5, 45));
    }
}
