//! The measured cells, and interpolation between them.

use super::{Path, Segment};
use crate::response::Sender;

/// Bits per second of a rate that a cell writes as 1.
const MEGABIT_BITS: f64 = 1e6;
/// The least loss that counts: with less a sender is as if there were none.
const NO_LOSS: f64 = 1e-5;

/// A cell.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    sender: Sender,
    assisted: bool,
    rate: f64,
    far: f64,
    last_mile: f64,
    loss: f64,
    goodput: f64,
}

/// All cells of the table.
#[derive(Debug)]
pub(super) struct Cells(Vec<Cell>);

/// A measured path that predictions are held against.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldOut {
    pub(super) sender: Sender,
    pub(super) path: Path,
    /// End to end, assisted, terminated, bits per second.
    pub(super) measured: [f64; 3],
}

fn sender(name: &str) -> Option<Sender> {
    match name {
        "quinn-newreno" => Some(Sender::Reno),
        "s2n-cubic" => Some(Sender::Cubic),
        "s2n-bbr" => Some(Sender::Bbr),
        _ => None,
    }
}

impl HeldOut {
    pub(super) fn parse(text: &str) -> impl Iterator<Item = Self> {
        text.lines().skip(1).filter_map(|line| {
            let (name, rest) = line.split_once(',')?;
            let numbers: Vec<f64> = rest.split(',').filter_map(|text| text.parse().ok()).collect();
            let [rate, far, far_loss, last_mile, loss, measured @ ..] = &numbers[..] else {
                return None;
            };
            let segment =
                |ms: f64, permille: f64| Segment { round_trip: ms / 1e3, loss: permille / 1e3 };
            let path = Path {
                far: segment(*far, *far_loss),
                last_mile: segment(*last_mile, *loss),
                rate: rate * MEGABIT_BITS,
            };
            let measured = <[f64; 3]>::try_from(measured).ok()?.map(|value| value * MEGABIT_BITS);
            Some(Self { sender: sender(name)?, path, measured })
        })
    }
}

impl Cells {
    pub(super) fn parse(text: &str) -> Self {
        let cells = text.lines().skip(1).filter_map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let [name, arm, numbers @ ..] = &fields[..] else { return None };
            let numbers: Vec<f64> = numbers.iter().filter_map(|text| text.parse().ok()).collect();
            let [rate, far, last_mile, loss, goodput] = numbers[..] else { return None };
            Some(Cell {
                sender: sender(name)?,
                assisted: *arm == "packrat",
                rate: rate * MEGABIT_BITS,
                far: far / 1e3,
                last_mile: last_mile / 1e3,
                loss: loss / 1e3,
                goodput: goodput * MEGABIT_BITS,
            })
        });
        Self(cells.collect())
    }

    /// True if the path is within the cells.
    pub(super) fn covers(path: &Path) -> bool {
        let Path { far, last_mile, rate } = path;
        (10e6..=30e6).contains(rate)
            && (0.002..=0.06).contains(&far.round_trip)
            && (0.004..=0.12).contains(&last_mile.round_trip)
            && far.loss <= 0.04
            && last_mile.loss <= 0.04
    }

    /// Goodput without assistance over a path of one segment, bits per second.
    pub(super) fn end_to_end(&self, sender: Sender, rate: f64, round_trip: f64, loss: f64) -> f64 {
        self.goodput(sender, false, rate, [0.0, round_trip, loss])
    }

    /// Goodput with assistance over a path that loses on its last mile.
    pub(super) fn assisted(
        &self,
        sender: Sender,
        rate: f64,
        far: f64,
        last_mile: f64,
        loss: f64,
    ) -> f64 {
        self.goodput(sender, true, rate, [far, last_mile, loss])
    }

    /// `place`: far segment, last mile, loss.
    fn goodput(&self, sender: Sender, assisted: bool, rate: f64, place: [f64; 3]) -> f64 {
        let cells: Vec<&Cell> = self
            .0
            .iter()
            .filter(|cell| (cell.sender, cell.assisted) == (sender, assisted))
            .collect();
        if cells.is_empty() {
            return rate;
        }
        let (low, high, share) = around(cells.iter().map(|cell| cell.rate), rate);
        let at = |rate: f64| {
            let cells: Vec<&Cell> =
                cells.iter().copied().filter(|cell| cell.rate == rate).collect();
            1.0 / time_per_bit(&cells, place)
        };
        let (slow, fast) = (at(low), at(high));
        if rate > high {
            // Faster links are used as much as the fastest measured one, unless loss is the limit.
            let limited = fast < 0.8 * high;
            return if limited { fast } else { fast / high * rate };
        }
        if rate < low {
            return slow.min(rate);
        }
        (slow + (fast - slow) * share).min(rate)
    }
}

/// The time that a bit takes, interpolated: a window that loss limits is inversely proportional to
/// the root of the loss, so that this time is proportional to it and to the round trip.
fn time_per_bit(cells: &[&Cell], [far, last_mile, loss]: [f64; 3]) -> f64 {
    let root = |loss: f64| if loss < NO_LOSS { 0.0 } else { loss.sqrt() };
    let fars = around(cells.iter().map(|cell| cell.far), far);
    let miles = around(cells.iter().map(|cell| cell.last_mile), last_mile);
    let roots = around(cells.iter().map(|cell| root(cell.loss)), root(loss));
    let corners = |(low, high, share): (f64, f64, f64)| [(low, 1.0 - share), (high, share)];
    let mut time = 0.0;
    for (far, by_far) in corners(fars) {
        for (mile, by_mile) in corners(miles) {
            for (loss, by_loss) in corners(roots) {
                let weight = by_far * by_mile * by_loss;
                let same = |cell: &&&Cell| {
                    (cell.far, cell.last_mile, root(cell.loss)) == (far, mile, loss)
                };
                if weight > 0.0
                    && let Some(cell) = cells.iter().find(same)
                {
                    time += weight / cell.goodput.max(1.0);
                }
            }
        }
    }
    time.max(f64::MIN_POSITIVE)
}

/// The neighbours of a value among others, and how far it is from the lower to the upper one.
/// Outside of all, the nearest one.
fn around(values: impl Iterator<Item = f64> + Clone, value: f64) -> (f64, f64, f64) {
    let below = values.clone().filter(|other| *other <= value).fold(f64::NEG_INFINITY, f64::max);
    let above = values.clone().filter(|other| *other >= value).fold(f64::INFINITY, f64::min);
    match (below.is_finite(), above.is_finite()) {
        (true, true) if above > below => (below, above, (value - below) / (above - below)),
        (true, _) => (below, below, 0.0),
        (false, true) => (above, above, 0.0),
        (false, false) => (0.0, 0.0, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "sender,arm,rate_mbps,far_ms,last_mile_ms,loss_permille,mbps\n";

    #[test]
    fn between_cells_a_loss_limited_sender_follows_the_square_root() {
        // 1 Mbit/s × s × √‰ over round trip and root of the loss.
        let mut text = HEAD.to_owned();
        for round_trip in [20.0_f64, 120.0] {
            for loss in [1.0_f64, 40.0] {
                let goodput = 0.2 / (round_trip / 1e3 * loss.sqrt());
                text.push_str(&format!(
                    "s2n-cubic,end-to-end,20,0,{round_trip},{loss},{goodput}\n"
                ));
            }
        }
        let cells = Cells::parse(&text);
        let predicted = cells.end_to_end(Sender::Cubic, 20e6, 0.07, 0.01);
        let law = 0.2 / (0.07 * 10.0_f64.sqrt()) * 1e6;
        // The interpolation is in two dimensions at once, hence not exact.
        assert!((predicted / law - 1.0).abs() < 0.15, "{predicted} {law}");
        // At a cell it is the cell.
        let at = cells.end_to_end(Sender::Cubic, 20e6, 0.02, 0.001);
        assert!((at - 10e6).abs() < 1.0, "{at}");
        // Of a sender that was not measured nothing is known.
        assert_eq!(cells.end_to_end(Sender::Bbr, 20e6, 0.02, 0.001), 20e6);
    }

    #[test]
    fn a_faster_link_does_not_help_a_sender_that_loss_stops() {
        let text =
            format!("{HEAD}s2n-cubic,end-to-end,30,0,60,10,3\ns2n-cubic,end-to-end,30,0,60,0,29\n");
        let cells = Cells::parse(&text);
        assert_eq!(cells.end_to_end(Sender::Cubic, 100e6, 0.06, 0.01).round(), 3e6);
        assert!(cells.end_to_end(Sender::Cubic, 100e6, 0.06, 0.0) > 90e6);
    }
}
