//! Figures of live streams: latency, requests, spurious retransmissions, overhead on the links, the
//! cache.

use super::plan::{Bench, Plan, Settings};
use crate::failure::Failure;
use packrat_emulation::scenario::Scenario;
use packrat_lab::drawing::{Axis, Bar, Figure, Panel, Point, Series, Subject};
use packrat_lab::live::{Arm, MediaResult, MediaTrial, MulticastArm, MulticastTrial, Stream};

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
    Bar::new(label(arm), subject(arm), value, paper)
}

/// Figure 6: how late audio is played.
pub(super) fn latency(settings: Settings) -> Result<Plan, Failure> {
    const COPIES_ARMS: [Arm; 3] = [Arm::Packrat, Arm::NoEarlyCopies, Arm::EndToEnd];
    let scenarios = [("cellular", "Cellular"), ("satellite", "Satellite")]
        .map(|(name, title)| (Scenario::load(name), title));
    Ok(Plan::new(settings.seeds * 6, move |bench| {
        let mut panels = Vec::new();
        for (scenario, title) in scenarios {
            let scenario = scenario?;
            let series = COPIES_ARMS.map(|arm| {
                let results = run(bench, &scenario, arm, settings);
                let mut latencies: Vec<u64> = results
                    .iter()
                    .flat_map(|result| result.experience.latencies.iter().copied())
                    .collect();
                latencies.sort_unstable();
                // The curves differ in the last tenth.
                let points = (0..=DISTRIBUTION_POINTS).filter_map(|step| {
                    let share = 0.9 + 0.1 * step as f64 / DISTRIBUTION_POINTS as f64;
                    let index = ((latencies.len() as f64 * share) as usize)
                        .min(latencies.len().checked_sub(1)?);
                    Some(Point::exact(*latencies.get(index)? as f64 * 1e-3, share * 100.0))
                });
                let points = points.collect();
                Series::curve(label(arm), subject(arm), points)
            });
            panels.push(Panel::lines(
                format!("{title}, 10 % loss"),
                Axis::linear("milliseconds from production until it can be played"),
                Axis::linear("% of the audio").with_ticks(&[90.0, 92.0, 94.0, 96.0, 98.0, 100.0]),
                series.to_vec(),
            ));
        }
        Ok(Figure::new(
            "fig6",
            "One-way latency of audio with forward error correction: the last tenth",
            measured(settings)
                + " The paper: 190 ms at 99 % on the satellite, the last percent 60 ms (Packrat) or 240 ms later.",
            panels,
        ))
    }))
}

/// Figure 7: the requests of receivers of the same stream to the server.
pub(super) fn requests(settings: Settings) -> Result<Plan, Failure> {
    const RECEIVER_COUNTS: [usize; 2] = [16, 64];
    const MULTICAST_ARMS: [(MulticastArm, &str, Subject); 3] = [
        (MulticastArm::EndToEnd, "end to end", Subject::EndToEnd),
        (MulticastArm::Packrat, "Packrat", Subject::Packrat),
        (MulticastArm::PackratGroup, "Packrat, repairs to the group", Subject::Variant),
    ];
    let scenario = Scenario::load("cellular")?;
    Ok(Plan::new(settings.seeds * 6, move |bench| {
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
                Bar::new(label, subject, value, None)
            });
            Panel::bars(
                format!("{receivers} receivers"),
                "packets asked for, per receiver and second",
                2,
                bars.to_vec(),
            )
        });
        Ok(Figure::new(
            "fig7",
            "What receivers of one stream ask the server for, cellular, 10 % loss",
            format!(
                "{} streams of {} packets per second for {} s. The paper: 59 times fewer with Packrat.",
                settings.seeds, MULTICAST_STREAM.0, MULTICAST_STREAM.1
            ),
            panels.to_vec(),
        ))
    }))
}

/// Figure 8b: the server's needless retransmissions.
pub(super) fn spurious(settings: Settings) -> Result<Plan, Failure> {
    const REPAIR_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::RepairOnly, Arm::Packrat];
    let scenario = Scenario::load("satellite")?;
    Ok(Plan::new(settings.seeds * REPAIR_ARMS.len() as u64, move |bench| {
        let results = REPAIR_ARMS.map(|arm| (arm, run(bench, &scenario, arm, settings)));
        let panel = |title: &str, field: fn(&MediaResult) -> f64| {
            let bars =
                results.iter().map(|(arm, results)| bar(results, *arm, None, field)).collect();
            Panel::bars(title, "packets per stream", 0, bars)
        };
        Ok(Figure::new(
            "fig8b",
            "What the server of an audio stream sends again, satellite, 10 % loss",
            measured(settings) + " The paper: 15 times fewer spurious ones with the hold.",
            vec![
                panel("Retransmissions that were not needed", |result| result.spurious as f64),
                panel("Retransmissions, all", |result| result.retransmissions as f64),
            ],
        ))
    }))
}

/// Figure 9, c and d: the bytes on the links.
pub(super) fn link_overhead(settings: Settings) -> Result<Plan, Failure> {
    const EACK_ARMS: [Arm; 3] = [Arm::EndToEnd, Arm::EveryEack, Arm::Packrat];
    let scenario = Scenario::load("satellite")?;
    Ok(Plan::new(settings.seeds * EACK_ARMS.len() as u64, move |bench| {
        let results = EACK_ARMS.map(|arm| (arm, run(bench, &scenario, arm, settings)));
        let panel = |title: &str, unit: &str, digits, field: fn(&MediaResult) -> f64| {
            let bars =
                results.iter().map(|(arm, results)| bar(results, *arm, None, field)).collect();
            Panel::bars(title, unit, digits, bars)
        };
        Ok(Figure::new(
            "fig9cd",
            "What an audio stream sends into the links, satellite, 10 % loss",
            measured(settings)
                + " With IP and UDP headers. The paper: the client makes up 8.2 % of the bytes with Packrat, 1.0 % without.",
            vec![
                panel("Client to gateway", "kB", 0, |result| {
                    result.traffic.client.bytes as f64 * 1e-3
                }),
                panel("Client to gateway", "packets", 0, |result| {
                    result.traffic.client.packets as f64
                }),
                panel("Gateway to client", "kB", 0, |result| {
                    result.traffic.last_mile.bytes as f64 * 1e-3
                }),
                panel("Gateway to client", "packets", 0, |result| {
                    result.traffic.last_mile.packets as f64
                }),
                panel("Server to gateway", "kB", 0, |result| {
                    result.traffic.server.bytes as f64 * 1e-3
                }),
                panel("The client's share of the bytes of both ends", "%", 2, |r| {
                    r.client_share * 100.0
                }),
            ],
        ))
    }))
}

/// Figure 11b: the cache during an audio stream.
pub(super) fn cache(_: Settings) -> Result<Plan, Failure> {
    let scenario = Scenario::load("satellite")?;
    Ok(Plan::new(1, move |bench| {
        let trial = MediaTrial::new(scenario, Stream::Audio, Arm::Packrat, 1);
        let result = trial.run();
        bench.tick();
        let series = result.cache_series.iter();
        let points =
            series.map(|(seconds, bytes)| Point::exact(*seconds, *bytes as f64 * 1e-3)).collect();
        let flat = |y| vec![Point::exact(0.0, y), Point::exact(10.0, y)];
        let line = |label: String, subject, points| Series::curve(label, subject, points);
        let mean = result.gateway.cache_mean * 1e-3;
        Ok(Figure::new(
            "fig11b",
            "The gateway's cache during an audio stream, satellite, 10 % loss",
            "At most 20 kB, as in the paper. What is not spoken of stays until it is evicted.",
            vec![Panel::lines(
                "Ten seconds",
                Axis::linear("seconds"),
                Axis::linear("kB in the cache"),
                vec![
                    line("cached".to_owned(), Subject::Variant, points),
                    line(format!("mean {mean:.1} kB"), Subject::Packrat, flat(mean)),
                    line(format!("paper: {PAPER_CACHE} kB"), Subject::Bound, flat(PAPER_CACHE)),
                ],
            )],
        ))
    }))
}
