//! Coded repairs of a session (docs/PROTOCOL.md, "Coded repair"): symbols sent before a loss is
//! known, so that the client recovers a datagram as soon as enough of them have come.
//!
//! ```text
//!                        rate x datagrams forwarded >= 1/2
//!   Idle (rate 0) ---> Counting -------------------------> Due: symbols of the newest places
//!     ^    loss seen      ^ |      a pause, and a datagram
//!     +-------------------+ +----- forwarded is in no symbol ---> Due (the coded tail)
//!       no loss for long  |                                        |
//!                         +----------------------------------------+
//! ```
//!
//! The rate follows the loss of the medium alone: a queue's losses are for the sender to see. The
//! gateway does not see how many losses symbols have repaired, so its client reports the number.

use core::time::Duration;

use packrat_code::rate::{self, Schedule, symbols_per_datagram};
use packrat_code::{Encoder, Half, Repair, Window};
use packrat_wire::estimate::{MediumLoss, Timestamp};
use packrat_wire::message::{Coded, Message};
use packrat_wire::seal::SEAL_OVERHEAD_BYTES;

use super::numbering::Numbering;
use super::{Session, Turn};
use crate::history::History;

/// Datagrams that a symbol covers.
const WINDOW_DATAGRAMS: u8 = 128;
/// Length of a flow's pause, in mean intervals of its datagrams, after which the tail is coded.
const PAUSE_INTERVALS: u32 = 8;
/// Bounds of the time after which a flow pauses.
const PAUSE_BOUNDS: core::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_millis(20);
/// Shortest time over which the pace is measured.
const PACE_TIME: Duration = Duration::from_millis(20);
/// Time without a forwarded datagram after which a flow has no pace.
const LONGEST_INTERVAL: Duration = Duration::from_millis(50);

/// Mean length of runs of losses below which most are single ones.
const LONE_BURST_DATAGRAMS: f64 = 1.5;

/// Work of a symbol beside its bytes: sealing, and sending.
const SYMBOL_WORK: u64 = 1000;
/// Bytes of a message with a symbol beside the symbol.
const SYMBOL_OVERHEAD: usize = SEAL_OVERHEAD_BYTES + 10;

/// The symbols of one session.
#[derive(Debug)]
pub(crate) struct Coding {
    encoder: Encoder,
    schedule: Schedule,
    /// Symbols per datagram, each for whole datagrams.
    rate: f64,
    seed: u16,
    medium: MediumLoss,
    /// Number of datagrams that met no queue; and, of the ones that later sessions do not know of,
    /// the numbers of all and of the lost ones.
    known: u64,
    unnoted: (u64, u64),
    /// Recovered datagrams that the client has reported.
    recovered: u32,
    /// Recovered datagrams that eACKs have shown missing before: they are counted.
    counted: u32,
    /// Datagrams forwarded since the last symbol.
    uncovered: u32,
    last_forward: Timestamp,
    pace: Pace,
}

/// Mean interval of a flow's datagrams.
#[derive(Debug)]
struct Pace {
    /// Start of the measurement, and the number of datagrams forwarded since then.
    since: Timestamp,
    forwarded: u32,
    interval: Duration,
}

impl Coding {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            encoder: Encoder::new(),
            schedule: Schedule::default(),
            rate: 0.0,
            seed: 0,
            medium: MediumLoss::default(),
            known: 0,
            unnoted: (0, 0),
            recovered: 0,
            counted: 0,
            uncovered: 0,
            last_forward: now,
            pace: Pace { since: now, forwarded: 0, interval: LONGEST_INTERVAL },
        }
    }

    /// Records a forwarded, numbered datagram.
    #[inline]
    pub(crate) fn on_forward(&mut self, now: Timestamp) {
        self.last_forward = now;
        self.pace.forwarded += 1;
        if self.rate > 0.0 {
            self.uncovered += 1;
            self.schedule.on_datagram(self.rate);
        }
    }

    /// Records the fates of `sent` datagrams that an eACK has shown: `lost` were missing, in
    /// `bursts` runs of neighbours.
    pub(crate) fn on_fate(&mut self, sent: u64, lost: u64, bursts: u64) {
        self.medium.on_fate(sent, lost, bursts);
        self.known += sent;
        self.unnoted.0 += sent;
        self.unnoted.1 += lost;
    }

    /// Datagrams whose fate without a queue is known.
    pub(crate) fn known(&self) -> u64 {
        self.known
    }

    /// Numbers of datagrams that later sessions do not know of: of all, and of the lost ones.
    pub(crate) fn unnoted(&self) -> (u64, u64) {
        self.unnoted
    }

    /// Records that later sessions know of these datagrams.
    pub(crate) fn forget_unnoted(&mut self) {
        self.unnoted = (0, 0);
    }

    /// Records that the client has recovered `total` datagrams in this session.
    pub(crate) fn on_recovered(&mut self, total: u32) {
        let more = total.wrapping_sub(self.recovered);
        // An older message was overtaken, or the number is invalid.
        if more > u32::MAX / 2 {
            return;
        }
        self.recovered = total;
        let known = more.min(self.counted);
        self.counted -= known;
        // Recovered datagrams are counted among the arrived ones in any case.
        let lost = u64::from(more - known);
        self.on_fate(0, lost, lost);
    }

    /// Records that `datagrams` missing datagrams have arrived, though not by a repair.
    pub(crate) fn on_arrived_unrepaired(&mut self, datagrams: u32) {
        self.counted = self.counted.saturating_add(datagrams);
    }

    /// Loss of the medium.
    pub(crate) fn loss(&self) -> f64 {
        self.medium.loss()
    }

    /// True if most runs of losses are single ones.
    pub(crate) fn losses_come_alone(&self) -> bool {
        self.medium.burst() < LONE_BURST_DATAGRAMS
    }

    /// Updates the rate for the last mile. `round_trip`: without a queue, as symbols would lengthen
    /// a queue that delays repairs; `maximum`: symbols per datagram, at most.
    pub(crate) fn follow(&mut self, round_trip: Option<Duration>, maximum: f64, now: Timestamp) {
        let Some(round_trip) = round_trip else { return };
        self.pace.follow(round_trip, now);
        self.rate = symbols_per_datagram(&rate::LastMile {
            loss: self.loss(),
            burst: self.medium.burst(),
            round_trip,
            interval: self.pace.interval,
            live_window: None,
            window: WINDOW_DATAGRAMS,
            maximum,
        });
        if self.rate <= 0.0 {
            self.forget_due();
        }
    }

    /// When the next symbol is due.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        if self.schedule.is_due() {
            return Some(self.last_forward);
        }
        (self.uncovered > 0).then(|| self.last_forward + self.pause())
    }

    fn pause(&self) -> Duration {
        (self.pace.interval * PAUSE_INTERVALS).clamp(*PAUSE_BOUNDS.start(), *PAUSE_BOUNDS.end())
    }

    /// Codes the tail of a flow that pauses.
    pub(crate) fn on_timeout(&mut self, now: Timestamp) {
        if self.uncovered > 0 && now >= self.last_forward + self.pause() {
            self.schedule.at_once(1);
            self.uncovered = 0;
        }
    }

    /// Makes the next symbol that is due, in this memory. `None`: no symbol is due, or there are no
    /// datagrams for it.
    pub(crate) fn next_symbol<'a>(
        &mut self,
        history: &History,
        numbering: &Numbering,
        symbol: &'a mut Vec<u8>,
    ) -> Option<Repair<'a>> {
        while let Some(half) = self.schedule.next_due() {
            if let Some(window) = self.make(half, history, numbering, symbol) {
                return Some(Repair { window, half, seed: self.seed, symbol });
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
    ) -> Option<Window> {
        let newest = numbering.newest()?;
        let bytes = |place| history.bytes(numbering.sequence(place)?);
        // Datagrams that the client is known to have are not cached any more, and need no symbol.
        let oldest = newest.saturating_sub(u64::from(WINDOW_DATAGRAMS) - 1);
        let count = (oldest..=newest).rev().take_while(|place| bytes(*place).is_some()).count();
        let window = Window::newest(newest, count as u8)?;
        // Never the seed whose coefficients are all 1.
        self.seed = self.seed.checked_add(1).unwrap_or(1);
        symbol.clear();
        self.encoder.encode(window, half, self.seed, bytes, symbol).ok()?;
        self.uncovered = 0;
        Some(window)
    }

    /// Forgets the symbols that are due: coding has ended, there is no budget for them, or they are
    /// for datagrams that went along another path.
    pub(crate) fn forget_due(&mut self) {
        self.schedule.clear();
        self.uncovered = 0;
    }
}

impl Session {
    /// Sends the symbols that are due, if the budgets allow.
    pub(super) fn send_symbols(&mut self, turn: &mut Turn<'_>) {
        let Some(mut coding) = self.coding.take() else { return };
        coding.on_timeout(turn.now);
        let admitted = self.eack_credit.admits(turn.now)
            && self.permit.admits_work(self.eack_credit.strain(), turn.now);
        if !admitted || self.breaker.is_open(turn.now) {
            coding.forget_due();
        }
        let mut symbol = core::mem::take(&mut turn.scratch().symbol);
        while let Some(numbering) = self.numbering.as_deref()
            && let Some(repair) = coding.next_symbol(&self.history, numbering, &mut symbol)
        {
            let message = Message::Coded(Coded::new(&repair));
            let length = repair.symbol.len() + SYMBOL_OVERHEAD;
            // The losses that the client reports make the gateway work.
            let work = SYMBOL_WORK + (u64::from(repair.window.count()) * length as u64) / 32;
            self.eack_credit.charge(work);
            self.permit.charge_work(work, turn.now);
            // If losses come in runs, symbols leave as much to first repairs as copies do: a run
            // that is longer than the symbols of its window uses all of them, and no datagram is
            // recovered.
            let affords = (coding.losses_come_alone() || self.repairs.is_ample())
                && self.repairs.afford(length, &self.permit, self.live.is_some());
            if !affords {
                turn.counters.budget_refusals += 1;
                coding.forget_due();
                break;
            }
            self.channel.send(&message, turn);
            if let Some(backlog) = &mut self.backlog {
                backlog.on_extra(self.history.next(), length);
            }
            turn.counters.symbols += 1;
            turn.counters.symbol_bytes += length as u64;
        }
        turn.scratch().symbol = symbol;
        self.coding = Some(coding);
    }

    /// Updates the rate of symbols.
    pub(super) fn follow_coding(&mut self, now: Timestamp) {
        let tolerated = self.is_tolerated();
        if let Some(coding) = &mut self.coding {
            let budget = self.permit.gateway().config().repair_budget;
            let maximum = if tolerated { 0.0 } else { budget };
            let last_mile = &self.last_mile;
            coding.follow(last_mile.base().or(last_mile.path.round_trip()), maximum, now);
        }
    }
}

impl Pace {
    fn follow(&mut self, round_trip: Duration, now: Timestamp) {
        let elapsed = now.saturating_since(self.since);
        if elapsed < round_trip.max(PACE_TIME) || self.forwarded == 0 {
            return;
        }
        let interval = (elapsed / self.forwarded).min(LONGEST_INTERVAL);
        // A flow that begins, or goes on, is soon as fast as it was last.
        self.interval =
            if interval < self.interval { interval } else { (self.interval * 3 + interval) / 4 };
        self.since = now;
        self.forwarded = 0;
    }
}
