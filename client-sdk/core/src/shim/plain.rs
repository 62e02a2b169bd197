//! Belief in datagrams that no number speaks for.
//!
//! ```text
//!              two Resets of the gateway within 10 s
//!   Believed ----------------------------------------> Doubted: 100 a second
//!      ^                                                  |
//!      +--------------------------------------------------+ 10 s without a Reset
//! ```
//!
//! The transport keeps to itself what is authentic. Forged datagrams in the set are what an eACK
//! can't be decoded for.

use core::time::Duration;

use packrat_assist_token::token_bucket::{Rate, TokenBucket};
use packrat_wire::estimate::Timestamp;

/// Datagrams that are recorded per second while there is doubt, and at once.
const DOUBTED: Rate = Rate { per_second: 100.0, burst: 24.0 };
/// The doubt lasts for so long after a Reset, and begins with the second one in such a time.
const DOUBT: Duration = Duration::from_secs(10);

/// The judge of plain datagrams.
#[derive(Debug)]
pub(super) struct Plain {
    /// Resets of the gateway that have been seen, and when the last one was.
    resets: u64,
    last_reset: Option<Timestamp>,
    doubted_until: Option<Timestamp>,
    tokens: TokenBucket,
    earned_at: Timestamp,
}

impl Default for Plain {
    fn default() -> Self {
        Self {
            resets: 0,
            last_reset: None,
            doubted_until: None,
            tokens: TokenBucket::new(0.0),
            earned_at: Timestamp::ZERO,
        }
    }
}

impl Plain {
    /// The gateway has asked for so many Resets until now.
    pub(super) fn on_resets(&mut self, resets: u64, now: Timestamp) {
        if resets == self.resets {
            return;
        }
        self.resets = resets;
        let soon = self.last_reset.replace(now).is_some_and(|last| now < last + DOUBT);
        if soon {
            self.doubted_until = Some(now + DOUBT);
        }
    }

    /// True if a plain datagram is to be recorded.
    pub(super) fn admits(&mut self, now: Timestamp) -> bool {
        if self.doubted_until.is_none_or(|until| now >= until) {
            return true;
        }
        let elapsed = now.saturating_since(self.earned_at);
        self.earned_at = now;
        self.tokens.earn(DOUBTED.earned(elapsed), DOUBTED.burst);
        self.tokens.try_take(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_two_resets_few_are_believed_for_a_while() {
        let mut plain = Plain::default();
        let at = Timestamp::from_millis;
        let admitted = |plain: &mut Plain, from: u64| {
            (from..from + 1000).filter(|millis| plain.admits(at(*millis))).count()
        };
        plain.on_resets(1, at(1000));
        assert_eq!(admitted(&mut plain, 1000), 1000, "one happens");
        plain.on_resets(2, at(20_000));
        assert_eq!(admitted(&mut plain, 20_000), 1000, "and another one, much later");
        plain.on_resets(3, at(22_000));
        let few = admitted(&mut plain, 22_000);
        assert!((90..=130).contains(&few), "{few}");
        plain.on_resets(3, at(31_000));
        assert_eq!(admitted(&mut plain, 32_000), 1000);
    }
}
