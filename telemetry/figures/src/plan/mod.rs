//! Expectations of a path, looked up in downloads that the laboratory has measured.
//!
//! `cells.csv` has the goodput of three senders over paths of many round trips and losses, with
//! assistance and without it, in steady state. Between cells it is interpolated, and segments are
//! composed as in Splitting25: a chain is as fast as its slowest part. `held_out.csv` has random
//! paths between the cells, measured with other seeds; from how far predictions are off there follow
//! the intervals. `packrat-papers sweep --plan` writes both.

mod cells;

use std::sync::OnceLock;

use crate::response::Sender;
use cells::{Cells, HeldOut};

/// A part of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Round trip of the path, seconds.
    pub round_trip: f64,
    /// Share of datagrams that it loses in each direction.
    pub loss: f64,
}

/// A path from a server to a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Server to gateway.
    pub far: Segment,
    /// Gateway to client.
    pub last_mile: Segment,
    /// The slowest link, bits per second.
    pub rate: f64,
}

/// A goodput, bits per second, and between which values it was in eight of ten held-out paths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// The 10th percentile.
    pub low: f64,
    /// The prediction, corrected by how far predictions are off in the median.
    pub middle: f64,
    /// The 90th percentile.
    pub high: f64,
}

/// Advice about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// No measure gains a tenth.
    LeaveAlone,
    /// A gateway that repairs.
    Assist,
    /// A connection that ends at the gateway's place, which needs the server's key there.
    Terminate,
}

/// The goodput of one download in steady state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// Goodput without any measure.
    pub end_to_end: Expected,
    /// Goodput with a gateway that repairs.
    pub assisted: Expected,
    /// Split at the gateway's place; towards the client CUBIC or BBR, whichever is faster.
    pub terminated: Expected,
    /// True if the path is outside the measured range: the nearest values are used.
    pub extrapolated: bool,
}

/// The factor below which a gain is not worth a gateway, nor a key at the edge.
pub const WORTH_IT: f64 = 1.1;

impl Forecast {
    /// The expected goodput.
    pub fn of(sender: Sender, path: &Path) -> Self {
        let data = data();
        let predicted = Predicted::of(&data.cells, sender, path);
        let expected = |value: f64, spread: &[f64; 3]| {
            let [low, middle, high] = spread.map(|ratio| (value * ratio).min(path.rate));
            Expected { low, middle, high }
        };
        let [end_to_end, assisted, terminated] = &data.spreads;
        Self {
            end_to_end: expected(predicted.end_to_end, end_to_end),
            assisted: expected(predicted.assisted, assisted),
            terminated: expected(predicted.terminated, terminated),
            extrapolated: !Cells::covers(path),
        }
    }

    /// The smallest measure that is worth it: a key at the edge only if it is faster than repairs.
    pub fn advice(&self) -> Advice {
        let [end_to_end, assisted, terminated] =
            [self.end_to_end, self.assisted, self.terminated].map(|expected| expected.middle);
        let best = if assisted >= WORTH_IT * end_to_end { assisted } else { end_to_end };
        if terminated >= WORTH_IT * best {
            Advice::Terminate
        } else if best > end_to_end {
            Advice::Assist
        } else {
            Advice::LeaveAlone
        }
    }
}

/// Predictions from the cells, bits per second.
#[derive(Debug, Clone, Copy)]
struct Predicted {
    end_to_end: f64,
    assisted: f64,
    terminated: f64,
}

impl Predicted {
    fn of(cells: &Cells, sender: Sender, path: &Path) -> Self {
        let Path { far, last_mile, rate } = *path;
        let whole = far.round_trip + last_mile.round_trip;
        let loss = 1.0 - (1.0 - far.loss) * (1.0 - last_mile.loss);
        // The sender sees losses before the gateway, over the whole path.
        let seen = cells.end_to_end(sender, rate, whole, far.loss);
        let near = [Sender::Cubic, Sender::Bbr]
            .map(|edge| cells.end_to_end(edge, rate, last_mile.round_trip, last_mile.loss));
        let far_half = cells.end_to_end(sender, rate, far.round_trip, far.loss);
        Self {
            end_to_end: cells.end_to_end(sender, rate, whole, loss),
            assisted: cells
                .assisted(sender, rate, far.round_trip, last_mile.round_trip, last_mile.loss)
                .min(seen),
            terminated: near[0].max(near[1]).min(far_half),
        }
    }
}

/// The cells, and for each way how much the held-out measurements are of their predictions: 10th
/// percentile, median, 90th percentile.
#[derive(Debug)]
struct Data {
    cells: Cells,
    spreads: [[f64; 3]; 3],
}

fn data() -> &'static Data {
    static PLAN_DATA: OnceLock<Data> = OnceLock::new();
    PLAN_DATA.get_or_init(|| {
        let cells = Cells::parse(include_str!("cells.csv"));
        let mut ratios: [Vec<f64>; 3] = Default::default();
        for HeldOut { sender, path, measured } in HeldOut::parse(include_str!("held_out.csv")) {
            let predicted = Predicted::of(&cells, sender, &path);
            let predicted = [predicted.end_to_end, predicted.assisted, predicted.terminated];
            for ((ratios, measured), predicted) in ratios.iter_mut().zip(measured).zip(predicted) {
                ratios.push(measured / predicted.max(1.0));
            }
        }
        let spreads = ratios.map(|mut ratios| {
            ratios.sort_by(f64::total_cmp);
            let at = |share: f64| {
                let place = (ratios.len().saturating_sub(1)) as f64 * share;
                ratios.get(place.round() as usize).copied().unwrap_or(1.0)
            };
            [at(0.1), at(0.5), at(0.9)]
        });
        Data { cells, spreads }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<HeldOut> {
        HeldOut::parse(include_str!("held_out.csv")).collect()
    }

    /// Goodput lost by following the advice instead of the best way, as a share.
    fn regret(row: &HeldOut) -> f64 {
        let [end_to_end, assisted, terminated] = row.measured;
        let advised = match Forecast::of(row.sender, &row.path).advice() {
            Advice::LeaveAlone => end_to_end,
            Advice::Assist => assisted,
            Advice::Terminate => terminated,
        };
        1.0 - advised / end_to_end.max(assisted).max(terminated)
    }

    #[test]
    fn advice_on_held_out_paths_is_seldom_wrong() {
        // Run with --nocapture for the figures of docs/EVALUATION.md.
        let rows = rows();
        let mut wrong = 0;
        for row in &rows {
            let forecast = Forecast::of(row.sender, &row.path);
            let [end_to_end, assisted, _] = row.measured;
            // Advised assistance does no noticeable harm, and assistance that helps much is
            // advised.
            match forecast.advice() {
                Advice::Assist => assert!(assisted > 0.93 * end_to_end, "{row:?}"),
                Advice::LeaveAlone => assert!(assisted < 1.5 * end_to_end, "{row:?}"),
                Advice::Terminate => {}
            }
            // A gain of less than a tenth is not worth it, so as much may be lost.
            if regret(row) > 1.0 - 1.0 / WORTH_IT + 0.05 {
                wrong += 1;
                println!("{:.2} is lost: {row:?}, {forecast:?}", regret(row));
            }
        }
        println!("{wrong} of {} wrong; measured ÷ predicted: {:.2?}", rows.len(), data().spreads);
        let off = |way: usize| {
            let ratios = rows.iter().map(move |row| {
                let predicted = Predicted::of(&data().cells, row.sender, &row.path);
                let Predicted { end_to_end, assisted, terminated } = predicted;
                row.measured[way] / [end_to_end, assisted, terminated][way]
            });
            (ratios.clone().fold(f64::MAX, f64::min), ratios.fold(0.0, f64::max))
        };
        println!("least and most: {:.2?}", [off(0), off(1), off(2)]);
        assert!(rows.len() >= 60);
        assert!(wrong * 12 <= rows.len(), "{wrong} of {}", rows.len());
    }

    #[test]
    fn predictions_hold_on_most_held_out_paths() {
        let rows = rows();
        let within = rows
            .iter()
            .filter(|row| {
                let forecast = Forecast::of(row.sender, &row.path);
                [forecast.end_to_end, forecast.assisted, forecast.terminated]
                    .iter()
                    .zip(row.measured)
                    .all(|(expected, measured)| (0.7..1.4).contains(&(measured / expected.middle)))
            })
            .count();
        println!("{within} of {} within 0.7 and 1.4", rows.len());
        assert!(within * 10 >= rows.len() * 6, "{within} of {}", rows.len());
    }

    #[test]
    fn the_demos_path_is_not_left_alone_and_a_lossless_one_is() {
        let last_mile = Segment { round_trip: 0.004, loss: 0.04 };
        let wifi = Path { far: Segment { round_trip: 0.06, loss: 0.0 }, last_mile, rate: 20e6 };
        let forecast = Forecast::of(Sender::Cubic, &wifi);
        assert_ne!(forecast.advice(), Advice::LeaveAlone, "{forecast:?}");
        assert!(forecast.assisted.middle > 10.0 * forecast.end_to_end.middle, "{forecast:?}");
        assert!(!forecast.extrapolated);
        let lossless = Path { last_mile: Segment { loss: 0.0, ..last_mile }, ..wifi };
        assert_eq!(Forecast::of(Sender::Cubic, &lossless).advice(), Advice::LeaveAlone);
        let beyond = Path { rate: 500e6, ..wifi };
        assert!(Forecast::of(Sender::Cubic, &beyond).extrapolated);
    }
}
