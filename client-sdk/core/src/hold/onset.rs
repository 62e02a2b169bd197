//! Switches the hold on only where the last mile loses datagrams without a queue.
//!
//! ```text
//!                  a repair without a queue
//!   Undecided ------------------------------> On <---+
//!     | |  ^                                 | ^     | a repair without
//!     | |  | it has gone                     v |     | a queue
//!     | |  +--- Overflowed <--- Queued       Off <---+- from any of them
//!     | |         it loses something ^
//!     | +-- a queue stands ----------+        On --> Off: 30 s without such a repair
//!     +---- a held hole needed no repair --> Off
//! ```
//!
//! A hole that is filled one round trip of an empty last mile after it opened was a loss of the
//! medium: its repair found no queue. (A repair that takes longer found one, or another was lost.)
//!
//! A hold helps against losses of the medium. Elsewhere it does harm: it delays what the sender
//! must know (a queue overflows), or it holds back what arrived for a packet number that the
//! sender left out (RFC 9000, section 21.4), by a round trip of the last mile each time.
//!
//! The loss that decides is itself held: while the session is undecided, holes are. Otherwise a
//! sender would leave slow start over the very loss that shows that it should not.

use core::time::Duration;

use packrat_wire::estimate::{Queueing, Timestamp};

/// The hold is off again after this time without a loss of the medium. CUBIC recovers from one in
/// 16 s with a window of 5,000 packets (RFC 9438, section 4.1), so that rarer losses cost it
/// little, while each packet number that is left out costs a round trip as long as the hold is on.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

/// Round trips are the path's own, however long, if the gateway has seen no queue in all of this time.
const LEARNT_AFTER: Duration = Duration::from_secs(1);

/// A queue has gone after so many round trips without one.
const CALM: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Undecided,
    /// Since the last loss of the medium.
    On(Timestamp),
    /// Since a queue that stood.
    Queued,
    /// The queue has lost something: undecided again when it has gone.
    Overflowed,
    Off,
}

/// Decides whether holes are held in one session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Onset {
    state: State,
    /// The round trips of this client's eACKs and their answers.
    queueing: Queueing,
    /// Datagrams that have arrived.
    arrived: u64,
    /// Round trips without a queue since the last one with a queue.
    calm: u32,
    /// The least of the round trips that were as long as with a queue, where the gateway sees none, and
    /// since when they are.
    longer: Option<(Timestamp, Duration)>,
}

impl Onset {
    /// A datagram of the last mile has arrived.
    pub(crate) fn on_datagram(&mut self, now: Timestamp) {
        self.arrived += 1;
        self.queueing.on_arrival(self.arrived, now);
    }

    /// A round trip of the last mile was measured. `queue_stands`: the gateway says so.
    pub(crate) fn on_round_trip(&mut self, sample: Duration, queue_stands: bool, now: Timestamp) {
        self.queueing.on_round_trip(sample, now);
        let is_short =
            self.queueing.base().is_some_and(|base| sample < base + self.queueing.threshold());
        self.follow_gateway(sample, is_short || queue_stands, now);
        if is_short {
            self.calm += 1;
            if self.calm >= CALM && self.state == State::Overflowed {
                self.state = State::Undecided;
            }
        } else {
            self.calm = 0;
            self.queued();
        }
    }

    /// The gateway measures each datagram, and knows a longer path from a queue.
    fn follow_gateway(&mut self, sample: Duration, agrees: bool, now: Timestamp) {
        if agrees {
            self.longer = None;
            return;
        }
        let (since, least) = self.longer.unwrap_or((now, sample));
        let least = least.min(sample);
        self.longer = Some((since, least));
        if now.saturating_since(since) >= LEARNT_AFTER {
            self.longer = None;
            self.queueing.set_base(least, now);
        }
    }

    /// A missing packet arrived, so long after the hole had opened. `queue_stands`: the gateway
    /// says so. True if the medium has lost it.
    pub(crate) fn on_filled(
        &mut self,
        after: Duration,
        queue_stands: bool,
        now: Timestamp,
    ) -> bool {
        let Some(base) = self.queueing.base() else { return false };
        // What comes sooner was overtaken, not repaired.
        let longest = base + self.queueing.threshold();
        let is_medium = !queue_stands && after * 2 >= base && after < longest;
        if is_medium {
            self.state = State::On(now);
        }
        is_medium
    }

    /// A missing datagram was recovered from symbols. `queue_stands`: it may have been lost there.
    pub(crate) fn on_recovered(&mut self, queue_stands: bool, now: Timestamp) {
        if !queue_stands {
            self.state = State::On(now);
        }
    }

    /// The gateway says that a queue stands.
    pub(crate) fn on_queue(&mut self) {
        self.calm = 0;
        self.queued();
    }

    /// A hole has opened.
    pub(crate) fn on_hole(&mut self) {
        if self.state == State::Queued {
            self.calm = 0;
            self.state = State::Overflowed;
        }
    }

    fn queued(&mut self) {
        if self.state == State::Undecided {
            self.state = State::Queued;
        }
    }

    /// The gateway had nothing to repair of holes that were held.
    pub(crate) fn on_settled(&mut self) {
        self.turn_off();
    }

    fn turn_off(&mut self) {
        if self.state == State::Undecided {
            self.state = State::Off;
        }
    }

    /// True if holes are held.
    pub(crate) fn is_on(&self, now: Timestamp) -> bool {
        match self.state {
            State::Undecided => true,
            State::On(loss) => now.saturating_since(loss) < FORGOTTEN_AFTER,
            State::Queued | State::Overflowed | State::Off => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_wire::estimate::STANDING_QUEUE;
    use proptest::prelude::*;

    const BASE: Duration = Duration::from_millis(40);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn onset() -> Onset {
        let mut onset = Onset::default();
        onset.on_round_trip(BASE, false, at(0));
        onset
    }

    #[test]
    fn a_queue_that_overflowed_and_has_gone_leaves_the_question_open() {
        let mut onset = onset();
        onset.on_queue();
        assert!(!onset.is_on(at(1)), "a queue stands");
        for second in 1..10 {
            onset.on_round_trip(BASE, false, at(second));
        }
        assert!(!onset.is_on(at(10)), "it has lost nothing so far: this is slow start");
        onset.on_hole();
        onset.on_round_trip(BASE, false, at(11));
        onset.on_round_trip(BASE + STANDING_QUEUE, false, at(12));
        onset.on_round_trip(BASE, false, at(13));
        onset.on_round_trip(BASE, false, at(14));
        assert!(!onset.is_on(at(14)), "it came back");
        onset.on_round_trip(BASE, false, at(15));
        assert!(onset.is_on(at(15)), "the next loss may be the medium's");
        onset.on_round_trip(BASE + STANDING_QUEUE, false, at(16));
        assert!(!onset.is_on(at(16)), "the next queue");
    }

    #[test]
    fn the_first_loss_is_held_and_turns_the_hold_on() {
        let mut onset = onset();
        assert!(onset.is_on(at(0)), "the loss that decides");
        onset.on_filled(BASE, false, at(2));
        onset.on_settled();
        onset.on_queue();
        assert!(onset.is_on(at(3)), "what comes later does not undo a loss of the medium");
    }

    #[test]
    fn a_longer_path_is_learnt_where_the_gateway_sees_no_queue() {
        let is_on_after = |queue_stands| {
            let mut onset = onset();
            onset.on_settled();
            for second in 1..5 {
                onset.on_round_trip(BASE * 2, queue_stands, at(second));
            }
            onset.on_filled(BASE * 2, false, at(5));
            onset.is_on(at(5))
        };
        assert!(is_on_after(false));
        assert!(!is_on_after(true), "a queue, as the gateway said just before");
    }

    #[test]
    fn a_number_left_out_turns_the_hold_off_until_a_loss() {
        let mut onset = onset();
        onset.on_settled();
        assert!(!onset.is_on(at(1)));
        onset.on_filled(BASE, false, at(2));
        assert!(onset.is_on(at(2)));
    }

    #[test]
    fn losses_at_a_queue_do_not_turn_the_hold_on() {
        let mut onset = onset();
        onset.on_queue();
        onset.on_filled(BASE + STANDING_QUEUE, false, at(1));
        onset.on_filled(BASE, true, at(1));
        assert!(!onset.is_on(at(1)));
    }

    #[test]
    fn a_repair_behind_a_burst_on_a_slow_link_has_met_no_queue() {
        let late = BASE * 10 + STANDING_QUEUE * 3;
        let on_after = |each: u64| {
            let mut onset = Onset::default();
            onset.on_round_trip(BASE * 10, false, at(0));
            for place in 0..500 {
                let millis = place / 10 * 400 + place % 10 * each;
                onset.on_datagram(Timestamp::from_millis(millis));
            }
            onset.on_settled();
            onset.on_filled(late, false, at(20));
            onset.is_on(at(20))
        };
        assert!(on_after(8), "eight datagrams take 64 ms");
        assert!(!on_after(1));
    }

    #[test]
    fn datagrams_that_were_overtaken_do_not_turn_the_hold_on() {
        let mut onset = onset();
        onset.on_queue();
        onset.on_filled(Duration::from_millis(5), false, at(1));
        assert!(!onset.is_on(at(1)));
    }

    #[test]
    fn before_a_round_trip_was_measured_nothing_is_known() {
        let mut onset = Onset::default();
        onset.on_settled();
        onset.on_filled(Duration::from_millis(5), false, at(1));
        assert!(!onset.is_on(at(1)));
    }

    #[test]
    fn a_medium_that_loses_nothing_any_more_turns_the_hold_off() {
        let mut onset = onset();
        onset.on_filled(BASE, false, at(0));
        onset.on_filled(BASE, false, at(29));
        assert!(onset.is_on(at(58)));
        assert!(!onset.is_on(at(59)));
        onset.on_filled(BASE, false, at(60));
        assert!(onset.is_on(at(60)));
    }

    proptest! {
        #[test]
        fn the_hold_is_on_before_a_decision_and_after_a_recent_loss_without_a_queue(
            steps in proptest::collection::vec((0u64..12, any::<bool>(), 0u64..80, 0u8..8), 0..60)
        ) {
            let (mut onset, mut now, mut decided, mut last_loss) = (onset(), 0, false, None);
            for (seconds, queue_stands, after, kind) in steps {
                now += seconds;
                match kind {
                    0 => onset.on_settled(),
                    1 => onset.on_queue(),
                    _ => {
                        onset.on_filled(Duration::from_millis(after), queue_stands, at(now));
                        if !queue_stands && (20..50).contains(&after) {
                            last_loss = Some(now);
                        }
                    }
                }
                decided |= kind < 2 || last_loss.is_some();
                let expected = !decided || last_loss.is_some_and(|loss| now - loss < 30);
                prop_assert_eq!(onset.is_on(at(now)), expected);
            }
        }
    }
}
