//! All paths of two segments: the predicted gains of splitting, and their classes.

use super::cache::Cache;
use super::grid::Cell;
use serde::Serialize;

/// Factor by which a split connection is faster when it is worth it.
const FASTER_RATIO: f64 = 3.0;
/// Share of its rate that a split connection uses when it is worth it.
const USED_SHARE: f64 = 0.5;

/// The classes of paths that splitting helps (Splitting25, section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Class {
    /// A short, lossy segment and a long one without loss.
    LossyLastMile,
    /// A short and a long segment with loss on both.
    LossyBoth,
    /// Two long, lossy segments.
    LongBoth,
    /// Any other path.
    Other,
}

/// A path of two segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    pub(super) far: Cell,
    pub(super) near: Cell,
    pub(super) whole: Cell,
}

impl Path {
    /// All paths that are in the grid, also as a whole.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Cell::all().flat_map(|far| {
            Cell::all().filter_map(move |near| Some(Self { far, near, whole: far.compose(near)? }))
        })
    }

    /// The predicted share of the rate, split and end to end.
    pub(super) fn predictions(self, cache: &Cache) -> [f64; 2] {
        let goodput = |cell: Cell| cache.utilisation(cell) * cell.rate_mbps as f64;
        let split = goodput(self.far).min(goodput(self.near));
        [split / self.whole.rate_mbps as f64, cache.utilisation(self.whole)]
    }

    pub(super) fn class(self) -> Class {
        let lossy = [self.far, self.near].map(|segment| segment.loss_percent > 0);
        let short = [self.far, self.near].map(|segment| segment.delay_ms == Cell::FIRST.delay_ms);
        match (short, lossy) {
            ([true, false], [true, false]) | ([false, true], [false, true]) => Class::LossyLastMile,
            ([true, false] | [false, true], [true, true]) => Class::LossyBoth,
            ([false, false], [true, true]) => Class::LongBoth,
            _ => Class::Other,
        }
    }
}

/// Splitting25, table 3, of one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Filter {
    pub(super) paths: usize,
    pub(super) faster: usize,
    pub(super) used: usize,
    /// Number of these paths in the classes I, II, III, and in no class.
    pub(super) classes: [usize; 4],
}

impl Filter {
    pub(super) fn new(cache: &Cache) -> Self {
        let mut filter = Self::default();
        for path in Path::all() {
            filter.paths += 1;
            let [split, end_to_end] = path.predictions(cache);
            if split <= FASTER_RATIO * end_to_end {
                continue;
            }
            filter.faster += 1;
            if split <= USED_SHARE {
                continue;
            }
            filter.used += 1;
            filter.classes[path.class() as usize] += 1;
        }
        filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_lab::Sender;

    #[test]
    fn there_are_as_many_paths_as_in_the_paper() {
        assert_eq!(Path::all().count(), 7875);
    }

    #[test]
    fn a_sender_that_does_not_mind_loss_gains_nothing() {
        let cache = Cache::made_up(Sender::NoqBbr, |cell| 0.9 * cell.rate_mbps as f64);
        let filter = Filter::new(&cache);
        assert_eq!((filter.faster, filter.used), (0, 0));
    }

    /// A sender that losses stop on long paths gains only behind a lossy last mile.
    #[test]
    fn a_loss_bound_sender_gains_only_behind_a_lossy_last_mile() {
        let cache = Cache::made_up(Sender::S2nCubic, |cell| {
            let stopped = cell.loss_percent > 0 && cell.delay_ms > 1;
            cell.rate_mbps as f64 * if stopped { 0.1 } else { 0.9 }
        });
        let filter = Filter::new(&cache);
        assert!(filter.used > 100, "{filter:?}");
        // The long segment has no loss, or the split connection would be stopped as well.
        assert_eq!(filter.classes, [filter.used, 0, 0, 0]);
        // 4 losses, 5 long delays, 25 pairs of rates, 2 orders: the pairs in which it uses half its
        // rate.
        assert_eq!(filter.used, 4 * 5 * 25 * 2);
    }
}
