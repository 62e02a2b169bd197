//! Symbols to the group (docs/PROTOCOL.md, "Symbols for a group"): one symbol repairs another loss
//! at each subscriber, but a repair of one packet serves only the few that miss it.
//!
//! ```text
//!                     at each packet: the rate               every so often: who lacks most?
//!   loss of most  ----------------------------> symbols <------------------------------- eACKs
//!   subscribers         (ahead of losses)         |          (losses beyond the rate)
//!                                                 v
//!             a plain repair waits for them as long as the subscriber's window allows
//! ```
//!
//! The rate follows a high quantile of the subscribers' losses, so that it suits most of them and
//! few of them cannot drive it. It covers the mean of the losses, with a margin. The tail of the
//! distribution is longer the more subscribers there are, and is served by symbols on demand: when
//! a subscriber has waited for a part of its window and lacks several, they are sent, and all
//! others profit.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_code::{Encoder, Half, Repair, Window};
use packrat_wire::estimate::Timestamp;
use packrat_wire::group::{self, GroupCoded, MAXIMUM_NAMES};
use packrat_wire::message::Message;
use packrat_wire::seal::Sealer;
use zeroize::Zeroizing;

use crate::history::History;

/// Packets that a symbol covers.
const WINDOW_PACKETS: u64 = 255;
/// Ratio of symbols per packet to lost packets per arrived one: beyond 1 the margin for lost
/// symbols and for bursts of losses.
const SYMBOL_MARGIN: f64 = 1.9;
/// Share of subscribers whose loss the rate covers.
const COVERED_QUANTILE: f64 = 0.9;
/// Loss below which no symbols are sent.
const LEAST_LOSS: f64 = packrat_code::rate::LEAST_LOSS;
/// Most symbols per packet.
const MAXIMUM_SYMBOL_RATE: f64 = 0.5;
/// Fewest symbols that come in the time for which a plain repair waits.
const SYMBOLS_WAITED_FOR: f64 = 4.0;
/// Repairs that a symbol must save: it is longer than a packet, by its header and the names.
const SAVED_REPAIRS: f64 = 1.5;
/// Number of symbols that name the same packet.
const NAMING_SYMBOLS: f64 = 4.0;
/// Most symbols that are due at once.
const MOST_DUE_SYMBOLS: f64 = 8.0;
/// Symbols that a subscriber lacks before some are sent on demand: one or two come with the rate.
const LACKED_SYMBOLS: f64 = 2.0;
/// Divisor of a plain repair's wait: symbols are sent on demand after this part of it.
const PATIENCE_DIVISOR: u32 = 8;
/// Longest wait of a plain repair, however long the subscriber's window is.
const LONGEST_WAIT: Duration = Duration::from_millis(400);
/// Time that a plain repair takes beside the round trips.
const REPAIR_RESERVE: Duration = Duration::from_millis(20);
/// Fewest packets over which the loss is measured.
const MEASURED_PACKETS: u64 = 64;
/// Fewest packets over which the loss is measured before symbols are sent.
const MEASURED_FIRST_PACKETS: u64 = 4;
/// Lost packets after which the loss is measured without delay, before symbols are sent.
const MANY_LOST_PACKETS: u64 = 32;
/// Symbols whose places are remembered.
const REMEMBERED_SYMBOLS: usize = 512;

/// Time for which a plain repair waits for symbols, so that it is in time even if it is lost once:
/// by the subscriber's window (zero: no window) and its round trip.
pub(super) fn wait(window: Duration, round_trip: Duration) -> Duration {
    let window = if window.is_zero() { LONGEST_WAIT } else { window };
    window.saturating_sub(round_trip * 3 + REPAIR_RESERVE).min(LONGEST_WAIT)
}

/// Recent loss of a subscriber that takes symbols.
#[derive(Debug, Clone, Copy)]
pub(super) struct Experience {
    pub(super) loss: f64,
    /// See [`wait`].
    pub(super) wait: Duration,
}

/// The packets whose plain repair waits for symbols.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    from: u64,
    until_age: Duration,
}

impl Waiting {
    pub(super) fn has(self, sequence: u64, age: Duration) -> bool {
        sequence >= self.from && age < self.until_age
    }
}

/// The key of a stream's symbols, and its sealer.
struct Seal {
    key: Zeroizing<[u8; 32]>,
    sealer: Sealer,
}

/// The symbols of one stream.
pub(super) struct Symbols {
    encoder: Encoder,
    seal: Option<Seal>,
    seed: u16,
    /// Symbols per packet; 0 while they are off.
    rate: f64,
    /// High quantile of the subscribers' losses, which the rate covers.
    loss: f64,
    /// Symbols that are due by the rate, with a fraction, and further ones that subscribers lack.
    due: f64,
    lacked: u32,
    /// The first packet that symbols cover.
    from: u64,
    /// The newest packet of each symbol sent, in order.
    sent: VecDeque<u64>,
    /// Bytes of the last symbol, sealed.
    length: usize,
    /// Packet and time up to which the loss is measured.
    measured: (u64, Timestamp),
    /// Packets that subscribers have missed since then.
    lost: u64,
    plaintext: Vec<u8>,
    symbol: Vec<u8>,
    names: Vec<u8>,
}

impl Symbols {
    pub(super) fn new() -> Self {
        Self {
            encoder: Encoder::new(),
            seal: None,
            seed: 0,
            rate: 0.0,
            loss: 0.0,
            due: 0.0,
            lacked: 0,
            from: 0,
            sent: VecDeque::new(),
            length: 0,
            measured: (0, Timestamp::ZERO),
            lost: 0,
            plaintext: Vec::new(),
            symbol: Vec::new(),
            names: Vec::new(),
        }
    }

    /// The key that subscribers are given, if there is a key.
    pub(super) fn key(&self) -> Option<[u8; 32]> {
        self.seal.as_ref().map(|seal| *seal.key)
    }

    /// Seals symbols with this key, which a subscriber was given, unless there is a key.
    pub(super) fn set_key(&mut self, key: [u8; 32]) {
        self.seal.get_or_insert_with(|| Seal { key: key.into(), sealer: group::sealer(key) });
    }

    /// Forgets the key when no subscriber is left: the next ones get another key.
    pub(super) fn forget_key(&mut self) {
        self.seal = None;
        self.stop();
    }

    /// True if symbols are sent.
    pub(super) fn are_sent(&self) -> bool {
        self.rate > 0.0
    }

    fn stop(&mut self) {
        self.rate = 0.0;
        self.due = 0.0;
        self.lacked = 0;
        self.sent.clear();
    }

    /// Records a forwarded packet; `next`: the number of the packet after it.
    #[inline]
    pub(super) fn on_forward(&mut self, next: u64, now: Timestamp) {
        if self.measured.1 == Timestamp::ZERO {
            self.measured = (next, now);
        }
        if self.rate > 0.0 {
            self.due = (self.due + self.rate).min(MOST_DUE_SYMBOLS);
        }
    }

    /// Number of packets since the last measurement of the loss and below `told`, up to which eACKs
    /// can show losses by now, if they are enough.
    pub(super) fn to_measure(&self, told: u64) -> Option<u64> {
        let packets = told.saturating_sub(self.measured.0);
        let enough = if self.are_sent() { MEASURED_PACKETS } else { MEASURED_FIRST_PACKETS };
        (packets >= enough).then_some(packets)
    }

    /// Records that subscribers that take symbols have missed `packets` more packets.
    pub(super) fn on_lost(&mut self, packets: usize) {
        self.lost += packets as u64;
    }

    /// True if no symbols are sent, and enough packets were lost that they may be worth it.
    pub(super) fn are_wanted(&self) -> bool {
        self.seal.is_some() && !self.are_sent() && self.lost >= MANY_LOST_PACKETS
    }

    /// Sets the rate for the losses of the subscribers that take symbols. `losers`: as many
    /// addresses have losses as repairs for the group need.
    pub(super) fn follow(
        &mut self,
        experience: &mut [Experience],
        losers: bool,
        (told, told_at): (u64, Timestamp),
        next: u64,
    ) {
        let packets = told.saturating_sub(self.measured.0).max(1);
        let interval = told_at.saturating_since(self.measured.1).as_secs_f64() / packets as f64;
        self.measured = (told, told_at);
        self.lost = 0;
        let rate = match losers && self.seal.is_some() {
            true => self.wanted_rate(experience, interval),
            false => 0.0,
        };
        if rate <= 0.0 {
            return self.stop();
        }
        if self.rate <= 0.0 {
            // Losses among these packets are not in eACKs yet.
            self.from = told.max(next.saturating_sub(MAXIMUM_NAMES as u64));
        }
        self.rate = rate;
    }

    fn wanted_rate(&mut self, experience: &mut [Experience], interval: f64) -> f64 {
        let all: f64 = experience.iter().map(|one| one.loss).sum();
        let Some(last) = experience.len().checked_sub(1) else { return 0.0 };
        let at = (last as f64 * COVERED_QUANTILE) as usize;
        let (_, most, _) = experience.select_nth_unstable_by(at, |a, b| a.loss.total_cmp(&b.loss));
        self.loss = most.loss.min(0.5);
        let (_, middle, _) = experience.select_nth_unstable_by_key(last / 2, |one| one.wait);
        let packets_waited = middle.wait.as_secs_f64() / interval.max(1e-6);
        let packets_waited = packets_waited.min(WINDOW_PACKETS as f64);
        let needed = SYMBOL_MARGIN * self.loss / (1.0 - self.loss);
        let rate =
            needed.max(SYMBOLS_WAITED_FOR / packets_waited.max(1.0)).min(MAXIMUM_SYMBOL_RATE);
        let pays = self.loss >= LEAST_LOSS
            && rate * packets_waited >= SYMBOLS_WAITED_FOR / 2.0
            && all >= SAVED_REPAIRS * rate;
        if pays { rate } else { 0.0 }
    }

    /// The packets whose plain repair to a subscriber with this [`wait`] waits.
    pub(super) fn waiting(&self, wait: Duration, history: &History) -> Waiting {
        if self.rate <= 0.0 {
            return Waiting { from: u64::MAX, until_age: Duration::ZERO };
        }
        // A plain repair must come before the packet leaves the cache, or all windows.
        let kept = history.cached_entries().min(WINDOW_PACKETS);
        let from = (history.next() - kept + kept / 8).max(self.from);
        Waiting { from, until_age: wait }
    }

    /// Number of further symbols that a subscriber lacks which waits for `missing` packets, the
    /// oldest of which has this number and this age.
    pub(super) fn lacked(&self, missing: u64, oldest: u64, age: Duration, wait: Duration) -> u32 {
        if age < wait / PATIENCE_DIVISOR || missing == 0 {
            return 0;
        }
        let arrive = 1.0 - self.loss;
        let sent = self.sent.len() - self.sent.partition_point(|newest| *newest < oldest);
        let lacked = missing as f64 - arrive * sent as f64 - LACKED_SYMBOLS;
        if lacked < 0.0 { 0 } else { (lacked / arrive).ceil().clamp(1.0, MOST_DUE_SYMBOLS) as u32 }
    }

    /// Records that a subscriber lacks this number of symbols, and has paid for them. One symbol
    /// serves all subscribers that lack some.
    pub(super) fn ask(&mut self, symbols: u32) {
        self.lacked = self.lacked.max(symbols);
    }

    /// Length of a symbol's datagrams.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Takes one symbol that is due.
    pub(super) fn take_due(&mut self) -> bool {
        if self.due >= 1.0 {
            self.due -= 1.0;
            // A symbol by the rate serves subscribers that lack some as well.
            self.lacked = self.lacked.saturating_sub(1);
            return true;
        }
        let lacked = self.lacked > 0;
        self.lacked = self.lacked.saturating_sub(1);
        lacked
    }

    /// Forgets the symbols that are due: there is no budget, or no packet to make symbols of.
    pub(super) fn forget_due(&mut self) {
        self.due = 0.0;
        self.lacked = 0;
    }

    /// Makes a symbol over the newest packets: `send` gets each of its datagrams, one or two, and
    /// returns whether there is budget for it. False if no datagram was sent.
    pub(super) fn make(&mut self, history: &History, mut send: impl FnMut(&[u8]) -> bool) -> bool {
        let Some(newest) = history.next().checked_sub(1) else { return false };
        let bytes = |sequence| {
            history.bytes(sequence).filter(|(first, second)| {
                first.len() + second.len() <= packrat_code::MAXIMUM_DATAGRAM_BYTES
            })
        };
        let named = (NAMING_SYMBOLS / self.rate.max(f64::MIN_POSITIVE)).ceil() as u64;
        // Places that too few symbols name are of no use in the others.
        let covered =
            if named > MAXIMUM_NAMES as u64 { MAXIMUM_NAMES as u64 } else { WINDOW_PACKETS };
        let oldest = newest.saturating_sub(covered - 1).max(self.from);
        let count = (oldest..=newest).rev().take_while(|place| bytes(*place).is_some()).count();
        let Some(window) = Window::newest(newest, count as u8) else { return false };
        // At first all are named: receivers know no place yet.
        let named = if newest - self.from < MAXIMUM_NAMES as u64 { WINDOW_PACKETS } else { named };
        let named = named.min(u64::from(window.count()));
        let Some(seal) = &mut self.seal else { return false };
        // Never the seed whose coefficients are all 1.
        self.seed = self.seed.checked_add(1).unwrap_or(1);
        let (mut sent, mut length) = (false, 0);
        for half in Half::BOTH {
            self.symbol.clear();
            // Short packets have no second half.
            let encoded = self.encoder.encode(window, half, self.seed, bytes, &mut self.symbol);
            if encoded.is_err() {
                continue;
            }
            let repair = Repair { window, half, seed: self.seed, symbol: &self.symbol };
            let names = (newest + 1 - named..=newest)
                .filter_map(|place| history.get(place).map(|entry| entry.identifier));
            let message = GroupCoded::new(&repair, names, &mut self.names);
            self.plaintext.clear();
            Message::GroupCoded(message).encode(&mut self.plaintext);
            let mut datagram =
                Vec::with_capacity(self.plaintext.len() + packrat_wire::seal::SEAL_OVERHEAD_BYTES);
            if seal.sealer.seal(&self.plaintext, &mut datagram).is_err() || !send(&datagram) {
                return sent;
            }
            sent = true;
            length += datagram.len();
        }
        if sent {
            self.length = length;
            self.sent.push_back(newest);
            if self.sent.len() > REMEMBERED_SYMBOLS {
                self.sent.pop_front();
            }
        }
        sent
    }
}
