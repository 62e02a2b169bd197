//! A memory by identifier that forgets the oldest.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

use packrat_eack::Identifier;

/// A hash of identifiers. They are made with a key of the session, so their own bits are as good as
/// any hash, and an attacker cannot aim at a slot.
#[derive(Debug, Default, Clone, Copy)]
struct IdentifierHasher(u64);

impl Hasher for IdentifierHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u32((self.0 as u32).rotate_left(8) ^ u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        // A table distinguishes entries by the upper bits, which must depend on all bits.
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type ByIdentifier<T> = HashMap<Identifier, T, BuildHasherDefault<IdentifierHasher>>;

/// Values by identifier: at least the newest [`Self::most`], and at most twice as many. There are
/// two tables; the older one is emptied when the newer one is full. Entries are never removed one
/// by one, which would leave traces in a table and make it grow.
#[derive(Debug)]
pub(crate) struct Generations<T> {
    most: usize,
    newer: ByIdentifier<T>,
    older: ByIdentifier<T>,
}

impl<T: Copy> Generations<T> {
    /// Creates an empty map. It fits its memory if `most` is seven eighths of a power of two.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, newer: ByIdentifier::default(), older: ByIdentifier::default() }
    }

    pub(crate) fn get(&self, identifier: Identifier) -> Option<T> {
        self.newer.get(&identifier).or_else(|| self.older.get(&identifier)).copied()
    }

    /// Adds a value, or replaces the existing one.
    pub(crate) fn insert(&mut self, identifier: Identifier, value: T) {
        if self.newer.len() >= self.most {
            core::mem::swap(&mut self.newer, &mut self.older);
            self.newer.clear();
        }
        self.newer.insert(identifier, value);
    }

    /// Approximate memory in bytes: each slot of a table, and its control byte.
    pub(crate) fn memory(&self) -> usize {
        let places = self.newer.capacity() + self.older.capacity();
        places * (size_of::<(Identifier, T)>() + 1)
    }

    /// Forgets everything, and gives the memory back.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_in_memory_that_does_not_grow() {
        const MOST: u32 = 7 << 10;
        let identifier = |number: u32| Identifier::from_hash(u64::from(number) << 44);
        let mut known = Generations::new(MOST as usize);
        for number in 0..10 * MOST {
            known.insert(identifier(number), number);
        }
        for number in 9 * MOST..10 * MOST {
            assert_eq!(known.get(identifier(number)), Some(number));
        }
        assert_eq!(known.get(identifier(8 * MOST - 1)), None);
        let capacity = [known.newer.capacity(), known.older.capacity()];
        assert_eq!(capacity, [MOST as usize; 2]);
        known.insert(identifier(9 * MOST), 7);
        assert_eq!(known.get(identifier(9 * MOST)), Some(7), "replaced");
        known.clear();
        assert_eq!((known.get(identifier(9 * MOST)), known.newer.capacity()), (None, 0));
    }
}
