//! Credit of a client: how much work its messages may cause, in units of about a nanosecond
//! (`admission::work`).
//!
//! Each message is charged for its work. A new epoch has a price of its own, and an eACK that can't
//! be decoded has one that is far above its work. A charge may leave a debt: the client's messages
//! are then ignored until it is paid. Credit is the session's alone, so that no client pays for a
//! neighbour's mistakes.

use core::time::Duration;

use packrat_assist_token::token_bucket::{Level, Rate, TokenBucket};
use packrat_wire::estimate::Timestamp;

use crate::admission::MESSAGE_WORK;

/// Prices and rate of one kind of client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EackTariff {
    rate: Rate,
    /// Credit of a new client.
    start: f64,
    /// Price of a new epoch.
    epoch: f64,
    /// Price of an eACK that can't be decoded, at least.
    failure: f64,
}

/// Work of a session's messages per second: 20,000 eACKs without missing datagrams. Its client
/// sends one per millisecond, or one for every 256 datagrams if these are more.
const SESSION_WORK_PER_SECOND: f64 = 50_000_000.0;
/// Work of a session's messages in a burst: 4,000 eACKs without missing datagrams.
const SESSION_WORK_BURST: f64 = 10_000_000.0;
/// Price of a new epoch, beside the work of filling its sketch.
const EPOCH_WORK: f64 = 125_000.0;
/// Price of an eACK that can't be decoded.
const FAILED_EACK_WORK: f64 = 1_000_000.0;
/// Price of an identifier that was never forwarded: an honest client has none.
const FOREIGN_WORK: f64 = 20_000.0;

/// Tariff of a session.
const SESSION_TARIFF: EackTariff = EackTariff {
    rate: Rate { per_second: SESSION_WORK_PER_SECOND, burst: SESSION_WORK_BURST },
    start: 2_500_000.0,
    epoch: EPOCH_WORK,
    failure: FAILED_EACK_WORK,
};

/// Work of a subscriber's messages per second. It sends eACKs when packets are missing, and each
/// decode is costly.
const SUBSCRIBER_WORK_PER_SECOND: f64 = 30_000_000.0;

/// Tariff of a subscriber of a stream.
pub(crate) const SUBSCRIBER_TARIFF: EackTariff = EackTariff {
    rate: Rate { per_second: SUBSCRIBER_WORK_PER_SECOND, burst: 6_000_000.0 },
    start: 6_000_000.0,
    epoch: 600_000.0,
    failure: 600_000.0,
};

impl EackTariff {
    /// The credit of a new client.
    pub(crate) fn open<L: Level>(&self) -> TokenBucket<L> {
        TokenBucket::new(self.start)
    }

    /// Adds the earnings of `elapsed`. False if the credit does not cover a message, which is then
    /// ignored.
    pub(crate) fn admits<L: Level>(&self, credit: &mut TokenBucket<L>, elapsed: Duration) -> bool {
        credit.earn(self.rate.earned(elapsed), self.rate.burst);
        credit.covers(MESSAGE_WORK as f64)
    }

    /// Share of the credit that is used, from 0 to 1.
    pub(crate) fn strain<L: Level>(&self, credit: &TokenBucket<L>) -> f64 {
        (1.0 - credit.tokens() / self.rate.burst).clamp(0.0, 1.0)
    }

    /// Takes the price of a new epoch.
    pub(crate) fn charge_epoch<L: Level>(&self, credit: &mut TokenBucket<L>) {
        credit.charge(self.epoch);
    }

    /// Takes the price of an eACK that could not be decoded after this work.
    pub(crate) fn charge_failure<L: Level>(&self, credit: &mut TokenBucket<L>, work: u64) {
        credit.charge(self.failure.max(work as f64));
    }

    /// Takes the price of `count` identifiers that were never forwarded. False, without a charge,
    /// if the credit does not cover it: the eACK counts as one that can't be decoded.
    pub(crate) fn take_foreign<L: Level>(&self, credit: &mut TokenBucket<L>, count: usize) -> bool {
        count == 0 || credit.try_take(count as f64 * FOREIGN_WORK)
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
        Self { tokens: SESSION_TARIFF.open(), filled: now }
    }

    /// See [`EackTariff::admits`].
    pub(crate) fn admits(&mut self, now: Timestamp) -> bool {
        let elapsed = now.saturating_since(self.filled);
        self.filled = self.filled.max(now);
        SESSION_TARIFF.admits(&mut self.tokens, elapsed)
    }

    /// See [`EackTariff::strain`].
    pub(crate) fn strain(&self) -> f64 {
        SESSION_TARIFF.strain(&self.tokens)
    }

    /// Takes the price of work that was done.
    pub(crate) fn charge(&mut self, work: u64) {
        self.tokens.charge(work as f64);
    }

    /// True if the credit covers a new epoch.
    pub(crate) fn covers_epoch(&self) -> bool {
        self.tokens.covers(SESSION_TARIFF.epoch)
    }

    pub(crate) fn charge_epoch(&mut self) {
        SESSION_TARIFF.charge_epoch(&mut self.tokens);
    }

    /// True if the credit covers this much more work.
    pub(crate) fn covers(&self, work: u64) -> bool {
        self.tokens.covers(work as f64)
    }

    /// See [`EackTariff::charge_failure`].
    pub(crate) fn charge_failure(&mut self, work: u64) {
        SESSION_TARIFF.charge_failure(&mut self.tokens, work);
    }

    /// See [`EackTariff::take_foreign`].
    pub(crate) fn take_foreign(&mut self, count: usize) -> bool {
        SESSION_TARIFF.take_foreign(&mut self.tokens, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_sends_too_many_is_not_listened_to_for_a_while() {
        let mut credit = EackCredit::new(Timestamp::ZERO);
        let admitted = |credit: &mut EackCredit, millis| {
            let mut admit = || {
                let admitted = credit.admits(Timestamp::from_millis(millis));
                credit.charge(if admitted { MESSAGE_WORK } else { 0 });
                admitted
            };
            (0..10_000).filter(|_| admit()).count()
        };
        assert_eq!(admitted(&mut credit, 0), 1000);
        assert_eq!(admitted(&mut credit, 10), 200);
        assert_eq!(admitted(&mut credit, 60_000), 4000);
        credit.charge_failure(500_000_000);
        assert_eq!(admitted(&mut credit, 69_000), 0);
        assert!(!credit.covers_epoch());
        assert_eq!(admitted(&mut credit, 71_000), 4000);
    }

    #[test]
    fn a_failure_costs_its_price_or_its_work_whichever_is_more() {
        let mut credit = EackCredit::new(Timestamp::ZERO);
        credit.charge_failure(10);
        assert!(credit.covers(1_500_000) && !credit.covers(1_500_001));
        credit.charge_failure(1_400_000);
        assert!(credit.covers(100_000) && !credit.covers(100_001));
        assert!(credit.take_foreign(5) && !credit.take_foreign(1) && credit.take_foreign(0));
    }

    #[test]
    fn a_subscriber_recovers_from_failures_that_are_few() {
        let mut credit = SUBSCRIBER_TARIFF.open::<f32>();
        for _ in 0..100 {
            assert!(SUBSCRIBER_TARIFF.admits(&mut credit, Duration::from_millis(25)));
            SUBSCRIBER_TARIFF.charge_failure(&mut credit, 1);
        }
        SUBSCRIBER_TARIFF.charge_epoch(&mut credit);
        SUBSCRIBER_TARIFF.charge_failure(&mut credit, 300_000_000);
        assert!(!SUBSCRIBER_TARIFF.admits(&mut credit, Duration::from_secs(9)));
        assert!(SUBSCRIBER_TARIFF.admits(&mut credit, Duration::from_secs(2)));
    }
}
