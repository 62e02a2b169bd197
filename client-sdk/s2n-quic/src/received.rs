//! The set of packet numbers that have arrived.

use s2n_quic::provider::event::events::{PacketHeader, PacketReceived};
use s2n_quic::provider::event::{ConnectionInfo, ConnectionMeta, Subscriber};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Ranges kept: a packet number is never used twice in QUIC, so every loss leaves a gap for good.
/// 65,536 gaps are more than a gigabyte at 4 % loss; beyond that the oldest ranges are forgotten.
const MAXIMUM_RANGES: usize = 65_536;

/// Records the 1-RTT packet numbers that s2n-quic decrypts, with assistance or without: a packet
/// that its sender has declared lost although it is in here was lost spuriously.
///
/// A subscriber to s2n-quic's events, for an endpoint with one connection; all clones are one.
///
/// ```no_run
/// # fn example(tls: s2n_quic::provider::tls::rustls::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use packrat_s2n_quic::{Endpoint, EndpointConfig, ReceivedPacketNumbers};
///
/// let (local, config) = ("0.0.0.0:0".parse()?, EndpointConfig::default());
/// let received = ReceivedPacketNumbers::default();
/// let endpoint = Endpoint::bind_with_events(local, tls, received.clone(), config)?;
/// // … after a connection:
/// for (first, last) in received.ranges() {
///     println!("{first} to {last}");
/// }
/// # drop(endpoint);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ReceivedPacketNumbers(Arc<Mutex<Ranges>>);

impl ReceivedPacketNumbers {
    /// The numbers that have arrived, as ascending inclusive ranges.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ranges()
    }
}

impl Subscriber for ReceivedPacketNumbers {
    type ConnectionContext = ();

    fn create_connection_context(&mut self, _: &ConnectionMeta, _: &ConnectionInfo) {}

    fn on_packet_received(&mut self, (): &mut (), _: &ConnectionMeta, event: &PacketReceived) {
        if let PacketHeader::OneRtt { number, .. } = event.packet_header {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
        }
    }
}

/// Packet numbers as disjoint ranges.
#[derive(Debug, Default)]
struct Ranges {
    /// First of a range to its last (inclusive).
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Inserts one packet number; a repeated number has no effect.
    fn insert(&mut self, number: u64) {
        let before = self.ranges.range(..=number).next_back().map(|(&first, &last)| (first, last));
        let mut first = number;
        if let Some((range_first, range_last)) = before {
            if range_last >= number {
                return;
            }
            if range_last.saturating_add(1) == number {
                first = range_first;
            }
        }
        let last = match number.checked_add(1).and_then(|next| self.ranges.remove(&next)) {
            Some(following_last) => following_last,
            None => number,
        };
        self.ranges.insert(first, last);
        if self.ranges.len() > MAXIMUM_RANGES {
            self.ranges.pop_first();
        }
    }

    /// Ascending inclusive ranges.
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.ranges.iter().map(|(&first, &last)| (first, last)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_join_and_ignore_repetitions() {
        let mut received = Ranges::default();
        for number in [5, 3, 4, 4, 9, 0, 1, 10, 8] {
            received.insert(number);
        }
        assert_eq!(received.ranges(), [(0, 1), (3, 5), (8, 10)]);
        received.insert(2);
        assert_eq!(received.ranges(), [(0, 5), (8, 10)]);
        received.insert(u64::MAX);
        assert_eq!(received.ranges(), [(0, 5), (8, 10), (u64::MAX, u64::MAX)]);
    }

    #[test]
    fn the_oldest_ranges_are_forgotten_when_there_are_too_many() {
        let mut received = Ranges::default();
        for number in 0..=MAXIMUM_RANGES as u64 {
            received.insert(number * 2);
        }
        let ranges = received.ranges();
        assert_eq!(ranges.len(), MAXIMUM_RANGES);
        assert_eq!(ranges.first(), Some(&(2, 2)));
    }
}
