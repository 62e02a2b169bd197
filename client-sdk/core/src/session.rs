//! State of a session, from InitAck to Goodbye.
//!
//! ```text
//!   recorder   the set of identifiers           scheduler   when the next eACK leaves
//!   epoch      what an eACK says about the set  sent        when eACKs left, for round trips
//!   liveness   whether the gateway is there     onset       whether the hold is on
//! ```

use core::time::Duration;
use std::collections::VecDeque;

use packrat_wire::MessageCounter;
use packrat_wire::control::session_nonce;
use packrat_wire::estimate::Timestamp;
use packrat_wire::message::Report;
use packrat_wire::seal::{Opener, Sealer};

use crate::epoch::CurrentEpoch;
use crate::hold::Onset;
use crate::liveness::Liveness;
use crate::recorder::Recorder;
use crate::scheduler::Scheduler;

/// eACKs whose time of sending is remembered.
const REMEMBERED_EACKS: usize = 128;

/// The assisted state of a connection, as a composition of machines that know nothing of each
/// other.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
    pub(crate) recorder: Recorder,
    pub(crate) scheduler: Scheduler,
    pub(crate) epoch: CurrentEpoch,
    pub(crate) sent: SentEacks,
    pub(crate) liveness: Liveness,
    pub(crate) onset: Onset,
    /// The gateway says that a queue stands on the last mile: what is lost there is not repaired,
    /// and the sender must hear of it without delay, or it gives way later than others.
    pub(crate) queue_stands: bool,
}

impl Session {
    /// True if the refusal that carries this nonce answers one of the eACKs sent last.
    pub(crate) fn has_sent(&self, nonce: u64) -> bool {
        let id = self.sealer.session();
        self.sent.counters().any(|counter| session_nonce(id, counter) == nonce)
    }

    /// The last-mile round trip of a Report that has just arrived, if its eACK is remembered.
    pub(crate) fn round_trip_of(&self, report: &Report, now: Timestamp) -> Option<Duration> {
        let asked = self.sent.time_of(report.echo)?;
        Some(now.saturating_since(asked).saturating_sub(report.echo_age))
    }
}

/// Counter and time of the eACKs sent last.
#[derive(Debug, Default)]
pub(crate) struct SentEacks(VecDeque<(MessageCounter, Timestamp)>);

impl SentEacks {
    /// An eACK was sent.
    pub(crate) fn push(&mut self, counter: MessageCounter, now: Timestamp) {
        self.0.push_back((counter, now));
        if self.0.len() > REMEMBERED_EACKS {
            self.0.pop_front();
        }
    }

    /// When the eACK with this counter was sent.
    fn time_of(&self, counter: MessageCounter) -> Option<Timestamp> {
        self.0.iter().find(|(sent, _)| *sent == counter).map(|(_, at)| *at)
    }

    fn counters(&self) -> impl Iterator<Item = MessageCounter> + '_ {
        self.0.iter().map(|(counter, _)| *counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eacks_sent_last_are_remembered() {
        let mut sent = SentEacks::default();
        for number in 0..REMEMBERED_EACKS as u32 + 1 {
            sent.push(MessageCounter::new(number), Timestamp::from_millis(u64::from(number)));
        }
        assert_eq!(sent.time_of(MessageCounter::FIRST), None);
        assert_eq!(sent.time_of(MessageCounter::new(1)), Some(Timestamp::from_millis(1)));
        assert_eq!(sent.counters().count(), REMEMBERED_EACKS);
    }
}
