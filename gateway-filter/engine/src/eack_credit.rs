//! Credit for eACKs: how much work one client may cause.
//!
//! An eACK costs one token, a new epoch and an eACK that can't be decoded many. A charge may leave
//! a debt: the client is then not listened to until it is paid.

use core::time::Duration;

use packrat_assist_token::token_bucket::{Level, Rate, TokenBucket};
use packrat_wire::estimate::Timestamp;

/// Prices and rate of one kind of client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EackTariff {
    rate: Rate,
    /// Tokens of a new client.
    start: f64,
    /// Price of a new epoch.
    epoch: f64,
    /// Price of an eACK that can't be decoded.
    failure: f64,
}

/// eACKs of a session per second and in a burst. Its client sends one per millisecond, or one for
/// every 256 datagrams where these are more.
const EACKS_PER_SECOND: f64 = 20_000.0;
const EACK_BURST: f64 = 4_000.0;
/// A new epoch costs a session as much as this many eACKs, and an eACK that can't be decoded.
const EPOCH_COST: f64 = 50.0;
const FAILED_EACK_COST: f64 = 400.0;

/// Tariff of a session.
const SESSION: EackTariff = EackTariff {
    rate: Rate { per_second: EACKS_PER_SECOND, burst: EACK_BURST },
    start: 1_000.0,
    epoch: EPOCH_COST,
    failure: FAILED_EACK_COST,
};

/// Tariff of a subscriber of a stream. Its client speaks when something is missing.
pub(crate) const SUBSCRIBER: EackTariff = EackTariff {
    rate: Rate { per_second: 2_000.0, burst: 400.0 },
    start: 400.0,
    epoch: 40.0,
    failure: 40.0,
};

impl EackTariff {
    /// The credit of a new client.
    pub(crate) fn open<L: Level>(&self) -> TokenBucket<L> {
        TokenBucket::new(self.start)
    }

    /// Adds what was earned in `elapsed` and takes the price of an eACK. False if the credit does
    /// not cover it: the eACK is not looked at.
    pub(crate) fn admits<L: Level>(&self, credit: &mut TokenBucket<L>, elapsed: Duration) -> bool {
        credit.earn(self.rate.earned(elapsed), self.rate.burst);
        credit.try_take(1.0)
    }

    /// Takes the price of a new epoch.
    pub(crate) fn charge_epoch<L: Level>(&self, credit: &mut TokenBucket<L>) {
        credit.charge(self.epoch);
    }

    /// Takes the price of an eACK that could not be decoded, `factor` times.
    pub(crate) fn charge_failure<L: Level>(&self, credit: &mut TokenBucket<L>, factor: u16) {
        credit.charge(self.failure * f64::from(factor));
    }
}

/// Credit of a session.
#[derive(Debug)]
pub(crate) struct EackCredit {
    tokens: TokenBucket,
    filled: Timestamp,
}

impl EackCredit {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { tokens: SESSION.open(), filled: now }
    }

    /// See [`EackTariff::admits`].
    pub(crate) fn admits(&mut self, now: Timestamp) -> bool {
        let elapsed = now.saturating_since(self.filled);
        self.filled = now;
        SESSION.admits(&mut self.tokens, elapsed)
    }

    /// True if the credit covers a new epoch.
    pub(crate) fn covers_epoch(&self) -> bool {
        self.tokens.covers(SESSION.epoch)
    }

    pub(crate) fn charge_epoch(&mut self) {
        SESSION.charge_epoch(&mut self.tokens);
    }

    /// See [`EackTariff::charge_failure`].
    pub(crate) fn charge_failure(&mut self, factor: u16) {
        SESSION.charge_failure(&mut self.tokens, factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_sends_too_many_is_not_listened_to_for_a_while() {
        let mut credit = EackCredit::new(Timestamp::ZERO);
        let admitted = |credit: &mut EackCredit, millis| {
            (0..10_000).filter(|_| credit.admits(Timestamp::from_millis(millis))).count()
        };
        assert_eq!(admitted(&mut credit, 0), 1000);
        assert_eq!(admitted(&mut credit, 10), 200);
        assert_eq!(admitted(&mut credit, 60_000), 4000);
        credit.charge_failure(500);
        assert_eq!(admitted(&mut credit, 70_000), 0);
        assert!(!credit.covers_epoch());
        assert_eq!(admitted(&mut credit, 71_000), 4000);
    }

    #[test]
    fn a_subscriber_recovers_from_failures_that_are_few() {
        let mut credit = SUBSCRIBER.open::<f32>();
        for _ in 0..100 {
            assert!(SUBSCRIBER.admits(&mut credit, Duration::from_millis(25)));
            SUBSCRIBER.charge_failure(&mut credit, 1);
        }
        SUBSCRIBER.charge_epoch(&mut credit);
        SUBSCRIBER.charge_failure(&mut credit, 500);
        assert!(!SUBSCRIBER.admits(&mut credit, Duration::from_secs(9)));
        assert!(SUBSCRIBER.admits(&mut credit, Duration::from_secs(1)));
    }
}
