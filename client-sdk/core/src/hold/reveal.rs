//! Revealing what was withheld: which acknowledgement the sender knows, and when it must be told.
//!
//! ```text
//!           something may be revealed            an ACK is sent that reveals it
//!   Idle -----------------------------> Forced ---------------------------------> Idle
//!                                         ^
//!              what was revealed may be   |
//!              lost: once more, the same -+
//! ```

/// The largest packet revealed, and a forced ACK that is due.
#[derive(Debug, Default)]
pub(super) struct Reveal {
    /// Largest packet number ever revealed.
    largest: Option<u64>,
    /// The transport is to send an ACK now.
    forced: bool,
    /// The next forced ACK is to be sent even if it reveals nothing new.
    repeated: bool,
}

impl Reveal {
    /// Something that was withheld may be revealed now.
    pub(super) fn force(&mut self) {
        self.forced = true;
    }

    /// Forces another ACK: the one that revealed packets may not have reached the sender.
    pub(super) fn repeat(&mut self) {
        self.forced = true;
        self.repeated = true;
    }

    /// True if the transport is to send an ACK.
    pub(super) fn is_forced(&self) -> bool {
        self.forced
    }

    /// True, once, if the transport is to send an ACK and that says something new up to `limit`,
    /// or is to be repeated.
    pub(super) fn take_forced(&mut self, limit: u64) -> bool {
        let repeated = core::mem::take(&mut self.repeated);
        core::mem::take(&mut self.forced) && (repeated || limit > self.largest.unwrap_or(0))
    }

    /// An ACK frame up to this packet number leaves. True if none has revealed as much.
    pub(super) fn on_revealed(&mut self, largest: u64) -> bool {
        let before = self.largest;
        self.largest = before.max(Some(largest));
        self.largest > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_is_forced_once_and_only_for_news() {
        let mut reveal = Reveal::default();
        assert!(!reveal.take_forced(9));
        reveal.force();
        assert!(reveal.is_forced() && reveal.take_forced(9) && !reveal.take_forced(9));
        assert!(reveal.on_revealed(9) && !reveal.on_revealed(7));
        reveal.force();
        assert!(!reveal.take_forced(9), "the sender knows it");
        reveal.force();
        assert!(reveal.take_forced(10));
    }

    #[test]
    fn what_may_be_lost_is_repeated() {
        let mut reveal = Reveal::default();
        reveal.on_revealed(9);
        reveal.repeat();
        assert!(reveal.take_forced(9) && !reveal.take_forced(9));
    }
}
