//! The time between two gateways.

use core::time::Duration;

use packrat_estimate::Timestamp;

/// Silence after which the server is reminded of this client, once the gateway is lost; doubles each time up to [`LONGEST_SILENCE`].
const FIRST_SILENCE: Duration = Duration::from_millis(500);
const LONGEST_SILENCE: Duration = Duration::from_secs(4);
/// Silence after which it is not reminded any more: the connection has nothing to say.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time between two gateways. The next one knows a connection only from the client's own datagrams, and a client that only receives
/// sends none while nothing comes: without a reminder both would wait for the transport's keep-alive.
#[derive(Debug)]
pub(crate) struct Orphaned {
    /// When the server is reminded.
    at: Timestamp,
    silence: Duration,
    until: Timestamp,
}

impl Orphaned {
    pub(crate) fn new(at: Timestamp, now: Timestamp) -> Self {
        Self { at, silence: FIRST_SILENCE, until: now + PATIENCE }
    }

    /// The path carries datagrams.
    pub(crate) fn on_datagram(&mut self, now: Timestamp) {
        *self = Self::new(now + FIRST_SILENCE, now);
    }

    /// Whether the server is to be reminded now.
    pub(crate) fn is_due(&mut self, now: Timestamp) -> bool {
        let due = now >= self.at;
        if due {
            self.at = now + self.silence;
            self.silence = (self.silence * 2).min(LONGEST_SILENCE);
        }
        due && now < self.until
    }

    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
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
    fn who_hears_something_has_nothing_to_say() {
        let mut orphaned = Orphaned::new(at(0), at(0));
        for millis in (0..120_000).step_by(400) {
            orphaned.on_datagram(at(millis));
            assert!(!orphaned.is_due(at(millis + 399)));
        }
        assert!(orphaned.is_due(orphaned.next_timeout().unwrap()));
    }
}
