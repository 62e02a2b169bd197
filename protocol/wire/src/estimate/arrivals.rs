//! Pace of a flow's arrivals, now and at its fastest.
//!
//! What has waited in a queue arrives as fast as the link carries it, whatever the sender's pace is:
//! the fastest arrivals tell the link's rate, and the pace of the last round trip how much of it the
//! flow uses.

use core::time::Duration;

use crate::estimate::Timestamp;
use crate::estimate::least::Least;

/// Datagrams that are timed together: a burst of a sender's, and more than a host takes at once from
/// a slow link.
const GROUP: u64 = 8;
/// A flow may fill its link when its datagrams come at this share of the fastest pace: BBR does not
/// always, and the fastest datagrams may have been shorter ones.
const FILLED: f64 = 0.5;

/// The pace of arrivals. Fed with the places of datagrams in the flow, and times.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrivals {
    /// First arrivals of the group and of the round trip that are being timed.
    group: Option<(u64, Timestamp)>,
    round: Option<(u64, Timestamp)>,
    /// The end of that group, the first place after it, and of that round trip.
    group_ends: u64,
    round_ends: Timestamp,
    /// Datagrams of the last round trip, and its time.
    last_round: Option<(u32, Duration)>,
    /// Mean interval between the datagrams of the fastest group.
    fastest: Least,
}

impl Arrivals {
    /// The datagram with this place in the flow arrived; `round_trip` is asked for once in one.
    pub(super) fn on_arrival(
        &mut self,
        place: u64,
        round_trip: impl FnOnce() -> Duration,
        at: Timestamp,
    ) {
        if place >= self.group_ends {
            if let Some((count, time)) = lap(&mut self.group, place, at) {
                self.fastest.on_sample(time / count, at);
            }
            self.group_ends = place.saturating_add(GROUP);
        }
        if at >= self.round_ends && self.round.is_none_or(|(from, _)| place > from) {
            self.last_round = lap(&mut self.round, place, at).or(self.last_round);
            self.round_ends = at + round_trip();
        }
    }

    /// The time that the link takes for a datagram, at most; `None` where nothing is known.
    pub(super) fn of_link(&self) -> Option<Duration> {
        self.fastest.get()
    }

    /// The same; `None` where nothing is known, or the flow fills the link.
    pub(super) fn of_unfilled_link(&self) -> Option<Duration> {
        let (fastest, (count, time)) = self.of_link().zip(self.last_round)?;
        ((time / count).mul_f64(FILLED) > fastest).then_some(fastest)
    }
}

/// Datagrams since `first` and their time; the next ones are timed from here on.
fn lap(first: &mut Option<(u64, Timestamp)>, place: u64, at: Timestamp) -> Option<(u32, Duration)> {
    let (from, since) = first.replace((place, at))?;
    let count = u32::try_from(place.saturating_sub(from)).unwrap_or(u32::MAX);
    Some((count, at.saturating_since(since)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(80);

    /// Bursts of so many datagrams, each 80 ms; the link takes 2 ms for each.
    fn bursts_of(size: u64) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for place in 0..size * 50 {
            let at = Timestamp::from_millis(place / size * 80 + place % size * 2);
            arrivals.on_arrival(place, || ROUND_TRIP, at);
        }
        arrivals
    }

    #[test]
    fn bursts_tell_the_rate_of_a_link_that_is_not_filled() {
        assert_eq!(bursts_of(12).of_unfilled_link(), Some(Duration::from_millis(2)));
        assert_eq!(bursts_of(30).of_unfilled_link(), None, "filled, most of the time");
        assert_eq!(Arrivals::default().of_unfilled_link(), None, "nothing is known");
    }

    #[test]
    fn datagrams_that_a_host_takes_at_once_come_from_a_fast_link() {
        let mut arrivals = Arrivals::default();
        for place in 0..200 {
            arrivals.on_arrival(place, || ROUND_TRIP, Timestamp::from_millis(place / 20 * 80));
        }
        assert_eq!(arrivals.of_unfilled_link(), Some(Duration::ZERO));
    }
}
