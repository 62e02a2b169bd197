//! Datagrams that wait above a hole, and released ones.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use packrat_wire::estimate::Timestamp;

use super::pace::Pace;
use crate::packet_number::PacketNumber;

/// Most bytes that wait: 250 ms at 500 Mbit/s. Beyond, the lowest number passes.
const MAXIMUM_BYTES: usize = 16 << 20;
/// Most datagrams that wait; beyond, the lowest number passes.
const MAXIMUM_DATAGRAMS: usize = 16_384;

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
    /// Waiting datagrams by number, and in the order of arrival if several have the same: the
    /// transport decides which is authentic.
    waiting: BTreeMap<(u64, u64), Released<M>>,
    /// Datagrams that have been kept.
    kept: u64,
    bytes: usize,
    /// Released datagrams, each with the time of its release.
    ready: VecDeque<(Timestamp, Released<M>)>,
    ready_bytes: usize,
    /// Number of released datagrams, from the first, that leave without delay.
    at_once: usize,
    /// Set if bursts are to be spread and no datagram was numbered so far.
    spreads: Option<Duration>,
    /// The pace, if bursts are spread.
    pace: Option<Box<Pace>>,
    /// The current time.
    now: Timestamp,
}

impl<M> Default for Release<M> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            kept: 0,
            bytes: 0,
            ready: VecDeque::new(),
            ready_bytes: 0,
            at_once: 0,
            spreads: None,
            pace: None,
            now: Timestamp::ZERO,
        }
    }
}

impl<M> Release<M> {
    /// Spreads bursts once a session has begun. `maximum_hold`: the longest time that datagrams wait.
    pub(super) fn spread(&mut self, maximum_hold: Duration) {
        self.spreads = Some(maximum_hold);
    }

    /// A session has begun.
    pub(super) fn begin(&mut self, now: Timestamp) {
        if let Some(maximum_hold) = self.spreads.take() {
            self.pace = Pace::new(maximum_hold, now).map(Box::new);
        }
        self.now = now;
    }

    /// Advances to `now`.
    pub(super) fn on_time(&mut self, now: Timestamp) {
        self.now = now;
        if let Some(pace) = &mut self.pace {
            pace.on_time(now, self.ready.len(), self.ready_bytes);
        }
    }

    /// A datagram arrives.
    pub(super) fn on_arrival(&mut self, length: usize) {
        if let Some(pace) = &mut self.pace {
            pace.on_arrival(length);
        }
    }

    /// True if no datagram waits below this number or is to be delivered before it, and the
    /// datagram would not belong to a burst that is to be spread.
    pub(super) fn is_next(&self, number: PacketNumber) -> bool {
        self.ready.is_empty()
            && self.waiting.first_key_value().is_none_or(|((first, _), _)| number.get() <= *first)
            && self.pace.as_ref().is_none_or(|pace| pace.admits())
    }

    /// A datagram passes at once.
    pub(super) fn on_passing(&mut self, length: usize) {
        if let Some(pace) = &mut self.pace {
            pace.on_leaving(length);
        }
    }

    /// Keeps a datagram, behind others with its number. Datagrams are not compared: the
    /// transport detects duplicates, and each forged datagram would be compared with all others.
    pub(super) fn keep(&mut self, number: PacketNumber, datagram: &[u8], metadata: M) {
        let released = Released { datagram: datagram.to_vec(), metadata };
        self.waiting.insert((number.get(), self.kept), released);
        self.kept += 1;
        self.bytes += datagram.len();
    }

    /// Releases all datagrams below this number, and the datagrams for which there is no room.
    pub(super) fn release_below(&mut self, limit: PacketNumber) {
        while let Some(((lowest, _), _)) = self.waiting.first_key_value()
            && (*lowest < limit.get()
                || self.bytes > MAXIMUM_BYTES
                || self.waiting.len() > MAXIMUM_DATAGRAMS)
            && let Some((_, released)) = self.waiting.pop_first()
        {
            self.bytes -= released.datagram.len();
            self.ready_bytes += released.datagram.len();
            self.ready.push_back((self.now, released));
        }
    }

    /// Releases everything; it leaves without delay.
    pub(super) fn release_all(&mut self) {
        self.release_below(PacketNumber::MAX);
        self.at_once = self.ready.len();
    }

    /// Releases the lowest datagrams without delay until at most this number of bytes is left.
    pub(super) fn limit(&mut self, bytes: usize) {
        let (mut beyond, mut leaving) = (self.waiting_bytes().saturating_sub(bytes), 0);
        while beyond > 0 {
            match (self.ready.get(leaving), self.waiting.first_key_value()) {
                (Some((_, released)), _) => {
                    beyond = beyond.saturating_sub(released.datagram.len());
                    leaving += 1;
                }
                (None, Some(((lowest, _), _))) => {
                    let above = PacketNumber::new(lowest.saturating_add(1));
                    self.release_below(above);
                }
                (None, None) => break,
            }
        }
        self.at_once = self.at_once.max(leaving);
    }

    /// The next datagram that was released, and may leave now.
    pub(super) fn poll(&mut self) -> Option<Released<M>> {
        if let Some(pace) = &mut self.pace {
            let (since, released) = self.ready.front()?;
            let is_too_much = self.at_once > 0 || self.ready_bytes > MAXIMUM_BYTES;
            if !(is_too_much || pace.admits() || pace.is_overdue(*since)) {
                return None;
            }
            self.at_once = self.at_once.saturating_sub(1);
            pace.on_leaving(released.datagram.len());
        }
        let (_, released) = self.ready.pop_front()?;
        self.ready_bytes -= released.datagram.len();
        Some(released)
    }

    /// Returns the memory of the datagrams that have left.
    pub(super) fn trim(&mut self) {
        self.ready.shrink_to_fit();
    }

    /// The time at which ready datagrams may leave.
    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        self.pace.as_ref().filter(|_| !self.ready.is_empty()).map(|pace| pace.next_timeout())
    }

    /// Number of datagrams that wait, or are released and have not left.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len() + self.ready.len()
    }

    /// Bytes of the waiting datagrams.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes + self.ready_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_limit_is_not_spread() {
        let mut release = Release::default();
        let start = PacketNumber::new(0);
        release.spread(Duration::from_secs(1));
        release.begin(Timestamp::from_millis(1000));
        for number in 0..400 {
            release.keep(PacketNumber::new(number), &[7; 1000], number);
        }
        let poll = |release: &mut Release<u64>| std::iter::from_fn(|| release.poll()).count();
        release.limit(340_000);
        assert_eq!((poll(&mut release), release.waiting()), (60, 340), "above a hole");
        release.release_below(PacketNumber::new(380));
        assert_eq!(poll(&mut release), 0, "a burst has just left");
        release.limit(100_000);
        assert_eq!((poll(&mut release), release.waiting()), (240, 100));
        release.release_all();
        release.release_below(start);
        assert_eq!((poll(&mut release), release.waiting_bytes()), (100, 0));
    }

    #[test]
    fn equal_datagrams_of_one_number_all_come_out() {
        let mut release = Release::default();
        for copy in 0..3 {
            release.keep(PacketNumber::new(7), b"the same bytes", copy);
        }
        release.keep(PacketNumber::new(6), b"the same bytes", 3);
        release.release_below(PacketNumber::new(8));
        let released = std::iter::from_fn(|| release.poll()).map(|released| released.metadata);
        assert_eq!(released.collect::<Vec<_>>(), [3, 0, 1, 2]);
        assert_eq!((release.waiting(), release.waiting_bytes()), (0, 0));
    }

    #[test]
    fn there_is_room_for_so_much_and_the_lowest_passes_first() {
        let mut release = Release::default();
        let datagram = vec![7; 1 << 20];
        for number in (0..18).rev() {
            release.keep(PacketNumber::new(number), &datagram, number);
        }
        release.release_below(PacketNumber::new(0));
        let released: Vec<u64> =
            std::iter::from_fn(|| release.poll()).map(|released| released.metadata).collect();
        assert_eq!(released, [0, 1]);
        assert_eq!((release.waiting(), release.waiting_bytes()), (16, MAXIMUM_BYTES));
        // The bound of a shell's own.
        release.limit(13 << 20);
        let released = std::iter::from_fn(|| release.poll()).map(|released| released.metadata);
        assert_eq!(released.collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(release.waiting_bytes(), 13 << 20);
        for number in 100..100 + MAXIMUM_DATAGRAMS as u64 {
            release.keep(PacketNumber::new(number), b"", number);
        }
        release.release_below(PacketNumber::new(0));
        assert!(std::iter::from_fn(|| release.poll()).count() > 0);
        assert_eq!(release.waiting(), MAXIMUM_DATAGRAMS);
    }
}
