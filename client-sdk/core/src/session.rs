//! State of a session, from InitAck to Goodbye.
//!
//! ```text
//!   recorder   the set of identifiers           scheduler   when the next eACK leaves
//!   epoch      how an eACK describes the set    sent        when eACKs left, for round trips
//!   liveness   whether the gateway is there
//! ```

use core::time::Duration;
use std::collections::VecDeque;

use packrat_wire::estimate::Timestamp;
use packrat_wire::message::{Report, SATURATED_AGE};
use packrat_wire::number::NumberKey;
use packrat_wire::seal::{Opener, Sealer};
use packrat_wire::{MessageCounter, SessionId};

use crate::coded::Coded;
use crate::epoch::CurrentEpoch;
use crate::group_symbols::GroupSymbols;
use crate::liveness::Liveness;
use crate::recorder::Recorder;
use crate::scheduler::Scheduler;
use crate::upward::Upward;

/// eACKs whose time of sending is remembered.
const REMEMBERED_EACKS: usize = 128;

/// The assisted state of a connection, composed of independent state machines.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) sealer: Sealer,
    /// Session IDs that no path has seen yet.
    pub(crate) fresh_names: std::vec::IntoIter<SessionId>,
    pub(crate) opener: Opener,
    pub(crate) recorder: Recorder,
    /// The key of the datagrams' numbers, if numbers were agreed.
    pub(crate) number_key: Option<NumberKey>,
    /// Set if coded repair was agreed.
    pub(crate) coded: Option<Coded>,
    /// Set if symbols to all subscribers of a stream were agreed.
    pub(crate) group: Option<Box<GroupSymbols>>,
    /// True if bundles were agreed.
    pub(crate) bundles: bool,
    /// Set if numbers towards the server were agreed.
    pub(crate) upward: Option<Box<Upward>>,
    pub(crate) scheduler: Scheduler,
    pub(crate) epoch: CurrentEpoch,
    pub(crate) sent: SentEacks,
    pub(crate) liveness: Liveness,
    /// True if the gateway reports that a queue stands on the last mile: losses there are not
    /// repaired, and the sender must detect them without delay, or it gives way later than others.
    pub(crate) queue_stands: bool,
    /// True if the gateway has settled the last hole in the transport's own numbers: the sender has left
    /// numbers out, or the losses happen before the gateway.
    pub(crate) was_settled: bool,
}

impl Session {
    /// True if the refusal that carries this nonce answers one of the eACKs sent last.
    pub(crate) fn has_sent(&self, nonce: u64) -> bool {
        self.sent.references().any(|reference| reference == nonce)
    }

    /// The last-mile round trip of a Report that has just arrived, if its eACK is remembered. No
    /// round trip follows from a saturated age.
    pub(crate) fn round_trip_of(&self, report: &Report, now: Timestamp) -> Option<Duration> {
        if report.echo_age >= SATURATED_AGE {
            return None;
        }
        let asked = self.sent.time_of(report.echo)?;
        Some(now.saturating_since(asked).saturating_sub(report.echo_age))
    }
}

/// Counters, references and times of the eACKs sent last. A Refusal names the reference.
#[derive(Debug, Default)]
pub(crate) struct SentEacks(VecDeque<(MessageCounter, u64, Timestamp)>);

impl SentEacks {
    /// Records an eACK that was sent.
    pub(crate) fn push(&mut self, counter: MessageCounter, reference: u64, now: Timestamp) {
        self.0.push_back((counter, reference, now));
        if self.0.len() > REMEMBERED_EACKS {
            self.0.pop_front();
        }
    }

    /// The time at which the eACK with this counter was sent, if it is remembered.
    pub(crate) fn time_of(&self, counter: MessageCounter) -> Option<Timestamp> {
        self.0.iter().find(|(sent, ..)| *sent == counter).map(|(_, _, at)| *at)
    }

    fn references(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|(_, reference, _)| *reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eacks_sent_last_are_remembered() {
        let mut sent = SentEacks::default();
        for number in 0..REMEMBERED_EACKS as u32 + 1 {
            sent.push(MessageCounter::new(number), 7, Timestamp::from_millis(u64::from(number)));
        }
        assert_eq!(sent.time_of(MessageCounter::FIRST), None);
        assert_eq!(sent.time_of(MessageCounter::new(1)), Some(Timestamp::from_millis(1)));
        assert_eq!(sent.references().count(), REMEMBERED_EACKS);
    }
}
