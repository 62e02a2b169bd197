//! The savings of an eACK's parts in a download: prefixes as long as the difference needs (Packrat26,
//! section 5.2.2), and eACKs for missing datagrams only (section 5.2.3).

use super::downloads::{frame_bytes, scenario};
use super::plan::{Bench, Plan, Settings};
use crate::failure::Failure;
use packrat_client::{ClientEvent, Live};
use packrat_eack::{Encoding, MAX_EXPECTED_DIFFERENCE, SketchLimits};
use packrat_lab::drawing::{Axis, Bar, Figure, Panel, Point, Series, Subject};
use packrat_lab::{Arm, HELD_OUT, Sender, TraceEvent, Trial, TrialResult};

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
    ) -> Result<Trial, Failure> {
        let scenario = scenario(place.0, settings)?.with_loss(place.2);
        let arm = if self == Self::EndToEnd { Arm::EndToEnd } else { Arm::Packrat };
        let mut trial = Trial::new(scenario, arm, Sender::S2nCubic, seed);
        trial.client.laboratory.longest_prefix = self == Self::LongestPrefix;
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
    Panel::lines(
        "Bytes of a sketch's prefix",
        Axis::logarithmic("datagrams missing").with_ticks(&[1.0, 4.0, 16.0, 64.0, 128.0]),
        Axis::logarithmic("bytes").with_ticks(&[10.0, 30.0, 100.0, 300.0, 1000.0]),
        vec![
            Series::curve("power sums", Subject::Packrat, sized(sums)),
            Series::curve("all power sums", Subject::Variant, whole(Encoding::PowerSums { count })),
            Series::curve("coded symbols", Subject::Split, sized(symbols)),
            Series::curve(
                "160 coded symbols",
                Subject::Bound,
                whole(Encoding::CodedSymbols { count: 160 }),
            ),
        ],
    )
}

/// Bytes of eACKs and waits of each assisted way, by the difference that the client knew of.
fn by_way(bench: &Bench, settings: Settings) -> Result<Vec<Panel>, Failure> {
    let mut lines = [Vec::new(), Vec::new()];
    for (way, label, subject) in EACK_WAYS.into_iter().filter(|(way, ..)| *way != Way::EndToEnd) {
        let mut classes = ByDifference::default();
        for seed in 0..settings.seeds {
            classes.add(&way.trial(LINK_SETTINGS[1], HELD_OUT + seed, settings)?.trace()?.1);
            bench.tick();
        }
        for (lines, classes) in lines.iter_mut().zip([&classes.bytes, &classes.waits]) {
            lines.push(Series::line(label, subject, by_difference(classes)));
        }
    }
    let titles = [("Bytes of an eACK", "bytes"), ("Wait for a missing datagram", "milliseconds")];
    let panels = titles.into_iter().zip(lines).map(|((title, unit), series)| {
        Panel::lines(
            format!("{title}, {}", LINK_SETTINGS[1].1),
            Axis::logarithmic("missing at the last eACK, at least (0.5: none)")
                .with_ticks(&[0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
            Axis::linear(unit),
            series,
        )
    });
    Ok(panels.collect())
}

/// Title, unit and digits of a quantity of a download.
type Quantity = (&'static str, &'static str, usize, fn(&TrialResult) -> f64);

/// The quantities that ways differ in; the paper has the first one.
const COMPARED_QUANTITIES: [Quantity; 5] = [
    ("Client to gateway", "kB", 0, |r| frame_bytes(r.links.last_mile_up) * 1e-3),
    ("Client's datagrams", "datagrams", 0, |r| r.links.last_mile_up[0] as f64),
    ("Bytes of an eACK", "bytes", 1, |r| {
        r.assistance.eack_bytes as f64 / r.assistance.eack_packets.max(1) as f64
    }),
    ("Mean wait for a hole", "ms", 2, |r| r.assistance.hold_ms_mean),
    ("Goodput", "Mbit/s", 2, |r| r.download.goodput_mbps),
];

/// The compared quantities of downloads over one path.
fn compared(
    bench: &Bench,
    place: (&str, &str, f64),
    settings: Settings,
) -> Result<Vec<Panel>, Failure> {
    let mut trials = Vec::new();
    for (way, ..) in EACK_WAYS {
        for seed in 0..settings.seeds {
            trials.push(way.trial(place, HELD_OUT + seed, settings)?);
        }
    }
    let results = bench.run(&trials)?;
    let panel = |(number, (title, unit, digits, field)): (usize, Quantity)| {
        let ways = EACK_WAYS.iter().zip(results.chunks(settings.seeds as usize));
        let bars = ways.map(|(&(way, label, subject), results)| {
            // The bytes of Packrat26 are of a download of 25 MB.
            let scale = settings.size as f64 / 25e3;
            let paper = PAPER_MEGABYTES.iter().find(|(of, _)| *of == way);
            let paper = paper.filter(|_| number == 0 && place.0 == "wifi");
            let value = Point::of(0.0, results.iter().map(field));
            Bar::new(label, subject, value, paper.map(|(_, megabytes)| megabytes * scale))
        });
        Panel::bars(format!("{title}, {}", place.1), unit, digits, bars.collect())
    };
    Ok(COMPARED_QUANTITIES.into_iter().enumerate().map(panel).collect())
}

/// The ablations of eACKs in a download.
pub(super) fn ablations(settings: Settings) -> Result<Plan, Failure> {
    let traced = EACK_WAYS.len() as u64 - 1;
    let steps = settings.seeds * (traced + (LINK_SETTINGS.len() * EACK_WAYS.len()) as u64);
    Ok(Plan::new(steps, move |bench| {
        let mut panels = vec![prefixes()];
        panels.extend(by_way(bench, settings)?);
        for place in LINK_SETTINGS {
            panels.extend(compared(bench, place, settings)?);
        }
        Ok(Figure::new(
            "eacks",
            "What short and selective eACKs save in a download, CUBIC",
            format!(
                "Median and quartiles of {} downloads of {} MB, held-out seeds; client to gateway in Ethernet frames. Diamonds: the paper, in proportion to the size; whole sketches are 160 coded symbols there.",
                settings.seeds,
                settings.size as f64 * 1e-6
            ),
            panels,
        ))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_prefixes_save_bytes_and_nothing_else() {
        let settings = Settings { size: 1_000_000, seeds: 1, jobs: 1 };
        let [product, longest] = [Way::Product, Way::LongestPrefix]
            .map(|way| way.trial(LINK_SETTINGS[0], 1, settings).unwrap().run().unwrap());
        let per_eack =
            |result: &TrialResult| result.assistance.eack_bytes / result.assistance.eack_packets;
        assert!(product.download.complete && longest.download.complete);
        assert!(per_eack(&longest) > 500 && per_eack(&product) < 100, "{product:?}");
    }

    #[test]
    fn a_selective_client_sends_fewer_eacks() {
        let settings = Settings { size: 1_000_000, seeds: 1, jobs: 1 };
        let [periodic, selective] = [Way::Periodic, Way::Selective]
            .map(|way| way.trial(LINK_SETTINGS[0], 1, settings).unwrap().run().unwrap());
        assert!(periodic.download.complete && selective.download.complete);
        assert!(
            selective.assistance.eack_packets < periodic.assistance.eack_packets,
            "{selective:?}"
        );
        assert!(selective.assistance.repaired > 0, "{selective:?}");
    }
}
