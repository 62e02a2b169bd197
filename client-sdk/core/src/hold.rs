//! Decides which packets a transport may see: only those below the lowest hole that is worth
//! waiting for.
//!
//! ```text
//!   a packet number is skipped                 it arrives
//!   ------------------------------> Held ---------------------> filled in time: the sender never knows
//!                                    |  |
//!                hold time is over   |  | the gateway has nothing to repair
//!                                    v  v
//!                          Expired    Settled ----------------> filled late
//! ```
//!
//! Packrat26 (table 3) waits for a constant that depends on the setting. Here the hold follows the measured
//! last mile, below a configured maximum. Holes are not held without a gateway, while the gateway is silent,
//! while its Reports show a queue, and in an overflow.

mod direction;
mod holes;
mod overflow;

use core::time::Duration;

use packrat_wire::estimate::{PathEstimate, Timestamp, patience_margin};
use packrat_wire::number::MAXIMUM_JUMP;

use crate::events::{ClientEvent, Events, HoldEndedReason, NotHeldReason, Observer};
use crate::packet_number::PacketNumber;
use crate::ranges::RangeSet;
use crate::stats::AssistStats;
pub(crate) use direction::Direction;
use holes::{Hole, Holes, State};
use overflow::Overflow;

/// Delay of a timer from which this host did not run: datagrams that have arrived meanwhile are
/// processed first.
const STALL: Duration = Duration::from_millis(4);
/// Number of remembered ranges of received packet numbers. On a connection whose holes are never
/// filled, the oldest ranges are forgotten first.
const MAXIMUM_REMEMBERED_RANGES: usize = 8192;
/// Age at which ended holes are forgotten: a repair is then no longer expected.
const FORGET_AFTER: Duration = Duration::from_secs(2);
/// Number of remembered holes. Beyond it the oldest are forgotten, and not waited for.
const MAXIMUM_HOLES: usize = 4096;
/// Time by which the gateway gives up later than the client: half a round trip, and the time until
/// the next eACK.
const STILL_EXPECTED: Duration = Duration::from_millis(60);
/// Time for which a hole is held.
#[derive(Debug, Clone, Copy)]
struct Patience {
    maximum: Duration,
    margin: Duration,
    /// True if holes are held until the maximum, whatever the path is.
    to_the_end: bool,
    /// Current limit of the time, below the maximum.
    limit: Option<Duration>,
}

impl Patience {
    fn with(self, path: &PathEstimate) -> Duration {
        let maximum = self.limit.map_or(self.maximum, |limit| limit.min(self.maximum));
        if self.to_the_end { maximum } else { path.patience(self.margin, maximum) }
    }
}

/// Packet numbers that have arrived, and the holes among them, some of which are waited for.
#[derive(Debug)]
pub(crate) struct Hold {
    patience: Patience,
    /// Longest run of skipped numbers that counts as a hole.
    longest_hole: u64,
    /// Numbers of the packets that have arrived: the missing ones among them are holes.
    arrived: RangeSet,
    holes: Holes,
    /// Detection of overflows; `None` if losses of a queue are not distinguished from others.
    overflow: Option<Overflow>,
    events: Events,
}

/// Effect of a received packet number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Arrival {
    /// True if the packet number is the highest so far.
    pub(crate) newest: bool,
    /// True if the packet number opened a hole below it.
    pub(crate) opened_hole: bool,
    /// True if the packet was waited for.
    pub(crate) filled_hole: bool,
    /// Time for which the packet was missing, waited for or not.
    pub(crate) missed_for: Option<Duration>,
}

impl Hold {
    /// Creates the state of a connection without packets. `live`: for a live stream; `to_the_end`:
    /// holes are held until the maximum, whatever the path is; `queues_lose`: losses of a queue are
    /// shown to the sender.
    pub(crate) fn new(maximum: Duration, live: bool, to_the_end: bool, queues_lose: bool) -> Self {
        Self {
            patience: Patience { maximum, margin: patience_margin(live), to_the_end, limit: None },
            longest_hole: u64::MAX,
            arrived: RangeSet::default(),
            holes: Holes::default(),
            overflow: queues_lose.then(Overflow::default),
            events: Events::default(),
        }
    }

    /// Sets that numbers are the gateway's places. A place that is further ahead than [`MAXIMUM_JUMP`] was
    /// believed after a long outage, because others followed it; the skipped places are not repaired any
    /// more.
    pub(crate) fn number_places(&mut self) {
        self.longest_hole = MAXIMUM_JUMP;
    }

    /// See [`crate::Assist::observe`].
    pub(crate) fn observe(&mut self, observer: Observer) {
        self.events = Events::to(observer);
    }

    /// Limits the time of holds, or removes the limit.
    pub(crate) fn limit_patience(&mut self, limit: Option<Duration>) {
        self.patience.limit = limit;
    }

    /// True if a packet with this number has arrived.
    pub(crate) fn has_arrived(&self, number: PacketNumber) -> bool {
        self.arrived.contains(number.get())
    }

    /// The highest number that has arrived.
    pub(crate) fn highest_arrived(&self) -> Option<PacketNumber> {
        self.arrived.last().map(PacketNumber::new)
    }

    /// The lowest packet number that is waited for.
    pub(crate) fn first_held(&self) -> Option<PacketNumber> {
        self.holes.first_held().map(PacketNumber::new)
    }

    /// Records a packet that has arrived. `not_held`: the reason why a hole is not worth waiting for, if
    /// there is one.
    pub(crate) fn on_arrival(
        &mut self,
        number: PacketNumber,
        not_held: Option<NotHeldReason>,
        now: Timestamp,
        stats: &mut AssistStats,
    ) -> Arrival {
        let number = number.get();
        let highest = self.arrived.last();
        if !self.arrived.insert(number) {
            return Arrival::default();
        }
        self.arrived.limit(MAXIMUM_REMEMBERED_RANGES);
        let newest = highest.is_none_or(|highest| number > highest);
        if !newest {
            let filled = self.fill(number, now, stats);
            if let Some(overflow) = &mut self.overflow
                && filled.is_some_and(|hole| hole.state != State::Held)
            {
                overflow.on_repaired();
            }
            return Arrival {
                filled_hole: filled.is_some_and(|hole| hole.state == State::Held),
                missed_for: filled.map(|hole| now.saturating_since(hole.opened)),
                ..Arrival::default()
            };
        }
        // Packet numbers begin with 0 (RFC 9000, section 12.3): the very first packets may be the
        // ones that were lost.
        let first = highest.map_or(0, |highest| highest + 1);
        if number - first > self.longest_hole {
            return Arrival { newest, ..Arrival::default() };
        }
        let overflow = self.overflow.as_mut();
        let is_overflow = overflow.is_some_and(|overflow| overflow.on_newest(first, number, now));
        if first == number {
            return Arrival { newest, ..Arrival::default() };
        }
        stats.holes += number - first;
        if is_overflow {
            self.give_up(HoldEndedReason::Overflow, now);
        }
        let not_held = not_held.or(is_overflow.then_some(NotHeldReason::Overflow));
        let state = if not_held.is_none() { State::Held } else { State::Expired };
        let last = number - 1;
        self.events.tell(now, || ClientEvent::HoleOpened {
            first: PacketNumber::new(first),
            last: PacketNumber::new(last),
            not_held,
        });
        self.holes.insert(first, Hole { end: last, opened: now, state, extended: false });
        self.limit_holes(now);
        Arrival { newest, opened_hole: true, ..Arrival::default() }
    }

    /// Fills a missing number below the highest: its hole shrinks, splits or closes. Returns the
    /// hole as it was before.
    fn fill(&mut self, number: u64, now: Timestamp, stats: &mut AssistStats) -> Option<Hole> {
        let (start, hole) = self.holes.remove_containing(number)?;
        if start < number {
            self.holes.insert(start, Hole { end: number - 1, ..hole });
        }
        if number < hole.end {
            self.holes.insert(number + 1, hole);
        }
        self.limit_holes(now);
        self.events.tell(now, || ClientEvent::MissingArrived {
            packet_number: PacketNumber::new(number),
            held: hole.state == State::Held,
            after: now.saturating_since(hole.opened),
        });
        if hole.state == State::Held {
            stats.filled_in_time += 1;
            stats.hold_sum += now.saturating_since(hole.opened);
        } else {
            stats.filled_late += 1;
        }
        Some(hole)
    }

    /// Reports the end of a hold to the observer.
    fn tell_ended(&self, start: u64, hole: &Hole, reason: HoldEndedReason, now: Timestamp) {
        self.events.tell(now, || ClientEvent::HoldEnded {
            first: PacketNumber::new(start),
            last: PacketNumber::new(hole.end),
            reason,
            after: now.saturating_since(hole.opened),
        });
    }

    fn limit_holes(&mut self, now: Timestamp) {
        while self.holes.len() > MAXIMUM_HOLES
            && let Some((start, hole)) = self.holes.remove_first()
        {
            if hole.state == State::Held {
                self.tell_ended(start, &hole, HoldEndedReason::TooMany, now);
            }
        }
    }

    /// Ends holes whose time is over and forgets old ones.
    pub(crate) fn expire(&mut self, path: &PathEstimate, now: Timestamp, stats: &mut AssistStats) {
        let hold = self.patience.with(path);
        let mut expired = 0u64;
        while let Some((start, hole)) =
            self.holes.oldest_held().filter(|(_, hole)| now >= hole.opened + hold)
        {
            let due = hole.opened + hold;
            if now >= due + STALL && !hole.extended {
                let opened = hole.opened + now.saturating_since(due) + STALL;
                self.holes.replace(start, Hole { opened, extended: true, ..hole });
                continue;
            }
            self.holes.replace(start, Hole { state: State::Expired, ..hole });
            self.tell_ended(start, &hole, HoldEndedReason::Expired, now);
            expired += hole.numbers(start);
            stats.hold_sum += now.saturating_since(hole.opened);
        }
        self.holes.forget_ended(|opened| now.saturating_since(opened) >= FORGET_AFTER);
        stats.expired += expired;
    }

    /// Ends all holds, for example because the gateway has gone or is silent.
    pub(crate) fn give_up(&mut self, reason: HoldEndedReason, now: Timestamp) {
        while let Some((start, hole)) = self.holes.oldest_held() {
            self.holes.replace(start, Hole { state: State::Expired, ..hole });
            self.tell_ended(start, &hole, reason, now);
        }
    }

    /// Ends the holds of the holes below this packet number, which the gateway does not repair any
    /// more: the sender left them out, or they were lost before the gateway, and the sender may
    /// detect them. Returns true if any was held.
    pub(crate) fn settle(
        &mut self,
        below: PacketNumber,
        now: Timestamp,
        stats: &mut AssistStats,
    ) -> bool {
        let settled = self.holes.held_below(below.get());
        for &(start, hole) in &settled {
            self.holes.replace(start, Hole { state: State::Settled, ..hole });
            self.tell_ended(start, &hole, HoldEndedReason::Settled, now);
            stats.settled += hole.numbers(start);
        }
        !settled.is_empty()
    }

    /// True if this packet number is missing and held.
    pub(crate) fn is_held(&self, number: PacketNumber) -> bool {
        self.holes.containing(number.get()).is_some_and(|hole| hole.state == State::Held)
    }

    /// Number of missing packets that are waited for.
    pub(crate) fn held(&self) -> u64 {
        self.holes.held()
    }

    /// Number of missing packets that the gateway may still have in its difference: it gives up
    /// after the maximum hold.
    pub(crate) fn expected_missing(&mut self, path: &PathEstimate, now: Timestamp) -> u64 {
        self.holes.unsettled_within(self.patience.with(path) + STILL_EXPECTED, now)
    }

    /// The time at which the next hold ends.
    pub(crate) fn next_timeout(&self, path: &PathEstimate) -> Option<Timestamp> {
        self.holes.oldest_held().map(|(_, hole)| hole.opened + self.patience.with(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    const MAXIMUM: Duration = Duration::from_millis(100);

    struct Client {
        hold: Hold,
        path: PathEstimate,
        stats: AssistStats,
        now: Timestamp,
        told: Arc<Mutex<Vec<ClientEvent>>>,
    }

    impl Client {
        fn new() -> Self {
            let path = PathEstimate::new();
            let mut hold = Hold::new(MAXIMUM, false, false, true);
            let told = Arc::new(Mutex::new(Vec::new()));
            let events = Arc::clone(&told);
            hold.observe(Observer::new(move |_, event| events.lock().unwrap().push(*event)));
            let (stats, now) = (AssistStats::default(), Timestamp::from_millis(1000));
            Self { hold, path, stats, now, told }
        }

        /// The holds that have ended since the last call, and why.
        fn ended(&self) -> Vec<(u64, u64, HoldEndedReason)> {
            let told = std::mem::take(&mut *self.told.lock().unwrap());
            let ended = told.into_iter().filter_map(|event| match event {
                ClientEvent::HoldEnded { first, last, reason, .. } => {
                    Some((first.get(), last.get(), reason))
                }
                _ => None,
            });
            ended.collect()
        }

        fn receive(&mut self, numbers: impl IntoIterator<Item = u64>) {
            for number in numbers {
                let number = PacketNumber::new(number);
                self.hold.on_arrival(number, None, self.now, &mut self.stats);
            }
        }

        /// The highest number up to which a transport may see the packets that have arrived.
        fn released(&self) -> Option<u64> {
            let last = self.hold.highest_arrived()?.get();
            match self.hold.first_held() {
                Some(first) => first.get().checked_sub(1),
                None => Some(last),
            }
        }

        fn wait(&mut self, time: Duration) {
            self.now = self.now + time;
            self.hold.expire(&self.path, self.now, &mut self.stats);
        }
    }

    /// After a long outage a place far ahead is believed if others follow it.
    #[test]
    fn places_that_a_leap_skips_are_no_hole() {
        let mut client = Client::new();
        client.hold.number_places();
        client.receive([0, 1]);
        client.receive([50_000, 50_001]);
        assert_eq!((client.stats.holes, client.hold.first_held()), (0, None));
        assert_eq!(client.released(), Some(50_001));
        client.receive([50_001 + MAXIMUM_JUMP]);
        assert_eq!(client.stats.holes, MAXIMUM_JUMP - 1);
        assert_eq!(client.released(), Some(50_001));
        // A transport's own numbers are true.
        let mut client = Client::new();
        client.receive([0, 50_000]);
        assert_eq!(client.stats.holes, 49_999);
    }

    #[test]
    fn nothing_above_a_hole_is_released_until_it_is_filled() {
        let mut client = Client::new();
        client.receive(0..10);
        assert_eq!(client.released(), Some(9));
        client.receive([12, 13]);
        assert_eq!(client.released(), Some(9));
        client.receive([10]);
        assert_eq!(client.released(), Some(10));
        client.receive([11]);
        assert_eq!(client.released(), Some(13));
        assert_eq!((client.stats.holes, client.stats.filled_in_time), (2, 2));
    }

    #[test]
    fn the_very_first_packets_are_missed_when_they_are_lost() {
        let mut client = Client::new();
        client.receive([2, 3]);
        assert_eq!(client.released(), None);
        assert_eq!(client.hold.held(), 2);
        client.receive([0, 1]);
        assert_eq!(client.released(), Some(3));
    }

    #[test]
    fn a_hole_is_waited_for_no_longer_than_the_hold() {
        let mut client = Client::new();
        client.receive(0..10);
        client.receive([11]);
        client.wait(MAXIMUM - Duration::from_millis(1));
        assert_eq!(client.released(), Some(9));
        client.wait(Duration::from_millis(1));
        assert_eq!(client.released(), Some(11));
        client.receive([10]);
        assert_eq!((client.stats.expired, client.stats.filled_late), (1, 1));
        assert_eq!(client.ended(), [(10, 10, HoldEndedReason::Expired)]);
    }

    #[test]
    fn a_host_that_did_not_run_looks_at_what_arrived_first() {
        let mut client = Client::new();
        client.receive([0, 2]);
        // This host did not run for a second; the timer fires before the socket is read.
        client.wait(Duration::from_secs(1));
        assert_eq!(client.released(), Some(0));
        client.receive([1]);
        assert_eq!(client.released(), Some(2));
        assert_eq!((client.stats.expired, client.stats.filled_in_time), (0, 1));
        // The hold is extended only once.
        client.receive([4]);
        client.wait(Duration::from_secs(1));
        client.wait(Duration::from_secs(1));
        assert_eq!(client.released(), Some(4));
    }

    #[test]
    fn the_gateways_word_ends_the_wait_for_the_holes_that_it_means() {
        let mut client = Client::new();
        client.receive([0, 2, 4]);
        client.hold.settle(PacketNumber::new(2), client.now, &mut client.stats);
        assert_eq!(client.released(), Some(2));
        assert_eq!(client.stats.settled, 1);
        assert_eq!(client.ended(), [(1, 1, HoldEndedReason::Settled)], "3 is held");
    }

    #[test]
    fn too_many_holes_are_given_up_from_the_oldest_on() {
        let mut client = Client::new();
        client.hold.overflow = None;
        // Every odd number is missing.
        client.receive((0..=MAXIMUM_HOLES as u64).map(|number| number * 2));
        assert_eq!(client.released(), Some(0));
        assert_eq!(client.hold.held(), MAXIMUM_HOLES as u64);
        client.receive([MAXIMUM_HOLES as u64 * 2 + 2]);
        assert_eq!(client.released(), Some(2), "the hole at 1 is forgotten");
        assert_eq!(client.ended(), [(1, 1, HoldEndedReason::TooMany)]);
        assert_eq!(client.hold.held(), MAXIMUM_HOLES as u64);
    }

    #[test]
    fn giving_up_releases_everything_at_once() {
        let mut client = Client::new();
        client.receive([0, 2, 5]);
        client.hold.give_up(HoldEndedReason::SessionClosed, client.now);
        assert_eq!((client.released(), client.hold.held()), (Some(5), 0));
        assert_eq!(client.hold.next_timeout(&client.path), None);
        // New holes are not held without a session.
        let (number, not_held) = (PacketNumber::new(9), Some(NotHeldReason::NoSession));
        client.hold.on_arrival(number, not_held, client.now, &mut client.stats);
        assert_eq!(client.released(), Some(9));
    }
}
