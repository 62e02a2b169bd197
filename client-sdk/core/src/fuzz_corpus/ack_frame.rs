//! The frames of an outgoing QUIC packet, in which the core looks for the ACK frame. The oracle is
//! s2n-quic's own reader of frames (RFC 9000, section 19).
//!
//! Input: arbitrary frames. Or, behind a byte 0xff, what an ACK frame is written of: ECN or not,
//! delay, and gaps and lengths of ranges.

use s2n_codec::DecoderBufferMut;
use s2n_quic_core::frame::FrameMut;

use crate::ack_frame::{AckFrame, find, write};

/// Runs an input; panics when the two readers differ where both understand, or what is written is
/// not what is read.
pub(crate) fn ack_frame(data: &[u8]) {
    match data.split_first() {
        Some((0xff, ranges)) => write_and_read(ranges),
        _ => compare(data),
    }
}

fn compare(data: &[u8]) {
    let found = find(data);
    let mut copy = data.to_vec();
    let mut buffer = DecoderBufferMut::new(&mut copy);
    while !buffer.is_empty() {
        let start = data.len() - buffer.len();
        // Frames of s2n-quic's own invention.
        if data[start] >= 0x40 {
            return;
        }
        let Ok((frame, rest)) = buffer.decode::<FrameMut<'_>>() else { return };
        let end = data.len() - rest.len();
        if let FrameMut::Ack(ack) = frame {
            let ecn = ack.ecn_counts.map(|counts| {
                [counts.ect_0_count, counts.ect_1_count, counts.ce_count]
                    .map(|count| count.as_u64())
            });
            let largest = ack.largest_acknowledged().as_u64();
            assert_eq!(found, Ok(Some(AckFrame { start, end, largest, ecn })));
            return;
        }
        buffer = rest;
    }
    assert_eq!(found, Ok(None), "all of it is understood, and there is no ACK frame");
}

fn write_and_read(bytes: &[u8]) {
    let mut bytes = bytes.iter().map(|byte| u64::from(*byte));
    let mut next = || bytes.next();
    let (has_ecn, delay) = (next().unwrap_or_default() & 1 == 1, next().unwrap_or_default() << 7);
    let (mut ranges, mut lowest) = (Vec::new(), 0);
    while let (Some(gap), Some(length)) = (next(), next()) {
        // Squared, so that all lengths of numbers come.
        let start = lowest + gap * gap * gap * gap;
        ranges.push((start, start + length * length));
        lowest = start + length * length + 2;
    }
    ranges.reverse();
    let ecn = has_ecn.then_some([delay, 1, 1 << 40]);
    let mut frames = vec![0x01];
    write(&ranges, delay, ecn, &mut frames);
    let written = frames.len();
    frames.extend_from_slice(&[0x08, 0x00, b'x']);
    let Some(&(_, largest)) = ranges.first() else {
        assert_eq!(find(&frames), Ok(None), "no range, no frame");
        return;
    };
    assert_eq!(find(&frames), Ok(Some(AckFrame { start: 1, end: written, largest, ecn })));
    let mut copy = frames[1..].to_vec();
    let (frame, _) =
        DecoderBufferMut::new(&mut copy).decode::<FrameMut<'_>>().expect("it is understood");
    let FrameMut::Ack(ack) = frame else { panic!("no ACK frame: {frame:?}") };
    let read: Vec<_> =
        ack.ack_ranges().map(|range| (range.start().as_u64(), range.end().as_u64())).collect();
    assert_eq!(read, ranges);
}
