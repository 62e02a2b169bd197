//! The round trip beyond the gateway: the time after which the first datagram comes that the client
//! can have asked for.
//!
//! It contains the time that the server takes to answer the first request, so that it errs towards
//! a longer round trip.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::first_window::HANDSHAKE_DATAGRAMS;
use crate::history::History;

/// Measurement of the round trip beyond the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Beyond {
    #[default]
    Unknown,
    /// Since then the client had everything; the next datagram has this number.
    Quiet(Timestamp, u64),
    Known(Duration),
    /// The session has not seen the connection's handshake.
    Missed,
}

impl Beyond {
    /// An eACK names `newest`.
    pub(super) fn on_eack(&mut self, newest: Option<u64>, history: &History, now: Timestamp) {
        let forwarded = history.next();
        match *self {
            Self::Quiet(since, next) if forwarded > next => {
                let came = history.get(next).map_or(now, |entry| entry.forwarded_at);
                *self = Self::Known(came.saturating_since(since));
            }
            Self::Unknown | Self::Quiet(..) if forwarded > HANDSHAKE_DATAGRAMS => {
                *self = Self::Missed
            }
            Self::Unknown | Self::Quiet(..) => {
                if newest.is_some_and(|newest| newest + 1 == forwarded) {
                    *self = Self::Quiet(now, forwarded);
                }
            }
            Self::Known(_) | Self::Missed => {}
        }
    }

    pub(super) fn known(self) -> Option<Duration> {
        match self {
            Self::Known(beyond) => Some(beyond),
            Self::Unknown | Self::Quiet(..) | Self::Missed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{MAXIMUM_ENTRIES, identifier};

    fn push(history: &mut History, count: u64, at: Timestamp) {
        for number in history.next()..history.next() + count {
            history.push(identifier(number + 1), &[], at);
        }
    }

    #[test]
    fn it_lasts_from_the_last_quiet_moment_to_the_first_answer() {
        let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
        let mut beyond = Beyond::default();
        let at = Timestamp::from_millis;
        push(&mut history, 2, at(10));
        beyond.on_eack(Some(0), &history, at(30));
        assert_eq!(beyond, Beyond::Unknown, "one is under way");
        beyond.on_eack(Some(1), &history, at(32));
        // The last eACK before the answer is the newest word of the client.
        beyond.on_eack(Some(1), &history, at(60));
        push(&mut history, 1, at(180));
        beyond.on_eack(Some(2), &history, at(200));
        assert_eq!(beyond.known(), Some(Duration::from_millis(120)));
    }

    #[test]
    fn within_a_connection_it_stays_unknown() {
        let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
        let mut beyond = Beyond::default();
        let at = Timestamp::from_millis;
        push(&mut history, HANDSHAKE_DATAGRAMS + 1, at(10));
        beyond.on_eack(Some(HANDSHAKE_DATAGRAMS), &history, at(30));
        push(&mut history, 1, at(180));
        beyond.on_eack(Some(HANDSHAKE_DATAGRAMS + 1), &history, at(200));
        assert_eq!(beyond.known(), None);
    }
}
