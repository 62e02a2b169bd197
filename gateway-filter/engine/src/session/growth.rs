//! Growth through a loss: no loss-based sender has it.
//!
//! In slow start a window doubles in each round trip. A loss-based sender learns of a loss after it
//! has doubled once more, at most, and gives way by three tenths (CUBIC, RFC 9438) or a half (RFC
//! 9002): from then on it sends at most 1.4 times its amount when the loss was found, and for each
//! round trip a datagram more. BBR's startup goes on (its second and third version up to 2 % of
//! losses).
//!
//! ```text
//!   forwarded, each round trip      x found      heard |  judged |
//!   BBR     10   20   40             80           160     190          twice as much: it grows
//!   CUBIC   10   20   40             80            56      57
//! ```
//!
//! So a single loss can be evidence, in a download that ends before five of them. It must come
//! before the path is half full: a sender that cannot grow any more gives no evidence.
//!
//! A sender with little to send does not fill its window, and may send more after a loss than
//! before. Servers begin with windows of 64 datagrams at most ([`LARGE_WINDOW`]), of which a loss
//! leaves 45; a larger one has grown by sending (RFC 9002, section 7.8).

use core::time::Duration;

use packrat_wire::estimate::{LARGE_WINDOW, Timestamp};

use crate::history::History;

/// Ratio to the amount when the loss was found from which only a sender that does not answer it
/// sends.
const GROWN_RATIO: f64 = 2.0;
/// Ratio to the amount when the loss was found below which a sender that does answer it sends.
const GIVEN_WAY_RATIO: f64 = 1.4;
/// Round trips after which a sender has heard of a loss.
const HEARD_ROUND_TRIPS: f64 = 1.25;
/// Round trips that a sender which has heard of a loss then has to grow beyond a window with which
/// servers begin.
const GROWTH_ROUND_TRIPS: f64 = 3.0;

/// The round trips of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundTrips {
    /// The shortest round trip of the last mile: not longer than one between sender and client.
    pub(super) least: Duration,
    /// The last mile's current round trip.
    pub(super) last_mile: Duration,
    /// The round trip between sender and client, or a longer time.
    pub(super) whole: Duration,
}

/// The growth of a sender, from the beginning of its connection on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Growth {
    /// The most datagrams in a second, over the least round trip. Datagrams before `next` are
    /// counted; `oldest` is the first that belongs to the newest round trip.
    fastest: f64,
    oldest: u64,
    next: u64,
    found: Option<Timestamp>,
}

impl Growth {
    /// Handles an eACK; `is_found`: it shows a loss that the sender is shown. `Some`, once: true if
    /// the sender grows through it, false if it may have given way.
    pub(super) fn on_eack(
        &mut self,
        is_found: bool,
        history: &History,
        round_trips: RoundTrips,
        now: Timestamp,
    ) -> Option<bool> {
        let RoundTrips { least, last_mile, whole } = round_trips;
        let Some(found) = self.found else {
            self.follow(history, least);
            self.found = is_found.then_some(now);
            return None;
        };
        let judged_from = found + whole.mul_f64(HEARD_ROUND_TRIPS) + whole;
        if now < judged_from {
            return None;
        }
        let sustained = forwarded_within(whole, history, now) / whole.as_secs_f64();
        if sustained < GIVEN_WAY_RATIO * self.fastest {
            return Some(false);
        }
        // A datagram more in each round trip since then.
        let added = now.saturating_since(found).div_duration_f64(least) / least.as_secs_f64();
        let grows = sustained >= GROWN_RATIO * self.fastest + added
            && forwarded_within(last_mile, history, now) > LARGE_WINDOW as f64;
        (grows || now >= judged_from + whole.mul_f64(GROWTH_ROUND_TRIPS)).then_some(grows)
    }

    /// Counts the datagrams that were forwarded since the last call.
    fn follow(&mut self, history: &History, least: Duration) {
        self.next = self.next.max(history.first());
        let new = self.next..history.next();
        for (sequence, entry) in new.clone().zip(history.range(new)) {
            let is_older = |old: u64| {
                history.get(old).is_none_or(|old| old.forwarded_at + least <= entry.forwarded_at)
            };
            while self.oldest < sequence && is_older(self.oldest) {
                self.oldest += 1;
            }
            let count = sequence + 1 - self.oldest;
            self.fastest = self.fastest.max(count as f64 / least.as_secs_f64());
        }
        self.next = history.next();
    }
}

/// Datagrams that were forwarded within this time before `now`.
fn forwarded_within(time: Duration, history: &History, now: Timestamp) -> f64 {
    let before = history.newest_until(now - time).map_or(history.first(), |newest| newest + 1);
    (history.next() - before) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{MAXIMUM_ENTRIES, identifier};

    const LAST_MILE: Duration = Duration::from_millis(20);

    /// A sender whose window doubles in each round trip until it hears of a loss.
    #[derive(Clone, Copy)]
    struct Sender {
        /// The round trip of sender and client, and what the gateway takes it for.
        whole: Duration,
        assumed: Duration,
        first_window: f64,
        /// Share of the window that a loss leaves. `None`: it goes on.
        left: Option<f64>,
        /// Datagrams that the path holds.
        holds: f64,
    }

    const BBR: Sender = Sender {
        whole: LAST_MILE,
        assumed: LAST_MILE,
        first_window: 10.0,
        left: None,
        holds: 5000.0,
    };

    impl Sender {
        /// The finding if a datagram at the begin of this round trip is lost. The first window is a
        /// burst; later ones are spread by the acknowledgements that they answer.
        fn judged(&self, lost_in: u32) -> Option<bool> {
            let mut history = History::new(1 << 20, MAXIMUM_ENTRIES);
            let (mut growth, mut window) = (Growth::default(), self.first_window);
            let round_trips =
                RoundTrips { least: LAST_MILE, last_mile: LAST_MILE, whole: self.assumed };
            // It is named an eighth of a round trip into the next one, and the sender hears of it a
            // round trip later, at most.
            let named = |round: u32, part: f64| round == lost_in + 1 && part >= 0.125;
            let (mut is_named, mut has_heard) = (false, false);
            for round in 0..lost_in + 60 {
                let count = window as u32;
                for number in 0..count {
                    let part = f64::from(number) / f64::from(count);
                    let begin = Timestamp::from_millis(1000) + self.whole * round;
                    let at = if round == 0 { begin } else { begin + self.whole.mul_f64(part) };
                    history.push(identifier(history.next() + 1), &[], at);
                    let is_found = named(round, part) && !is_named;
                    is_named |= is_found;
                    if round == 0 {
                        continue;
                    }
                    if let Some(judged) = growth.on_eack(is_found, &history, round_trips, at) {
                        return Some(judged);
                    }
                }
                window = match self.left {
                    Some(left) if is_named && !has_heard => {
                        has_heard = true;
                        window * 1.125 * left
                    }
                    Some(_) if has_heard => window + 1.0,
                    _ => window * 2.0,
                };
                window = window.min(self.holds);
            }
            None
        }
    }

    #[test]
    fn a_sender_that_grows_through_a_loss_is_found() {
        for whole in [20, 40, 120].map(Duration::from_millis) {
            for lost_in in 2..5 {
                let sender = Sender { whole, assumed: whole, ..BBR };
                assert_eq!(sender.judged(lost_in), Some(true), "{whole:?}, round trip {lost_in}");
            }
        }
    }

    #[test]
    fn no_loss_based_sender_is_taken_for_it() {
        let mut judged = 0;
        for left in [0.5, 0.7] {
            for (whole, assumed) in [(20, 20), (40, 40), (120, 120), (20, 200), (120, 600)] {
                let [whole, assumed] = [whole, assumed].map(Duration::from_millis);
                for first_window in [10.0, 32.0, 64.0] {
                    for lost_in in 0..7 {
                        let left = Some(left);
                        let sender = Sender { whole, assumed, first_window, left, ..BBR };
                        let found = sender.judged(lost_in);
                        assert_ne!(
                            found,
                            Some(true),
                            "{left:?}, {whole:?}, {first_window}, {lost_in}"
                        );
                        judged += u32::from(found.is_some());
                    }
                }
            }
        }
        assert!(judged > 150, "{judged} of 210 trials end");
    }

    #[test]
    fn a_sender_that_fills_the_path_tells_nothing() {
        assert_eq!(Sender { holds: 200.0, ..BBR }.judged(5), Some(false));
    }

    #[test]
    fn a_small_window_tells_nothing() {
        assert_eq!(Sender { first_window: 2.0, holds: 60.0, ..BBR }.judged(1), Some(false));
    }
}
