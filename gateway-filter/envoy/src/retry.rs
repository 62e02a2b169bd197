//! Retries of failed operations, at limited intervals instead of for every datagram.

use std::time::{Duration, Instant};

/// Time between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A timer that limits attempts; the first one may be made at once.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    next: Option<Instant>,
}

impl Retry {
    /// True if it is time to try; if so, the next attempt may follow a second later.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next.is_none_or(|next| next <= now);
        if is_due {
            self.next = Some(now + RETRY_INTERVAL);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_once_and_then_once_a_second() {
        let (mut retry, start) = (Retry::default(), Instant::now());
        let attempts =
            (0..3500).filter(|&elapsed| retry.is_due(start + Duration::from_millis(elapsed)));
        assert_eq!(attempts.collect::<Vec<_>>(), [0, 1000, 2000, 3000]);
    }
}
