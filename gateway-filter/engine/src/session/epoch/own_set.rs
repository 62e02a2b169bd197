//! The gateway's own set of an epoch: the forwarded datagrams in its sketch, and how far the
//! client's eACKs have covered them.
//!
//! Sequence numbers in an epoch:
//!
//! ```text
//!   history.first()      considered            horizon            history.next()
//!        |--- fate known ----|--- in the sketch ---|--- not yet ---|
//! ```

use core::cell::Cell;

use packrat_eack::{
    Encoding, Identifier, MAX_EXPECTED_DIFFERENCE, Sketch, SketchKey, SketchLimits,
};

use crate::history::{Entry, Fate, History};

/// Number of datagrams among which one is searched that the client has.
const SEARCHED_DATAGRAMS: usize = 512;
/// Most datagrams that one eACK has inserted into the sketch: a fifth of a millisecond. More were
/// forwarded only if a client was silent; it then needs further eACKs.
const INSERTED_DATAGRAMS: u64 = 4096;
/// Work per entry of the history when an epoch begins.
const ANCHOR_WORK: u64 = 8;

/// The gateway's own set.
pub(crate) struct OwnSet {
    key: SketchKey,
    limits: SketchLimits,
    /// `Some` once a datagram is in it.
    sketch: Option<Box<Sketch>>,
    /// True if the beginning of the client's set is known.
    anchored: bool,
    /// All datagrams before this sequence number have been considered for the sketch.
    horizon: u64,
    /// Decoded eACKs have covered all datagrams before this sequence number.
    considered: u64,
}

impl OwnSet {
    pub(super) fn new(key: SketchKey, limits: SketchLimits) -> Self {
        Self { key, limits, sketch: None, anchored: false, horizon: 0, considered: 0 }
    }

    /// Empties the set: another epoch begins, to be anchored.
    pub(super) fn clear(&mut self) {
        self.anchored = false;
        self.sketch = None;
    }

    pub(super) fn limits(&self) -> SketchLimits {
        self.limits
    }

    /// The longest encoding that the client's eACKs may have.
    pub(super) fn longest(&self) -> Option<Encoding> {
        self.limits.encoding_for(MAX_EXPECTED_DIFFERENCE)
    }

    pub(crate) fn is_anchored(&self) -> bool {
        self.anchored
    }

    pub(crate) fn horizon(&self) -> u64 {
        self.horizon
    }

    pub(super) fn considered(&self) -> u64 {
        self.considered
    }

    /// True if the client's eACKs could have covered more of the forwarded datagrams.
    pub(crate) fn is_tail_open(&self, history: &History) -> bool {
        self.horizon < history.next()
    }

    /// Begins the client's set at `start`: the fates of all datagrams before are settled, one way
    /// or the other. Returns the work, also of the insertions to follow.
    pub(super) fn anchor(&mut self, start: u64, history: &mut History) -> u64 {
        for sequence in history.first()..history.next() {
            if let Some(entry) = history.get_mut(sequence) {
                entry.in_sketch = false;
                if sequence < start && entry.fate != Fate::Received {
                    entry.fate = Fate::GivenUp;
                } else if sequence >= start {
                    entry.fate = Fate::Unknown;
                }
            }
        }
        self.horizon = start;
        self.considered = start;
        self.anchored = true;
        history.release_settled();
        let behind = usize::try_from(history.next().saturating_sub(start)).unwrap_or(usize::MAX);
        let scanned = history.next() - history.first();
        ANCHOR_WORK * scanned + self.limits.work_of(behind)
    }

    /// Inserts all datagrams up to `newest` into the sketch. Idempotent, so that a failed decode
    /// does no harm. False if there are so many that the next eACK has to go on.
    pub(super) fn advance(&mut self, newest: u64, history: &mut History) -> bool {
        let first = self.horizon.max(history.first());
        let end = (newest + 1).min(first + INSERTED_DATAGRAMS);
        for entry in history.range_mut(first..end) {
            if !entry.in_sketch {
                entry.in_sketch = true;
                self.sketch_mut().insert(entry.identifier);
            }
        }
        self.horizon = self.horizon.max(end);
        end > newest
    }

    #[inline]
    fn sketch_mut(&mut self) -> &mut Sketch {
        let Self { sketch, key, limits, .. } = self;
        sketch.get_or_insert_with(|| Box::new(Sketch::new(key.clone(), *limits)))
    }

    /// `None`: the set is empty.
    pub(super) fn sketch(&self) -> Option<&Sketch> {
        self.sketch.as_deref()
    }

    pub(super) fn empty_sketch(&self) -> Sketch {
        Sketch::new(self.key.clone(), self.limits)
    }

    /// Identifiers in the sketch of datagrams before `end` that decoded eACKs have not covered.
    pub(super) fn unspoken<'a>(
        &self,
        end: u64,
        history: &'a History,
    ) -> impl Iterator<Item = Identifier> + Clone + use<'a> {
        let entries = history.range(self.considered..end.min(self.horizon).max(self.considered));
        entries.filter(|entry| entry.fate == Fate::Unknown).map(|entry| entry.identifier)
    }

    /// Identifiers that are not in the sketch, but may be in the client's set: forwarded beyond the
    /// horizon, or given up. Counts the entries that were read.
    pub(super) fn outside<'a>(
        &self,
        history: &'a History,
        looked_at: &'a Cell<u64>,
    ) -> impl Iterator<Item = Identifier> + use<'a> {
        let beyond = self.horizon..history.next();
        let before = (history.first()..self.horizon).rev();
        let entries = beyond.chain(before).filter_map(|sequence| {
            looked_at.set(looked_at.get() + 1);
            history.get(sequence)
        });
        entries.filter(|entry| !entry.in_sketch).map(|entry| entry.identifier)
    }

    /// Folds in a datagram that the client has and the sketch has not. False if it was never
    /// forwarded.
    pub(crate) fn fold_in(&mut self, identifier: Identifier, history: &mut History) -> bool {
        self.sketch_mut().insert(identifier);
        let sequence = history.sequence_of(identifier);
        let Some(entry) = sequence.and_then(|sequence| history.get_mut(sequence)) else {
            return false;
        };
        entry.in_sketch = true;
        entry.fate = Fate::Received;
        true
    }

    /// Folds out a datagram that the client will never get.
    pub(crate) fn fold_out(&mut self, identifier: Identifier) {
        self.sketch_mut().remove(identifier);
    }

    /// Records that the client does not have this datagram and will not get it from here.
    pub(crate) fn give_up(&mut self, sequence: u64, history: &mut History) {
        let Some(entry) = history.get_mut(sequence) else { return };
        entry.fate = Fate::GivenUp;
        if entry.in_sketch {
            entry.in_sketch = false;
            let identifier = entry.identifier;
            self.fold_out(identifier);
        }
    }

    /// Settles all datagrams up to the horizon: each has arrived, unless it is missing. Returns the
    /// number of datagrams that an eACK has covered for the first time.
    pub(crate) fn consider(&mut self, history: &mut History) -> u64 {
        for entry in history.range_mut(self.considered..self.horizon) {
            if entry.fate == Fate::Unknown {
                entry.fate = Fate::Received;
            }
        }
        let covered = self.horizon - self.considered;
        self.considered = self.horizon;
        covered
    }

    /// The last datagram that the client has before the first that is being repaired.
    pub(crate) fn settled(
        &self,
        first_missing: Option<u64>,
        history: &History,
    ) -> Option<Identifier> {
        let end = first_missing.unwrap_or(self.horizon);
        let sequences = (history.first()..end).rev().take(SEARCHED_DATAGRAMS);
        sequences
            .filter_map(|sequence| history.get(sequence))
            .find(|entry| entry.fate == Fate::Received)
            .map(|entry| entry.identifier)
    }

    /// Forgets an entry with the history. If it was not considered for the sketch before, it is
    /// considered now, so that the horizon stays inside the history.
    #[inline]
    pub(crate) fn forget(&mut self, sequence: u64, entry: &Entry) {
        self.considered = self.considered.max(sequence + 1);
        if sequence >= self.horizon {
            self.horizon = sequence + 1;
            if self.anchored && !entry.in_sketch {
                self.sketch_mut().insert(entry.identifier);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ends::{Ends, identifier};
    use super::*;

    #[test]
    fn after_long_silence_several_cheap_eacks_are_understood() {
        let forwarded = 2 * INSERTED_DATAGRAMS + 100;
        let mut ends = Ends::new(forwarded);
        ends.receive((0..forwarded).filter(|number| *number != 3));
        for eack in 1..=2 {
            assert_eq!(ends.eack(forwarded - 1, &[], true), None);
            assert_eq!(ends.epoch.set.horizon(), eack * INSERTED_DATAGRAMS);
        }
        let only_here = vec![identifier(3)];
        assert_eq!(ends.eack(forwarded - 1, &[], false), Some((only_here, vec![])));
    }
}
