//! The epoch of a session: both ends' sets, and how far the client's eACKs have covered them.
//!
//! ```text
//!                       eACK with an anchor                   eACK decoded
//!   Entered (sets empty) ------------------> Anchored <---------------------+
//!        ^                                    |    |                        |
//!        |                                    |    +------------------------+
//!        | eACK of a newer epoch,             | failed, longest prefix, twice
//!        | or the client's Reset              v
//!        +---------------------------- Resetting (Reset repeated until it is answered)
//! ```

mod decoding;
#[cfg(test)]
mod ends;
mod own_set;

use core::time::Duration;

use packrat_eack::{Encoding, Identifier};
use packrat_wire::estimate::Timestamp;
use packrat_wire::handshake::GatewayParams;
use packrat_wire::message::Eack;
use packrat_wire::{Epoch, MessageCounter};

use super::outage::Outage;
use crate::history::History;
use crate::reconciliation::{
    AfterFailure, EpochOf, after_failure, epoch_of, epoch_start, is_stale,
};
use own_set::OwnSet;

/// Shortest interval at which a Reset is repeated.
const RESET_INTERVAL: Duration = Duration::from_millis(10);

/// The gateway's half of an epoch.
pub(crate) struct EpochState {
    number: Epoch,
    pub(super) set: OwnSet,
    /// Sequence number before which the client may not have had the session's parameters: it asked
    /// for them again. Zero once an eACK shows which datagrams it has.
    joined: u64,
    /// Counter of the newest eACK decoded.
    newest_eack: Option<MessageCounter>,
    /// Failed decodes of the longest prefix since one succeeded.
    failures: u8,
    /// The client may come from an outage.
    outage: Option<Box<Outage>>,
    /// When a Reset was last sent that the client has not answered yet.
    reset_sent: Option<Timestamp>,
    decode_failures: u32,
    resets: u32,
}

impl core::fmt::Debug for EpochState {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("EpochState")
            .field("number", &self.number)
            .field("considered", &self.set.considered())
            .field("horizon", &self.set.horizon())
            .finish_non_exhaustive()
    }
}

impl EpochState {
    pub(crate) fn new(params: &GatewayParams) -> Self {
        Self {
            number: Epoch::FIRST,
            set: OwnSet::new(params.sketch_key(), params.limits),
            joined: 0,
            newest_eack: None,
            failures: 0,
            outage: None,
            reset_sent: None,
            decode_failures: 0,
            resets: 0,
        }
    }

    pub(crate) fn number(&self) -> Epoch {
        self.number
    }

    /// Records that the client may not have had the session's parameters before the datagram with
    /// this sequence number.
    pub(crate) fn join(&mut self, next: u64) {
        self.joined = next;
    }

    /// Sequence number of the first datagram that a client can have recorded, by its first decoded
    /// eACK: earlier ones, all of which are `only_here`, passed while the answer to it was lost.
    /// Zero afterwards, and if the client has asked once only.
    pub(crate) fn take_joined(&mut self, only_here: &[Identifier], history: &History) -> u64 {
        let joined = core::mem::take(&mut self.joined);
        let first = history.first();
        if joined <= first {
            return 0;
        }
        let mut absent: Vec<_> =
            only_here.iter().filter_map(|&it| history.sequence_of(it)).collect();
        absent.sort_unstable();
        let run =
            absent.iter().zip(first..joined).take_while(|(absent, expected)| **absent == *expected);
        first + run.count() as u64
    }

    /// True if an eACK of this epoch was decoded.
    pub(crate) fn was_acknowledged(&self) -> bool {
        self.newest_eack.is_some()
    }

    /// See [`epoch_of`].
    pub(crate) fn compare(&self, epoch: Epoch) -> EpochOf {
        epoch_of(epoch, self.number, self.reset_sent.is_some())
    }

    /// Begins an epoch with empty sets, to be anchored by the client's first eACK of it.
    pub(crate) fn enter(&mut self, epoch: Epoch) {
        self.number = epoch;
        self.set.clear();
        self.joined = 0;
        self.newest_eack = None;
        self.failures = 0;
        self.outage = None;
        self.reset_sent = None;
    }

    /// See [`is_stale`].
    pub(crate) fn is_stale(&self, counter: MessageCounter) -> bool {
        is_stale(counter, self.newest_eack)
    }

    /// Finds the beginning of the client's set behind its anchor, unless it is known. The fates of
    /// all datagrams before are then settled. Returns the work, also of the insertions to follow,
    /// if the beginning was not known before.
    pub(crate) fn anchor(&mut self, eack: &Eack<'_>, history: &mut History) -> Option<u64> {
        if self.set.is_anchored() {
            return None;
        }
        let start = epoch_start(eack, self.number, 0, history);
        Some(self.set.anchor(start, history))
    }

    /// Inserts all datagrams up to the client's newest one into the sketch. Idempotent, so that a
    /// failed decode does no harm. False if there are so many that the next eACK has to go on: this
    /// one can't be decoded.
    pub(crate) fn advance_horizon(&mut self, newest: Option<u64>, history: &mut History) -> bool {
        let Some(newest) = newest else { return true };
        if self.outage.is_none() {
            self.outage = Outage::of(newest, self.set.horizon());
        }
        self.set.advance(newest, history)
    }

    /// True if a client that comes from an outage sends this encoding because it does not know yet
    /// that the longest is wanted.
    pub(crate) fn awaits_longer(
        &self,
        encoding: Encoding,
        round_trip: Duration,
        now: Timestamp,
    ) -> bool {
        self.outage.as_ref().is_some_and(|outage| outage.awaits_longest(round_trip, now))
            && self.set.longest().is_some_and(|longest| encoding.decodable() < longest.decodable())
    }

    /// Records that an eACK with this counter was decoded.
    pub(crate) fn on_decoded(&mut self, counter: MessageCounter) {
        self.newest_eack = Some(counter);
        self.failures = 0;
        self.outage = None;
    }

    /// Records a failed decode of an eACK, and decides its consequence. After
    /// [`AfterFailure::Reset`] a Reset is to be sent.
    pub(crate) fn on_failed(&mut self, encoding: Encoding, now: Timestamp) -> AfterFailure {
        self.decode_failures += 1;
        if let Some(longest) = self.set.longest().filter(|longest| *longest != encoding)
            && let Some(outage) = &mut self.outage
        {
            outage.ask(now);
            return AfterFailure::Ask(longest);
        }
        let after = after_failure(encoding, &self.set.limits(), &mut self.failures);
        if after == AfterFailure::Reset {
            self.resets += 1;
            self.reset_sent = Some(now);
        }
        after
    }

    /// The epoch that a Reset names.
    pub(crate) fn next_number(&self) -> Epoch {
        self.number.next()
    }

    /// Counts a Reset that the client has asked for.
    pub(crate) fn count_reset(&mut self) {
        self.resets += 1;
    }

    /// Failed decodes and Resets of either side.
    pub(crate) fn totals(&self) -> (u32, u32) {
        (self.decode_failures, self.resets)
    }

    /// True if the Reset that the client has not answered is to be sent again now.
    pub(crate) fn repeats_reset(&mut self, now: Timestamp) -> bool {
        let due = self.reset_sent.is_some_and(|sent| now.saturating_since(sent) >= RESET_INTERVAL);
        if due {
            self.reset_sent = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::ends::Ends;
    use super::*;

    #[test]
    fn failures_lead_to_a_reset_repeated_until_answered() {
        let mut epoch = Ends::new(0).epoch;
        let (longest, now) = (Encoding::PowerSums { count: 20 }, Timestamp::from_millis(1000));
        assert_eq!(epoch.on_failed(longest, now), AfterFailure::Ask(longest));
        epoch.on_decoded(MessageCounter::new(7));
        assert!(epoch.is_stale(MessageCounter::new(7)) && !epoch.is_stale(MessageCounter::new(8)));
        assert_eq!(epoch.on_failed(longest, now), AfterFailure::Ask(longest));
        assert_eq!(epoch.on_failed(longest, now), AfterFailure::Reset);
        assert_eq!(epoch.compare(Epoch::FIRST), EpochOf::Other);
        assert!(!epoch.repeats_reset(now + Duration::from_millis(9)));
        assert!(epoch.repeats_reset(now + RESET_INTERVAL));
        assert!(!epoch.repeats_reset(now + RESET_INTERVAL));
        epoch.enter(epoch.next_number());
        assert_eq!(epoch.compare(Epoch::FIRST.next()), EpochOf::Current);
        assert!(
            !epoch.set.is_anchored()
                && !epoch.was_acknowledged()
                && !epoch.is_stale(MessageCounter::FIRST)
        );
        assert_eq!(epoch.totals(), (3, 1));
    }
}
