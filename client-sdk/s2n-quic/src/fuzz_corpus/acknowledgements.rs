//! The ACK frames that the s2n-quic shell completes after the core has gone.
//!
//! Input: byte 0 is how many bytes longer the packet may get, byte 1 how many packet numbers have
//! arrived, two bytes each; then the packet's frames.

use std::ops::RangeInclusive;

use s2n_codec::DecoderBufferMut;
use s2n_quic_core::frame::FrameMut;

use crate::acknowledgements::complete;
use crate::received::ReceivedPacketNumbers;

type Ranges = Vec<RangeInclusive<u64>>;

/// Runs an input; panics when something is acknowledged that did not arrive, something else is
/// changed, or the packet gets too long.
pub(crate) fn acknowledgements(data: &[u8]) {
    let Some((&[more, count], rest)) = data.split_first_chunk::<2>() else { return };
    let (numbers, frames) = rest.split_at(rest.len().min(usize::from(count) * 2));
    let mut received = ReceivedPacketNumbers::default();
    for pair in numbers.chunks_exact(2) {
        received.insert(u64::from(u16::from_be_bytes([pair[0], pair[1]])));
    }
    let room = frames.len() + usize::from(more);
    let Some(completed) = complete(frames, room, &received) else { return };
    assert!(completed.len() <= room, "{} of {room} bytes", completed.len());

    let (before, ranges, after) = parts(frames).expect("it was understood");
    let (before_now, ranges_now, after_now) = parts(&completed).expect("it is understood");
    assert!(before == before_now && after == after_now, "something else has changed");
    let largest = ranges.iter().map(|range| *range.end()).max();
    assert_eq!(
        ranges_now.iter().map(|range| *range.end()).max(),
        largest,
        "not the transport's largest"
    );
    let mut known = ranges;
    known.extend(received.ranges().into_iter().map(|(first, last)| first..=last));
    for range in ranges_now {
        assert!(is_covered(&range, &known), "{range:?} did not arrive");
    }
}

/// The bytes before the first ACK frame, its ranges, and the bytes behind it.
fn parts(frames: &[u8]) -> Option<(Vec<u8>, Ranges, Vec<u8>)> {
    let mut copy = frames.to_vec();
    let mut buffer = DecoderBufferMut::new(&mut copy);
    loop {
        let start = frames.len() - buffer.len();
        let (frame, rest) = buffer.decode::<FrameMut<'_>>().ok()?;
        let end = frames.len() - rest.len();
        if let FrameMut::Ack(ack) = frame {
            let ranges =
                ack.ack_ranges().map(|range| range.start().as_u64()..=range.end().as_u64());
            return Some((frames[..start].to_vec(), ranges.collect(), frames[end..].to_vec()));
        }
        buffer = rest;
    }
}

fn is_covered(range: &RangeInclusive<u64>, known: &Ranges) -> bool {
    let mut next = *range.start();
    while next <= *range.end() {
        let Some(end) =
            known.iter().filter(|known| known.contains(&next)).map(|known| *known.end()).max()
        else {
            return false;
        };
        next = end + 1;
    }
    true
}
