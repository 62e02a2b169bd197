//! The savings of an eACK's parts in a download: prefixes as long as the difference needs (Packrat26,
//! section 5.2.2), and eACKs for missing datagrams only (section 5.2.3).

use super::data::{Axis, Bar, Bars, Figure, Form, Lines, Panel, Point, Series, Subject};
use super::downloads::{frame_bytes, scenario};
use super::{FigureError, Plan, Settings};
use crate::command::HELD_OUT;
use crate::observer::TraceEvent;
use crate::sender::Sender;
use crate::trial::{Arm, Trial, TrialResult};
use packrat_client::{ClientEvent, Live};
use packrat_eack::{Encoding, MAX_EXPECTED_DIFFERENCE, SketchLimits};

/// A way of reporting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Without assistance.
    EndToEnd,
    /// As users get it.
    Product,
    /// The product with the longest prefix each time.
    LongestPrefix,
    /// As a live stream's receiver, which differs in more than in its eACKs.
    Periodic,
    /// As `Periodic`, with eACKs for missing datagrams only.
    Selective,
}

/// Ways of sending eACKs, with their labels.
const EACK_WAYS: [(Way, &str, Subject); 5] = [
    (Way::EndToEnd, "end to end", Subject::EndToEnd),
    (Way::Product, "Packrat", Subject::Packrat),
    (Way::LongestPrefix, "longest prefix", Subject::Variant),
    (Way::Periodic, "as a live stream, periodic", Subject::Bound),
    (Way::Selective, "as a live stream, selective", Subject::Split),
];
/// The settings of Packrat26 for which it has figures of link overhead, and a harder one.
const LINK_SETTINGS: [(&str, &str, f64); 2] =
    [("wifi", "WiFi, 4 %", 0.04), ("satellite", "Satellite, 10 %", 0.1)];
/// Megabytes from client to gateway over WiFi in Packrat26, of 25, and how many times as many with
/// whole sketches.
const PAPER_MEGABYTES: [(Way, f64); 3] =
    [(Way::EndToEnd, 0.324), (Way::Product, 0.387), (Way::LongestPrefix, 3.6 * 0.387)];
/// Lower ends of the classes of differences.
const DIFFERENCE_CLASSES: [u64; 7] = [0, 1, 2, 4, 8, 16, 32];

impl Way {
    fn trial(
        self,
        place: (&str, &str, f64),
        seed: u64,
        settings: Settings,
    ) -> Result<Trial, FigureError> {
        let scenario = scenario(place.0, settings)?.with_loss(place.2);
        let arm = if self == Self::EndToEnd { Arm::EndToEnd } else { Arm::Packrat };
        let mut trial = Trial::new(scenario, arm, Sender::S2nCubic, seed);
        trial.client.longest_prefix = self == Self::LongestPrefix;
        let selective = self == Self::Selective;
        trial.client.live = matches!(self, Self::Periodic | Self::Selective)
            .then(|| Live { selective, ..Live::default() });
        Ok(trial)
    }
}

/// Bytes of each eACK, and the wait for each missing datagram, by the difference that the client knew of.
#[derive(Debug, Default)]
struct ByDifference {
    bytes: [Vec<f64>; DIFFERENCE_CLASSES.len()],
    waits: [Vec<f64>; DIFFERENCE_CLASSES.len()],
}

impl ByDifference {
    fn add(&mut self, trace: &[TraceEvent]) {
        let mut class = 0;
        for event in trace {
            let TraceEvent::Client { client, .. } = *event else { continue };
            match client {
                ClientEvent::EackSent { held, bytes, .. } => {
                    class =
                        DIFFERENCE_CLASSES.partition_point(|low| *low <= held).saturating_sub(1);
                    self.bytes[class].push(bytes as f64);
                }
                ClientEvent::MissingArrived { held: true, after, .. } => {
                    self.waits[class].push(after.as_secs_f64() * 1e3);
                }
                _ => {}
            }
        }
    }
}

fn series(label: &str, subject: Subject, form: Form, points: Vec<Point>) -> Series {
    Series { label: label.to_owned(), subject, form, points }
}

/// The middle of a class of differences on a logarithmic axis that has no zero.
fn place_of(class: usize) -> f64 {
    DIFFERENCE_CLASSES[class].max(1) as f64 * if class == 0 { 0.5 } else { 1.0 }
}

fn by_difference(classes: &[Vec<f64>]) -> Vec<Point> {
    let classes = classes.iter().enumerate().filter(|(_, values)| !values.is_empty());
    classes.map(|(class, values)| Point::of(place_of(class), values.iter().copied())).collect()
}

/// Bytes of a prefix over the difference, as they are serialised.
fn prefixes() -> Panel {
    let largest = SketchLimits::LARGEST;
    let sums = SketchLimits { coded_symbols: 0, ..largest };
    let symbols = SketchLimits { power_sums: 0, ..largest };
    let sized = |limits: SketchLimits| {
        let points = (1..=MAX_EXPECTED_DIFFERENCE).filter_map(|missing| {
            let encoding = limits.encoding_for(missing)?;
            let bytes = encoding.encoded_len();
            (encoding.decodable() >= missing).then(|| Point::exact(missing as f64, bytes as f64))
        });
        points.collect()
    };
    let whole = |encoding: Encoding| {
        [1, MAX_EXPECTED_DIFFERENCE]
            .map(|missing| Point::exact(missing as f64, encoding.encoded_len() as f64))
            .to_vec()
    };
    let count = MAX_EXPECTED_DIFFERENCE as u8 + 1;
    Panel::Lines(Lines {
        title: "Bytes of a sketch's prefix".to_owned(),
        x: Axis::logarithmic("datagrams missing").with_ticks(&[1.0, 4.0, 16.0, 64.0, 128.0]),
        y: Axis::logarithmic("bytes").with_ticks(&[10.0, 30.0, 100.0, 300.0, 1000.0]),
        series: vec![
            series("power sums", Subject::Packrat, Form::Curve, sized(sums)),
            series(
                "all power sums",
                Subject::Variant,
                Form::Curve,
                whole(Encoding::PowerSums { count }),
            ),
            series("coded symbols", Subject::Split, Form::Curve, sized(symbols)),
            series(
                "160 coded symbols",
                Subject::Bound,
                Form::Curve,
                whole(Encoding::CodedSymbols { count: 160 }),
            ),
        ],
    })
}

/// The ablations of eACKs in a download.
pub(super) fn ablations(settings: Settings) -> Result<Plan, FigureError> {
    let make = move |bench: &super::Bench| {
        let mut panels = vec![prefixes()];
        let mut lines = [Vec::new(), Vec::new()];
        for (way, label, subject) in EACK_WAYS {
            if way == Way::EndToEnd {
                continue;
            }
            let mut classes = ByDifference::default();
            for seed in 0..settings.seeds {
                classes.add(&way.trial(LINK_SETTINGS[1], HELD_OUT + seed, settings)?.trace()?.1);
                bench.tick();
            }
            for (lines, classes) in lines.iter_mut().zip([&classes.bytes, &classes.waits]) {
                lines.push(series(label, subject, Form::Line, by_difference(classes)));
            }
        }
        let titles =
            [("Bytes of an eACK", "bytes"), ("Wait for a missing datagram", "milliseconds")];
        for ((title, unit), series) in titles.into_iter().zip(lines) {
            panels.push(Panel::Lines(Lines {
                title: format!("{title}, {}", LINK_SETTINGS[1].1),
                x: Axis::logarithmic("missing at the last eACK, at least (0.5: none)")
                    .with_ticks(&[0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
                y: Axis::linear(unit),
                series,
            }));
        }
        for place in LINK_SETTINGS {
            let mut trials = Vec::new();
            for (way, ..) in EACK_WAYS {
                for seed in 0..settings.seeds {
                    trials.push(way.trial(place, HELD_OUT + seed, settings)?);
                }
            }
            let results = bench.run(&trials)?;
            let per_way = settings.seeds as usize;
            let panel = |title: &str,
                         unit: &str,
                         digits,
                         field: fn(&TrialResult) -> f64,
                         paper: Option<f64>| {
                let bars = EACK_WAYS.iter().zip(results.chunks(per_way)).map(
                    |(&(way, label, subject), results)| {
                        let paper = paper.and_then(|scale| {
                            let point = PAPER_MEGABYTES.iter().find(|(of, _)| *of == way)?;
                            Some(point.1 * scale)
                        });
                        let value = Point::of(0.0, results.iter().map(field));
                        Bar { label: label.to_owned(), subject, value, paper }
                    },
                );
                let bars = bars.collect();
                Panel::Bars(Bars {
                    title: format!("{title}, {}", place.1),
                    unit: unit.to_owned(),
                    digits,
                    bars,
                })
            };
            // The bytes of Packrat26 are of a download of 25 MB.
            let scale = (place.0 == "wifi").then_some(settings.size as f64 / 25e3);
            panels.extend([
                panel(
                    "Client to gateway",
                    "kB",
                    0,
                    |r| frame_bytes(r.links.last_mile_up) * 1e-3,
                    scale,
                ),
                panel(
                    "Client's datagrams",
                    "datagrams",
                    0,
                    |r| r.links.last_mile_up[0] as f64,
                    None,
                ),
                panel(
                    "Bytes of an eACK",
                    "bytes",
                    1,
                    |r| r.eack_bytes as f64 / r.eack_packets.max(1) as f64,
                    None,
                ),
                panel("Mean wait for a hole", "ms", 2, |r| r.hold_ms_mean, None),
                panel("Goodput", "Mbit/s", 2, |r| r.goodput_mbps, None),
            ]);
        }
        Ok(Figure {
            name: "eacks".to_owned(),
            title: "What short and selective eACKs save in a download, CUBIC".to_owned(),
            caption: format!(
                "Median and quartiles of {} downloads of {} MB, held-out seeds; client to gateway in Ethernet frames. Diamonds: the paper, in proportion to the size; whole sketches are 160 coded symbols there.",
                settings.seeds,
                settings.size as f64 * 1e-6
            ),
            panels,
        })
    };
    let traced = EACK_WAYS.len() as u64 - 1;
    Ok(Plan {
        steps: settings.seeds * (traced + (LINK_SETTINGS.len() * EACK_WAYS.len()) as u64),
        make: Box::new(make),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_prefixes_save_bytes_and_nothing_else() {
        let settings = Settings { size: 1_000_000, seeds: 1, jobs: 1 };
        let [product, longest] = [Way::Product, Way::LongestPrefix]
            .map(|way| way.trial(LINK_SETTINGS[0], 1, settings).unwrap().run().unwrap());
        let per_eack = |result: &TrialResult| result.eack_bytes / result.eack_packets;
        assert!(product.complete && longest.complete);
        assert!(per_eack(&longest) > 500 && per_eack(&product) < 100, "{product:?}");
    }

    #[test]
    fn a_selective_client_sends_fewer_eacks() {
        let settings = Settings { size: 1_000_000, seeds: 1, jobs: 1 };
        let [periodic, selective] = [Way::Periodic, Way::Selective]
            .map(|way| way.trial(LINK_SETTINGS[0], 1, settings).unwrap().run().unwrap());
        assert!(periodic.complete && selective.complete);
        assert!(selective.eack_packets < periodic.eack_packets, "{selective:?}");
        assert!(selective.repaired > 0, "{selective:?}");
    }
}
