//! Overflows of the last mile's queue: does the sender go on all the same?
//!
//! A loss-based sender overflows a queue in three successive round trips at most: slow start
//! doubles the window twice before the sender learns of the first overflow, and then gives way by a
//! third or a half at each. BBR, version 1, keeps twice the path's capacity under way, and loses
//! the datagrams that a short queue cannot take, round trip after round trip.
//!
//! ```text
//!   shown share of the datagrams forwarded in a round trip
//!   CUBIC   0  .4 .3 .1  0  0  0  0
//!   BBR     0  .4 .2 .4 .4 .5 .5 .5  --> 5 of 7
//! ```
//!
//! The round trip is between sender and client: the last mile's with its queue, and the one beyond
//! the gateway.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Share of a round trip's datagrams, beside twice the medium's loss, shown as lost in a queue from
/// which the round trip is a crowd.
const CROWD_SHARE: f64 = 0.125;
/// Fewest shown datagrams of a crowd.
const FEWEST_SHOWN: u64 = 8;
/// Number of the last [`JUDGED_ROUNDS`] round trips that must be crowds.
const CROWD_ROUNDS: u32 = 5;
/// Number of the last round trips that are judged together.
const JUDGED_ROUNDS: u32 = 7;
/// Time after the end of a round trip until a sender learns of its losses: datagrams above a loss
/// wait at the client for symbols, and for the Report of a queue. On a short path that is longer
/// than the round trip.
const HEARD_LATER: Duration = Duration::from_millis(60);

/// The newest round trips, and the losses shown in the last one.
#[derive(Debug, Clone)]
pub(super) struct Overflows {
    /// Start of the round trip, datagrams forwarded before it, and losses shown in it.
    since: Timestamp,
    forwarded: u64,
    shown: u64,
    /// Round trips that were crowds; the last one is the lowest bit.
    crowds: u32,
}

impl Overflows {
    /// Begins the first round trip, after `forwarded` datagrams.
    pub(super) fn beginning(forwarded: u64, now: Timestamp) -> Self {
        Self { since: now, forwarded, shown: 0, crowds: 0 }
    }

    /// Records that a missing datagram is left to the sender because a queue stands.
    pub(super) fn on_shown(&mut self) {
        self.shown += 1;
    }

    /// Handles an eACK after `forwarded` datagrams. `round_trip`: between sender and client;
    /// `loss`: the last mile's medium's. True if no loss-based sender goes on like that.
    pub(super) fn on_eack(
        &mut self,
        forwarded: u64,
        round_trip: Duration,
        loss: f64,
        now: Timestamp,
    ) -> bool {
        self.follow(forwarded, round_trip + HEARD_LATER, loss, now)
    }

    fn follow(&mut self, forwarded: u64, round: Duration, loss: f64, now: Timestamp) -> bool {
        if now.saturating_since(self.since) < round {
            return false;
        }
        let sent = forwarded.saturating_sub(self.forwarded) as f64;
        let is_crowd =
            self.shown >= FEWEST_SHOWN && self.shown as f64 >= (CROWD_SHARE + 2.0 * loss) * sent;
        self.crowds = (self.crowds << 1 | u32::from(is_crowd)) & ((1 << JUDGED_ROUNDS) - 1);
        (self.since, self.forwarded, self.shown) = (now, forwarded, 0);
        self.crowds.count_ones() >= CROWD_ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(100);

    /// True if a sender is found that is shown these losses in round trips of 200 datagrams.
    fn is_found(shown: &[u64], loss: f64) -> bool {
        let mut overflows = Overflows::beginning(0, Timestamp::ZERO);
        let mut rounds = 1u32..;
        shown.iter().zip(&mut rounds).any(|(shown, round)| {
            (0..*shown).for_each(|_| overflows.on_shown());
            let now = Timestamp::ZERO + ROUND * round;
            // There is no decision within the round trip.
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
}
