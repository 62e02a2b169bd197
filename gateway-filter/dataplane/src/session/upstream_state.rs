//! The state of a session's upstream.
//!
//! ```text
//!   Configured --its endpoint is not configured any more--> Draining --question--> Unanswered
//!       ^                                                      ^                      |   |
//!       |                                                      +--------answer--------+   |
//!       +--the endpoint is configured again, or the session has left it-------------------+
//! ```
//!
//! A server that is taken from the list may be ending, or have been lost sight of for a moment, and
//! no other one knows its connections: a session keeps it for as long as it answers.

use crate::sync::atomic::{AtomicU64, Ordering};
use packrat_wire::estimate::Timestamp;

/// The standing of the endpoint that an upstream socket is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamState {
    /// The route's configuration has it.
    Configured,
    /// The configuration has it no more, and it owes no answer.
    Draining,
    /// The endpoint is not configured, and the client's datagrams are unanswered since then.
    Unanswered { since: Timestamp },
}

/// An [`UpstreamState`] in one word, which any thread may read and change.
#[derive(Debug)]
pub(crate) struct UpstreamStateCell(AtomicU64);

impl UpstreamStateCell {
    pub(crate) fn new(state: UpstreamState) -> Self {
        Self(AtomicU64::new(word(state)))
    }

    pub(crate) fn get(&self) -> UpstreamState {
        match self.0.load(Ordering::Relaxed) {
            CONFIGURED_WORD => UpstreamState::Configured,
            DRAINING_WORD => UpstreamState::Draining,
            since => UpstreamState::Unanswered { since: Timestamp::from_micros(since) },
        }
    }

    pub(crate) fn set(&self, state: UpstreamState) {
        self.0.store(word(state), Ordering::Relaxed);
    }

    /// Begins to leave the endpoint: true for one thread only, and not while it is configured.
    pub(crate) fn leave(&self) -> bool {
        self.0.swap(CONFIGURED_WORD, Ordering::AcqRel) != CONFIGURED_WORD
    }
}

/// Word of the state of an upstream that is configured.
const CONFIGURED_WORD: u64 = 0;
/// Word of the state of an upstream that drains; every other word is a time in microseconds.
const DRAINING_WORD: u64 = 1;

const fn word(state: UpstreamState) -> u64 {
    match state {
        UpstreamState::Configured => CONFIGURED_WORD,
        UpstreamState::Draining => DRAINING_WORD,
        UpstreamState::Unanswered { since } if since.as_micros() > DRAINING_WORD => {
            since.as_micros()
        }
        UpstreamState::Unanswered { .. } => DRAINING_WORD + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_back_as_they_were_and_one_thread_leaves() {
        let cell = UpstreamStateCell::new(UpstreamState::Configured);
        assert_eq!(cell.get(), UpstreamState::Configured);
        assert!(!cell.leave());
        let unanswered = |since| UpstreamState::Unanswered { since: Timestamp::from_micros(since) };
        for (set, read) in [
            (UpstreamState::Draining, UpstreamState::Draining),
            (unanswered(77), unanswered(77)),
            (unanswered(0), unanswered(2)),
        ] {
            cell.set(set);
            assert_eq!(cell.get(), read);
        }
        assert!(cell.leave() && !cell.leave());
    }
}
