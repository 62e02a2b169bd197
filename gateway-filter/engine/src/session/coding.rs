//! Coded repairs of a session (docs/PROTOCOL.md, "Coded repair"): symbols sent ahead of any
//! question, so that the client recovers a datagram as soon as enough of them have come.
//!
//! ```text
//!                        rate x datagrams forwarded >= 1/2
//!   Idle (rate 0) ---> Counting -------------------------> Due: symbols of the newest places
//!     ^    loss seen      ^ |      a pause, and something
//!     +-------------------+ +----- forwarded is in no symbol ---> Due (the coded tail)
//!       none for a while  |                                        |
//!                         +----------------------------------------+
//! ```
//!
//! The rate follows the loss of the medium alone: what a queue loses is for the sender to see. The
//! gateway does not see what symbols have repaired, so that its client says how many there were.

use core::time::Duration;

use packrat_code::rate::{self, Schedule, symbols_per_datagram};
use packrat_code::{Encoder, Half, Window};
use packrat_wire::estimate::{MediumLoss, PathEstimate, Timestamp};

use super::numbering::Numbering;
use crate::history::History;

/// Datagrams that a symbol covers.
const WINDOW: u8 = 128;
/// The flow pauses when nothing was forwarded for so many times its mean interval...
const PAUSE_INTERVALS: u32 = 8;
/// ...within these bounds.
const PAUSE: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(2)..=Duration::from_millis(20);
/// Time over which the pace is measured, at least.
const PACE_OVER: Duration = Duration::from_millis(20);
/// A flow of which nothing was forwarded for so long has no pace.
const LONGEST_INTERVAL: Duration = Duration::from_millis(50);
/// A plain repair waits for the symbols of so many intervals between symbols.
const SYMBOLS_WAITED_FOR: f64 = 3.0;

/// The symbols of one session.
#[derive(Debug)]
pub(crate) struct Coding {
    encoder: Encoder,
    schedule: Schedule,
    /// Symbols per datagram, each for whole datagrams.
    rate: f64,
    seed: u16,
    medium: MediumLoss,
    /// Recovered datagrams that the client has told of.
    recovered: u32,
    /// Those that eACKs have shown to be missing before: they are counted.
    counted: u32,
    /// Datagrams forwarded since the last symbol.
    uncovered: u32,
    last_forward: Timestamp,
    pace: Pace,
}

/// Mean interval of a flow's datagrams.
#[derive(Debug)]
struct Pace {
    /// Since then so many were forwarded.
    since: Timestamp,
    forwarded: u32,
    interval: Duration,
}

/// A symbol and the datagrams that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) window: Window,
    pub(crate) half: Half,
    pub(crate) seed: u16,
}

impl Coding {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            encoder: Encoder::new(),
            schedule: Schedule::default(),
            rate: 0.0,
            seed: 0,
            medium: MediumLoss::default(),
            recovered: 0,
            counted: 0,
            uncovered: 0,
            last_forward: now,
            pace: Pace { since: now, forwarded: 0, interval: LONGEST_INTERVAL },
        }
    }

    /// A numbered datagram was forwarded.
    #[inline]
    pub(crate) fn on_forward(&mut self, now: Timestamp) {
        self.last_forward = now;
        self.pace.forwarded += 1;
        if self.rate > 0.0 {
            self.uncovered += 1;
            self.schedule.on_datagram(self.rate);
        }
    }

    /// An eACK has shown the fate of `sent` datagrams that met no queue: `lost` were missing, in
    /// `bursts` runs of neighbours.
    pub(crate) fn on_fate(&mut self, sent: u64, lost: u64, bursts: u64) {
        self.medium.on_fate(sent, lost, bursts);
    }

    /// The client has recovered so many datagrams in this session, all in all. `queued`: a queue
    /// stands, in which they may have been lost.
    pub(crate) fn on_recovered(&mut self, total: u32, queued: bool) {
        let more = total.wrapping_sub(self.recovered);
        // An older message that was overtaken, or nonsense.
        if more > u32::MAX / 2 {
            return;
        }
        self.recovered = total;
        let known = more.min(self.counted);
        self.counted -= known;
        // Among those that arrived they are counted in any case.
        if !queued {
            self.medium.on_fate(0, u64::from(more - known), u64::from(more - known));
        }
    }

    /// So many datagrams that were missing have arrived, and no repair of them was sent.
    pub(crate) fn on_arrived_unrepaired(&mut self, datagrams: u32) {
        self.counted = self.counted.saturating_add(datagrams);
    }

    /// Follows what is known of the path. `maximum`: symbols per datagram, at most.
    pub(crate) fn follow(&mut self, path: &PathEstimate, maximum: f64, now: Timestamp) {
        self.pace.follow(now);
        let Some(round_trip) = path.round_trip() else { return };
        self.rate = symbols_per_datagram(&rate::LastMile {
            loss: self.medium.loss(),
            burst: self.medium.burst(),
            round_trip,
            interval: self.pace.interval,
            live_window: None,
            window: WINDOW,
            maximum,
        });
        if self.rate <= 0.0 {
            self.schedule.clear();
            self.uncovered = 0;
        }
    }

    /// True if symbols are being sent.
    pub(crate) fn is_active(&self) -> bool {
        self.rate > 0.0
    }

    /// Time for which a plain repair waits beyond the round trip after which it would be sent: a
    /// symbol may have made it needless.
    pub(crate) fn guard(&self, path: &PathEstimate) -> Duration {
        if self.rate <= 0.0 {
            return Duration::ZERO;
        }
        let interval = self.pace.interval.as_secs_f64() / self.rate;
        Duration::from_secs_f64((SYMBOLS_WAITED_FOR * interval).min(1.0))
            .min(path.round_trip().unwrap_or_default())
    }

    /// When the next symbol is due.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        if self.schedule.is_due() {
            return Some(self.last_forward);
        }
        (self.uncovered > 0).then(|| self.last_forward + self.pause())
    }

    fn pause(&self) -> Duration {
        (self.pace.interval * PAUSE_INTERVALS).clamp(*PAUSE.start(), *PAUSE.end())
    }

    /// Time has passed: a flow that pauses has its tail coded.
    pub(crate) fn on_timeout(&mut self, now: Timestamp) {
        if self.uncovered > 0 && now >= self.last_forward + self.pause() {
            self.schedule.at_once(1);
            self.uncovered = 0;
        }
    }

    /// Makes the next symbol that is due, into `symbol`. `None`: none is due, or there is nothing to
    /// make it of.
    pub(crate) fn next_symbol(
        &mut self,
        history: &History,
        numbering: &Numbering,
        symbol: &mut Vec<u8>,
    ) -> Option<Made> {
        while let Some(half) = self.schedule.next_due() {
            let made = self.make(half, history, numbering, symbol);
            if made.is_some() {
                return made;
            }
        }
        None
    }

    fn make(
        &mut self,
        half: Half,
        history: &History,
        numbering: &Numbering,
        symbol: &mut Vec<u8>,
    ) -> Option<Made> {
        let newest = numbering.newest()?;
        let bytes = |place| history.bytes(numbering.sequence(place)?);
        // What the client is known to have is not cached any more, and needs no symbol.
        let oldest = newest.saturating_sub(u64::from(WINDOW) - 1);
        let count = (oldest..=newest).rev().take_while(|place| bytes(*place).is_some()).count();
        let window = Window::newest(newest, count as u8)?;
        // Never the one whose coefficients are all 1.
        self.seed = self.seed.checked_add(1).unwrap_or(1);
        symbol.clear();
        self.encoder.encode(window, half, self.seed, bytes, symbol).ok()?;
        self.uncovered = 0;
        Some(Made { window, half, seed: self.seed })
    }

    /// What is owed is not sent: there is no budget for it, or it is for datagrams that went to
    /// another path.
    pub(crate) fn forget_due(&mut self) {
        self.schedule.clear();
        self.uncovered = 0;
    }
}

impl Pace {
    fn follow(&mut self, now: Timestamp) {
        let elapsed = now.saturating_since(self.since);
        if elapsed < PACE_OVER || self.forwarded == 0 {
            return;
        }
        let interval = (elapsed / self.forwarded).min(LONGEST_INTERVAL);
        self.interval = (self.interval + interval) / 2;
        self.since = now;
        self.forwarded = 0;
    }
}
