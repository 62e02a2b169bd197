//! Rules of repair, for sessions and for subscribers of streams: when a missing datagram is sent
//! again, how often, and when it is given up.
//!
//! A datagram is missing when a later one has arrived. It is repaired at once. The repair itself is
//! known to be lost when a datagram sent after the *repair* has arrived and the first one is still
//! missing (as if it were cached anew at the tail: Packrat26, section 6.1), or when clearly more
//! than a round trip has passed. The later datagram may be a new one or another repair: a sender
//! that waits for acknowledgements of datagrams that the client holds sends no new ones just when
//! it matters.

use core::time::Duration;

use packrat_wire::estimate::{PathEstimate, RoundTrip, Timestamp, patience_margin};

use crate::session_event::GiveUpReason;

/// Most transmissions of one datagram of a session: more never help.
pub(crate) const MAXIMUM_TRANSMISSIONS: u32 = 12;
/// Copies of one repair at once.
const MAXIMUM_COPIES: u32 = 3;
/// Datagrams forwarded since a lost one from which a second round of repairs keeps many more
/// waiting.
const CROWD_DATAGRAMS: u64 = 60;
/// Shortest time since a loss for a crowd: on a path so fast that [`CROWD_DATAGRAMS`] take no
/// longer than the client's own eACKs, there is no crowd.
const CROWD_AGE: Duration = EACK_INTERVAL;
/// Share of the losses in a crowd for which a second round of repairs should be necessary.
const CROWD_TARGET: f64 = 2e-2;
/// Round trip assumed before one was measured.
pub(crate) const ASSUMED_ROUND_TRIP: Duration = Duration::from_millis(60);
/// Time after the loss in which a client that holds no datagrams can still use a repair.
const MINIMUM_DEADLINE: Duration = Duration::from_millis(60);
/// Longest interval of a client's eACKs while it misses a datagram.
const EACK_INTERVAL: Duration = Duration::from_millis(10);

/// State of one repair, as the rules need it; the caller stores it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) transmissions: u32,
    /// Time since the loss was found.
    pub(crate) since_found: Duration,
    /// Time since the last transmission.
    pub(crate) since_sent: Duration,
    /// True if a datagram sent after the last transmission has arrived.
    pub(crate) passed: bool,
}

/// Decides about a datagram that an eACK shows to be missing. `patience`: how long a repair is of
/// use from when the loss was found; `None`: another limit holds.
pub(crate) fn decide(
    progress: &Progress,
    round_trip: &RoundTrip,
    patience: Option<Duration>,
    maximum_transmissions: u32,
) -> Decision {
    let round_trip = round_trip.or_assumed(ASSUMED_ROUND_TRIP);
    let Progress { transmissions, since_found, since_sent, passed } = *progress;
    if transmissions >= maximum_transmissions {
        return Decision::GiveUp(GiveUpReason::TooManyRepairs);
    }
    if patience.is_some_and(|patience| since_found > patience) {
        return Decision::GiveUp(GiveUpReason::TooOld);
    }
    if transmissions == 0 {
        return Decision::Send;
    }
    let smoothed = round_trip.smoothed().unwrap_or(ASSUMED_ROUND_TRIP);
    // The floor guards against a last mile that reorders.
    let floor = round_trip.minimum().unwrap_or(ASSUMED_ROUND_TRIP) * 9 / 10;
    let overtaken = passed && since_sent >= floor;
    let overdue = since_sent >= smoothed + round_trip.variation() * 4 + EACK_INTERVAL;
    if overtaken || overdue { Decision::Send } else { Decision::Wait }
}

/// A datagram of a session under repair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repair {
    found_at: Timestamp,
    last_sent_at: Timestamp,
    transmissions: u32,
    is_queues: bool,
    /// Sequence number of the next datagram to be forwarded when the repair was last sent.
    mark: u64,
    /// Numbers of the first and the last transmission among all repairs of the session; 0: not
    /// sent.
    first_transmission: u64,
    last_transmission: u64,
}

/// Decision about a missing datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Send the datagram.
    Send,
    /// A repair is on the way.
    Wait,
    /// The datagram is too late, or was tried too often.
    GiveUp(GiveUpReason),
}

impl Repair {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            found_at: now,
            last_sent_at: now,
            transmissions: 0,
            is_queues: false,
            mark: 0,
            first_transmission: 0,
            last_transmission: 0,
        }
    }

    /// Number of the first transmission among all repairs of the session; 0: not sent.
    pub(crate) fn first_transmission(&self) -> u64 {
        self.first_transmission
    }

    /// True if the loss has been found just now.
    pub(crate) fn is_new(&self, now: Timestamp) -> bool {
        self.found_at == now && self.transmissions == 0
    }

    /// Records that the queue has lost the datagram.
    pub(crate) fn blame_queue(&mut self) {
        self.is_queues = true;
    }

    /// True if the queue has lost the datagram.
    pub(crate) fn is_queues(&self) -> bool {
        self.is_queues
    }

    /// Time of the last transmission.
    pub(crate) fn last_sent_at(&self) -> Timestamp {
        self.last_sent_at
    }

    pub(crate) fn transmissions(&self) -> u32 {
        self.transmissions
    }

    /// State of the repair at an eACK that showed the datagram missing, whose newest datagram has
    /// sequence number `newest`. `arrived_transmission`: highest number of a repair that has
    /// arrived.
    pub(crate) fn progress(
        &self,
        newest: Option<u64>,
        arrived_transmission: u64,
        now: Timestamp,
    ) -> Progress {
        Progress {
            transmissions: self.transmissions,
            since_found: now.saturating_since(self.found_at),
            since_sent: now.saturating_since(self.last_sent_at),
            passed: newest.is_some_and(|newest| newest >= self.mark)
                || arrived_transmission > self.last_transmission,
        }
    }

    /// Records a transmission.
    pub(crate) fn sent(&mut self, next_sequence: u64, transmission: u64, now: Timestamp) {
        self.transmissions += 1;
        if self.first_transmission == 0 {
            self.first_transmission = transmission;
        }
        self.last_transmission = transmission;
        self.last_sent_at = now;
        self.mark = next_sequence;
    }
}

/// Time from the finding of a loss in which a repair can be of use. A client that holds no
/// datagrams can also use it for a while: until the sender has learned of the loss and repaired it
/// itself. `live`: the flow is a live stream.
pub(crate) fn patience(path: &PathEstimate, live: bool, maximum_hold: Duration) -> Duration {
    path.patience(patience_margin(live), maximum_hold).max(MINIMUM_DEADLINE)
}

/// True if many datagrams, `behind`, were forwarded since a lost one, `age` ago. Then nearly every
/// moment has an open hole, and the sender waits with every hole that takes a second round.
pub(crate) fn is_crowded(behind: u64, age: Duration) -> bool {
    behind > CROWD_DATAGRAMS && age > CROWD_AGE
}

/// Number of copies of a repair to send now, and the time between them, so that the probability
/// that all its transmissions are lost stays below `target`. The needed copies are spread over the
/// round trips that are left, the last one taking the rest: early copies cost bytes for every loss,
/// late copies only for the few losses that got so far.
///
/// `patience`: how long a repair can be of use from when the loss was found.
///
/// `crowded`: see [`is_crowded`]; then the first round is made sure of.
pub(crate) fn copies(
    repair: &Repair,
    path: &PathEstimate,
    patience: Duration,
    target: f64,
    crowded: bool,
    now: Timestamp,
) -> (u32, Duration) {
    let loss = path.loss().clamp(1e-3, 0.9);
    let needed = (target.ln() / loss.ln()).ceil() as u32;
    let round = path.round_trip().unwrap_or(ASSUMED_ROUND_TRIP) + EACK_INTERVAL;
    let left = patience.saturating_sub(now.saturating_since(repair.found_at));
    let rounds = ((left.as_secs_f64() / round.as_secs_f64()) as u32).max(1);
    let copies = if crowded && rounds > 1 && repair.transmissions == 0 {
        (CROWD_TARGET.max(target).ln() / loss.ln()).ceil() as u32
    } else if crowded {
        needed.saturating_sub(repair.transmissions)
    } else {
        needed.saturating_sub(repair.transmissions) / rounds
    };
    let spacing = (round / 8).clamp(Duration::from_millis(1), Duration::from_millis(8));
    (copies.clamp(1, MAXIMUM_COPIES), spacing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_millis(120);

    fn path(round_trip: Duration, loss: f64) -> PathEstimate {
        let mut path = PathEstimate::new();
        for _ in 0..50 {
            path.on_round_trip(round_trip);
        }
        path.on_fate(1000, (1000.0 * loss) as u64);
        path
    }

    fn decided(
        repair: &Repair,
        newest: Option<u64>,
        arrived: u64,
        path: &PathEstimate,
        now: Timestamp,
    ) -> Decision {
        let progress = repair.progress(newest, arrived, now);
        decide(&progress, path.rtt(), Some(HOLD), MAXIMUM_TRANSMISSIONS)
    }

    #[test]
    fn a_repair_leaves_at_once_and_again_once_overtaken() {
        let path = path(Duration::from_millis(4), 0.04);
        let start = Timestamp::from_millis(1000);
        let mut repair = Repair::new(start);
        assert_eq!(decided(&repair, Some(7), 0, &path, start), Decision::Send);
        repair.sent(20, 3, start);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(
            decided(&repair, Some(19), 0, &path, at(4)),
            Decision::Wait,
            "nothing later has arrived"
        );
        assert_eq!(
            decided(&repair, Some(25), 0, &path, at(1)),
            Decision::Wait,
            "faster than any round trip"
        );
        assert_eq!(decided(&repair, Some(20), 0, &path, at(4)), Decision::Send);
        assert_eq!(
            decided(&repair, Some(19), 3, &path, at(4)),
            Decision::Wait,
            "no later repair has arrived"
        );
        assert_eq!(decided(&repair, Some(19), 4, &path, at(4)), Decision::Send);
        assert_eq!(
            decided(&repair, Some(19), 0, &path, at(16)),
            Decision::Send,
            "overdue on a quiet flow"
        );
        assert_eq!(
            decided(&repair, Some(20), 0, &path, at(200)),
            Decision::GiveUp(GiveUpReason::TooOld)
        );
    }

    #[test]
    fn tries_are_bounded() {
        let path = path(Duration::from_millis(1), 0.5);
        let start = Timestamp::from_millis(1000);
        let mut repair = Repair::new(start);
        for _ in 0..MAXIMUM_TRANSMISSIONS {
            repair.sent(0, 1, start);
        }
        assert_eq!(
            decided(&repair, Some(9), 0, &path, start + Duration::from_millis(10)),
            Decision::GiveUp(GiveUpReason::TooManyRepairs)
        );
    }

    #[test]
    fn copies_are_few_at_first_and_the_rest_at_last() {
        let start = Timestamp::from_millis(1000);
        let hold = Duration::from_millis(250);
        let mut repair = Repair::new(start);
        let wifi = path(Duration::from_millis(4), 0.04);
        assert_eq!(copies(&repair, &wifi, hold, 1e-5, false, start).0, 1);
        let satellite = path(Duration::from_millis(60), 0.10);
        assert!(copies(&repair, &satellite, hold, 1e-5, false, start).0 < MAXIMUM_COPIES);
        repair.sent(0, 1, start);
        let later = start + Duration::from_millis(150);
        assert_eq!(copies(&repair, &satellite, hold, 1e-5, false, later).0, MAXIMUM_COPIES);
        // No second chance: everything at once.
        let short = Duration::from_millis(80);
        assert_eq!(
            copies(&Repair::new(start), &satellite, short, 1e-5, false, start).0,
            MAXIMUM_COPIES
        );
    }

    #[test]
    fn if_many_wait_for_a_second_round_the_first_is_made_sure() {
        let start = Timestamp::from_millis(1000);
        let hold = Duration::from_secs(1);
        let at = |transmissions, loss, crowded| {
            let satellite = path(Duration::from_millis(60), loss);
            let mut repair = Repair::new(start);
            (0..transmissions).for_each(|number| repair.sent(0, number + 1, start));
            copies(&repair, &satellite, hold, 1e-5, crowded, start).0
        };
        assert_eq!([at(0, 0.01, true), at(0, 0.1, true), at(0, 0.2, true)], [1, 2, 3]);
        let long = CROWD_AGE + Duration::from_millis(1);
        assert!(
            is_crowded(CROWD_DATAGRAMS + 1, long)
                && !is_crowded(CROWD_DATAGRAMS, long)
                && !is_crowded(CROWD_DATAGRAMS + 1, CROWD_AGE)
        );
        // The second round takes the rest at once.
        assert_eq!([at(2, 0.1, false), at(2, 0.1, true)], [1, 3]);
    }
}
