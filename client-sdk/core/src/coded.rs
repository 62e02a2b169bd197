//! Symbols of the gateway's code (docs/PROTOCOL.md, "Coded repair"), between the sealed channel that
//! brings them and the shim that knows the datagrams' places.
//!
//! ```text
//!             a symbol comes                    none for 250 ms
//!   Silent ------------------> Active: holes wait ------------------> Silent
//!                              for a few symbols, also while a queue stands
//! ```

use core::time::Duration;
use std::collections::VecDeque;

use packrat_code::Repair;
use packrat_wire::estimate::Timestamp;
use packrat_wire::message;

/// Most symbols that wait for the shim.
const WAITING_SYMBOLS: usize = 64;
/// Time without a symbol after which no recovery is expected of the code.
const ACTIVE_FOR: Duration = Duration::from_millis(250);
/// Symbols that a hole waits for while a queue stands, each counting a half. By then, most losses
/// of the medium are recovered, and losses of the queue must be shown soon.
const SYMBOLS_WAITED_FOR: u32 = 12;
/// Bounds of the wait for symbols while a queue stands.
const WAIT_BOUNDS: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(4)..=Duration::from_millis(40);
/// Shortest interval between reports of recovered datagrams to the gateway.
const TELL_INTERVAL: Duration = Duration::from_millis(20);

/// A message with a symbol, kept: only the shim knows the upper half of its first place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// All but the symbol, which is empty here.
    header: message::Coded<'static>,
    bytes: Vec<u8>,
}

impl From<&message::Coded<'_>> for Symbol {
    fn from(coded: &message::Coded<'_>) -> Self {
        let message::Coded { half, first, count, step, seed, symbol } = *coded;
        let header = message::Coded { half, first, count, step, seed, symbol: &[] };
        Self { header, bytes: symbol.to_vec() }
    }
}

impl Symbol {
    /// See [`message::Coded::repair`].
    pub(crate) fn repair(&self, expected: u64) -> Option<Repair<'_>> {
        message::Coded { symbol: &self.bytes, ..self.header }.repair(expected)
    }
}

/// The code of one session.
#[derive(Debug, Default)]
pub(crate) struct Coded {
    waiting: VecDeque<Symbol>,
    last: Option<Timestamp>,
    /// Smoothed interval between symbols.
    interval: Duration,
    recovered: u32,
    told: u32,
    told_at: Timestamp,
}

impl Coded {
    /// A symbol has come.
    pub(crate) fn on_symbol(&mut self, symbol: Symbol, now: Timestamp) {
        if let Some(last) = self.last.replace(now) {
            let sample = now.saturating_since(last).min(*WAIT_BOUNDS.end());
            self.interval = (self.interval * 7 + sample) / 8;
        }
        self.waiting.push_back(symbol);
        if self.waiting.len() > WAITING_SYMBOLS {
            self.waiting.pop_front();
        }
    }

    /// The next symbol for the shim.
    pub(crate) fn take(&mut self) -> Option<Symbol> {
        self.waiting.pop_front()
    }

    /// True if symbols come.
    pub(crate) fn is_active(&self, now: Timestamp) -> bool {
        self.last.is_some_and(|last| now.saturating_since(last) < ACTIVE_FOR)
    }

    /// The time for which a hole waits while a queue stands.
    pub(crate) fn wait(&self) -> Duration {
        (self.interval * SYMBOLS_WAITED_FOR).clamp(*WAIT_BOUNDS.start(), *WAIT_BOUNDS.end())
    }

    /// A datagram was recovered.
    pub(crate) fn on_recovered(&mut self) {
        self.recovered = self.recovered.wrapping_add(1);
    }

    /// The number of recovered datagrams, if a report to the gateway is due.
    pub(crate) fn untold(&mut self, now: Timestamp) -> Option<u32> {
        if self.told == self.recovered || now < self.told_at + TELL_INTERVAL {
            return None;
        }
        self.told = self.recovered;
        self.told_at = now;
        Some(self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_code::Half;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn symbol(first: u32) -> Symbol {
        let (half, symbol) = (Half::First, &[1][..]);
        Symbol::from(&message::Coded { half, first, count: 8, step: 1, seed: 1, symbol })
    }

    #[test]
    fn a_hole_waits_for_few_symbols_and_not_for_a_silent_code() {
        let mut coded = Coded::default();
        assert!(!coded.is_active(at(0)));
        for number in 0..100 {
            coded.on_symbol(symbol(number), at(u64::from(number) * 3));
        }
        assert_eq!(coded.take(), Some(symbol(36)), "the newest ones wait");
        assert!(coded.is_active(at(546)) && !coded.is_active(at(547)));
        let wait = coded.wait();
        assert!(
            (Duration::from_millis(32)..=Duration::from_millis(36)).contains(&wait),
            "{wait:?}"
        );
    }

    #[test]
    fn each_recovered_datagram_is_reported_but_not_too_often() {
        let mut coded = Coded::default();
        assert_eq!(coded.untold(at(50)), None);
        coded.on_recovered();
        assert_eq!(coded.untold(at(50)), Some(1));
        coded.on_recovered();
        assert_eq!(
            (coded.untold(at(60)), coded.untold(at(70)), coded.untold(at(99))),
            (None, Some(2), None)
        );
    }
}
