//! Identifiers by their place in forwarding order: an open-addressing table of eight bytes per
//! slot.
//!
//! Identifiers are mixed with a key of the session, so that their lower bits are as good as any
//! hash, and no attacker can aim at a slot. Linear probing in a table that is at most half full
//! looks at one or two slots, which are next to each other in memory.
//!
//! Entries are not taken out: an entry older than the history's first one is stale, which its
//! sequence number shows. When half of the slots are in use, the table is filled anew with the
//! entries that the history still has, at most a quarter of its slots; so every entry is entered
//! twice at most, on average, and the table is touched once per datagram instead of twice.

use packrat_eack::Identifier;

/// Entries of the smallest table.
const SMALLEST_TABLE: usize = 32;

/// Sequence numbers by identifier. Sequence numbers that are in the table at the same time are less
/// than 2^31 apart.
#[derive(Debug, Default)]
pub(crate) struct IdentifierIndex {
    /// Zero: empty (no identifier is zero). Otherwise the identifier, and the lower half of the
    /// sequence number.
    slots: Vec<u64>,
    /// Slots that are not empty.
    used: usize,
}

impl IdentifierIndex {
    /// Bytes of memory of the index.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    /// The slot of an identifier, or the empty slot for it. The table must not be empty.
    #[inline]
    fn find(&self, identifier: Identifier) -> (usize, u64) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut place = identifier.get() as usize & mask;
        // Ends, as half of the slots are empty.
        loop {
            let slot = self.slots.get(place).copied().unwrap_or(0);
            if slot == 0 || (slot >> 32) as u32 == identifier.get() {
                return (place, slot);
            }
            place = (place + 1) & mask;
        }
    }

    /// The sequence number of an identifier, if it is not below `first`.
    #[inline]
    pub(crate) fn get(&self, identifier: Identifier, first: u64) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        let (_, slot) = self.find(identifier);
        let after = after(slot, first);
        (slot != 0 && after >= 0).then(|| first + u64::from(after.cast_unsigned()))
    }

    /// True if [`Self::fill`] has to come before [`Self::insert`].
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.used * 2 >= self.slots.len()
    }

    /// Adds an identifier; false if it is there already, with a sequence number not below `first`.
    #[inline]
    pub(crate) fn insert(&mut self, identifier: Identifier, sequence: u64, first: u64) -> bool {
        debug_assert!(!self.is_full());
        let (place, slot) = self.find(identifier);
        if slot != 0 && after(slot, first) >= 0 {
            return false;
        }
        if let Some(place) = self.slots.get_mut(place) {
            *place = u64::from(identifier.get()) << 32 | u64::from(sequence as u32);
            self.used += usize::from(slot == 0);
        }
        true
    }

    /// Forgets all entries but these identifiers, whose sequence numbers begin with `first`. The
    /// table grows if they need more than a quarter of it. `shrinks`: it also gives back memory
    /// that they do not need.
    #[cold]
    pub(crate) fn fill(
        &mut self,
        identifiers: impl ExactSizeIterator<Item = Identifier>,
        first: u64,
        shrinks: bool,
    ) {
        let enough = (identifiers.len() * 4).next_power_of_two().max(SMALLEST_TABLE);
        if shrinks && identifiers.len() == 0 {
            self.slots = Vec::new();
        } else if enough > self.slots.len() || shrinks && enough < self.slots.len() {
            self.slots = vec![0; enough];
        } else {
            self.slots.fill(0);
        }
        self.used = 0;
        for (sequence, identifier) in (first..).zip(identifiers) {
            self.insert(identifier, sequence, first);
        }
    }

    /// True if [`Self::fill`] with this number of identifiers would give memory back.
    pub(crate) fn is_too_large_for(&self, identifiers: usize) -> bool {
        let enough = (identifiers * 4).next_power_of_two().max(SMALLEST_TABLE);
        enough < self.slots.len() || identifiers == 0 && !self.slots.is_empty()
    }
}

/// Distance of the sequence number in a slot from `first`; negative: it is stale.
#[inline]
const fn after(slot: u64, first: u64) -> i32 {
    (slot as u32).wrapping_sub(first as u32).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a queue that is searched. Few homes, so that clusters are long and wrap around,
        /// and numbers that wrap around.
        #[test]
        fn knows_what_the_queue_holds(
            steps in prop::collection::vec((1u32..400, 0u8..8), 1..600),
            stride in prop_oneof![Just(1u32), Just(32), Just(1024)],
            begin in prop_oneof![Just(0u64), Just(u64::from(u32::MAX) - 100)],
        ) {
            let (mut index, mut queue, mut first) = (IdentifierIndex::default(), VecDeque::new(), begin);
            for (number, action) in steps {
                let identifier = Identifier::new(number * stride).unwrap();
                match action {
                    0..4 => {
                        if index.is_full() {
                            index.fill(queue.iter().copied(), first, false);
                        }
                        let new = !queue.contains(&identifier);
                        prop_assert_eq!(index.insert(identifier, first + queue.len() as u64, first), new);
                        if new {
                            queue.push_back(identifier);
                        }
                    }
                    4..7 => first += u64::from(queue.pop_front().is_some()),
                    _ => {
                        let too_large = index.is_too_large_for(queue.len());
                        let before = index.memory();
                        index.fill(queue.iter().copied(), first, true);
                        prop_assert_eq!(index.memory() < before, too_large);
                    }
                }
                let expected = queue.iter().position(|known| *known == identifier);
                prop_assert_eq!(index.get(identifier, first), expected.map(|at| first + at as u64));
                prop_assert!(index.used * 2 <= index.slots.len());
            }
            for number in 1..400 {
                let identifier = Identifier::new(number * stride).unwrap();
                let expected = queue.iter().position(|known| *known == identifier);
                prop_assert_eq!(index.get(identifier, first), expected.map(|at| first + at as u64));
            }
            index.fill([].into_iter(), first, true);
            prop_assert_eq!(index.memory(), 0);
        }
    }
}
