//! The time between two gateways.
//!
//! ```text
//!             Goodbye, silence, or a session that is unknown       InitAck
//!   Assisted ------------------------------------------> Orphaned ---------> Assisted
//!                                                         |    ^
//!                            500 ms of silence, then twice|    | a datagram arrives
//!                            as long: the server is       +----+
//!                            reminded of this client
//! ```

use core::time::Duration;

use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::Material;

/// Silence after which the server is reminded of this client, once the gateway is lost; doubles
/// each time up to [`LONGEST_SILENCE`].
const FIRST_SILENCE: Duration = Duration::from_millis(500);
/// Longest silence before a reminder.
const LONGEST_SILENCE: Duration = Duration::from_secs(4);
/// Silence after which reminders end: the connection is idle.
const REMINDER_PATIENCE: Duration = Duration::from_secs(60);

/// Time after a gateway has gone at which a new attempt begins.
pub(crate) const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// State between two sessions.
#[derive(Debug, Default)]
pub(crate) struct Reconnection {
    /// Gateways lost in a row without a single Report.
    losses: u32,
    /// Set if there was a gateway and there is none now.
    orphaned: Option<Orphaned>,
    /// Material of the base connection's last datagram, with which the set of a new session begins.
    pub(crate) last_material: Option<Material>,
}

impl Reconnection {
    /// The path carries datagrams.
    pub(crate) fn on_datagram(&mut self, now: Timestamp) {
        if let Some(orphaned) = &mut self.orphaned {
            orphaned.on_datagram(now);
        }
    }

    /// A gateway reports.
    pub(crate) fn on_report(&mut self) {
        self.losses = 0;
    }

    /// Called when the gateway is gone. Returns the time to look for the next one, at least `wait`
    /// from now: a gateway that only answers handshakes is asked at growing intervals.
    pub(crate) fn on_lost(&mut self, wait: Duration, now: Timestamp) -> Timestamp {
        let wait =
            if self.losses == 0 { wait } else { RECONNECT_AFTER * (1 << self.losses.min(8)) };
        self.losses += 1;
        self.orphaned = Some(Orphaned::new(now, now));
        now + wait
    }

    /// A session begins. True if there was one before.
    pub(crate) fn on_established(&mut self) -> bool {
        self.orphaned.take().is_some()
    }

    /// Time at which the server is to be reminded of this client.
    pub(crate) fn reminder_deadline(&self) -> Option<Timestamp> {
        self.orphaned.as_ref().and_then(Orphaned::next_timeout)
    }

    /// True if the server is to be reminded now.
    pub(crate) fn is_reminder_due(&mut self, now: Timestamp) -> bool {
        self.orphaned.as_mut().is_some_and(|orphaned| orphaned.is_due(now))
    }
}

/// The time between two gateways. The next one learns of a connection only from the client's own
/// datagrams, and a client that only receives sends none while no datagram arrives: without a
/// reminder both would wait for the transport's keep-alive.
#[derive(Debug)]
struct Orphaned {
    /// Time of the reminder.
    at: Timestamp,
    silence: Duration,
    until: Timestamp,
}

impl Orphaned {
    fn new(at: Timestamp, now: Timestamp) -> Self {
        Self { at, silence: FIRST_SILENCE, until: now + REMINDER_PATIENCE }
    }

    /// The path carries datagrams.
    fn on_datagram(&mut self, now: Timestamp) {
        *self = Self::new(now + FIRST_SILENCE, now);
    }

    /// True if the client must remind the server now; doubles the silence until the next reminder.
    fn is_due(&mut self, now: Timestamp) -> bool {
        let due = now >= self.at;
        if due {
            self.at = now + self.silence;
            self.silence = (self.silence * 2).min(LONGEST_SILENCE);
        }
        due && now < self.until
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        (self.at < self.until).then_some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn silence_is_broken_ever_more_seldom_and_in_the_end_not_at_all() {
        let mut orphaned = Orphaned::new(at(0), at(0));
        let mut reminders = Vec::new();
        while let Some(next) = orphaned.next_timeout() {
            assert!(orphaned.is_due(next));
            assert!(!orphaned.is_due(next), "once");
            reminders.push(next);
        }
        assert_eq!(reminders[..5], [at(0), at(500), at(1500), at(3500), at(7500)]);
        assert!(reminders.len() < 20 && *reminders.last().unwrap() < at(60_000));
    }

    #[test]
    fn gateways_lost_without_a_report_are_replaced_more_slowly() {
        let mut reconnection = Reconnection::default();
        assert!(!reconnection.on_established(), "the first session");
        assert_eq!(reconnection.on_lost(Duration::ZERO, at(0)), at(0));
        assert!(reconnection.on_established());
        assert_eq!(reconnection.on_lost(Duration::ZERO, at(0)), at(400));
        assert_eq!(reconnection.on_lost(Duration::ZERO, at(0)), at(800));
        reconnection.on_report();
        assert_eq!(reconnection.on_lost(RECONNECT_AFTER, at(0)), at(200));
    }

    #[test]
    fn who_hears_something_has_nothing_to_say() {
        let mut orphaned = Orphaned::new(at(0), at(0));
        for millis in (0..120_000).step_by(400) {
            orphaned.on_datagram(at(millis));
            assert!(!orphaned.is_due(at(millis + 399)));
        }
        assert!(orphaned.is_due(orphaned.next_timeout().unwrap()));
    }
}
