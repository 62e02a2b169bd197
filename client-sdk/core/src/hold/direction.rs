//! The direction in which most bytes of a connection go.
//!
//! A client that uploads receives little but acknowledgements. The loss of one of them does not harm its
//! sender, as the next one repeats its content; nor does a sender learn of the loss of a packet that contains
//! only an acknowledgement (RFC 9000, section 13.2.1). A hold for a missing one would stop the
//! acknowledgements behind it, on which the sender depends, for a round trip of the last mile.

/// Number of bytes after which the counts of earlier bytes are halved.
const WINDOW_BYTES: u64 = 64 << 10;
/// Ratio of the bytes that an upload sends, or a download receives, to the bytes that go the other
/// way.
const DIRECTION_RATIO: u64 = 4;

/// Recent bytes to and from the server.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Direction {
    up: u64,
    down: u64,
}

impl Direction {
    /// Counts a datagram of this length that the transport sends.
    pub(crate) fn on_sent(&mut self, length: usize) {
        self.up += length as u64;
        self.age();
    }

    /// Counts a received datagram of this length.
    pub(crate) fn on_received(&mut self, length: usize) {
        self.down += length as u64;
        self.age();
    }

    fn age(&mut self) {
        if self.up + self.down > WINDOW_BYTES {
            self.up /= 2;
            self.down /= 2;
        }
    }

    /// True if the client has hardly sent anything but answers to what it receives.
    pub(crate) const fn is_download(&self) -> bool {
        self.down > DIRECTION_RATIO * self.up
    }

    /// True if the client has hardly received anything but answers to what it sends.
    pub(crate) const fn is_upload(&self) -> bool {
        self.up > DIRECTION_RATIO * self.down
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direction_follows_what_passes() {
        let mut direction = Direction::default();
        assert!(!direction.is_upload() && !direction.is_download());
        let mut pass = |up: usize, down: usize| {
            (0..up).for_each(|_| direction.on_sent(1350));
            (0..down).for_each(|_| direction.on_received(1350));
            (direction.is_upload(), direction.is_download())
        };
        assert_eq!(pass(2, 3), (false, false), "a handshake");
        assert_eq!(pass(30, 30), (false, false), "a call");
        assert_eq!(pass(100, 5), (true, false));
        assert_eq!(pass(0, 20), (false, false), "its answer");
        assert_eq!(pass(1, 10_000), (false, true));
        assert_eq!(pass(60, 1), (true, false), "what has passed long ago counts for little");
    }
}
