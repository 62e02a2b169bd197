//! Figures of single downloads: goodput, bursts, spurious retransmissions, overhead on the links,
//! the cache.

use super::plan::{Plan, Settings};
use crate::failure::Failure;
use packrat_emulation::scenario::{QueueKind, Scenario};
use packrat_lab::drawing::{Axis, Bar, Figure, Form, Lines, Panel, Point, Series, Subject};
use packrat_lab::{Arm, Sender, TraceEvent, Trial, TrialResult};

/// Last miles of Packrat26, table 3, and their names there.
const LAST_MILES: [(&str, &str); 3] =
    [("wifi", "WiFi"), ("cellular", "Cellular"), ("satellite", "Satellite")];
/// Losses of the last mile, 0 to 1.
const LOSS_RATES: [f64; 6] = [0.0, 0.01, 0.02, 0.04, 0.07, 0.1];
/// Mean lengths of bursts of loss, datagrams.
const BURST_DATAGRAMS: [f64; 6] = [1.0, 2.0, 5.0, 10.0, 20.0, 56.0];
/// Arms that are compared.
const COMPARED_ARMS: [Arm; 3] = [Arm::Packrat, Arm::Split, Arm::EndToEnd];

/// A point of Packrat26, figure 5: setting, sender, arm, loss in percent, Mbit/s.
type PaperPoint = (&'static str, Sender, Arm, f64, f64);

/// The points of Packrat26, figure 5, as far as it can be read from it. Its BBR is version 3, of
/// picoquic.
const PAPER_POINTS: [PaperPoint; 27] = [
    ("wifi", Sender::S2nCubic, Arm::Packrat, 4.0, 18.41),
    ("wifi", Sender::S2nCubic, Arm::EndToEnd, 4.0, 6.79),
    ("wifi", Sender::S2nCubic, Arm::Split, 4.0, 18.57),
    ("wifi", Sender::S2nCubic, Arm::Packrat, 10.0, 17.17),
    ("wifi", Sender::S2nCubic, Arm::EndToEnd, 10.0, 1.72),
    ("wifi", Sender::S2nCubic, Arm::Split, 10.0, 18.44),
    ("wifi", Sender::S2nBbr, Arm::Packrat, 10.0, 17.30),
    ("wifi", Sender::S2nBbr, Arm::EndToEnd, 10.0, 7.58),
    ("wifi", Sender::S2nBbr, Arm::Split, 10.0, 8.25),
    ("cellular", Sender::S2nCubic, Arm::Packrat, 4.0, 13.13),
    ("cellular", Sender::S2nCubic, Arm::EndToEnd, 4.0, 6.14),
    ("cellular", Sender::S2nCubic, Arm::Split, 4.0, 16.43),
    ("cellular", Sender::S2nCubic, Arm::Packrat, 10.0, 8.30),
    ("cellular", Sender::S2nCubic, Arm::EndToEnd, 10.0, 1.43),
    ("cellular", Sender::S2nCubic, Arm::Split, 10.0, 4.67),
    ("cellular", Sender::S2nBbr, Arm::Packrat, 10.0, 10.89),
    ("cellular", Sender::S2nBbr, Arm::EndToEnd, 10.0, 8.36),
    ("cellular", Sender::S2nBbr, Arm::Split, 10.0, 17.75),
    ("satellite", Sender::S2nCubic, Arm::Packrat, 2.0, 14.56),
    ("satellite", Sender::S2nCubic, Arm::Packrat, 4.0, 5.21),
    ("satellite", Sender::S2nCubic, Arm::EndToEnd, 4.0, 3.99),
    ("satellite", Sender::S2nCubic, Arm::Split, 4.0, 8.44),
    ("satellite", Sender::S2nCubic, Arm::Packrat, 10.0, 3.87),
    ("satellite", Sender::S2nCubic, Arm::Split, 10.0, 1.66),
    ("satellite", Sender::S2nBbr, Arm::Packrat, 7.0, 5.01),
    ("satellite", Sender::S2nBbr, Arm::EndToEnd, 7.0, 12.92),
    ("satellite", Sender::S2nBbr, Arm::Split, 7.0, 17.2),
];

/// A full datagram's frame on Ethernet over its UDP payload: the paper's links carry 20 Mbit/s of
/// frames, the laboratory's links 20 Mbit/s of payload, and goodput is in proportion.
const FRAME_RATIO: f64 = 1514.0 / 1472.0;

/// Headers of Ethernet, IPv4 and UDP, which the paper's counts of bytes have.
const HEADER_BYTES: u64 = 14 + 20 + 8;

/// Bytes of the Ethernet frames of this many datagrams with this much UDP payload.
pub(super) fn frame_bytes([datagrams, bytes]: [u64; 2]) -> f64 {
    (bytes + HEADER_BYTES * datagrams) as f64
}

pub(super) fn subject(arm: Arm) -> Subject {
    match arm {
        Arm::Packrat => Subject::Packrat,
        Arm::RepairOnly => Subject::Variant,
        Arm::Split => Subject::Split,
        Arm::EndToEnd => Subject::EndToEnd,
        Arm::Ideal => Subject::Bound,
    }
}

pub(super) fn label(arm: Arm) -> &'static str {
    match arm {
        Arm::Packrat => "Packrat",
        Arm::RepairOnly => "repair only",
        Arm::Split => "split",
        Arm::EndToEnd => "end to end",
        Arm::Ideal => "no loss",
    }
}

pub(super) fn scenario(name: &str, settings: Settings) -> Result<Scenario, Failure> {
    let mut scenario = Scenario::load(name)?;
    scenario.size = settings.size;
    Ok(scenario)
}

fn seeds(
    scenario: &Scenario,
    arm: Arm,
    sender: Sender,
    settings: Settings,
) -> impl Iterator<Item = Trial> {
    (1..=settings.seeds).map(move |seed| Trial::new(scenario.clone(), arm, sender, seed))
}

fn measured(settings: Settings) -> String {
    let megabytes = settings.size as f64 * 1e-6;
    format!(
        "Median and quartiles of {} downloads of {megabytes} MB in virtual time.",
        settings.seeds
    )
}

/// Goodput over a quantity of the scenario, for each compared arm, and without loss.
fn lines(
    title: String,
    x: Axis,
    over: &[f64],
    results: &[TrialResult],
    key: fn(&TrialResult) -> f64,
) -> Lines {
    let goodput = |result: &TrialResult| result.download.goodput_mbps;
    let mut series: Vec<Series> = COMPARED_ARMS
        .iter()
        .map(|&arm| {
            Series::line(
                label(arm),
                subject(arm),
                over.iter()
                    .map(|&x| {
                        let same = |result: &&TrialResult| {
                            result.setting.arm == arm && (key(result) - x).abs() < 1e-9
                        };
                        Point::of(x, results.iter().filter(same).map(goodput))
                    })
                    .collect(),
            )
        })
        .collect();
    let ideal = Point::of(
        0.0,
        results.iter().filter(|result| result.setting.arm == Arm::Ideal).map(goodput),
    )
    .y;
    series.push(Series::curve(
        label(Arm::Ideal),
        Subject::Bound,
        over.iter().map(|&x| Point::exact(x, ideal)).collect(),
    ));
    Lines { title, x, y: Axis::linear("Mbit/s").with_ticks(&[0.0, 5.0, 10.0, 15.0, 20.0]), series }
}

/// Figure 5: goodput over loss.
pub(super) fn goodput(settings: Settings) -> Result<Plan, Failure> {
    goodput_behind(QueueKind::DropTail, "fig5", settings)
}

/// Figure 5 with the queues of Packrat26: adaptive RED.
pub(super) fn goodput_red(settings: Settings) -> Result<Plan, Failure> {
    goodput_behind(QueueKind::Red, "fig5red", settings)
}

fn goodput_behind(
    queue: QueueKind,
    figure: &'static str,
    settings: Settings,
) -> Result<Plan, Failure> {
    let senders = [(Sender::S2nCubic, "CUBIC"), (Sender::S2nBbr, "BBR")];
    let mut panels = Vec::new();
    for (name, place) in LAST_MILES {
        for (sender, control) in senders {
            let scenario = scenario(name, settings)?.with_queue(queue);
            let mut trials: Vec<Trial> = seeds(&scenario, Arm::Ideal, sender, settings).collect();
            for loss in LOSS_RATES {
                for arm in COMPARED_ARMS {
                    trials.extend(seeds(&scenario.clone().with_loss(loss), arm, sender, settings));
                }
            }
            panels.push(((name, sender, format!("{place}, {control}")), trials));
        }
    }
    Ok(Plan::of_groups(panels, move |panels| {
        let losses = LOSS_RATES.map(|loss| loss * 100.0);
        let panels = panels.into_iter().map(|((name, sender, title), results)| {
            let x = Axis::linear("loss of the last mile, %").with_ticks(&losses);
            let mut lines =
                lines(title, x, &losses, &results, |result| result.setting.loss * 100.0);
            for arm in COMPARED_ARMS {
                let points = PAPER_POINTS
                    .iter()
                    .filter(|point| (point.0, point.1, point.2) == (name, sender, arm))
                    .map(|point| (point.3, point.4));
                lines.series.push(of_paper(arm, points));
            }
            Panel::Lines(lines)
        });
        Figure::new(
            figure,
            format!(
                "Goodput of a download over the loss of the last mile, {} queues",
                queue.name()
            ),
            measured(settings)
                + " Senders: s2n-quic. Diamonds: the paper (picoquic; BBR version 3), times 1.029: its links count Ethernet frames.",
            panels.collect(),
        )
    }))
}

/// Points of Packrat26 in the unit of the laboratory.
fn of_paper(arm: Arm, points: impl Iterator<Item = (f64, f64)>) -> Series {
    let points = points.map(|(x, y)| Point::exact(x, y * FRAME_RATIO)).collect();
    Series::paper(format!("{} (paper)", label(arm)), subject(arm), points)
}

/// The picture of README.md: of figure 5 what a server with CUBIC has, without other ways and
/// without the paper.
pub(super) fn gain(figure: &Figure) -> Figure {
    const SHOWN: [Subject; 3] = [Subject::Packrat, Subject::EndToEnd, Subject::Bound];
    let panels = figure.panels.iter().filter_map(|panel| {
        let Panel::Lines(lines) = panel else { return None };
        let mut lines = lines.clone();
        lines.title = lines.title.strip_suffix(", CUBIC")?.to_owned();
        // Three such panels are narrow.
        lines.x.ticks = vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0];
        lines.series.retain(|series| series.form != Form::Paper && SHOWN.contains(&series.subject));
        Some(Panel::Lines(lines))
    });
    Figure::new(
        "gain",
        "Goodput of a download over a lossy last mile, server with CUBIC",
        String::new(),
        panels.collect(),
    )
}

/// Figure 10: goodput over the length of bursts.
pub(super) fn bursts(settings: Settings) -> Result<Plan, Failure> {
    let mut panels = Vec::new();
    for (name, place) in &LAST_MILES[..2] {
        let mut scenario = scenario(name, settings)?.with_loss(0.1);
        // As in Packrat26, appendix A.
        (scenario.last_mile.good_loss, scenario.last_mile.bad_loss) = (0.02, 0.8);
        let mut trials: Vec<Trial> =
            seeds(&scenario, Arm::Ideal, Sender::S2nCubic, settings).collect();
        for burst in BURST_DATAGRAMS {
            let scenario = scenario.clone().with_burst(burst);
            for arm in COMPARED_ARMS {
                trials.extend(seeds(&scenario, arm, Sender::S2nCubic, settings));
            }
        }
        panels.push(((*name, format!("{place}, CUBIC, 10 % loss")), trials));
    }
    Ok(Plan::of_groups(panels, move |panels| {
        let panels = panels.into_iter().map(|((name, title), results)| {
            let x = Axis::logarithmic("mean length of the bad state, datagrams")
                .with_ticks(&BURST_DATAGRAMS);
            let mut lines =
                lines(title, x, &BURST_DATAGRAMS, &results, |result| result.setting.burst);
            if name == "wifi" {
                for (arm, points) in [
                    (Arm::Packrat, [(1.0, 17.8), (5.0, 8.7)]),
                    (Arm::Split, [(1.0, 18.6), (5.0, 16.7)]),
                ] {
                    lines.series.push(of_paper(arm, points.into_iter()));
                }
            }
            Panel::Lines(lines)
        });
        Figure::new(
            "fig10",
            "Goodput when losses come in bursts",
            measured(settings)
                + " Gilbert–Elliott, 2 % lost in the good state, 80 % in the bad one; diamonds: the paper, times 1.029.",
            panels.collect(),
        )
    }))
}

/// Bars of a field for several arms.
fn bars(
    results: &[TrialResult],
    arms: &[(Arm, Option<f64>)],
    field: impl Fn(&TrialResult) -> f64,
) -> Vec<Bar> {
    arms.iter()
        .map(|&(arm, paper)| {
            Bar::new(
                label(arm),
                subject(arm),
                Point::of(
                    0.0,
                    results.iter().filter(|result| result.setting.arm == arm).map(&field),
                ),
                paper,
            )
        })
        .collect()
}

/// Figure 8: spurious retransmissions.
pub(super) fn spurious(settings: Settings) -> Result<Plan, Failure> {
    const REPAIR_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::RepairOnly, Arm::Packrat];
    let scenario = scenario("wifi", settings)?;
    let trials: Vec<Trial> = REPAIR_ARMS
        .iter()
        .flat_map(|&arm| seeds(&scenario, arm, Sender::S2nCubic, settings))
        .collect();
    Ok(Plan::of_trials(trials, move |results| {
        let arms = REPAIR_ARMS.map(|arm| (arm, None));
        let panel = |title: &str, field: fn(&TrialResult) -> f64| {
            let bars = bars(&results, &arms, field);
            Panel::bars(title, "packets per download", 0, bars)
        };
        Figure::new(
            "fig8",
            "What the sender takes for lost, WiFi, 4 % loss, CUBIC",
            measured(settings) + " The paper: 75 times fewer spurious ones with the hold.",
            vec![
                panel("Declared lost although they arrived (spurious)", |result| {
                    result.assistance.spurious as f64
                }),
                panel("Declared lost, all", |result| result.reaction.declared_lost as f64),
            ],
        )
    }))
}

/// Figure 9, a and b: the bytes on the links.
pub(super) fn link_overhead(settings: Settings) -> Result<Plan, Failure> {
    const ASSISTED_ARMS: [Arm; 2] = [Arm::EndToEnd, Arm::Packrat];
    let scenario = scenario("wifi", settings)?;
    let trials: Vec<Trial> = ASSISTED_ARMS
        .iter()
        .flat_map(|&arm| seeds(&scenario, arm, Sender::S2nCubic, settings))
        .collect();
    Ok(Plan::of_trials(trials, move |results| {
        type Field = fn(&TrialResult) -> f64;
        // The bytes of Packrat26 are of a download of 25 MB.
        let scale = settings.size as f64 / 25e6;
        let panel = |title: &str, unit: &str, digits, paper: [Option<f64>; 2], field: Field| {
            let arms = [(ASSISTED_ARMS[0], paper[0]), (ASSISTED_ARMS[1], paper[1])];
            let bars = bars(&results, &arms, field);
            Panel::bars(title, unit, digits, bars)
        };
        let paper = [Some(0.324 * scale), Some(0.387 * scale)];
        Figure::new(
            "fig9",
            "What a download sends into the links, WiFi, 4 % loss, CUBIC",
            measured(settings)
                + " Bytes of Ethernet frames. Diamonds: the paper, in proportion to the size.",
            vec![
                panel("Client to gateway", "MB", 3, paper, |r| {
                    frame_bytes(r.links.last_mile_up) * 1e-6
                }),
                panel("Client to gateway", "datagrams", 0, [None; 2], |r| {
                    r.links.last_mile_up[0] as f64
                }),
                panel("Gateway to server", "MB", 3, [None; 2], |r| {
                    frame_bytes(r.links.far_up) * 1e-6
                }),
                panel("Gateway to server", "datagrams", 0, [None; 2], |r| r.links.far_up[0] as f64),
                panel("Gateway to client", "MB", 2, [None; 2], |r| {
                    frame_bytes(r.links.last_mile_down) * 1e-6
                }),
                panel("Server to gateway", "MB", 2, [None; 2], |r| {
                    frame_bytes(r.links.far_down) * 1e-6
                }),
            ],
        )
    }))
}

/// Bound and mean of the cache in Packrat26, bytes.
const PAPER_CACHE: (usize, f64) = (48_000, 22.0);
/// Seconds that are drawn, and between two points.
const CACHE_SECONDS: f64 = 10.0;
const CACHE_STEP: f64 = 0.05;

/// Figure 11, a: bytes in the gateway's cache over time.
pub(super) fn cache(settings: Settings) -> Result<Plan, Failure> {
    // Ten seconds at 20 Mbit/s, whatever the size of the other figures.
    let scenario = scenario("wifi", Settings { size: 25_000_000, ..settings })?;
    Ok(Plan::new(2, move |bench| {
        let mut panels = Vec::new();
        for bound in [None, Some(PAPER_CACHE.0)] {
            let mut trial = Trial::new(scenario.clone(), Arm::Packrat, Sender::S2nCubic, 1);
            let title = match bound {
                Some(bytes) => {
                    trial.gateway.cache_bytes_per_flow = bytes;
                    format!("At most {} kB, as in the paper", bytes / 1000)
                }
                None => {
                    format!("At most {} kB, the default", trial.gateway.cache_bytes_per_flow / 1000)
                }
            };
            let (result, trace) = trial.trace()?;
            bench.tick();
            let flat = |y| vec![Point::exact(0.0, y), Point::exact(CACHE_SECONDS, y)];
            let mean = result.assistance.cache_mean * 1e-3;
            panels.push(Panel::lines(
                title,
                Axis::linear("seconds"),
                Axis::linear("kB in the cache"),
                vec![
                    Series::curve(format!("mean {mean:.0} kB"), Subject::Packrat, flat(mean)),
                    Series::curve("most", Subject::Variant, cached(&trace)),
                    Series::curve(
                        format!("paper: {:.0} kB", PAPER_CACHE.1),
                        Subject::Bound,
                        flat(PAPER_CACHE.1),
                    ),
                ],
            ));
        }
        Ok(Figure::new(
            "fig11",
            "The gateway's cache during a download, WiFi, 4 % loss, CUBIC",
            format!("The most in each {:.0} ms of one download.", CACHE_STEP * 1e3),
            panels,
        ))
    }))
}

/// The most kilobytes in the cache in each step of time.
fn cached(trace: &[TraceEvent]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for event in trace {
        if let TraceEvent::LastMile { at, cache_bytes: Some(bytes), .. } = *event
            && at <= CACHE_SECONDS
        {
            let (step, kilobytes) = ((at / CACHE_STEP).floor() * CACHE_STEP, bytes as f64 * 1e-3);
            match points.last_mut().filter(|last| last.x == step) {
                Some(last) => *last = Point::exact(step, last.y.max(kilobytes)),
                None => points.push(Point::exact(step, kilobytes)),
            }
        }
    }
    points
}
