//! A set of packet numbers as disjoint inclusive ranges.

use std::collections::BTreeMap;

/// Disjoint, non-adjacent inclusive ranges: start to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    /// Adds one number; false when it was there already.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        let mut start = number;
        if let Some((&before, end)) = self.0.range_mut(..=number).next_back() {
            if *end >= number {
                return false;
            }
            if *end + 1 == number {
                *end = number;
                start = before;
            }
        }
        let end = match number.checked_add(1).and_then(|next| self.0.remove(&next)) {
            Some(end) => end,
            None => number,
        };
        self.0.insert(start, end);
        true
    }

    /// Forgets the lowest ranges beyond `count`.
    pub(crate) fn limit(&mut self, count: usize) {
        while self.0.len() > count {
            self.0.pop_first();
        }
    }

    /// True if the set contains the number.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, end)| *end >= number)
    }

    /// Highest number.
    pub(crate) fn last(&self) -> Option<u64> {
        self.0.last_key_value().map(|(_, end)| *end)
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
            let pairs: Vec<(u64, u64)> = ranges.0.iter().map(|(start, end)| (*start, *end)).collect();
            prop_assert!(pairs.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "adjacent ranges were not merged");
        }
    }
}
