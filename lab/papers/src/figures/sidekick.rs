//! Figures of Sidekick24: uploads with Robin and PACUBIC, fewer acknowledgements, an audio stream. Beside
//! them Packrat's own uploads over the same links.

use super::plan::{Bench, Plan, Settings};
use crate::failure::Failure;
use crate::robin::{Acknowledging, Help, Media, Outcome, Quacks, Strawman, Upload, scenario};
use packrat_emulation::scenario::{FlowDirection, Scenario, Traffic};
use packrat_lab::drawing::{Axis, Bar, Figure, Panel, Point, Series, Subject};
use packrat_lab::statistics::quantile;
use packrat_lab::{Arm, Sender, Trial};
use std::time::Duration;

/// Sidekick24, table 5: intervals and thresholds of scenario 2, and twice and four times as long.
const ROBIN_QUACKS: [(&str, u64, usize); 3] =
    [("Robin", 30, 10), ("Robin, 2x", 60, 20), ("Robin, 4x", 120, 40)];
/// Sidekick24, table 5: interval and threshold of scenario 3.
const REDUCTION_QUACKS: Quacks = Quacks { every: Duration::from_millis(15), threshold: 50 };
/// Losses of the last mile, 0 to 1.
const LOSS_RATES: [f64; 7] = [0.0, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08];
/// Bytes of uploads.
const UPLOAD_BYTES: [u64; 3] = [1_000_000, 10_000_000, 50_000_000];
/// Intervals of quACKs, milliseconds.
const QUACK_MILLIS: [u64; 6] = [20, 40, 80, 160, 320, 640];

fn robin(every: u64, threshold: usize) -> Help {
    Help::Robin(Quacks { every: Duration::from_millis(every), threshold })
}

fn point(x: f64, outcomes: &[Outcome], value: impl Fn(&Outcome) -> f64) -> Point {
    Point::of(x, outcomes.iter().map(value))
}

/// Runs the upload with each seed.
fn seeds(settings: Settings, upload: impl Fn(u64) -> Upload) -> Vec<Outcome> {
    (1..=settings.seeds).map(|seed| upload(seed).run()).collect()
}

fn goodput(outcome: &Outcome) -> f64 {
    outcome.goodput_mbps
}

/// An upload by s2n-quic's CUBIC over the same links, through Packrat's own engine and shim.
fn packrat(bytes: u64, loss: f64, seed: u64) -> Result<Trial, Failure> {
    let mut traffic = Traffic::load("put")?;
    for flow in &mut traffic.flows {
        flow.size = Some(bytes);
        flow.direction = FlowDirection::Up;
    }
    let scenario = Scenario::load("uplink")?.with_loss(loss).with_traffic(traffic);
    Ok(Trial::new(scenario, Arm::Packrat, Sender::S2nCubic, seed))
}

fn packrat_point(
    bench: &Bench,
    settings: Settings,
    x: f64,
    bytes: u64,
    loss: f64,
) -> Result<Point, Failure> {
    let trials: Result<Vec<Trial>, Failure> =
        (1..=settings.seeds).map(|seed| packrat(bytes, loss, seed)).collect();
    let results = bench.run(&trials?)?;
    Ok(Point::of(x, results.iter().map(|result| result.flows[0].goodput_mbps)))
}

/// Scenario 3: the sender's own link is the slow one.
fn reduction(bytes: u64, help: Help, acknowledging: Acknowledging, seed: u64) -> Upload {
    let base = scenario(bytes, 0.0, help, seed);
    Upload {
        delays: [base.delays[1], base.delays[0]],
        rates: [base.rates[1], base.rates[0]],
        acknowledging,
        ..base
    }
}

/// Figure 4: the three scenarios.
pub(super) fn scenarios(settings: Settings) -> Result<Plan, Failure> {
    Ok(Plan::new(9 + settings.seeds, move |bench| {
        Ok(Figure::new(
            "sidekick4",
            "An audio stream, an upload, and fewer acknowledgements",
            format!(
                "{} trials each; audio: 5 minutes. Diamonds: the paper, as far as its text has numbers.",
                settings.seeds
            ),
            vec![
                audio(bench, settings),
                uploads(bench, settings)?,
                acknowledgements(bench, settings),
            ],
        ))
    }))
}

fn audio(bench: &Bench, settings: Settings) -> Panel {
    const QUACK_WAYS: [(&str, Option<usize>, Subject, Option<f64>); 5] = [
        ("end to end", None, Subject::EndToEnd, Some(48.6)),
        ("quACK each packet", Some(1), Subject::Variant, None),
        ("Robin: each 2", Some(2), Subject::Packrat, Some(2.2)),
        ("each 4", Some(4), Subject::Packrat, None),
        ("each 8", Some(8), Subject::Packrat, None),
    ];
    let bars = QUACK_WAYS.map(|(label, quack_every, subject, paper)| {
        let p99 = (1..=settings.seeds).map(|seed| {
            quantile(&Media { seconds: 300, loss: 0.036, quack_every, seed }.run().0, 0.99)
        });
        let value = Point::of(0.0, p99);
        bench.tick();
        Bar::new(label, subject, value, paper)
    });
    Panel::bars(
        "a) Audio, 3.6 % loss: 99th percentile of the wait in the receiver's buffer",
        "ms",
        1,
        bars.to_vec(),
    )
}

fn uploads(bench: &Bench, settings: Settings) -> Result<Panel, Failure> {
    let of =
        |help| point(0.0, &seeds(settings, |seed| scenario(10_000_000, 0.01, help, seed)), goodput);
    let alone = of(Help::None);
    // The text has the ratio only.
    let mut bars = vec![Bar::new("end to end", Subject::EndToEnd, alone, None)];
    for (at, (label, every, threshold)) in ROBIN_QUACKS.into_iter().enumerate() {
        let paper = (at == 0).then_some(3.6 * alone.y);
        bars.push(Bar::new(label, Subject::Variant, of(robin(every, threshold)), paper));
        bench.tick();
    }
    bars.push(Bar::new("split", Subject::Split, of(Help::Split), None));
    let packrat = packrat_point(bench, settings, 0.0, 10_000_000, 0.01)?;
    bars.push(Bar::new("Packrat", Subject::Packrat, packrat, None));
    Ok(Panel::bars(
        "b) Upload of 10 MB, 1 % loss on the near link",
        "Mbit/s (the paper's: 3.6 times end to end)",
        2,
        bars,
    ))
}

fn acknowledgements(bench: &Bench, settings: Settings) -> Panel {
    let line = |help| {
        let each = (10.0, Acknowledging::Each);
        let others = QUACK_MILLIS.map(|interval| {
            (interval as f64, Acknowledging::Every(Duration::from_millis(interval)))
        });
        let mut points: Vec<Point> = [each]
            .into_iter()
            .chain(others)
            .map(|(_, acknowledging)| {
                let outcomes =
                    seeds(settings, |seed| reduction(10_000_000, help, acknowledging, seed));
                let packets = outcomes[0].sent[2][0] as f64;
                point(packets, &outcomes, goodput)
            })
            .collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        bench.tick();
        points
    };
    let paper = |x, y| vec![Point::exact(x, y)];
    Panel::lines(
        "c) Upload of 10 MB, no loss: acknowledgements of each packet, or every 20 to 640 ms",
        Axis::logarithmic("datagrams of the receiver").with_ticks(&[10.0, 100.0, 1000.0, 10_000.0]),
        Axis::linear("Mbit/s").with_ticks(&[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
        vec![
            Series::line(
                "quACKs move the window",
                Subject::Packrat,
                line(Help::MovesWindow(REDUCTION_QUACKS)),
            ),
            Series::line("end to end", Subject::EndToEnd, line(Help::None)),
            Series::paper("quACKs (paper)", Subject::Packrat, paper(138.0, 8.4)),
            Series::paper("end to end (paper)", Subject::EndToEnd, paper(247.0, 4.5)),
        ],
    )
}

/// Figure 5: sizes, with and without loss.
pub(super) fn sizes(settings: Settings) -> Result<Plan, Failure> {
    Ok(Plan::new(18 + 6 * settings.seeds, move |bench| {
        let mut panels = Vec::new();
        for loss in [0.0, 0.01] {
            let mut bars = Vec::new();
            for size in UPLOAD_BYTES {
                let of = |help| {
                    let outcomes = seeds(settings, |seed| scenario(size, loss, help, seed));
                    point(0.0, &outcomes, goodput)
                };
                let megabytes = size / 1_000_000;
                let ways = [
                    ("end to end", Subject::EndToEnd, Help::None),
                    ("Robin", Subject::Variant, robin(30, 10)),
                    ("split", Subject::Split, Help::Split),
                ];
                let lossless = point(
                    0.0,
                    &seeds(settings, |seed| scenario(size, 0.0, Help::None, seed)),
                    goodput,
                );
                for (label, subject, help) in ways {
                    let paper = (loss > 0.0 && size == 10_000_000 && help == Help::None)
                        .then_some(0.28 * lossless.y);
                    bars.push(Bar::new(
                        format!("{megabytes} MB, {label}"),
                        subject,
                        of(help),
                        paper,
                    ));
                    bench.tick();
                }
                let packrat = packrat_point(bench, settings, 0.0, size, loss)?;
                bars.push(Bar::new(
                    format!("{megabytes} MB, Packrat"),
                    Subject::Packrat,
                    packrat,
                    None,
                ));
            }
            panels.push(Panel::bars(
                format!("{} % loss on the near link", loss * 100.0),
                "Mbit/s",
                2,
                bars,
            ));
        }
        Ok(Figure::new(
            "sidekick5",
            "Uploads of three sizes",
            format!(
                "Median and quartiles of {} uploads. Diamond: the paper's QUIC, 28 % of its speed without loss.",
                settings.seeds
            ),
            panels,
        ))
    }))
}

/// Figure 6: goodput over the loss of the near link.
pub(super) fn losses(settings: Settings) -> Result<Plan, Failure> {
    let length = LOSS_RATES.len() as u64;
    Ok(Plan::new(3 * length + length * settings.seeds, move |bench| {
        let ways = [
            ("Robin, PACUBIC", Subject::Variant, robin(30, 10)),
            ("split CUBIC", Subject::Split, Help::Split),
            ("end to end", Subject::EndToEnd, Help::None),
        ];
        let mut lines = Vec::new();
        for (label, subject, help) in ways {
            let points = LOSS_RATES.map(|loss| {
                let outcomes = seeds(settings, |seed| scenario(settings.size, loss, help, seed));
                bench.tick();
                point(loss * 100.0, &outcomes, goodput)
            });
            lines.push(Series::line(label, subject, points.to_vec()));
        }
        let mut points = Vec::new();
        for loss in LOSS_RATES {
            points.push(packrat_point(bench, settings, loss * 100.0, settings.size, loss)?);
        }
        lines.push(Series::line("Packrat", Subject::Packrat, points));
        Ok(Figure::new(
            "sidekick6",
            "An upload over the loss of its near link",
            format!(
                "Median and quartiles of {} uploads of {} MB: 1 ms and 100 Mbit/s, then 25 ms and 10 Mbit/s. The paper's text has no numbers of this figure: Robin follows split TCP, and both fall.",
                settings.seeds,
                settings.size as f64 * 1e-6
            ),
            vec![Panel::lines(
                "Goodput",
                Axis::linear("loss of the near link, %")
                    .with_ticks(&[0.0, 1.0, 2.0, 4.0, 6.0, 8.0]),
                Axis::linear("Mbit/s").with_ticks(&[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
                lines,
            )],
        ))
    }))
}

/// The paper's multiples of end to end: packets and bytes of sender, proxy and receiver, then goodput.
type Multiples = [[f64; 7]; 2];
/// The quACK and its strawmen.
const STRAWMAN_WAYS: [(&str, Subject, Option<Strawman>, Multiples); 4] = [
    (
        "1a: echo",
        Subject::EndToEnd,
        Some(Strawman::Datagrams(1)),
        [[0.96, 1.01, 2.02, 1.56, 1.01, 1.03, 3.33], [0.96, 1.0, 9.94, 4.99, 0.04, 0.08, 1.02]],
    ),
    (
        "1b: the last 5",
        Subject::Split,
        Some(Strawman::Datagrams(5)),
        [[0.94, 1.0, 2.0, 1.78, 1.0, 1.03, 3.53], [0.96, 1.0, 9.95, 7.13, 0.04, 0.08, 1.02]],
    ),
    (
        "1c: TCP",
        Subject::Bound,
        Some(Strawman::Segments),
        [[1.83, 1.06, 2.01, 1.83, 1.0, 1.03, 3.46], [1.91, 1.05, 9.73, 7.41, 0.04, 0.08, 0.97]],
    ),
    (
        "power sums",
        Subject::Variant,
        None,
        [[0.94, 1.0, 1.03, 1.07, 1.0, 1.03, 3.55], [0.96, 1.0, 1.09, 2.56, 0.04, 0.08, 0.98]],
    ),
];
/// Counted quantities, and their places among the multiples.
const COUNTED_QUANTITIES: [(&str, [(&str, usize); 3]); 2] = [
    ("datagrams", [("sender", 0), ("proxy", 2), ("receiver", 4)]),
    ("bytes", [("sender", 1), ("proxy", 3), ("receiver", 5)]),
];

/// One quantity of an outcome, by its place among the multiples.
fn quantity(outcome: &Outcome, which: usize) -> f64 {
    match which {
        6 => outcome.goodput_mbps,
        _ => outcome.sent[which / 2][which % 2] as f64,
    }
}

/// An upload with losses, or one with rare acknowledgements, as an upload of figure 7; `way`: `None`
/// end to end.
fn overhead_upload(rare: bool, way: Option<Option<Strawman>>, seed: u64) -> Upload {
    let help = way.map(|_| if rare { Help::MovesWindow(REDUCTION_QUACKS) } else { robin(30, 10) });
    let seldom = Acknowledging::Every(Duration::from_millis(80));
    let acknowledging = help.map_or(Acknowledging::Each, |_| seldom);
    let help = help.unwrap_or(Help::None);
    let upload = match rare {
        true => reduction(10_000_000, help, acknowledging, seed),
        false => scenario(10_000_000, 0.01, help, seed),
    };
    Upload { strawman: way.flatten(), ..upload }
}

/// The multiples of end to end of one kind of uploads.
fn multiples(bench: &Bench, settings: Settings, rare: bool) -> Vec<Panel> {
    let run = |way: Option<Option<Strawman>>| {
        bench.tick();
        seeds(settings, |seed| overhead_upload(rare, way, seed))
    };
    let base = run(None);
    let helped = STRAWMAN_WAYS.map(|(.., strawman, _)| run(Some(strawman)));
    let of = |node: &str, which: usize| {
        let ways = STRAWMAN_WAYS.iter().zip(&helped);
        let bars = ways.map(|((label, subject, _, paper), with)| {
            let ratio = |(with, base)| quantity(with, which) / quantity(base, which);
            let value = Point::of(0.0, with.iter().zip(&base).map(ratio));
            let node = if node.is_empty() { String::new() } else { format!("{node}, ") };
            let paper = Some(paper[usize::from(rare)][which]);
            Bar::new(format!("{node}{label}"), *subject, value, paper)
        });
        bars.collect::<Vec<Bar>>()
    };
    let title = if rare { "Acknowledgements every 80 ms" } else { "Upload, 1 % loss" };
    let panel = |unit: &str, bars| {
        Panel::bars(format!("{title}: {unit}"), "multiples of end to end", 2, bars)
    };
    let counted = COUNTED_QUANTITIES.map(|(unit, nodes)| {
        panel(unit, nodes.iter().flat_map(|(node, which)| of(node, *which)).collect())
    });
    counted.into_iter().chain([panel("goodput", of("", 6))]).collect()
}

/// Figure 7: the bytes that quACKs add to the links.
pub(super) fn overhead(settings: Settings) -> Result<Plan, Failure> {
    Ok(Plan::new(10, move |bench| {
        let [lossy, rare] = [false, true].map(|rare| multiples(bench, settings, rare));
        // Both kinds of uploads side by side.
        let panels = lossy.into_iter().zip(rare).flat_map(<[Panel; 2]>::from).collect();
        Ok(Figure::new(
            "sidekick7",
            "What quACKs and their strawmen add to the links, and take from them",
            format!(
                "Medians of {} uploads of 10 MB; bytes of Ethernet frames. Diamonds: the paper.",
                settings.seeds
            ),
            panels,
        ))
    }))
}

/// Figure 9: windows over time.
pub(super) fn windows(_: Settings) -> Result<Plan, Failure> {
    const STREAM_SECONDS: f64 = 30.0;
    Ok(Plan::new(6, |bench| {
        let ways = [
            ("PACUBIC", Subject::Variant, robin(30, 10)),
            ("CUBIC", Subject::EndToEnd, Help::None),
            ("split CUBIC, both windows", Subject::Split, Help::Split),
        ];
        let mut panels = Vec::new();
        for loss in [0.0, 0.01] {
            let mut lines = Vec::new();
            for (label, subject, help) in ways {
                let outcome = scenario(45_000_000, loss, help, 1).run();
                bench.tick();
                let points = outcome
                    .windows
                    .iter()
                    .take_while(|(at, ..)| *at <= STREAM_SECONDS)
                    .map(|(at, own, proxy)| Point::exact(*at, own + proxy));
                lines.push(Series::curve(label, subject, points.collect()));
            }
            panels.push(Panel::lines(
                format!("{} % loss on the near link", loss * 100.0),
                Axis::linear("seconds").with_ticks(&[0.0, 10.0, 20.0, 30.0]),
                Axis::linear("packets"),
                lines,
            ));
        }
        Ok(Figure::new(
            "sidekick9",
            "Congestion windows of a long upload",
            "Seed 1. The paper's figure has no numbers in its text: PACUBIC stays as high as both windows of split CUBIC together.",
            panels,
        ))
    }))
}
