//! Overflows of the last mile's queue: does the sender go on all the same?
//!
//! A loss-based sender overflows a queue in three round trips at most, one after another: slow start
//! doubles the window twice before it hears of the first, and then gives way by a third or a half at
//! each. BBR, version 1, keeps twice what the path holds under way, and loses what a short queue
//! cannot take, round trip after round trip.
//!
//! ```text
//!   shown of what was forwarded in a round trip
//!   CUBIC   0  .4 .3 .1  0  0  0  0
//!   BBR     0  .4 .2 .4 .4 .5 .5 .5  --> 5 of 7
//! ```
//!
//! The round trip is that of sender and client: the last mile's with its queue, and beyond the
//! gateway the time after which the first datagram came that the client can have asked for.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::first_window::HANDSHAKE;
use crate::history::History;

/// A round trip in which this share was shown as lost in a queue, beside twice what the medium
/// loses, is a crowd; fewer than so many datagrams are none.
const SHARE: f64 = 0.125;
const FEWEST: u64 = 8;
/// So many of the last round trips must be crowds.
const CROWDS: u32 = 5;
const OF: u32 = 7;
/// A sender hears of a loss later than its round trip ends: what is above it waits at the client for
/// symbols, and for the Report that says that a queue stands. On a short path that is longer than the
/// round trip.
const HEARD_LATER: Duration = Duration::from_millis(60);

/// The round trip beyond the gateway, as far as a session knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Beyond {
    #[default]
    Unknown,
    /// Since then the client had everything; the next datagram has this number.
    Quiet(Timestamp, u64),
    Known(Duration),
}

/// The newest round trips, and what was shown in each.
#[derive(Debug, Clone, Default)]
pub(super) struct Overflows {
    beyond: Beyond,
    /// Since then so many were shown, after so many were forwarded.
    since: Timestamp,
    forwarded: u64,
    shown: u64,
    /// Round trips that were crowds; the last one is the lowest bit.
    crowds: u32,
}

impl Overflows {
    /// Something missing is left to the sender because a queue stands.
    pub(super) fn on_shown(&mut self) {
        self.shown += 1;
    }

    /// An eACK was looked at: it names `newest`. `round_trip`: of the last mile; `loss`: of its
    /// medium. True if no loss-based sender goes on like that.
    pub(super) fn on_eack(
        &mut self,
        newest: Option<u64>,
        history: &History,
        round_trip: Duration,
        loss: f64,
        now: Timestamp,
    ) -> bool {
        let forwarded = history.next();
        match self.beyond {
            Beyond::Quiet(since, next) if forwarded > next => {
                let came = history.get(next).map_or(now, |entry| entry.forwarded_at);
                self.beyond = Beyond::Known(came.saturating_since(since));
                (self.since, self.forwarded, self.shown) = (now, forwarded, 0);
            }
            Beyond::Unknown | Beyond::Quiet(..) => {
                let is_quiet = newest.is_some_and(|newest| newest + 1 == forwarded);
                if is_quiet && forwarded <= HANDSHAKE {
                    self.beyond = Beyond::Quiet(now, forwarded);
                }
            }
            Beyond::Known(_) => {}
        }
        let Beyond::Known(beyond) = self.beyond else { return false };
        self.follow(forwarded, round_trip + beyond + HEARD_LATER, loss, now)
    }

    fn follow(&mut self, forwarded: u64, round: Duration, loss: f64, now: Timestamp) -> bool {
        if now.saturating_since(self.since) < round {
            return false;
        }
        let sent = forwarded.saturating_sub(self.forwarded) as f64;
        let is_crowd = self.shown >= FEWEST && self.shown as f64 >= (SHARE + 2.0 * loss) * sent;
        self.crowds = (self.crowds << 1 | u32::from(is_crowd)) & ((1 << OF) - 1);
        (self.since, self.forwarded, self.shown) = (now, forwarded, 0);
        self.crowds.count_ones() >= CROWDS
    }
}

#[cfg(test)]
mod tests {
    use packrat_eack::Identifier;

    use super::*;
    use crate::history::MAXIMUM_ENTRIES;

    const ROUND: Duration = Duration::from_millis(100);

    /// True if a sender is found of which so many of 200 are shown in each round trip.
    fn is_found(shown: &[u64], loss: f64) -> bool {
        let mut overflows = Overflows::default();
        let mut rounds = 1u32..;
        shown.iter().zip(&mut rounds).any(|(shown, round)| {
            (0..*shown).for_each(|_| overflows.on_shown());
            let now = Timestamp::ZERO + ROUND * round;
            // Within the round trip nothing is decided.
            assert!(!overflows.follow(200 * u64::from(round), ROUND, loss, now - ROUND / 2));
            overflows.follow(200 * u64::from(round), ROUND, loss, now)
        })
    }

    #[test]
    fn a_sender_that_overflows_for_ever_is_found() {
        assert!(is_found(&[0, 0, 80, 40, 80, 80, 100], 0.02));
        assert!(is_found(&[80, 1, 80, 80, 80, 1, 80], 0.02), "with two round trips between");
    }

    #[test]
    fn slow_start_overflows_and_gives_way() {
        // The crowds of CUBIC and NewReno on ingress_wifi and dsl, without loss and with 2 %.
        assert!(!is_found(&[0, 188, 0, 51, 0, 0, 0, 0, 0], 0.0));
        assert!(!is_found(&[0, 225, 40, 191, 14, 29, 0, 0, 0], 0.0));
        assert!(!is_found(&[0, 18, 200, 3, 128, 5, 1, 0, 7, 12, 3], 0.02));
        // Four, and one more each now and then.
        assert!(!is_found(&[99, 99, 99, 99, 0, 0, 0, 99, 0, 0, 0, 99], 0.0));
    }

    #[test]
    fn what_the_medium_loses_is_no_crowd() {
        assert!(!is_found(&[40; 20], 0.1), "a fifth, of which the medium loses half");
        assert!(!is_found(&[7; 20], 0.0), "few");
    }

    #[test]
    fn the_way_beyond_the_gateway_counts() {
        let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
        let mut overflows = Overflows::default();
        let at = Timestamp::from_millis;
        let push = |history: &mut History, number: u64, now| {
            let identifier = Identifier::from_hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            history.push(identifier, &[], now);
        };
        push(&mut history, 1, at(10));
        push(&mut history, 2, at(10));
        let millis = Duration::from_millis;
        overflows.on_eack(Some(0), &history, millis(20), 0.0, at(30));
        assert_eq!(overflows.beyond, Beyond::Unknown, "one is under way");
        overflows.on_eack(Some(1), &history, millis(20), 0.0, at(32));
        overflows.on_eack(Some(1), &history, millis(20), 0.0, at(60));
        // The last eACK before the answer is the newest word of the client.
        push(&mut history, 3, at(180));
        overflows.on_eack(Some(2), &history, millis(20), 0.0, at(200));
        assert_eq!(overflows.beyond, Beyond::Known(millis(120)));
    }
}
