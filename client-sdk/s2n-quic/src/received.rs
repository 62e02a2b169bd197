//! Which packet numbers have arrived.

use std::collections::BTreeMap;

/// Ranges kept: a packet number is never used twice in QUIC, so every loss leaves a gap for good.
/// 65,536 gaps are more than a gigabyte at 4 % loss; beyond that the oldest ranges are forgotten.
const MAXIMUM_RANGES: usize = 65_536;

/// The 1-RTT packet numbers received, as disjoint ranges.
#[derive(Debug, Default)]
pub(crate) struct ReceivedPacketNumbers {
    /// First of a range to its last (inclusive).
    ranges: BTreeMap<u64, u64>,
}

impl ReceivedPacketNumbers {
    /// Takes in one packet number; a repeated one changes nothing.
    pub(crate) fn insert(&mut self, number: u64) {
        let before = self.ranges.range(..=number).next_back().map(|(&first, &last)| (first, last));
        let mut first = number;
        if let Some((range_first, range_last)) = before {
            if range_last >= number {
                return;
            }
            if range_last.saturating_add(1) == number {
                first = range_first;
            }
        }
        let last = match number.checked_add(1).and_then(|next| self.ranges.remove(&next)) {
            Some(following_last) => following_last,
            None => number,
        };
        self.ranges.insert(first, last);
        if self.ranges.len() > MAXIMUM_RANGES {
            self.ranges.pop_first();
        }
    }

    /// True if nothing has been received.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Inclusive ranges from the highest down, cut off above `limit`.
    pub(crate) fn descending_to(&self, limit: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.range(..=limit).rev().map(move |(&first, &last)| (first, last.min(limit)))
    }

    /// Ascending inclusive ranges.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        self.ranges.iter().map(|(&first, &last)| (first, last)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_join_and_ignore_repetitions() {
        let mut received = ReceivedPacketNumbers::default();
        for number in [5, 3, 4, 4, 9, 0, 1, 10, 8] {
            received.insert(number);
        }
        assert_eq!(received.ranges(), [(0, 1), (3, 5), (8, 10)]);
        received.insert(2);
        assert_eq!(received.ranges(), [(0, 5), (8, 10)]);
        received.insert(u64::MAX);
        assert_eq!(received.ranges(), [(0, 5), (8, 10), (u64::MAX, u64::MAX)]);
    }

    #[test]
    fn the_oldest_ranges_are_forgotten_when_there_are_too_many() {
        let mut received = ReceivedPacketNumbers::default();
        for number in 0..=MAXIMUM_RANGES as u64 {
            received.insert(number * 2);
        }
        let ranges = received.ranges();
        assert_eq!(ranges.len(), MAXIMUM_RANGES);
        assert_eq!(ranges.first(), Some(&(2, 2)));
    }
}
