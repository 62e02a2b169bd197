//! Acknowledgements that leave together, with an eACK behind them ([`packrat_wire::bundle`]).
//!
//! ```text
//!   transport --> short, in a busy download --> waits --> with the next eACK, or when its time is over --> socket
//!             \-> anything else ---------------------------------------------------------------------> socket
//! ```
//!
//! A downloading client sends almost only acknowledgements, one for two to ten packets. Each is a
//! datagram of its own that wakes the radio and takes air time from the download. They are
//! encrypted and can be neither dropped nor merged; a bundle saves the datagram around each.
//!
//! An acknowledgement waits for others only while waiting makes the download no slower ([`wait`]).
//! If an eACK is due, the acknowledgement leaves with it at once.

mod wait;

use core::time::Duration;

use packrat_wire::bundle::{BUNDLED_LENGTHS, MAXIMUM_BUNDLED, join};
use packrat_wire::estimate::Timestamp;

use wait::Wait;

/// Longest datagram that goes into a bundle: an acknowledgement of a few ranges, with ECN counts. A
/// request is longer.
pub const LONGEST_BUNDLED_BYTES: usize = 64;

/// The waiting datagrams, and the estimate that decides whether one may wait.
#[derive(Debug, Default)]
pub(crate) struct Bundling {
    waiting: Vec<Vec<u8>>,
    /// Time at which the waiting datagrams have to leave.
    until: Timestamp,
    wait: Wait,
    /// Datagrams that left in bundles.
    bundled: u64,
}

impl Bundling {
    /// A datagram of the base connection has arrived. `round_trip`: to the server.
    pub(crate) fn on_received(&mut self, round_trip: Option<Duration>, now: Timestamp) {
        self.wait.on_received(round_trip, now);
    }

    /// A datagram is missing.
    pub(crate) fn on_hole(&mut self, now: Timestamp) {
        self.wait.on_hole(now);
    }

    /// True if a datagram looks like an acknowledgement of QUIC's: short, and with a short header (RFC
    /// 9000, section 17.3). It may have another frame beside it or instead.
    pub(crate) const fn suits(datagram: &[u8]) -> bool {
        matches!(datagram, [0x40..=0x7f, ..])
            && datagram.len() >= *BUNDLED_LENGTHS.start()
            && datagram.len() <= LONGEST_BUNDLED_BYTES
    }

    /// The time for which a datagram may wait for others. `round_trip`: to the server.
    pub(crate) fn wait(&self, round_trip: Option<Duration>, now: Timestamp) -> Duration {
        self.wait.of_now(round_trip, now)
    }

    /// True if there is room for another one.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < MAXIMUM_BUNDLED
    }

    /// Takes a datagram, which leaves after this wait at the latest.
    pub(crate) fn take(&mut self, datagram: &[u8], wait: Duration, now: Timestamp) {
        let before = self.deadline();
        self.waiting.push(datagram.to_vec());
        let until = if self.has_room() { now + wait } else { now };
        self.until = before.map_or(until, |before| before.min(until));
    }

    /// Ends the wait: the transport sends another datagram, which must not overtake.
    pub(crate) fn hurry(&mut self, now: Timestamp) {
        self.until = now;
    }

    /// Drops the waiting datagrams except these: for the server they are lost, as if they had left
    /// too late.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&[u8]) -> bool) {
        self.waiting.retain(|datagram| keeps(datagram));
    }

    /// Time at which the waiting datagrams have to leave; `None` if there are none.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        (!self.waiting.is_empty()).then_some(self.until)
    }

    /// Returns the datagram to send for a message: the bundle of all waiting datagrams, with the
    /// message behind it. Without waiting datagrams, the message alone.
    pub(crate) fn with(&mut self, message: Vec<u8>) -> Vec<u8> {
        let mut bundle = Vec::new();
        if self.waiting.is_empty() || !join(&self.waiting, &message, &mut bundle) {
            return message;
        }
        self.forget();
        bundle
    }

    /// Returns the bundle of all waiting datagrams, without a message, or the only datagram as it
    /// is. If `agreed` is false, returns the datagrams one by one until the queue is empty.
    pub(crate) fn alone(&mut self, agreed: bool) -> Option<Vec<u8>> {
        let mut bundle = Vec::new();
        if agreed && self.waiting.len() > 1 && join(&self.waiting, &[], &mut bundle) {
            self.forget();
            return Some(bundle);
        }
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }

    fn forget(&mut self) {
        self.bundled += self.waiting.len() as u64;
        self.waiting.clear();
    }

    /// Datagrams that left in bundles.
    pub(crate) const fn bundled(&self) -> u64 {
        self.bundled
    }

    /// Bytes that wait.
    pub(crate) fn memory(&self) -> usize {
        self.waiting.iter().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_wire::bundle::split;

    const EACK: &[u8] = b"\x0bPkr\x28 sealed";
    const FIRST: &[u8] = &[0x41; 30];
    const SECOND: &[u8] = &[0x42; 31];
    const WAIT: Duration = Duration::from_millis(8);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn in_bundle(datagram: &[u8]) -> (Vec<&[u8]>, &[u8]) {
        let bundle = split(datagram).unwrap();
        (bundle.datagrams().collect(), bundle.message)
    }

    #[test]
    fn an_eack_takes_waiting_datagrams_along_in_their_order() {
        let mut bundling = Bundling::default();
        assert_eq!(bundling.with(EACK.to_vec()), EACK, "nothing waits");
        bundling.take(FIRST, WAIT, at(10));
        bundling.take(SECOND, WAIT, at(15));
        assert_eq!(bundling.deadline(), Some(at(18)), "the first one's");
        let bundle = bundling.with(EACK.to_vec());
        assert_eq!(in_bundle(&bundle), (vec![FIRST, SECOND], EACK));
        assert_eq!((bundling.deadline(), bundling.bundled(), bundling.memory()), (None, 2, 0));
    }

    #[test]
    fn single_datagrams_and_all_without_bundles_leave_unchanged() {
        let mut bundling = Bundling::default();
        bundling.take(FIRST, WAIT, at(10));
        assert_eq!(bundling.alone(true).as_deref(), Some(FIRST));
        assert_eq!((bundling.alone(true), bundling.deadline()), (None, None));
        for agreed in [true, false] {
            bundling.take(FIRST, WAIT, at(10));
            bundling.take(SECOND, WAIT, at(10));
            let sent: Vec<_> = std::iter::from_fn(|| bundling.alone(agreed)).collect();
            match agreed {
                true => assert_eq!(in_bundle(&sent[0]).0, [FIRST, SECOND]),
                false => assert_eq!(sent, [FIRST, SECOND]),
            }
            assert_eq!((sent.len(), bundling.deadline()), (if agreed { 1 } else { 2 }, None));
        }
        assert_eq!(bundling.bundled(), 2);
    }

    /// A full bundle, and a bundle behind which another datagram leaves, wait no longer.
    #[test]
    fn full_and_followed_bundles_leave_at_once() {
        let mut bundling = Bundling::default();
        for _ in 0..MAXIMUM_BUNDLED {
            assert!(bundling.has_room() && bundling.deadline() != Some(at(10)));
            bundling.take(&[0x40; LONGEST_BUNDLED_BYTES], WAIT, at(10));
        }
        assert_eq!((bundling.has_room(), bundling.deadline()), (false, Some(at(10))));
        // A long eACK leaves by itself: a bundle with it would exceed the size that every path
        // carries.
        let long = [EACK, &[0; 500]].concat();
        assert_eq!(bundling.with(long.clone()), long);
        assert_eq!(in_bundle(&bundling.alone(true).unwrap()).0.len(), MAXIMUM_BUNDLED);
        bundling.take(FIRST, WAIT, at(20));
        bundling.hurry(at(21));
        assert_eq!(bundling.deadline(), Some(at(21)));
    }

    #[test]
    fn nothing_goes_where_the_transport_has_left() {
        let mut bundling = Bundling::default();
        bundling.take(FIRST, WAIT, at(10));
        bundling.take(SECOND, WAIT, at(11));
        bundling.retain(|datagram| datagram == SECOND);
        assert_eq!(bundling.alone(true).as_deref(), Some(SECOND));
        bundling.take(FIRST, WAIT, at(20));
        bundling.retain(|_| false);
        assert_eq!((bundling.deadline(), bundling.alone(true)), (None, None));
    }

    #[test]
    fn requests_handshakes_and_other_protocols_never_wait() {
        assert!(Bundling::suits(&[0x5a; 40]) && Bundling::suits(&[0x40; 21]));
        assert!(!Bundling::suits(&[0x40; LONGEST_BUNDLED_BYTES + 1]), "a request");
        for first in [0xc0, 0x80, 0x3f, 0x16, 0x00, 0x0b] {
            assert!(!Bundling::suits(&[first; 40]), "{first:#x}");
        }
        assert!(!Bundling::suits(&[]) && !Bundling::suits(&[0x40; 20]), "none of QUIC's");
    }
}
