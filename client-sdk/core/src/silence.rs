//! The rule for peers that do not answer any more.

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

/// A peer's silence towards a flow that sends. After it the shell takes another way to the peer: the
/// next address of its name, and another source port. Sans-IO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// The first datagram since the last answer, pause, or other way.
    since: Timestamp,
    /// The last datagram since the last answer.
    sent: Option<Timestamp>,
    patience: Duration,
}

impl Default for Silence {
    fn default() -> Self {
        Self { since: Timestamp::ZERO, sent: None, patience: Self::PATIENCE }
    }
}

impl Silence {
    /// Duration without an answer until the first other way; each further one takes twice as long. A
    /// flow that has sent nothing for it begins again: the last datagram before a pause has often no
    /// answer.
    pub const PATIENCE: Duration = Duration::from_secs(10);
    /// Longest duration until another way.
    pub const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

    /// Called before a datagram is sent. Returns true if it should take another way.
    pub fn is_over(&mut self, now: Timestamp) -> bool {
        if self.sent.replace(now).is_none_or(|sent| now >= sent + Self::PATIENCE) {
            self.since = now;
        }
        let is_over = now >= self.since + self.patience;
        if is_over {
            self.since = now;
            self.patience = self.patience.saturating_mul(2).min(Self::LONGEST_PATIENCE);
        }
        is_over
    }

    /// The peer has answered.
    pub fn end(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_ways_are_taken_ever_more_rarely_until_an_answer() {
        let (mut silence, at) =
            (Silence::default(), |seconds| Timestamp::from_millis(seconds * 1000));
        let mut ways = |seconds: core::ops::RangeInclusive<u64>| -> Vec<u64> {
            seconds.filter(|second| silence.is_over(at(*second))).collect()
        };
        assert_eq!(ways(100..=185), [110, 130, 170]);
        // A pause of the sender's is no silence.
        assert_eq!(ways(300..=379), []);
        assert_eq!(ways(380..=380), [380]);
        silence.end();
        let mut ways = |seconds: core::ops::RangeInclusive<u64>| -> Vec<u64> {
            seconds.filter(|second| silence.is_over(at(*second))).collect()
        };
        assert_eq!(ways(400..=429), [410]);
        assert_eq!(ways(430..=2_300), [430, 470, 550, 710, 1_030, 1_630, 2_230]);
        // One datagram in ten seconds may be the last of an exchange each time.
        let sparse = (300..400).filter(|number| silence.is_over(at(number * 10))).count();
        assert_eq!(sparse, 0);
    }
}
