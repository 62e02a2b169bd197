//! Schedule of eACKs: every 24 datagrams or 15 ms, and at once for a new hole (docs/PROTOCOL.md,
//! section 11, "When the client sends an eACK"), but rarely more than one a millisecond: on a fast
//! path, the wake-up for each eACK is the gateway's largest cost.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// Datagrams after which an eACK is due.
const EVERY_DATAGRAMS: u32 = 24;
/// Time after the first unreported datagram at which an eACK is due.
const EACK_DELAY: Duration = Duration::from_millis(15);
/// Shortest interval between eACKs, including eACKs for new holes.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
/// Delay of an eACK about one of the first datagrams, so that it follows the transport's answer:
/// BBR derives the rate of the path from the distance of the first acknowledgements.
const TRANSPORT_LEAD: Duration = Duration::from_micros(200);
/// Unreported datagrams above which an eACK is not delayed: a larger difference would not fit into
/// the sketch.
const AT_ONCE_DATAGRAMS: u32 = 256;
/// Bounds of the interval of eACKs while a hole is open, a round trip within them, so that a lost
/// repair is noticed on a quiet flow.
const OPEN_HOLE_INTERVAL: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(4)..=Duration::from_millis(30);

/// Interval of eACKs of a selective client without missing datagrams: the gateway need not remember
/// more than this.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Number of datagrams before an eACK is due from which it leaves together with the transport's
/// next datagram: one wake-up of the radio instead of two.
const SOON_DATAGRAMS: u32 = 8;
/// Time before an eACK is due from which it leaves together with the transport's next datagram.
const SOON_TIME: Duration = Duration::from_millis(5);

/// Time without an eACK after which one leaves with the transport's next datagram. A NAT may have
/// given the client another port; datagrams from there wait for a sealed message, or are taken for
/// another client's.
const SILENT_TIME: Duration = Duration::from_millis(500);

/// Decides when the next eACK is due.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    /// While the gateway sends symbols to all subscribers: the time that they have before the gateway
    /// hears of a hole, and between eACKs.
    symbols: Option<Duration>,
    /// Until then they have time for the holes that are open.
    symbols_until: Option<Timestamp>,
    /// Set if eACKs are sent for holes only (Packrat26, section 5.2.3).
    selective: bool,
    unreported: u32,
    first_unreported: Option<Timestamp>,
    at_once: Option<Timestamp>,
    last_sent: Option<Timestamp>,
}

impl Scheduler {
    pub(crate) fn new(selective: bool) -> Self {
        Self { selective, ..Self::default() }
    }

    /// Called when a datagram was recorded, new or a duplicate (which shows that the gateway is in
    /// doubt).
    pub(crate) fn on_datagram(&mut self, now: Timestamp) {
        self.unreported += 1;
        self.first_unreported.get_or_insert(now);
    }

    /// Sets the time in which symbols repair most missing datagrams; `None` if no symbols come.
    pub(crate) fn set_symbols(&mut self, within: Option<Duration>) {
        self.symbols = within;
    }

    /// Called when a hole has opened, the first or a further one. Returns true if it is left to
    /// symbols first.
    pub(crate) fn leaves_to_symbols(&mut self, is_first: bool, now: Timestamp) -> bool {
        if let Some(within) = self.symbols.filter(|_| is_first) {
            self.symbols_until = Some(now + within);
        }
        self.symbols.is_some()
    }

    /// Something that the gateway should know at once.
    pub(crate) fn on_urgent(&mut self, now: Timestamp) {
        let earliest = self.not_before(now);
        self.at_once = Some(self.at_once.map_or(earliest, |at| at.min(earliest)));
    }

    /// Called for a datagram whose loss costs most: it is reported after the transport's answer to
    /// it.
    pub(crate) fn on_precious(&mut self, now: Timestamp) {
        let due = now + TRANSPORT_LEAD;
        self.at_once = Some(self.at_once.map_or(due, |at| at.min(due)));
    }

    /// The transport sends a datagram: an eACK that is due soon goes with it.
    pub(crate) fn on_company(&mut self, now: Timestamp) {
        if self.selective {
            return;
        }
        let by_count = self.unreported + SOON_DATAGRAMS >= EVERY_DATAGRAMS;
        if by_count || self.first_unreported.is_some_and(|at| at + EACK_DELAY <= now + SOON_TIME) {
            self.on_urgent(now);
        }
    }

    /// True if the client has not sent an eACK for so long that it may have another address by now.
    pub(crate) fn is_silent(&self, now: Timestamp) -> bool {
        !self.selective && self.last_sent.is_some_and(|last| last + SILENT_TIME <= now)
    }

    /// Time at which the next eACK is due. `open_holes`: whether a hole is being waited for;
    /// `round_trip`: of the last mile.
    pub(crate) fn due(&self, open_holes: bool, round_trip: Option<Duration>) -> Option<Timestamp> {
        let mut due = self.at_once;
        let mut add = |at: Timestamp| due = Some(due.map_or(at, |due| due.min(at)));
        if let Some(first) = self.first_unreported {
            add(match self.unreported {
                _ if self.selective => first + KEEP_ALIVE,
                AT_ONCE_DATAGRAMS.. => first,
                EVERY_DATAGRAMS.. => self.not_before(first).min(first + EACK_DELAY),
                _ => first + EACK_DELAY,
            });
        }
        if let Some(last) = self.last_sent.filter(|_| open_holes) {
            let (low, high) = (*OPEN_HOLE_INTERVAL.start(), *OPEN_HOLE_INTERVAL.end());
            add(match self.symbols {
                Some(within) => (last + within).max(self.symbols_until.unwrap_or(last)),
                None => last + round_trip.unwrap_or(high).clamp(low, high),
            });
        }
        due
    }

    fn not_before(&self, wanted: Timestamp) -> Timestamp {
        self.last_sent.map_or(wanted, |last| (last + SHORTEST_INTERVAL).max(wanted))
    }

    /// An eACK was sent.
    pub(crate) fn on_sent(&mut self, now: Timestamp) {
        let (selective, symbols) = (self.selective, self.symbols);
        *self = Self { selective, symbols, last_sent: Some(now), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn a_silent_client_may_have_moved() {
        let mut scheduler = Scheduler::default();
        assert!(!scheduler.is_silent(at(1_000_000)), "its session has just begun");
        scheduler.on_sent(at(1_000_000));
        assert!(!scheduler.is_silent(at(1_499_999)));
        assert!(scheduler.is_silent(at(1_500_000)));
        let mut selective = Scheduler::new(true);
        selective.on_sent(at(0));
        assert!(!selective.is_silent(at(4_000_000)), "it says now and then that it is there");
    }

    #[test]
    fn every_so_many_datagrams_or_milliseconds() {
        let mut scheduler = Scheduler::default();
        assert_eq!(scheduler.due(false, None), None);
        scheduler.on_datagram(at(1000));
        assert_eq!(scheduler.due(false, None), Some(at(16_000)));
        for _ in 1..24 {
            scheduler.on_datagram(at(2000));
        }
        assert!(scheduler.due(false, None) <= Some(at(2000)));
        scheduler.on_sent(at(2000));
        assert_eq!(scheduler.due(false, None), None);
    }

    #[test]
    fn what_is_due_soon_goes_with_what_the_transport_sends() {
        let mut scheduler = Scheduler::default();
        scheduler.on_company(at(500));
        assert_eq!(scheduler.due(false, None), None);
        scheduler.on_datagram(at(1000));
        scheduler.on_company(at(10_999));
        assert_eq!(scheduler.due(false, None), Some(at(16_000)));
        scheduler.on_company(at(11_000));
        assert_eq!(scheduler.due(false, None), Some(at(11_000)));
        scheduler.on_sent(at(11_000));
        for _ in 0..16 {
            scheduler.on_datagram(at(11_200));
        }
        scheduler.on_company(at(11_300));
        assert_eq!(scheduler.due(false, None), Some(at(12_000)));
    }

    #[test]
    fn the_costliest_datagrams_are_reported_behind_their_answers() {
        let mut scheduler = Scheduler::default();
        scheduler.on_sent(at(900));
        scheduler.on_datagram(at(1000));
        scheduler.on_precious(at(1000));
        assert_eq!(scheduler.due(false, None), Some(at(1200)), "sooner than others follow an eACK");
        scheduler.on_precious(at(1036));
        assert_eq!(scheduler.due(false, None), Some(at(1200)), "one for both");
    }

    #[test]
    fn on_a_fast_path_once_a_millisecond() {
        let mut scheduler = Scheduler::default();
        scheduler.on_sent(at(2000));
        for _ in 0..24 {
            scheduler.on_datagram(at(2100));
        }
        assert_eq!(scheduler.due(false, None), Some(at(3000)));
        for _ in 24..AT_ONCE_DATAGRAMS {
            scheduler.on_datagram(at(2200));
        }
        assert!(scheduler.due(false, None) <= Some(at(2200)));
    }

    #[test]
    fn a_hole_is_reported_at_once_but_at_most_once_a_millisecond() {
        let mut scheduler = Scheduler::default();
        scheduler.on_urgent(at(5000));
        assert_eq!(scheduler.due(false, None), Some(at(5000)));
        scheduler.on_sent(at(5000));
        scheduler.on_urgent(at(5100));
        assert_eq!(scheduler.due(false, None), Some(at(6000)));
    }

    #[test]
    fn a_selective_client_speaks_for_holes_and_seldom_otherwise() {
        let mut scheduler = Scheduler::new(true);
        for _ in 0..1000 {
            scheduler.on_datagram(at(1000));
        }
        assert_eq!(scheduler.due(false, None), Some(at(1000) + KEEP_ALIVE));
        scheduler.on_urgent(at(2000));
        assert_eq!(scheduler.due(false, None), Some(at(2000)));
        scheduler.on_sent(at(2000));
        scheduler.on_datagram(at(3000));
        assert_eq!(scheduler.due(false, None), Some(at(3000) + KEEP_ALIVE));
    }

    #[test]
    fn a_hole_is_left_to_symbols_for_a_while() {
        let mut scheduler = Scheduler::new(true);
        scheduler.on_sent(at(0));
        assert!(!scheduler.leaves_to_symbols(true, at(100_000)));
        scheduler.set_symbols(Some(Duration::from_millis(50)));
        assert!(scheduler.leaves_to_symbols(true, at(100_000)));
        assert!(scheduler.leaves_to_symbols(false, at(120_000)), "the first one counts");
        assert_eq!(scheduler.due(true, Some(Duration::from_millis(7))), Some(at(150_000)));
        scheduler.on_sent(at(150_000));
        assert_eq!(scheduler.due(true, None), Some(at(200_000)));
        assert_eq!(scheduler.due(false, None), None);
    }

    #[test]
    fn an_open_hole_keeps_eacks_coming() {
        let mut scheduler = Scheduler::default();
        scheduler.on_sent(at(0));
        assert_eq!(scheduler.due(true, Some(Duration::from_millis(7))), Some(at(7000)));
        assert_eq!(scheduler.due(true, Some(Duration::from_millis(1))), Some(at(4000)));
    }
}
