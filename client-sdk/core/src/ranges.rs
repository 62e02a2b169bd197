//! A set of packet numbers as disjoint inclusive ranges.

use std::collections::BTreeMap;

/// Disjoint, non-adjacent inclusive ranges.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangeSet {
    /// Start and end of the highest one, where nearly all numbers go.
    highest: Option<(u64, u64)>,
    /// Lower ranges: start to end.
    lower: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds one number; false when it was there already.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        match self.highest {
            Some((first, _)) if number < first => self.insert_below(number, first),
            Some((_, last)) if number <= last => false,
            Some((first, last)) if number - last == 1 => {
                self.highest = Some((first, number));
                true
            }
            highest => {
                self.lower.extend(highest);
                self.highest = Some((number, number));
                true
            }
        }
    }

    /// Adds a number below the highest range, which begins with `first`.
    fn insert_below(&mut self, number: u64, first: u64) -> bool {
        let mut start = number;
        if let Some((&before, end)) = self.lower.range_mut(..=number).next_back() {
            if *end >= number {
                return false;
            }
            if *end + 1 == number {
                *end = number;
                start = before;
            }
        }
        let next = number + 1;
        if next == first {
            self.lower.remove(&start);
            self.highest = self.highest.map(|(_, last)| (start, last));
            return true;
        }
        let end = self.lower.remove(&next).unwrap_or(number);
        self.lower.insert(start, end);
        true
    }

    /// Forgets the lowest ranges beyond `count`, of at least one.
    pub(crate) fn limit(&mut self, count: usize) {
        while self.lower.len() >= count.max(1) {
            self.lower.pop_first();
        }
    }

    /// True if the set contains the number.
    pub(crate) fn contains(&self, number: u64) -> bool {
        match self.highest {
            Some((first, last)) if number >= first => number <= last,
            _ => self.lower.range(..=number).next_back().is_some_and(|(_, end)| *end >= number),
        }
    }

    /// Highest number.
    pub(crate) fn last(&self) -> Option<u64> {
        self.highest.map(|(_, last)| last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set(numbers in proptest::collection::vec(0u64..60, 0..80)) {
            let (mut ranges, mut model) = (RangeSet::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(ranges.insert(number), model.insert(number));
            }
            prop_assert_eq!(ranges.last(), model.last().copied());
            prop_assert!((0..60).all(|number| ranges.contains(number) == model.contains(&number)));
            let lower = ranges.lower.iter().map(|(start, end)| (*start, *end));
            let pairs: Vec<(u64, u64)> = lower.chain(ranges.highest).collect();
            prop_assert!(pairs.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "adjacent ranges were not merged");
        }
    }
}
