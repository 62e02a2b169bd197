//! Everything after the handshake: sealed, counted, never accepted twice.
//!
//! The AEAD nonce is the message counter; each direction has its own key (Noise's split), and the
//! key is the session's, so that a datagram can't be moved to another session or direction. The
//! header is associated data. In it the counter is masked. Replays are recognised by a window of 1,024 counters, as in RFC 4303
//! section 3.4.3 and RFC 6479.

use thiserror::Error;

use crate::cipher::{Key, TAG_LENGTH};
use crate::codec::DecodeError;
use crate::control::{Control, MAXIMUM_LENGTH, SEALED_HEADER_LENGTH, session_nonce};
use crate::{MessageCounter, SessionId};

/// Bytes that sealing adds to a plaintext.
pub const SEAL_OVERHEAD_BYTES: usize = SEALED_HEADER_LENGTH + TAG_LENGTH;
/// Bytes of the longest plaintext.
pub const MAXIMUM_PLAINTEXT_BYTES: usize = MAXIMUM_LENGTH - SEAL_OVERHEAD_BYTES;
/// Counters that may arrive late.
pub const REPLAY_WINDOW: u32 = 1024;

/// The reason for which a message could not be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SealError {
    /// The plaintext is longer than [`MAXIMUM_PLAINTEXT_BYTES`].
    #[error("message too long to be sealed")]
    TooLong,
    /// The counter is used up: the session must end and a new one begin.
    #[error("message counter used up; a new session is needed")]
    Exhausted,
}

/// The reason for dropping a sealed datagram; the label of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The datagram is not sealed.
    #[error("not a sealed datagram: {0}")]
    Malformed(DecodeError),
    /// The counter was seen before, or is too old to decide.
    #[error("replayed, or older than the replay window")]
    Replayed,
    /// The tag does not match: forged, damaged, or of another session.
    #[error("authentication failed")]
    Forged,
}

/// Seals messages of one direction.
pub struct Sealer {
    session: SessionId,
    next: MessageCounter,
    key: Key,
}

impl core::fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Sealer(session {}, next {})", self.session, self.next)
    }
}

impl Sealer {
    pub(crate) const fn new(session: SessionId, key: Key) -> Self {
        Self { session, next: MessageCounter::FIRST, key }
    }

    pub(crate) fn into_key(self) -> Key {
        self.key
    }

    /// Appends the datagram for `plaintext` to `out` and returns its counter.
    ///
    /// # Errors
    /// Too long, or the counter is used up.
    pub fn seal(
        &mut self,
        plaintext: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<MessageCounter, SealError> {
        let counter = self.next;
        let next = counter.next().ok_or(SealError::Exhausted)?;
        self.key.seal(self.session, counter, plaintext, out)?;
        self.next = next;
        Ok(counter)
    }

    /// The counter of the next message.
    pub fn counter(&self) -> MessageCounter {
        self.next
    }

    /// Names the session by `name` from now on ([`crate::handshake::GatewayParams::names`]).
    pub fn set_session(&mut self, name: SessionId) {
        self.session = name;
    }

    /// The name of the session that the next message carries.
    pub fn session(&self) -> SessionId {
        self.session
    }
}

/// Opens messages of one direction.
pub struct Opener {
    key: Key,
    window: ReplayWindow,
}

impl core::fmt::Debug for Opener {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Opener(..)")
    }
}

impl Opener {
    pub(crate) fn new(key: Key) -> Self {
        Self { key, window: ReplayWindow::default() }
    }

    pub(crate) fn into_key(self) -> Key {
        self.key
    }

    /// Replaces `plaintext` by the message of a sealed datagram and returns its counter. Costs at
    /// most one AEAD check; on error only `plaintext` changes.
    ///
    /// # Errors
    /// The datagram is to be dropped.
    pub fn open(
        &mut self,
        datagram: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> Result<MessageCounter, OpenError> {
        let counter =
            self.key.open(datagram, plaintext, |counter| self.window.is_new(counter.get()))?;
        self.window.accept(counter.get());
        Ok(counter)
    }
}

/// The session that a sealed datagram names, without opening it.
pub fn session_of(datagram: &[u8]) -> Option<SessionId> {
    match Control::decode(datagram) {
        Ok(Control::Sealed { session, .. }) => Some(session),
        _ => None,
    }
}

/// The nonce of a Refusal of a sealed datagram: its session and its counter as they travel. Zero of
/// anything else.
pub fn reference_of(datagram: &[u8]) -> u64 {
    match Control::decode(datagram) {
        Ok(Control::Sealed { session, counter, .. }) => session_nonce(session, counter),
        _ => 0,
    }
}

/// Words of 64 bits of the replay window, and one that it moves into.
const REPLAY_WINDOW_WORDS: usize = REPLAY_WINDOW as usize / 64 + 1;

/// The counters seen last: RFC 6479's ring of words, of which one is always being refilled.
#[derive(Debug, Clone, Default)]
struct ReplayWindow {
    /// Highest counter accepted, plus one; zero before the first.
    end: u64,
    /// The first 64 counters: all that a session without traffic needs.
    first: u64,
    /// The ring, from the counter behind those on.
    seen: Option<Box<[u64; REPLAY_WINDOW_WORDS]>>,
}

impl ReplayWindow {
    fn is_new(&self, counter: u32) -> bool {
        let counter = u64::from(counter);
        if counter >= self.end {
            return true;
        }
        if self.end - counter > u64::from(REPLAY_WINDOW) {
            return false;
        }
        let word = match &self.seen {
            Some(seen) => seen[(counter / 64) as usize % REPLAY_WINDOW_WORDS],
            None => self.first,
        };
        word >> (counter % 64) & 1 == 0
    }

    fn accept(&mut self, counter: u32) {
        let counter = u64::from(counter);
        if counter < 64 && self.seen.is_none() {
            self.first |= 1 << counter;
            self.end = self.end.max(counter + 1);
            return;
        }
        let seen = self.seen.get_or_insert_with(|| {
            let mut seen = Box::new([0; REPLAY_WINDOW_WORDS]);
            seen[0] = self.first;
            seen
        });
        if counter >= self.end {
            let first_fresh = self.end.div_ceil(64);
            let last_fresh = counter / 64;
            for word in first_fresh..=last_fresh.min(first_fresh + REPLAY_WINDOW_WORDS as u64 - 1) {
                seen[word as usize % REPLAY_WINDOW_WORDS] = 0;
            }
            if last_fresh >= first_fresh + REPLAY_WINDOW_WORDS as u64 {
                **seen = [0; REPLAY_WINDOW_WORDS];
            }
            self.end = counter + 1;
        }
        seen[(counter / 64) as usize % REPLAY_WINDOW_WORDS] |= 1 << (counter % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        /// Against a model that remembers everything.
        #[test]
        fn nothing_is_accepted_twice_and_nothing_recent_is_refused(jumps in proptest::collection::vec(-1500i64..3000, 1..400)) {
            let (mut window, mut seen, mut end) = (ReplayWindow::default(), HashSet::new(), 0i64);
            for jump in jumps {
                let counter = (end + jump / 8 - 3).max(0);
                let too_old = end - counter > i64::from(REPLAY_WINDOW);
                let expected = !too_old && !seen.contains(&counter);
                prop_assert_eq!(window.is_new(counter as u32), expected, "counter {} end {}", counter, end);
                if expected {
                    window.accept(counter as u32);
                    seen.insert(counter);
                    end = end.max(counter + 1);
                }
            }
        }
    }

    #[test]
    fn far_jumps_clear_the_window() {
        let mut window = ReplayWindow::default();
        window.accept(3);
        window.accept(1_000_000);
        assert!(!window.is_new(3) && !window.is_new(1_000_000) && window.is_new(999_999));
        window.accept(u32::MAX);
        assert!(!window.is_new(u32::MAX) && window.is_new(u32::MAX - 1023));
        assert!(!window.is_new(u32::MAX - 1025));
    }
}
