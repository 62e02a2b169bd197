//! Liveness of the gateway: echoes, silence, and doubt.
//!
//! ```text
//!          an eACK asks for an echo              no answer in time: asked again at once
//!   Quiet -------------------------> Asked ----------------------------------------------+
//!     ^                                | ^                                               |
//!     |  the answer                    | +-----------------------------------------------+
//!     +--------------------------------+     after 8 in a row: nothing is held any more
//!                                            after 24: the gateway is gone, if datagrams come all
//!                                            the same; otherwise nothing gets through, and it is
//!                                            asked for 30 s
//!
//!   Believed ---- "no such session" ----> Doubted ---- nothing authentic in time ----> gone
//!      ^                                     |
//!      +------- an authentic message --------+
//! ```

use core::time::Duration;

use packrat_wire::MessageCounter;
use packrat_wire::estimate::{PathEstimate, Timestamp};

/// Interval at which the gateway is asked for an echo while datagrams arrive.
pub(crate) const ECHO_INTERVAL: Duration = Duration::from_millis(150);
/// Datagrams per echo on a slow flow without held datagrams: an answer then takes half a percent of
/// the flow.
const ECHO_DATAGRAMS: u32 = 16;
/// Longest time between two echoes on a slow flow.
const LONGEST_ECHO_INTERVAL: Duration = Duration::from_secs(2);
/// An echo is overdue after a round trip with its variation and this.
const ECHO_MARGIN: Duration = Duration::from_millis(25);
/// The round trip that is assumed before one was measured.
pub(crate) const ASSUMED_ROUND_TRIP: Duration = Duration::from_millis(120);
/// Unanswered echoes in a row, without a repair between them, after which holes are not held any
/// more.
const ECHOES_UNTIL_NO_HOLD: u32 = 8;
/// Unanswered echoes after which the next one is given more time.
const ECHOES_OF_A_STEP: u32 = 4;
/// Unanswered echoes in a row after which the gateway is gone, if [`CONTRADICTED_UNTIL_GONE`].
const ECHOES_UNTIL_GONE: u32 = 24;
/// Unanswered echoes during which a datagram came: the last mile does carry the gateway's
/// datagrams. An outage can make one or two overdue: they were sent before its end.
const CONTRADICTED_UNTIL_GONE: u32 = 4;
/// Time without any datagram after which the gateway is considered gone: QUIC's usual idle timeout.
const LONGEST_OUTAGE: Duration = Duration::from_secs(30);
/// Longest additional wait for an echo after unanswered ones; repairs after an outage are delayed
/// by as much.
const LONGEST_STEP: Duration = Duration::from_millis(100);
/// Unanswered echoes that indicate a long burst of loss, during which the sender has received no
/// acknowledgement either.
const ECHOES_OF_A_BURST: u32 = 3;
/// A session is given up no sooner than this after it was doubted.
const MINIMUM_DOUBT: Duration = Duration::from_millis(20);

/// Length of the gateway's silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Not long: it may be loss.
    Short,
    /// Long enough that no repair is to be expected.
    Long,
    /// The gateway is gone.
    Gone,
}

/// Liveness of the gateway of one session.
#[derive(Debug, Default)]
pub(crate) struct Liveness {
    /// The echo that was asked for: the eACK's counter, and when.
    echo: Option<(MessageCounter, Timestamp)>,
    last_echo: Option<Timestamp>,
    /// Time at which an echo is requested unless a datagram comes before.
    quiet_at: Option<Timestamp>,
    /// Echoes in a row that were not answered.
    unanswered: u32,
    /// Unanswered echoes during which a datagram came.
    contradicted: u32,
    /// True if a datagram has come since the echo was asked for.
    has_datagram: bool,
    /// Datagrams since an echo was asked for.
    datagrams: u32,
    /// Time of the gateway's last authentic message.
    last_authentic: Option<Timestamp>,
    /// Time at which an unauthenticated refusal of this session is believed, unless the gateway
    /// sends a message before.
    doubted_until: Option<Timestamp>,
}

impl Liveness {
    /// A datagram of the base connection arrived. `quiet`: how long no other may come before the
    /// gateway is asked.
    pub(crate) fn on_datagram(&mut self, quiet: Option<Duration>, now: Timestamp) {
        self.quiet_at = quiet.map(|quiet| now + quiet);
        self.has_datagram = true;
        self.datagrams = self.datagrams.saturating_add(1);
    }

    /// Called when the transport sends a datagram and no [`Self::quiet_deadline`] runs. `quiet`:
    /// time after which the gateway is asked if no datagram comes back. If this client has another
    /// address, the server's datagram waits at the gateway for a sealed one.
    pub(crate) fn on_sent(&mut self, quiet: Option<Duration>, now: Timestamp) {
        self.quiet_at = quiet.map(|quiet| now + quiet);
    }

    /// True if the next eACK should ask for an echo. `is_open`: something is waited for.
    pub(crate) fn wants_echo(&self, is_open: bool, now: Timestamp) -> bool {
        let is_due = |last| {
            let since = now.saturating_since(last);
            let soon = is_open || self.datagrams >= ECHO_DATAGRAMS;
            since >= if soon { ECHO_INTERVAL } else { LONGEST_ECHO_INTERVAL }
        };
        self.echo.is_none() && self.last_echo.is_none_or(is_due)
    }

    /// An eACK with this counter asked for an echo.
    pub(crate) fn on_asked(&mut self, counter: MessageCounter, now: Timestamp) {
        self.echo = Some((counter, now));
        self.has_datagram = false;
        self.datagrams = 0;
        self.last_echo = Some(now);
    }

    /// A Report answers the eACK with this counter.
    pub(crate) fn on_answer(&mut self, counter: MessageCounter) {
        self.echo.take_if(|(asked, _)| counter >= *asked);
    }

    /// The gateway sent something authentic. True if that ends a long burst of loss.
    pub(crate) fn on_authentic(&mut self, now: Timestamp) -> bool {
        self.doubted_until = None;
        self.last_authentic = Some(now);
        self.contradicted = 0;
        core::mem::take(&mut self.unanswered) >= ECHOES_OF_A_BURST
    }

    /// Called when a hole was filled, probably by a repair: the gateway is at work.
    pub(crate) fn on_repair(&mut self) {
        (self.unanswered, self.contradicted) = (0, 0);
    }

    /// Called for an unauthenticated refusal of this session. Returns true if the gateway is to be
    /// asked: an attacker can send such a refusal.
    pub(crate) fn on_doubt(&mut self, path: &PathEstimate, now: Timestamp) -> bool {
        if self.doubted_until.is_some() {
            return false;
        }
        let wait = (path.round_trip().unwrap_or_default() * 3).max(MINIMUM_DOUBT);
        self.doubted_until = Some(now + wait);
        self.echo = None;
        self.last_echo = None;
        true
    }

    /// The client has moved: the next eACK asks for an echo, whatever was asked before.
    pub(crate) fn on_move(&mut self) {
        self.echo = None;
        self.last_echo = None;
    }

    /// True after a silence of the gateway that is too long to expect repairs.
    pub(crate) fn is_silent(&self) -> bool {
        self.unanswered >= ECHOES_UNTIL_NO_HOLD
    }

    /// The time an echo may take.
    pub(crate) fn echo_wait(&self, path: &PathEstimate) -> Duration {
        let once = path.round_trip().unwrap_or(ASSUMED_ROUND_TRIP)
            + path.round_trip_variation() * 4
            + ECHO_MARGIN;
        if self.unanswered < ECHOES_OF_A_STEP {
            return once;
        }
        // Silence may be a long burst of loss: with growing intervals, echoes are still answered
        // when it is over.
        once + (once * (self.unanswered / ECHOES_OF_A_STEP)).min(once.max(LONGEST_STEP))
    }

    /// Time at which the echo is overdue.
    pub(crate) fn echo_deadline(&self, path: &PathEstimate) -> Option<Timestamp> {
        self.echo.map(|(_, asked)| asked + self.echo_wait(path))
    }

    /// Time at which the gateway is asked because no datagram has come.
    pub(crate) fn quiet_deadline(&self) -> Option<Timestamp> {
        self.quiet_at
    }

    /// Time at which the doubt is believed.
    pub(crate) fn doubt_deadline(&self) -> Option<Timestamp> {
        self.doubted_until
    }

    /// The echo is overdue: another one is asked for at once.
    pub(crate) fn on_echo_overdue(&mut self, now: Timestamp) -> Silence {
        self.echo = None;
        self.last_echo = None;
        self.unanswered += 1;
        self.contradicted += u32::from(self.has_datagram);
        match self.unanswered {
            ECHOES_UNTIL_GONE.. if !self.is_outage(now) => Silence::Gone,
            ECHOES_UNTIL_NO_HOLD.. => Silence::Long,
            _ => Silence::Short,
        }
    }

    /// True if the last mile may cause the gateway's silence: no other datagram gets through
    /// either.
    fn is_outage(&self, now: Timestamp) -> bool {
        self.contradicted < CONTRADICTED_UNTIL_GONE
            && self.last_authentic.is_some_and(|last| now.saturating_since(last) < LONGEST_OUTAGE)
    }

    /// Called if no datagram was received, or no message sent, for a while. Returns true if the
    /// gateway is to be asked: all may be well, or this client has another address that the gateway
    /// does not know yet.
    pub(crate) fn on_quiet(&mut self) -> bool {
        self.quiet_at = None;
        let ask = self.echo.is_none();
        if ask {
            self.last_echo = None;
        }
        ask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn path() -> PathEstimate {
        let mut path = PathEstimate::new();
        for _ in 0..100 {
            path.on_round_trip(Duration::from_millis(40));
        }
        path
    }

    #[test]
    fn one_echo_at_a_time_and_one_each_interval() {
        let mut liveness = Liveness::default();
        assert!(liveness.wants_echo(true, at(0)));
        liveness.on_asked(MessageCounter::new(7), at(0));
        assert!(!liveness.wants_echo(true, at(1000)), "one is under way");
        liveness.on_answer(MessageCounter::new(6));
        assert!(!liveness.wants_echo(true, at(1000)), "an older eACK was answered");
        liveness.on_answer(MessageCounter::new(7));
        assert!(!liveness.wants_echo(true, at(149)));
        assert!(liveness.wants_echo(true, at(150)));
    }

    #[test]
    fn a_slow_flow_is_spared_answers_while_nothing_is_waited_for() {
        let mut liveness = Liveness::default();
        liveness.on_asked(MessageCounter::new(7), at(0));
        liveness.on_answer(MessageCounter::new(7));
        for datagram in 1..16 {
            liveness.on_datagram(None, at(datagram * 100));
        }
        assert!(liveness.wants_echo(true, at(1500)), "a repair is on its way");
        assert!(!liveness.wants_echo(false, at(1999)));
        assert!(liveness.wants_echo(false, at(2000)), "but not for ever");
        liveness.on_datagram(None, at(1600));
        assert!(liveness.wants_echo(false, at(1600)), "datagrams enough to pay for the answer");
        liveness.on_asked(MessageCounter::new(8), at(1600));
        liveness.on_answer(MessageCounter::new(8));
        assert!(!liveness.wants_echo(false, at(1800)), "they are counted anew");
    }

    /// Silence ends first the hold and later the session; echoes are requested at growing
    /// intervals.
    #[test]
    fn silence_ends_first_the_hold_and_later_the_session() {
        let (mut liveness, path) = (Liveness::default(), path());
        liveness.on_authentic(at(0));
        let (mut now, mut waits) = (at(0), Vec::new());
        for counter in 1..=24 {
            assert!(liveness.wants_echo(true, now));
            liveness.on_asked(MessageCounter::new(counter), now);
            let overdue = liveness.echo_deadline(&path).unwrap();
            liveness.on_datagram(None, now);
            waits.push(overdue.saturating_since(now));
            now = overdue;
            let expected = match counter {
                24 => Silence::Gone,
                8.. => Silence::Long,
                _ => Silence::Short,
            };
            assert_eq!(liveness.on_echo_overdue(now), expected, "echo {counter}");
            assert_eq!(liveness.is_silent(), counter >= 8);
        }
        assert_eq!(waits[4], waits[0] * 2);
        assert!(waits.is_sorted());
        assert!(liveness.on_authentic(now), "a long burst");
        assert!(!liveness.is_silent() && !liveness.on_authentic(now));
    }

    /// An outage ends no session before QUIC gives up; echoes are requested all the time.
    #[test]
    fn an_outage_ends_no_session_before_quic_gives_up() {
        let (mut liveness, path) = (Liveness::default(), path());
        liveness.on_authentic(at(0));
        liveness.on_datagram(None, at(5));
        let mut now = at(10);
        for counter in 1.. {
            liveness.on_asked(MessageCounter::new(counter), now);
            let overdue = liveness.echo_deadline(&path).unwrap();
            assert!(overdue.saturating_since(now) <= Duration::from_millis(300));
            now = overdue;
            if liveness.on_echo_overdue(now) == Silence::Gone {
                break;
            }
        }
        assert!(now >= at(30_000) && now <= at(30_300), "{now:?}");
        // The first datagram after an outage comes before the answer to an echo.
        let mut liveness = Liveness::default();
        liveness.on_authentic(at(0));
        for counter in 1..40 {
            liveness.on_asked(MessageCounter::new(counter), at(100 * u64::from(counter)));
            assert_ne!(liveness.on_echo_overdue(at(100 * u64::from(counter) + 90)), Silence::Gone);
        }
        liveness.on_asked(MessageCounter::new(40), at(4000));
        liveness.on_datagram(None, at(4010));
        assert_ne!(liveness.on_echo_overdue(at(4090)), Silence::Gone);
        assert!(liveness.on_authentic(at(4100)));
    }

    #[test]
    fn a_doubt_is_believed_in_time_unless_the_gateway_speaks() {
        let (mut liveness, path) = (Liveness::default(), path());
        liveness.on_asked(MessageCounter::new(1), at(0));
        assert!(liveness.on_doubt(&path, at(10)));
        assert_eq!(liveness.doubt_deadline(), Some(at(130)));
        assert!(liveness.wants_echo(true, at(10)), "the gateway is asked at once");
        assert!(!liveness.on_doubt(&path, at(100)), "an attacker cannot postpone it");
        assert_eq!(liveness.doubt_deadline(), Some(at(130)));
        liveness.on_authentic(at(101));
        assert_eq!(liveness.doubt_deadline(), None);
    }

    #[test]
    fn a_quiet_connection_asks_once() {
        let mut liveness = Liveness::default();
        liveness.on_asked(MessageCounter::new(1), at(0));
        liveness.on_answer(MessageCounter::new(1));
        liveness.on_datagram(Some(Duration::from_millis(200)), at(5));
        assert_eq!(liveness.quiet_deadline(), Some(at(205)));
        assert!(liveness.on_quiet());
        assert_eq!(liveness.quiet_deadline(), None);
        assert!(liveness.wants_echo(true, at(6)));
        liveness.on_asked(MessageCounter::new(2), at(6));
        assert!(!liveness.on_quiet(), "one is under way");
    }
}
