//! Datagrams that wait above a hole, and those that need not wait any more.

use std::collections::{BTreeMap, VecDeque};

use crate::packet_number::PacketNumber;

/// Bytes and datagrams that wait at most; beyond, the lowest number passes. 250 ms at 500 Mbit/s.
const MAXIMUM_BYTES: usize = 16 << 20;
const MAXIMUM_WAITING: usize = 16_384;

/// A datagram that the shim has kept, for the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released<M> {
    /// The datagram of the base connection.
    pub datagram: Vec<u8>,
    /// As it was passed in with the datagram.
    pub metadata: M,
}

/// Waiting by number, and released in order.
#[derive(Debug)]
pub(super) struct Release<M> {
    /// The transport decides which of several of one number is authentic.
    waiting: BTreeMap<u64, Vec<Released<M>>>,
    count: usize,
    bytes: usize,
    ready: VecDeque<Released<M>>,
}

impl<M> Default for Release<M> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), count: 0, bytes: 0, ready: VecDeque::new() }
    }
}

impl<M> Release<M> {
    /// True if nothing waits below this number, nor is to be delivered before it.
    pub(super) fn is_next(&self, number: PacketNumber) -> bool {
        self.ready.is_empty()
            && self.waiting.first_key_value().is_none_or(|(first, _)| number.get() <= *first)
    }

    /// Keeps a datagram; false if it waits already.
    pub(super) fn keep(&mut self, number: PacketNumber, datagram: &[u8], metadata: M) -> bool {
        let waiting = self.waiting.entry(number.get()).or_default();
        if waiting.iter().any(|known| known.datagram == datagram) {
            return false;
        }
        waiting.push(Released { datagram: datagram.to_vec(), metadata });
        self.count += 1;
        self.bytes += datagram.len();
        true
    }

    /// Releases everything below this number, and what there is no room for.
    pub(super) fn release_below(&mut self, limit: PacketNumber) {
        while let Some(entry) = self.waiting.first_entry()
            && (*entry.key() < limit.get()
                || self.bytes > MAXIMUM_BYTES
                || self.count > MAXIMUM_WAITING)
        {
            for released in entry.remove() {
                self.count -= 1;
                self.bytes -= released.datagram.len();
                self.ready.push_back(released);
            }
        }
    }

    /// The next datagram that was released.
    pub(super) fn poll(&mut self) -> Option<Released<M>> {
        self.ready.pop_front()
    }

    /// Datagrams that wait.
    pub(super) fn waiting(&self) -> usize {
        self.count
    }

    /// Their bytes.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_much_and_the_lowest_passes_first() {
        let mut release = Release::default();
        let datagram = vec![7; 1 << 20];
        for number in (0..18).rev() {
            assert!(release.keep(PacketNumber::new(number), &datagram, number));
            assert!(!release.keep(PacketNumber::new(number), &datagram, number), "a second copy");
        }
        release.release_below(PacketNumber::new(0));
        let released: Vec<u64> =
            std::iter::from_fn(|| release.poll()).map(|released| released.metadata).collect();
        assert_eq!(released, [0, 1]);
        assert_eq!((release.waiting(), release.waiting_bytes()), (16, MAXIMUM_BYTES));
        for number in 100..100 + MAXIMUM_WAITING as u64 {
            release.keep(PacketNumber::new(number), b"", number);
        }
        release.release_below(PacketNumber::new(0));
        assert_eq!(release.waiting(), MAXIMUM_WAITING);
    }
}
