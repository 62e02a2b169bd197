//! Identifiers by their place in forwarding order: an open-addressing table of eight bytes per slot.
//!
//! Identifiers are mixed with a key of the session, so that their lower bits are as good as any hash, and nobody can aim at a slot. Linear
//! probing in a table that is at most half full looks at one or two slots, which are next to each other in memory; removal moves the
//! slots behind it (Knuth, volume 3, algorithm 6.4R), so that there are no tombstones.

use packrat_eack::Identifier;

/// The smallest table.
const SMALLEST: usize = 32;

/// Sequence numbers by identifier. Sequence numbers that are known at the same time are less than 2^32 apart.
#[derive(Debug, Default)]
pub(crate) struct IdentifierIndex {
    /// Zero: empty (no identifier is zero). Otherwise the identifier, and the lower half of the sequence number.
    slots: Vec<u64>,
    length: usize,
}

impl IdentifierIndex {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Bytes that it has.
    pub(crate) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<u64>()
    }

    fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    /// The slot of an identifier, or the empty one where it would be. The table must not be empty.
    #[inline]
    fn find(&self, identifier: Identifier) -> (usize, u64) {
        let mask = self.mask();
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

    /// The lower half of the sequence number of an identifier.
    #[inline]
    pub(crate) fn get(&self, identifier: Identifier) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let (_, slot) = self.find(identifier);
        (slot != 0).then_some(slot as u32)
    }

    /// Adds an identifier; false when it is there already.
    #[inline]
    pub(crate) fn insert(&mut self, identifier: Identifier, sequence: u64) -> bool {
        if self.length * 2 >= self.slots.len() {
            self.resize((self.slots.len() * 2).max(SMALLEST));
        }
        let (place, slot) = self.find(identifier);
        if slot != 0 {
            return false;
        }
        if let Some(slot) = self.slots.get_mut(place) {
            *slot = u64::from(identifier.get()) << 32 | u64::from(sequence as u32);
            self.length += 1;
        }
        true
    }

    /// Takes an identifier out, if it is there.
    #[inline]
    pub(crate) fn remove(&mut self, identifier: Identifier) {
        if self.slots.is_empty() {
            return;
        }
        let (mut hole, slot) = self.find(identifier);
        if slot == 0 {
            return;
        }
        self.length -= 1;
        let mask = self.mask();
        let slots = self.slots.as_mut_slice();
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let Some(&slot) = slots.get(place).filter(|slot| **slot != 0) else { break };
            // How far it is from where it would like to be, and from the hole.
            let home = (slot >> 32) as usize & mask;
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(hole) & mask {
                if let Some(empty) = slots.get_mut(hole) {
                    *empty = slot;
                }
                hole = place;
            }
        }
        if let Some(empty) = slots.get_mut(hole) {
            *empty = 0;
        }
    }

    /// Gives memory back that is not needed now.
    pub(crate) fn shrink(&mut self) {
        let enough = if self.length == 0 { 0 } else { (self.length * 4).next_power_of_two().max(SMALLEST) };
        if enough < self.slots.len() {
            self.resize(enough);
        }
    }

    /// `slots`: zero, or a power of two above twice the length.
    #[cold]
    fn resize(&mut self, slots: usize) {
        let old = core::mem::replace(&mut self.slots, vec![0; slots]);
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            if let Some(identifier) = Identifier::new((slot >> 32) as u32) {
                let (place, _) = self.find(identifier);
                if let Some(empty) = self.slots.get_mut(place) {
                    *empty = slot;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Against the standard library's map. Few homes, so that clusters are long and wrap around.
        #[test]
        fn does_what_a_map_does(
            steps in prop::collection::vec((1u32..400, 0u8..8, any::<bool>()), 1..600),
            stride in prop_oneof![Just(1u32), Just(32), Just(1024)],
        ) {
            let (mut index, mut model) = (IdentifierIndex::default(), HashMap::new());
            for (sequence, (number, action, shrinks)) in (0u64..).zip(steps) {
                let identifier = Identifier::new(number * stride).unwrap();
                if action < 5 {
                    let new = !model.contains_key(&identifier);
                    prop_assert_eq!(index.insert(identifier, sequence), new);
                    model.entry(identifier).or_insert(sequence as u32);
                } else {
                    index.remove(identifier);
                    model.remove(&identifier);
                }
                if shrinks && action == 7 {
                    index.shrink();
                }
                prop_assert_eq!(index.len(), model.len());
                prop_assert!(index.length * 2 <= index.slots.len());
            }
            for number in 1..400 {
                let identifier = Identifier::new(number * stride).unwrap();
                prop_assert_eq!(index.get(identifier), model.get(&identifier).copied());
            }
            for identifier in model.keys() {
                index.remove(*identifier);
            }
            index.shrink();
            prop_assert_eq!((index.len(), index.memory()), (0, 0));
        }
    }
}
