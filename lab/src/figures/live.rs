//! Figures of live streams: latency, requests, spurious retransmissions, overhead on the links, the
//! cache.

use super::data::{Axis, Bar, Bars, Figure, Form, Lines, Panel, Point, Series, Subject};
use super::{Bench, FigureError, Plan, Settings};
use crate::live::{Arm, MediaResult, MediaTrial, MulticastArm, MulticastTrial, Stream};
use packrat_emulation::scenario::Scenario;

/// Points of a distribution that is drawn.
const DISTRIBUTION_POINTS: usize = 200;
/// Packets per second, and seconds, of a stream with many receivers.
const MULTICAST_STREAM: (u64, u64) = (1000, 30);
/// Mean of the cache in Packrat26, kB.
const PAPER_CACHE: f64 = 3.8;

fn subject(arm: Arm) -> Subject {
    match arm {
        Arm::Packrat => Subject::Packrat,
        Arm::RepairOnly | Arm::EveryEack | Arm::NoEarlyCopies => Subject::Variant,
        Arm::EndToEnd => Subject::EndToEnd,
        Arm::Ideal => Subject::Bound,
    }
}

fn label(arm: Arm) -> &'static str {
    match arm {
        Arm::Packrat => "Packrat",
        Arm::RepairOnly => "repair only",
        Arm::EveryEack => "eACKs all the time",
        Arm::NoEarlyCopies => "without early copies",
        Arm::EndToEnd => "end to end",
        Arm::Ideal => "no loss",
    }
}

fn run(bench: &Bench, scenario: &Scenario, arm: Arm, settings: Settings) -> Vec<MediaResult> {
    let trials = (1..=settings.seeds).map(|seed| {
        let result = MediaTrial::new(scenario.clone(), Stream::Audio, arm, seed).run();
        bench.tick();
        result
    });
    trials.collect()
}

fn measured(settings: Settings) -> String {
    format!("{} streams of three minutes in virtual time.", settings.seeds)
}

fn bar(
    results: &[MediaResult],
    arm: Arm,
    paper: Option<f64>,
    field: fn(&MediaResult) -> f64,
) -> Bar {
    let value = Point::of(0.0, results.iter().map(field));
    Bar { label: label(arm).to_owned(), subject: subject(arm), value, paper }
}

/// Figure 6: how late audio is played.
pub(super) fn latency(settings: Settings) -> Result<Plan, FigureError> {
    const COPIES_ARMS: [Arm; 3] = [Arm::Packrat, Arm::NoEarlyCopies, Arm::EndToEnd];
    let scenarios = [("cellular", "Cellular"), ("satellite", "Satellite")]
        .map(|(name, title)| (Scenario::load(name), title));
    let make = move |bench: &Bench| {
        let mut panels = Vec::new();
        for (scenario, title) in scenarios {
            let scenario = scenario?;
            let series = COPIES_ARMS.map(|arm| {
                let results = run(bench, &scenario, arm, settings);
                let mut latencies: Vec<u64> =
                    results.iter().flat_map(|result| result.latencies.iter().copied()).collect();
                latencies.sort_unstable();
                // The curves differ in the last tenth.
                let points = (0..=DISTRIBUTION_POINTS).filter_map(|step| {
                    let share = 0.9 + 0.1 * step as f64 / DISTRIBUTION_POINTS as f64;
                    let index = ((latencies.len() as f64 * share) as usize)
                        .min(latencies.len().checked_sub(1)?);
                    Some(Point::exact(*latencies.get(index)? as f64 * 1e-3, share * 100.0))
                });
                let points = points.collect();
                Series {
                    label: label(arm).to_owned(),
                    subject: subject(arm),
                    form: Form::Curve,
                    points,
                }
            });
            panels.push(Panel::Lines(Lines {
                title: format!("{title}, 10 % loss"),
                x: Axis::linear("milliseconds from production until it can be played"),
                y: Axis::linear("% of the audio")
                    .with_ticks(&[90.0, 92.0, 94.0, 96.0, 98.0, 100.0]),
                series: series.to_vec(),
            }));
        }
        Ok(Figure {
            name: "fig6".to_owned(),
            title: "One-way latency of audio with forward error correction: the last tenth"
                .to_owned(),
            caption: measured(settings)
                + " The paper: 190 ms at 99 % on the satellite, the last percent 60 ms (Packrat) or 240 ms later.",
            panels,
        })
    };
    Ok(Plan { steps: settings.seeds * 6, make: Box::new(make) })
}

/// Figure 7: the requests of receivers of the same stream to the server.
pub(super) fn requests(settings: Settings) -> Result<Plan, FigureError> {
    const RECEIVER_COUNTS: [usize; 2] = [16, 64];
    const MULTICAST_ARMS: [(MulticastArm, &str, Subject); 3] = [
        (MulticastArm::EndToEnd, "end to end", Subject::EndToEnd),
        (MulticastArm::Packrat, "Packrat", Subject::Packrat),
        (MulticastArm::PackratGroup, "Packrat, repairs to the group", Subject::Variant),
    ];
    let scenario = Scenario::load("cellular")?;
    let make = move |bench: &Bench| {
        let panels = RECEIVER_COUNTS.map(|receivers| {
            let bars = MULTICAST_ARMS.map(|(arm, label, subject)| {
                let values: Vec<f64> = (1..=settings.seeds)
                    .map(|seed| {
                        let mut trial = MulticastTrial::new(scenario.clone(), arm, seed);
                        (trial.receivers, trial.rate) = (receivers, MULTICAST_STREAM.0);
                        trial.duration = std::time::Duration::from_secs(MULTICAST_STREAM.1);
                        bench.tick();
                        trial.run().requests_per_second
                    })
                    .collect();
                let value = Point::of(0.0, values.into_iter());
                Bar { label: label.to_owned(), subject, value, paper: None }
            });
            Panel::Bars(Bars {
                title: format!("{receivers} receivers"),
                unit: "packets asked for, per receiver and second".to_owned(),
                digits: 2,
                bars: bars.to_vec(),
            })
        });
        Ok(Figure {
            name: "fig7".to_owned(),
            title: "What receivers of one stream ask the server for, cellular, 10 % loss"
                .to_owned(),
            caption: format!(
                "{} streams of {} packets per second for {} s. The paper: 59 times fewer with Packrat.",
                settings.seeds, MULTICAST_STREAM.0, MULTICAST_STREAM.1
            ),
            panels: panels.to_vec(),
        })
    };
    Ok(Plan { steps: settings.seeds * 6, make: Box::new(make) })
}

/// Figure 8b: the server's needless retransmissions.
pub(super) fn spurious(settings: Settings) -> Result<Plan, FigureError> {
    const REPAIR_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::RepairOnly, Arm::Packrat];
    let scenario = Scenario::load("satellite")?;
    let make = move |bench: &Bench| {
        let results = REPAIR_ARMS.map(|arm| (arm, run(bench, &scenario, arm, settings)));
        let panel = |title: &str, field: fn(&MediaResult) -> f64| {
            let bars =
                results.iter().map(|(arm, results)| bar(results, *arm, None, field)).collect();
            Panel::Bars(Bars {
                title: title.to_owned(),
                unit: "packets per stream".to_owned(),
                digits: 0,
                bars,
            })
        };
        Ok(Figure {
            name: "fig8b".to_owned(),
            title: "What the server of an audio stream sends again, satellite, 10 % loss"
                .to_owned(),
            caption: measured(settings) + " The paper: 15 times fewer spurious ones with the hold.",
            panels: vec![
                panel("Retransmissions that were not needed", |result| result.spurious as f64),
                panel("Retransmissions, all", |result| result.retransmissions as f64),
            ],
        })
    };
    Ok(Plan { steps: settings.seeds * REPAIR_ARMS.len() as u64, make: Box::new(make) })
}

/// Figure 9, c and d: the bytes on the links.
pub(super) fn link_overhead(settings: Settings) -> Result<Plan, FigureError> {
    const EACK_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::EveryEack, Arm::Packrat];
    let scenario = Scenario::load("satellite")?;
    let make = move |bench: &Bench| {
        let results = EACK_ARMS.map(|arm| (arm, run(bench, &scenario, arm, settings)));
        let panel = |title: &str, unit: &str, digits, field: fn(&MediaResult) -> f64| {
            let bars =
                results.iter().map(|(arm, results)| bar(results, *arm, None, field)).collect();
            Panel::Bars(Bars { title: title.to_owned(), unit: unit.to_owned(), digits, bars })
        };
        Ok(Figure {
            name: "fig9cd".to_owned(),
            title: "What an audio stream sends into the links, satellite, 10 % loss".to_owned(),
            caption: measured(settings)
                + " With IP and UDP headers. The paper: the client makes up 8.2 % of the bytes with Packrat, 1.0 % without.",
            panels: vec![
                panel("Client to gateway", "kB", 0, |result| result.client.bytes as f64 * 1e-3),
                panel("Client to gateway", "packets", 0, |result| result.client.packets as f64),
                panel("Gateway to client", "kB", 0, |result| result.last_mile.bytes as f64 * 1e-3),
                panel("Gateway to client", "packets", 0, |result| result.last_mile.packets as f64),
                panel("Server to gateway", "kB", 0, |result| result.server.bytes as f64 * 1e-3),
                panel("The client's share of the bytes of both ends", "%", 2, |r| {
                    r.client_share * 100.0
                }),
            ],
        })
    };
    Ok(Plan { steps: settings.seeds * EACK_ARMS.len() as u64, make: Box::new(make) })
}

/// Figure 11b: the cache during an audio stream.
pub(super) fn cache(_: Settings) -> Result<Plan, FigureError> {
    let scenario = Scenario::load("satellite")?;
    let make = move |bench: &Bench| {
        let trial = MediaTrial::new(scenario, Stream::Audio, Arm::Packrat, 1);
        let result = trial.run();
        bench.tick();
        let series = result.cache_series.iter();
        let points =
            series.map(|(seconds, bytes)| Point::exact(*seconds, *bytes as f64 * 1e-3)).collect();
        let flat = |y| vec![Point::exact(0.0, y), Point::exact(10.0, y)];
        let line =
            |label: String, subject, points| Series { label, subject, form: Form::Curve, points };
        let mean = result.cache_mean * 1e-3;
        Ok(Figure {
            name: "fig11b".to_owned(),
            title: "The gateway's cache during an audio stream, satellite, 10 % loss".to_owned(),
            caption:
                "At most 20 kB, as in the paper. What is not spoken of stays until it is evicted."
                    .to_owned(),
            panels: vec![Panel::Lines(Lines {
                title: "Ten seconds".to_owned(),
                x: Axis::linear("seconds"),
                y: Axis::linear("kB in the cache"),
                series: vec![
                    line("cached".to_owned(), Subject::Variant, points),
                    line(format!("mean {mean:.1} kB"), Subject::Packrat, flat(mean)),
                    line(format!("paper: {PAPER_CACHE} kB"), Subject::Bound, flat(PAPER_CACHE)),
                ],
            })],
        })
    };
    Ok(Plan { steps: 1, make: Box::new(make) })
}
