//! Acknowledging what was withheld, once there is no core any more that does it.
//!
//! While a core is at work, packets leave whose ACK frame says less than s2n-quic wrote. When one
//! of them is acknowledged, s2n-quic takes all that it wrote for known and does not repeat it (RFC
//! 9000, section 13.2.4), so that after the core has gone its frames alone would never tell of some
//! packets that have arrived.

use crate::received::ReceivedPacketNumbers;
use s2n_codec::{DecoderBufferMut, EncoderValue};
use s2n_quic_core::frame::ack::AckRanges;
use s2n_quic_core::frame::{Ack, FrameMut};
use s2n_quic_core::varint::VarInt;
use std::ops::RangeInclusive;

/// Ranges of an ACK frame, at most: the highest ones, as in the core.
const MAXIMUM_RANGES: usize = 24;

/// Inclusive ranges, descending.
struct Ranges(Vec<RangeInclusive<VarInt>>);

impl AckRanges for Ranges {
    type Iter = std::vec::IntoIter<RangeInclusive<VarInt>>;

    fn ack_ranges(&self) -> Self::Iter {
        self.0.clone().into_iter()
    }
}

/// The frames of an outgoing packet with the numbers in `received` added to their ACK frame, in at
/// most `room` bytes. Nothing above the largest number that s2n-quic itself acknowledges is added.
/// `None`: leave them as they are.
pub(crate) fn complete(
    frames: &[u8],
    room: usize,
    received: &ReceivedPacketNumbers,
) -> Option<Vec<u8>> {
    // The decoder wants to be able to write.
    let mut copy = frames.to_vec();
    let mut buffer = DecoderBufferMut::new(&mut copy);
    while !buffer.is_empty() {
        let start = frames.len() - buffer.len();
        let (frame, rest) = buffer.decode::<FrameMut<'_>>().ok()?;
        let end = frames.len() - rest.len();
        if let FrameMut::Ack(ack) = frame {
            let mut ranges: Vec<(u64, u64)> = ack
                .ack_ranges()
                .map(|range| (range.start().as_u64(), range.end().as_u64()))
                .chain(
                    received
                        .descending_to(ack.largest_acknowledged().as_u64())
                        .take(MAXIMUM_RANGES),
                )
                .collect();
            join(&mut ranges);
            ranges.truncate(MAXIMUM_RANGES);
            let room = room.checked_sub(frames.len() - (end - start))?;
            let frame = encode(&ranges, ack.ack_delay, ack.ecn_counts, room)?;
            return Some([&frames[..start], &frame, &frames[end..]].concat());
        }
        buffer = rest;
    }
    None
}

/// Makes ranges descending and disjoint.
fn join(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable_by_key(|&(_, last)| std::cmp::Reverse(last));
    ranges.dedup_by(|lower, higher| {
        let touches = lower.1.saturating_add(1) >= higher.0;
        if touches {
            higher.0 = higher.0.min(lower.0);
        }
        touches
    });
}

/// As many of the ranges as fit into `room`, from the highest down.
fn encode(
    ranges: &[(u64, u64)],
    ack_delay: VarInt,
    ecn_counts: Option<s2n_quic_core::frame::ack::EcnCounts>,
    room: usize,
) -> Option<Vec<u8>> {
    let ranges = ranges
        .iter()
        .map(|&(first, last)| Some(VarInt::new(first).ok()?..=VarInt::new(last).ok()?));
    let mut ack = Ack { ack_delay, ack_ranges: Ranges(ranges.collect::<Option<_>>()?), ecn_counts };
    while !ack.ack_ranges.0.is_empty() {
        let encoded = ack.encode_to_vec();
        if encoded.len() <= room {
            return Some(encoded);
        }
        ack.ack_ranges.0.pop();
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A PING, an ACK frame of these ranges (descending), and a STREAM frame that reaches to the
    /// end.
    pub(crate) fn frames(ranges: &[(u64, u64)]) -> Vec<u8> {
        let ack = encode(ranges, VarInt::from_u8(9), None, 1000).unwrap();
        [&[1], &ack[..], &[8, 0, b'x', b'y']].concat()
    }

    fn received(numbers: impl IntoIterator<Item = u64>) -> ReceivedPacketNumbers {
        let mut received = ReceivedPacketNumbers::default();
        numbers.into_iter().for_each(|number| received.insert(number));
        received
    }

    #[test]
    fn what_was_received_is_added_below_the_largest_that_the_transport_names() {
        let received = received([0, 1, 2, 5, 6, 8, 12, 20]);
        let completed = complete(&frames(&[(12, 12), (10, 10)]), 1200, &received);
        // 10 is known to the transport only, 20 is not for this packet to say.
        assert_eq!(completed, Some(frames(&[(12, 12), (10, 10), (8, 8), (5, 6), (0, 2)])));
        let completed = complete(&frames(&[(12, 12), (7, 9), (3, 4)]), 1200, &received);
        assert_eq!(completed, Some(frames(&[(12, 12), (0, 9)])));
    }

    #[test]
    fn what_does_not_fit_is_left_out_from_the_lowest_on() {
        let received = received((0..100).map(|number| number * 2));
        let frames_of_one = frames(&[(198, 198)]);
        let completed = complete(&frames_of_one, 1200, &received).unwrap();
        let highest: Vec<_> = (100 - MAXIMUM_RANGES as u64..100)
            .rev()
            .map(|number| (number * 2, number * 2))
            .collect();
        assert_eq!(completed, frames(&highest));
        let tight = complete(&frames_of_one, frames_of_one.len() + 4, &received).unwrap();
        assert_eq!(tight, frames(&highest[..3]));
    }

    #[test]
    fn packets_without_an_acknowledgement_stay_as_they_are() {
        let received = received([0, 1]);
        assert_eq!(complete(&[1, 0, 0], 1200, &received), None);
        assert_eq!(complete(&[8, 0, 2, 2, 2], 1200, &received), None);
        assert_eq!(complete(&[0x3f], 1200, &received), None, "not understood");
    }
}
