//! The ring of bytes: datagrams in forwarding order, freed from the oldest.
//!
//! The ring follows the bytes under way to the client: it grows by a quarter more than it needs, up
//! to its limit, and shrinks when half of it was not needed for a while, so that a session costs
//! little more than its path holds; positions are absolute and never reused.

use core::num::NonZeroU64;

/// First allocation: enough for a session before it has seen traffic.
const INITIAL_BYTES: usize = 4 * CAPACITY_STEP_BYTES;
/// Bytes of which capacities are multiples.
const CAPACITY_STEP_BYTES: usize = 4096;

/// The capacity of a ring that needs this many bytes, and perhaps more a little later.
fn enough_for(bytes: usize) -> usize {
    (bytes + bytes / 4).next_multiple_of(CAPACITY_STEP_BYTES).max(INITIAL_BYTES)
}

/// Place of a datagram in the ring. Positions begin with one, so that "nowhere" takes no room of
/// its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    position: NonZeroU64,
    pub(crate) length: u16,
}

impl Span {
    fn end(self) -> u64 {
        self.position.get() + u64::from(self.length)
    }
}

/// A byte ring with absolute positions.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes: Vec<u8>,
    limit: usize,
    /// Position of the oldest byte kept.
    head: u64,
    /// Position behind the newest byte.
    tail: u64,
    /// Index behind the newest byte in `bytes`: `tail` modulo the capacity, without a division per
    /// datagram.
    end: usize,
    /// Most bytes ever, before the last [`Self::shrink`].
    high_water: usize,
    /// Most bytes since the last [`Self::shrink`].
    recent_peak: usize,
}

impl Cache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit, head: 1, tail: 1, end: 0, high_water: 0, recent_peak: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        (self.tail - self.head) as usize
    }

    pub(crate) fn high_water(&self) -> usize {
        self.high_water.max(self.recent_peak)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Sets the size up to which the ring grows from now on; existing memory stays.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Memory that the ring has.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// True if a datagram of `length` bytes fits without freeing or growing.
    pub(crate) fn has_room(&self, length: usize) -> bool {
        self.len() + length <= self.bytes.len()
    }

    /// The capacity with which a datagram of `length` bytes fits, within the limit; `None` when the
    /// ring need not or must not grow.
    pub(crate) fn wanted_capacity(&self, length: usize) -> Option<usize> {
        let needed = self.len() + length;
        let wanted = enough_for(needed).min(self.limit);
        (needed > self.bytes.len() && wanted >= needed).then_some(wanted)
    }

    /// Appends a datagram that [has room](Self::has_room); `None` without room.
    #[inline]
    pub(crate) fn push(&mut self, datagram: &[u8]) -> Option<Span> {
        let length = u16::try_from(datagram.len()).ok()?;
        let used = self.len() + datagram.len();
        if used > self.bytes.len() {
            return None;
        }
        let span = Span { position: NonZeroU64::new(self.tail)?, length };
        let end = self.end + datagram.len();
        match self.bytes.get_mut(self.end..end) {
            Some(place) => {
                place.copy_from_slice(datagram);
                self.end = end;
            }
            None => self.wrap_around(datagram),
        }
        self.tail += u64::from(length);
        self.recent_peak = self.recent_peak.max(used);
        Some(span)
    }

    /// Writes a datagram that does not fit before the end.
    #[cold]
    fn wrap_around(&mut self, datagram: &[u8]) {
        let (first, second) = datagram.split_at(self.bytes.len() - self.end);
        self.bytes[self.end..].copy_from_slice(first);
        self.bytes[..second.len()].copy_from_slice(second);
        self.end = second.len();
    }

    /// Gives memory back when less than about half of it was used since the last call.
    pub(crate) fn shrink(&mut self) {
        let peak = {
            let length = self.len();
            core::mem::replace(&mut self.recent_peak, length)
        };
        self.high_water = self.high_water.max(peak);
        let enough = if peak == 0 { 0 } else { enough_for(peak) };
        if enough <= self.bytes.len() / 2 && enough < self.bytes.len() {
            self.resize(enough);
        }
    }

    /// Frees everything up to and including the datagram at `span`.
    pub(crate) fn free_through(&mut self, span: Span) {
        debug_assert!(span.end() <= self.tail);
        self.head = self.head.max(span.end().min(self.tail));
    }

    /// The bytes at `span`, in two parts if they wrap around; `None` when they were freed.
    pub(crate) fn get(&self, span: Span) -> Option<(&[u8], &[u8])> {
        if span.position.get() < self.head || span.end() > self.tail {
            return None;
        }
        let (first, second) = self.places(span);
        Some((&self.bytes[first], &self.bytes[second]))
    }

    fn places(&self, span: Span) -> (core::ops::Range<usize>, core::ops::Range<usize>) {
        let (capacity, length) = (self.bytes.len(), usize::from(span.length));
        if capacity == 0 {
            return (0..0, 0..0);
        }
        let start = (span.position.get() % capacity as u64) as usize;
        let first = length.min(capacity - start);
        (start..start + first, 0..length - first)
    }

    /// Gives the ring another capacity, at least its length, and keeps its content.
    pub(crate) fn resize(&mut self, capacity: usize) {
        debug_assert!(capacity >= self.len());
        let mut resized = vec![0; capacity];
        let (old_capacity, mut position) = (self.bytes.len() as u64, self.head);
        while position < self.tail {
            let from = (position % old_capacity) as usize;
            let to = (position % capacity as u64) as usize;
            let run =
                ((self.tail - position) as usize).min(self.bytes.len() - from).min(capacity - to);
            resized[to..to + run].copy_from_slice(&self.bytes[from..from + run]);
            position += run as u64;
        }
        self.bytes = resized;
        self.end = if capacity == 0 { 0 } else { (self.tail % capacity as u64) as usize };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a model that keeps every datagram in a queue.
        #[test]
        fn keeps_what_it_holds(limit in 1usize..5000, steps in proptest::collection::vec((0usize..700, 0usize..4, any::<bool>()), 1..300)) {
            let mut cache = Cache::new(limit);
            let mut model: VecDeque<(Span, Vec<u8>)> = VecDeque::new();
            let mut fill = 0u8;
            for (length, frees, shrinks) in steps {
                if let Some(capacity) = cache.wanted_capacity(length) {
                    prop_assert!(capacity <= limit);
                    cache.resize(capacity);
                }
                let datagram: Vec<u8> = (0..length).map(|_| { fill = fill.wrapping_add(37); fill }).collect();
                match cache.push(&datagram) {
                    Some(span) => model.push_back((span, datagram)),
                    None => prop_assert!(cache.len() + length > limit),
                }
                for _ in 0..frees {
                    if let Some((span, _)) = model.pop_front() {
                        cache.free_through(span);
                        if span.length > 0 {
                            prop_assert!(cache.get(span).is_none());
                        }
                    }
                }
                if shrinks {
                    cache.shrink();
                }
                prop_assert!(cache.capacity() <= limit);
                prop_assert!(cache.len() <= limit && cache.high_water() <= limit);
                prop_assert_eq!(cache.len(), model.iter().map(|(_, bytes)| bytes.len()).sum::<usize>());
                for (span, bytes) in &model {
                    let (first, second) = cache.get(*span).unwrap();
                    prop_assert_eq!(&[first, second].concat(), bytes);
                }
            }
        }
    }

    #[test]
    fn the_ring_follows_what_is_under_way() {
        let mut cache = Cache::new(1 << 20);
        let mut under_way = VecDeque::new();
        let mut seconds = |window: usize| {
            // A second with datagrams a millisecond apart, as many of them under way.
            for _ in 0..1000 {
                if let Some(capacity) = cache.wanted_capacity(1000) {
                    cache.resize(capacity);
                }
                under_way.push_back(cache.push(&[7; 1000]).unwrap());
                while under_way.len() > window {
                    cache.free_through(under_way.pop_front().unwrap());
                }
            }
            cache.shrink();
            cache.capacity()
        };
        for window in [40, 400, 20, 700, 100] {
            seconds(window);
            seconds(window);
            let capacity = seconds(window);
            let needed = 1000 * (window + 1);
            assert!(
                needed <= capacity && capacity < 2 * enough_for(needed),
                "{capacity} for {window}"
            );
        }
        assert!(
            seconds(700) < 701_000 + 701_000 / 4 + 2 * CAPACITY_STEP_BYTES,
            "it grew by little"
        );
    }

    #[test]
    fn memory_is_given_back_when_it_is_not_used() {
        let mut cache = Cache::new(1 << 20);
        let spans: Vec<_> = (0..500)
            .map(|_| {
                if let Some(capacity) = cache.wanted_capacity(1000) {
                    cache.resize(capacity);
                }
                cache.push(&[7; 1000]).unwrap()
            })
            .collect();
        assert!(cache.capacity() >= 500_000);
        cache.free_through(spans[498]);
        cache.shrink();
        assert!(cache.capacity() >= 500_000, "the peak was a moment ago");
        cache.shrink();
        assert!(cache.capacity() <= INITIAL_BYTES && cache.get(spans[499]).is_some());
        cache.free_through(spans[499]);
        cache.shrink();
        cache.shrink();
        assert_eq!(cache.capacity(), 0);
    }
}
