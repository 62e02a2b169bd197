//! The client's side of epochs: the fields of each eACK that describe its set.
//!
//! ```text
//!                  an eACK names the anchor        the gateway answers in this epoch
//!   Unconfirmed -----------------------------> ... -------------------------------> Confirmed
//!       ^                                                                               |
//!       +---------------------- Reset (either side), Baseline confirms at once ---------+
//! ```

use core::time::Duration;

use packrat_eack::Encoding;
use packrat_wire::Epoch;
use packrat_wire::estimate::Timestamp;

/// Time, beside two round trips, for which a longer prefix that the gateway asked for is sent,
/// however short the round trip is: the next eACKs may not leave at once, and each failed decode
/// uses up one of the failures that the gateway tolerates.
const WANTED_LIFETIME: Duration = Duration::from_millis(100);

/// The epoch of a session.
#[derive(Debug)]
pub(crate) struct CurrentEpoch {
    epoch: Epoch,
    /// The gateway has sent something in this epoch: the anchor need not be repeated.
    confirmed: bool,
    /// A longer prefix that the gateway asked for, and the time until which it is sent: eACKs in
    /// flight will also fail.
    wanted: Option<(Encoding, Timestamp)>,
}

impl CurrentEpoch {
    /// The first epoch of a session.
    pub(crate) fn first() -> Self {
        Self { epoch: Epoch::FIRST, confirmed: false, wanted: None }
    }

    /// Number of the epoch.
    pub(crate) fn number(&self) -> Epoch {
        self.epoch
    }

    /// True if the gateway has answered in this epoch.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// The gateway has answered in this epoch.
    pub(crate) fn confirm(&mut self) {
        self.confirmed = true;
    }

    /// A new epoch with an empty set.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        *self = Self { epoch, confirmed: false, wanted: None };
    }

    /// A new epoch with a set that the gateway has handed over.
    pub(crate) fn begin_from_baseline(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.confirmed = true;
    }

    /// Records that the gateway asks for this prefix. Returns true if it is longer than the prefix
    /// asked for before.
    pub(crate) fn want(&mut self, wanted: Encoding, round_trip: Duration, now: Timestamp) -> bool {
        let longer = self.wanted.is_none_or(|(known, _)| wanted.decodable() > known.decodable());
        let kept = self.wanted.map_or(wanted, |(known, _)| if longer { wanted } else { known });
        self.wanted = Some((kept, now + round_trip * 2 + WANTED_LIFETIME));
        longer
    }

    /// The prefix that the gateway asked for, while it is to be sent.
    pub(crate) fn wanted(&mut self, now: Timestamp) -> Option<Encoding> {
        self.wanted = self.wanted.filter(|(_, until)| now < *until);
        self.wanted.map(|(wanted, _)| wanted)
    }
}
