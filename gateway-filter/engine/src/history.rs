//! History: forwarded datagrams in forwarding order, with an index by identifier.
//!
//! An entry outlives its bytes: identifiers whose datagrams were acknowledged, evicted or given up
//! stay known for a while, so that an identifier that only the client has can be explained
//! (docs/PROTOCOL.md, section 11, "What the gateway does with an eACK").

use core::ops::Range;
use std::collections::VecDeque;

use packrat_eack::Identifier;
use packrat_wire::estimate::Timestamp;

use crate::cache::{Cache, Span};
use crate::index::IdentifierIndex;

/// Number of datagrams between two trims of the history.
pub(crate) const TRIM_DATAGRAMS: u64 = 32;
/// Entries kept after their fate is known.
pub(crate) const SETTLED_ENTRIES: usize = 2048;
/// Entries kept after their fate is known for a flow that has fallen quiet: the client names the
/// newest of them, or one a little older if datagrams were reordered.
pub(crate) const QUIET_ENTRIES: usize = 4;
/// Entries kept at all; older ones are forgotten even if the client never reported them.
pub(crate) const MAXIMUM_ENTRIES: usize = 16_384;
/// Entries kept at all for a client that reports only when a datagram is missing: it never reports
/// most of them.
pub(crate) const SELECTIVE_ENTRIES: usize = 4096;

/// Fate of a datagram, as far as the gateway knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Forwarded; no eACK has covered it.
    Unknown,
    /// The client has it.
    Received,
    /// The client does not have it, and it is being repaired.
    Missing,
    /// The client does not have it and will not get it from here.
    GivenUp,
}

/// One forwarded datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) identifier: Identifier,
    pub(crate) fate: Fate,
    /// True if the gateway's sketch contains it.
    pub(crate) in_sketch: bool,
    /// Time of the first transmission.
    pub(crate) forwarded_at: Timestamp,
    /// True if it was sent again: its arrival does not show which transmission arrived.
    pub(crate) resent: bool,
    /// True if it came with a report of congestion, which belongs to its repair as well.
    pub(crate) congested: bool,
    span: Option<Span>,
}

impl Entry {
    /// Length of the datagram while its bytes are kept.
    pub(crate) fn length(&self) -> Option<usize> {
        Some(usize::from(self.span?.length))
    }
}

/// Forwarded datagrams by sequence number (position in forwarding order) and by identifier.
#[derive(Debug)]
pub(crate) struct History {
    entries: VecDeque<Entry>,
    /// Sequence number of the first entry.
    first: u64,
    /// Entries before this sequence number have no bytes any more.
    first_cached: u64,
    index: IdentifierIndex,
    cache: Cache,
    /// Entries kept at all.
    maximum: usize,
}

/// Number of entries to which a trim above the limit goes down, so that the limit holds until the
/// next trim. Queue and index double when they are full, so staying below a power of two halves
/// them.
const fn below(limit: usize) -> usize {
    limit - limit / 64
}

/// Outcome of [`History::push`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// Recorded and cached.
    Cached,
    /// Recorded, but its bytes did not fit.
    Uncached,
    /// An identifier that is already known: a duplicate of the network's making; not recorded
    /// again.
    Duplicate,
}

impl History {
    pub(crate) fn new(cache_bytes: usize, maximum: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            first: 0,
            first_cached: 0,
            index: IdentifierIndex::default(),
            cache: Cache::new(cache_bytes),
            maximum,
        }
    }

    /// Sequence number that the next datagram gets.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Sequence number of the oldest entry known.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Records a datagram. [`Self::make_room`] must have been called for its bytes.
    #[inline]
    pub(crate) fn push(
        &mut self,
        identifier: Identifier,
        datagram: &[u8],
        now: Timestamp,
    ) -> Pushed {
        let sequence = self.next();
        if self.index.is_full() {
            self.fill_index(false);
        }
        if !self.index.insert(identifier, sequence, self.first) {
            return Pushed::Duplicate;
        }
        let span = self.cache.push(datagram);
        self.entries.push_back(Entry {
            identifier,
            fate: Fate::Unknown,
            in_sketch: false,
            forwarded_at: now,
            resent: false,
            congested: false,
            span,
        });
        if span.is_some() { Pushed::Cached } else { Pushed::Uncached }
    }

    /// Notes that the newest datagram came with a report of congestion.
    pub(crate) fn note_congested(&mut self) {
        if let Some(newest) = self.entries.back_mut() {
            newest.congested = true;
        }
    }

    /// True if this datagram came with a report of congestion.
    pub(crate) fn is_congested(&self, sequence: u64) -> bool {
        self.get(sequence).is_some_and(|entry| entry.congested)
    }

    #[cold]
    fn fill_index(&mut self, shrinks: bool) {
        self.index.fill(self.entries.iter().map(|entry| entry.identifier), self.first, shrinks);
    }

    /// Makes room for `length` bytes: lets the cache grow if `grant` allows this many more bytes,
    /// else evicts the oldest datagrams; returns the number of evicted datagrams with an open fate.
    /// Does not evict for a datagram that could never fit.
    #[inline]
    pub(crate) fn make_room(&mut self, length: usize, grant: impl FnOnce(usize) -> bool) -> u64 {
        if self.cache.has_room(length) { 0 } else { self.grow_or_evict(length, grant) }
    }

    #[cold]
    fn grow_or_evict(&mut self, length: usize, grant: impl FnOnce(usize) -> bool) -> u64 {
        if length > self.cache.limit() {
            return 0;
        }
        let mut evicted = 0;
        let over = |cache: &Cache| cache.len() + length > cache.limit();
        while over(&self.cache) && self.first_cached < self.next() {
            evicted += u64::from(self.free_oldest());
        }
        if let Some(capacity) = self.cache.wanted_capacity(length)
            && grant(capacity - self.cache.capacity())
        {
            self.cache.resize(capacity);
        }
        while !self.cache.has_room(length)
            && length <= self.cache.capacity()
            && self.first_cached < self.next()
        {
            evicted += u64::from(self.free_oldest());
        }
        evicted
    }

    /// Keeps at most `bytes` from now on; returns the number of datagrams with an open fate that
    /// were evicted for that.
    pub(crate) fn limit_cache(&mut self, bytes: usize) -> u64 {
        self.cache.set_limit(bytes);
        self.shrink_to(bytes)
    }

    /// Evicts the oldest datagrams until no more than `bytes` are kept, and gives the rest of the
    /// memory back; returns the number of evicted datagrams with an open fate.
    pub(crate) fn shrink_to(&mut self, bytes: usize) -> u64 {
        if self.cache.capacity() <= bytes {
            return 0;
        }
        let mut evicted = 0;
        while self.cache.len() > bytes && self.first_cached < self.next() {
            evicted += u64::from(self.free_oldest());
        }
        self.cache.resize(bytes);
        evicted
    }

    /// Gives memory back that was not used since the last call.
    pub(crate) fn shrink(&mut self) {
        self.cache.shrink();
        if self.cache.capacity() == 0 {
            // No datagrams pass.
            self.entries.shrink_to_fit();
        } else if self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        if self.is_searched() {
            self.index = IdentifierIndex::default();
        } else if self.index.is_too_large_for(self.entries.len()) {
            self.fill_index(true);
        }
    }

    /// True if no datagrams pass, and so few entries are left that they need no index.
    fn is_searched(&self) -> bool {
        self.cache.capacity() == 0 && self.entries.len() <= QUIET_ENTRIES
    }

    /// Memory that entries, index and cache take.
    pub(crate) fn memory(&self) -> usize {
        self.cache.capacity() + self.entries.capacity() * size_of::<Entry>() + self.index.memory()
    }

    /// Frees the bytes of the oldest entry that may have some; true if its fate was open.
    pub(crate) fn free_oldest(&mut self) -> bool {
        let sequence = self.first_cached;
        self.first_cached = (sequence + 1).min(self.next());
        let offset = sequence.saturating_sub(self.first) as usize;
        let Some(entry) = self.entries.get_mut(offset) else { return false };
        let Some(span) = entry.span.take() else { return false };
        let open = matches!(entry.fate, Fate::Unknown | Fate::Missing);
        self.cache.free_through(span);
        open
    }

    /// Frees the bytes of entries that were forwarded before `before`.
    pub(crate) fn free_before(&mut self, before: Timestamp) {
        let is_old = |entry: &Entry| entry.forwarded_at < before;
        while self.cache.len() > 0
            && self.get(self.first_cached.max(self.first)).is_some_and(is_old)
        {
            self.free_oldest();
        }
    }

    /// Frees the bytes of the oldest entries as far as their fate is settled.
    pub(crate) fn release_settled(&mut self) {
        let cached = self.offsets(self.first_cached..self.next());
        let mut last = None;
        for entry in self.entries.range_mut(cached) {
            if matches!(entry.fate, Fate::Unknown | Fate::Missing) && entry.span.is_some() {
                break;
            }
            last = entry.span.take().or(last);
            self.first_cached += 1;
        }
        if let Some(span) = last {
            self.cache.free_through(span);
        }
    }

    /// Forgets the oldest entries somewhat below the limits; `settled_limit`: for entries whose
    /// fate is known. Calls `forget` for each forgotten entry with its sequence number.
    pub(crate) fn trim(&mut self, settled_limit: usize, mut forget: impl FnMut(u64, &Entry)) {
        let (settled_limit, maximum) = (below(settled_limit), below(self.maximum));
        while self.entries.len() > settled_limit.min(maximum)
            && let Some(entry) = self.entries.front()
        {
            let settled = matches!(entry.fate, Fate::Received | Fate::GivenUp);
            if self.entries.len() <= if settled { settled_limit } else { maximum } {
                break;
            }
            forget(self.first, entry);
            if self.first_cached <= self.first {
                self.free_oldest();
            }
            self.entries.pop_front();
            self.first += 1;
        }
    }

    pub(crate) fn sequence_of(&self, identifier: Identifier) -> Option<u64> {
        if self.index.memory() > 0 {
            return self.index.get(identifier, self.first);
        }
        let place = self.entries.iter().position(|entry| entry.identifier == identifier);
        place.map(|place| self.first + place as u64)
    }

    /// The newest entry that was forwarded no later than `until`, by binary search: entries are in
    /// the order of time.
    pub(crate) fn newest_until(&self, until: Timestamp) -> Option<u64> {
        let count = self.entries.partition_point(|entry| entry.forwarded_at <= until);
        (self.first + count as u64).checked_sub(1).filter(|sequence| *sequence >= self.first)
    }

    /// The entries with these sequence numbers, as far as they exist.
    pub(crate) fn range(&self, sequences: Range<u64>) -> impl Iterator<Item = &Entry> + Clone {
        self.entries.range(self.offsets(sequences))
    }

    /// See [`Self::range`].
    pub(crate) fn range_mut(&mut self, sequences: Range<u64>) -> impl Iterator<Item = &mut Entry> {
        let offsets = self.offsets(sequences);
        self.entries.range_mut(offsets)
    }

    fn offsets(&self, sequences: Range<u64>) -> Range<usize> {
        let [start, end] = [sequences.start, sequences.end]
            .map(|sequence| (sequence.saturating_sub(self.first) as usize).min(self.entries.len()));
        start.min(end)..end
    }

    pub(crate) fn get(&self, sequence: u64) -> Option<&Entry> {
        #[cfg(feature = "count-operations")]
        packrat_eack::operations::count(1);
        self.entries.get(sequence.checked_sub(self.first)? as usize)
    }

    pub(crate) fn get_mut(&mut self, sequence: u64) -> Option<&mut Entry> {
        #[cfg(feature = "count-operations")]
        packrat_eack::operations::count(1);
        self.entries.get_mut(sequence.checked_sub(self.first)? as usize)
    }

    /// The bytes of an entry, in two parts if they wrap around the ring.
    pub(crate) fn bytes(&self, sequence: u64) -> Option<(&[u8], &[u8])> {
        self.cache.get(self.get(sequence)?.span?)
    }

    /// Length of an entry's datagram while its bytes are kept.
    pub(crate) fn cached_length(&self, sequence: u64) -> Option<usize> {
        self.get(sequence)?.length()
    }

    /// Datagrams whose bytes are kept, as an upper bound (settled ones in the middle count).
    pub(crate) fn cached_entries(&self) -> u64 {
        self.next() - self.first_cached.max(self.first)
    }
}

/// The identifier of a test's datagram, another one for each number.
#[cfg(test)]
pub(crate) fn identifier(number: u64) -> Identifier {
    Identifier::from_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn push(history: &mut History, number: u64, length: usize) -> Pushed {
        history.make_room(length, |_| true);
        history.push(identifier(number), &vec![number as u8; length], Timestamp::ZERO)
    }

    #[test]
    fn the_oldest_bytes_go_first_and_their_identifiers_stay() {
        let mut history = History::new(10_000, MAXIMUM_ENTRIES);
        for number in 0..20 {
            assert_eq!(push(&mut history, number, 1000), Pushed::Cached);
        }
        assert_eq!(history.cache().len(), 10_000);
        assert!(history.bytes(9).is_none());
        assert_eq!(history.bytes(10).map(|(first, second)| first.len() + second.len()), Some(1000));
        assert_eq!(history.sequence_of(identifier(3)), Some(3));
    }

    proptest! {
        /// Against a history that makes room for each datagram by itself.
        #[test]
        fn room_for_a_burst_at_once_keeps_the_same_datagrams(
            bursts in proptest::collection::vec(proptest::collection::vec(0usize..3000, 1..8), 1..20),
        ) {
            let limit = 10_000;
            let (mut at_once, mut plain) =
                (History::new(limit, MAXIMUM_ENTRIES), History::new(limit, MAXIMUM_ENTRIES));
            let mut number = 0;
            for burst in bursts {
                let mut evicted = at_once.make_room(burst.iter().sum(), |_| true);
                let mut evicted_plain = 0;
                for length in burst {
                    number += 1;
                    let datagram = vec![number as u8; length];
                    for (history, evicted) in
                        [(&mut at_once, &mut evicted), (&mut plain, &mut evicted_plain)]
                    {
                        *evicted += history.make_room(length, |_| true);
                        let pushed = history.push(identifier(number), &datagram, Timestamp::ZERO);
                        prop_assert_eq!(pushed, Pushed::Cached);
                    }
                }
                prop_assert_eq!(evicted, evicted_plain);
                for sequence in 0..at_once.next() {
                    let [kept, kept_plain] = [&at_once, &plain].map(|history| {
                        history.bytes(sequence).map(|(first, second)| [first, second].concat())
                    });
                    prop_assert_eq!(kept, kept_plain);
                }
            }
        }
    }

    #[test]
    fn a_datagram_larger_than_the_cache_evicts_nothing() {
        let mut history = History::new(10_000, MAXIMUM_ENTRIES);
        push(&mut history, 1, 5000);
        assert_eq!(push(&mut history, 2, 20_000), Pushed::Uncached);
        assert!(history.bytes(0).is_some());
    }

    #[test]
    fn a_smaller_limit_evicts_the_oldest_and_keeps_the_rest() {
        let mut history = History::new(10_000, MAXIMUM_ENTRIES);
        (0..10).for_each(|number| assert_eq!(push(&mut history, number, 1000), Pushed::Cached));
        history.get_mut(0).unwrap().fate = Fate::Received;
        assert_eq!(history.limit_cache(4500), 5, "the fate of one of six was known");
        assert_eq!(history.cache().capacity(), 4500);
        assert!(history.bytes(5).is_none() && history.bytes(6).is_some());
        assert_eq!(push(&mut history, 10, 1000), Pushed::Cached);
        assert!(history.bytes(6).is_none(), "it counts for what comes, too");
        assert_eq!(history.limit_cache(20_000), 0);
        (11..20).for_each(|number| assert_eq!(push(&mut history, number, 1000), Pushed::Cached));
        assert!(history.bytes(7).is_some());
        assert_eq!(history.shrink_to(0), 13);
        assert_eq!((history.cache().capacity(), history.sequence_of(identifier(9))), (0, Some(9)));
    }

    #[test]
    fn duplicates_are_not_recorded() {
        let mut history = History::new(10_000, MAXIMUM_ENTRIES);
        push(&mut history, 1, 100);
        assert_eq!(push(&mut history, 1, 100), Pushed::Duplicate);
        assert_eq!(history.next(), 1);
    }

    #[test]
    fn a_quiet_flow_needs_no_index() {
        let mut history = History::new(10_000, MAXIMUM_ENTRIES);
        (0..100).for_each(|number| assert_eq!(push(&mut history, number, 10), Pushed::Cached));
        (0..100).for_each(|sequence| history.get_mut(sequence).unwrap().fate = Fate::Received);
        history.release_settled();
        history.trim(QUIET_ENTRIES, |_, _| {});
        (0..2).for_each(|_| history.shrink());
        assert!(history.memory() <= QUIET_ENTRIES * size_of::<Entry>());
        assert_eq!(history.sequence_of(identifier(99)), Some(99));
        assert_eq!(history.sequence_of(identifier(9)), None);
        assert_eq!(push(&mut history, 98, 10), Pushed::Duplicate);
        assert_eq!(push(&mut history, 100, 10), Pushed::Cached);
        assert_eq!(history.sequence_of(identifier(97)), Some(97));
    }

    #[test]
    fn entries_are_found_and_freed_by_time() {
        let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
        let at = Timestamp::from_millis;
        assert_eq!(history.newest_until(at(9)), None);
        for number in 0..100 {
            history.make_room(10, |_| true);
            history.push(identifier(number), &[0; 10], at(100 + number / 2));
        }
        assert_eq!(history.newest_until(at(99)), None);
        assert_eq!(history.newest_until(at(100)), Some(1));
        assert_eq!(history.newest_until(at(120)), Some(41));
        assert_eq!(history.newest_until(at(999)), Some(99));
        history.free_before(at(120));
        assert!(history.bytes(39).is_none() && history.bytes(40).is_some());
        history.trim(10, |_, _| {});
        history.free_before(at(999));
        assert_eq!(history.cache().len(), 0);
    }

    #[test]
    fn old_entries_are_forgotten_settled_ones_sooner() {
        let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
        for number in 0..40_000u64 {
            push(&mut history, number, 10);
            if number < 10_000
                && let Some(entry) = history.get_mut(number)
            {
                entry.fate = Fate::Received;
            }
            history.release_settled();
            history.trim(SETTLED_ENTRIES, |_, _| {});
        }
        assert_eq!(history.next() - history.first(), below(MAXIMUM_ENTRIES) as u64);
        assert_eq!(history.sequence_of(identifier(0)), None);
        assert_eq!(history.sequence_of(identifier(39_999)), Some(39_999));
        assert!(history.cache().len() <= MAXIMUM_ENTRIES * 10);
    }
}
