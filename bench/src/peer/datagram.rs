//! The datagrams between generator and sink: they look like a transport's, and contain the number of
//! a phase, their own, and a time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of the shortest datagram.
pub(crate) const SHORTEST_BYTES: usize = 48;

/// The purpose of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// A measured datagram.
    Data = 0,
    /// A client's greeting.
    Hello = 1,
    /// The highest number that a receiver has seen.
    Feedback = 2,
    /// The end of the run.
    End = 3,
}

/// The content of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The datagram's purpose.
    pub(crate) purpose: Purpose,
    /// The phase of the run in which it was sent.
    pub(crate) phase: u8,
    /// The datagram's number in its flow.
    pub(crate) number: u64,
    /// Time of sending.
    pub(crate) sent: Duration,
}

impl Header {
    /// A message that belongs to no phase, sent now.
    pub(crate) fn message(purpose: Purpose, number: u64) -> Self {
        Self { purpose, phase: 0, number, sent: now() }
    }
}

/// Writes a datagram into `bytes`, whose length is at least [`SHORTEST_BYTES`]. It ends in sixteen bytes
/// that no other datagram of the flow ends in, as a transport's authentication tag does.
pub(crate) fn write(bytes: &mut [u8], header: Header) {
    let Header { purpose, phase, number, sent } = header;
    // QUIC's short header.
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let fields = [
        [0x40, purpose as u8, phase, 0, 0, 0, 0, 0],
        number.to_be_bytes(),
        nanoseconds(sent).to_be_bytes(),
    ];
    for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
        place.copy_from_slice(&field);
    }
    if let Some(tail) = bytes.last_chunk_mut::<16>() {
        tail[..8].copy_from_slice(&mixed.to_be_bytes());
        tail[8..].copy_from_slice(&(mixed.rotate_left(29) | 1).to_be_bytes());
    }
}

/// The content of a datagram; `None` for something else.
pub(crate) fn read(bytes: &[u8]) -> Option<Header> {
    let (words, _) = bytes.as_chunks::<8>();
    let [[0x40, purpose, phase, ..], number, sent, ..] = words else { return None };
    let purpose = match purpose {
        0 => Purpose::Data,
        1 => Purpose::Hello,
        2 => Purpose::Feedback,
        3 => Purpose::End,
        _ => return None,
    };
    let sent = Duration::from_nanos(u64::from_be_bytes(*sent));
    Some(Header { purpose, phase: *phase, number: u64::from_be_bytes(*number), sent })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The time of day: the same for all processes of the machine.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_tails_differ() {
        let (mut first, mut second) = ([0; 60], [0; SHORTEST_BYTES]);
        let at = Duration::from_nanos(123_456_789_012);
        let data = Header { purpose: Purpose::Data, phase: 3, number: 7, sent: at };
        let feedback = Header { purpose: Purpose::Feedback, phase: 0, number: 8, sent: at };
        write(&mut first, data);
        write(&mut second, feedback);
        assert_eq!(read(&first), Some(data));
        assert_eq!(read(&second), Some(feedback));
        assert_ne!(first.last_chunk::<16>(), second.last_chunk::<16>());
        assert_eq!(read(&[0x41; 60]), None);
        assert_eq!(read(b"short"), None);
    }
}
