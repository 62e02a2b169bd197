//! The receiver of a numbered stream: its missing packets, the requests for them, and the time at
//! which each unit is played.
//!
//! ```text
//!                   a later packet came, or it is overdue
//!   expected ------------------------------------------------> missing --+ asked for: at most once per round trip,
//!      |                                                        |  |  ^  | not while the gateway may still repair it,
//!      | arrives (its own packet, or the one that repeats it)   |  |  +--+ not when the answer would come too late
//!      v                                                        |  |
//!   available <-------------------------------------------------+  | its window is over
//!      |                                                           v
//!      +---> released in order, when its latency is over        dropped: the release goes on behind it
//! ```
//!
//! Packet `n` carries unit `n` and, with repetition, unit `n - 1` again (the forward
//! error correction of Packrat26, section 6.2). Playing on time is SRT's timestamp-based delivery
//! (draft-sharabayko-srt section 4.5): each unit is released a fixed latency after it was sent, by
//! a clock that is taken from the quickest packets.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use packrat_wire::estimate::{PathEstimate, Timestamp};

use crate::statistics::{Counts, Recovery, Statistics};

/// Round trip to the sender that is assumed before one was measured.
const ASSUMED_ROUND_TRIP: Duration = Duration::from_millis(200);
/// A packet may be this much later than the stream's rhythm, or four times the measured jitter,
/// before it is overdue.
const MINIMUM_MARGIN: Duration = Duration::from_millis(2);
/// Overdue packets in a row that are announced: after these the stream has probably stopped.
const OVERDUE_PACKETS: u64 = 4;
/// Largest number of units to keep, whatever their times.
const MAXIMUM_UNITS: u64 = 8192;
/// Largest jump of a number within a stream: a further one is another stream's, or a restart.
const LARGEST_JUMP_NUMBERS: u64 = 4096;
/// Microseconds per packet that the sender's clock may be slower than this one: 50 in a million at
/// 50 packets per second.
const DRIFT_MICROS: i64 = 1;
/// Sending times that are remembered.
const REMEMBERED_TIMES: usize = 2048;
/// Most numbers of one message to the sender.
pub(crate) const ASKED_NUMBERS: usize = 128;

/// Configuration of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// The time from a unit's sending to its release, beyond the quickest packet's travel: jitter,
    /// repairs and retransmissions have this time.
    pub latency: Duration,
    /// The time after the release for which a unit is still awaited: for a player that stalls
    /// rather than skips. Zero: not at all.
    pub patience: Duration,
    /// Each packet repeats the unit before its own.
    pub repeats: bool,
    /// The time between two packets, if it is fixed: a packet that does not keep it is overdue,
    /// before a later one reveals its loss.
    pub rhythm: Option<Duration>,
    /// A packet may be overtaken for this long without being missing.
    pub reorder: Duration,
    /// True if the sender can be asked.
    pub asks: bool,
}

impl Default for ReceiverConfig {
    /// Video over the Internet: 200 ms.
    fn default() -> Self {
        Self {
            latency: Duration::from_millis(200),
            patience: Duration::ZERO,
            repeats: false,
            rhythm: None,
            reorder: Duration::ZERO,
            asks: true,
        }
    }
}

/// A unit in order, at its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Number of the unit.
    pub number: u64,
    /// The time at which its sender sampled it, microseconds of the sender's clock.
    pub sent: u64,
    /// The time of its arrival.
    pub available: Timestamp,
    /// Bytes of the unit.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Slot {
    unit: Option<Unit>,
    /// The time at which it was found missing.
    missing: Option<Timestamp>,
    asked: Option<Timestamp>,
    /// The first question's time, as long as it was asked once only (Karn's rule).
    asked_once: Option<Timestamp>,
}

/// The receiver of one numbered stream, sans-IO.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// Number of the first slot: the next to be released.
    next: u64,
    slots: VecDeque<Slot>,
    /// Numbers that are missing.
    open: BTreeSet<u64>,
    /// The highest packet number, its arrival and its sender's time.
    highest: Option<(u64, Timestamp, u64)>,
    first: Option<u64>,
    /// Arrival minus sending of the quickest packet, microseconds.
    travel: i64,
    /// Numbers and times of packets that came, for the rhythm of unnumbered gaps: sending times by
    /// number.
    times: BTreeMap<u64, u64>,
    overdue_told: u64,
    /// The time of the last call of [`Self::poll_asked`]: times before it need no timeout.
    polled: Timestamp,
    round_trip: PathEstimate,
    jitter: f64,
    last_transit: Option<i64>,
    counts: Counts,
    interval: Counts,
    rate: (Timestamp, u64, f64),
}

impl Receiver {
    /// Creates a receiver without any packet so far.
    pub fn new(config: ReceiverConfig) -> Self {
        Self {
            config,
            next: 0,
            slots: VecDeque::new(),
            open: BTreeSet::new(),
            highest: None,
            first: None,
            travel: 0,
            times: BTreeMap::new(),
            overdue_told: 0,
            polled: Timestamp::ZERO,
            round_trip: PathEstimate::new(),
            jitter: 0.0,
            last_transit: None,
            counts: Counts::default(),
            interval: Counts::default(),
            rate: (Timestamp::ZERO, 0, 0.0),
        }
    }

    /// The number of the stream's first packet that was received; packets before it are not asked
    /// for.
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// Called when the sender has restarted, with new numbers. Drops the units that were not
    /// released.
    pub(crate) fn restart(&mut self) {
        self.count(|counts| counts.restarts += 1);
        self.slots.clear();
        self.open.clear();
        self.times.clear();
        self.highest = None;
        self.first = None;
        self.last_transit = None;
    }

    fn count(&mut self, count: impl Fn(&mut Counts)) {
        count(&mut self.counts);
        count(&mut self.interval);
    }

    /// Processes packet `number`, sent at `sent` (microseconds of the sender's clock), with its
    /// unit and, with repetition, the unit before.
    pub fn on_packet(
        &mut self,
        number: u64,
        sent: u64,
        unit: &[u8],
        before: Option<&[u8]>,
        now: Timestamp,
    ) {
        let length = (unit.len() + before.map_or(0, <[u8]>::len)) as u64;
        self.count(|counts| {
            counts.packets += 1;
            counts.bytes += length;
        });
        self.measure_rate(length, now);
        let Some((highest, _, _)) = self.highest else {
            self.begin(number, sent, now);
            self.fill(number, sent, unit, Recovery::None, now);
            return;
        };
        if number > highest + LARGEST_JUMP_NUMBERS {
            self.count(|counts| counts.restarts += 1);
            self.slots.clear();
            self.open.clear();
            self.times.clear();
            self.begin(number, sent, now);
            self.fill(number, sent, unit, Recovery::None, now);
            return;
        }
        let transit = now.as_micros() as i64 - sent as i64;
        let newest = number > highest;
        if newest {
            // Up slowly, as the two clocks drift; down at once.
            self.travel = (self.travel + DRIFT_MICROS).min(transit);
            if let Some(last) = self.last_transit.replace(transit) {
                // RFC 3550 section 6.4.1.
                self.jitter += (transit.abs_diff(last) as f64 - self.jitter) / 16.0;
            }
            self.grow(number);
            for missing in highest + 1..number {
                self.note_missing(missing, now);
            }
            self.highest = Some((number, now, sent));
            self.times.insert(number, sent);
            while self.times.len() > REMEMBERED_TIMES {
                self.times.pop_first();
            }
        }
        let recovery = if newest { Recovery::None } else { self.recovery(number, now) };
        if number < self.next {
            let known = self.first.is_some_and(|first| number >= first);
            self.count(|counts| counts.belated += u64::from(known));
            return;
        }
        self.fill(number, sent, unit, recovery, now);
        if let Some(before) = before.filter(|_| number > self.next) {
            let earlier = self.sent_at(number - 1).unwrap_or(sent);
            let recovery = if newest { Recovery::Repetition } else { recovery };
            self.fill_before(number - 1, earlier, before, recovery, now);
        }
    }

    /// Processes a retransmission that the sender was asked for.
    pub fn on_retransmission(&mut self, number: u64, sent: u64, unit: &[u8], now: Timestamp) {
        self.count(|counts| counts.retransmissions += 1);
        self.measure_rate(unit.len() as u64, now);
        let asked = self.slot_mut(number).and_then(|slot| slot.asked_once.take());
        if let Some(asked) = asked {
            self.round_trip.on_round_trip(now.saturating_since(asked));
        }
        if number < self.next && self.first.is_some_and(|first| number >= first) {
            self.count(|counts| counts.belated += 1);
        }
        if self.slot_mut(number).is_none_or(|slot| slot.unit.is_some()) {
            self.count(|counts| counts.spurious_retransmissions += 1);
            return;
        }
        self.fill(number, sent, unit, Recovery::EndToEnd, now);
    }

    fn begin(&mut self, number: u64, sent: u64, now: Timestamp) {
        self.first = Some(number);
        self.next = number;
        self.overdue_told = number;
        self.highest = Some((number, now, sent));
        self.travel = now.as_micros() as i64 - sent as i64;
        self.times.insert(number, sent);
        self.grow(number);
    }

    /// Makes slots up to `number`.
    fn grow(&mut self, number: u64) {
        while self.next + (self.slots.len() as u64) <= number {
            self.slots.push_back(Slot { unit: None, missing: None, asked: None, asked_once: None });
        }
        // A clock that is wrong by far must not make the buffer grow without end.
        while self.slots.len() as u64 > MAXIMUM_UNITS {
            let slot = self.slots.pop_front();
            self.open.remove(&self.next);
            self.next += 1;
            let dropped = slot.is_some_and(|slot| slot.unit.is_none());
            self.count(|counts| counts.dropped += u64::from(dropped));
        }
    }

    fn slot_mut(&mut self, number: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(number.checked_sub(self.next)?).ok()?)
    }

    /// True if another packet of this number waits to be released.
    pub(crate) fn holds_another(&self, number: u64, bytes: &[u8]) -> bool {
        let unit = self.slot(number).and_then(|slot| slot.unit.as_ref());
        unit.is_some_and(|unit| unit.bytes != bytes)
    }

    fn slot(&self, number: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(number.checked_sub(self.next)?).ok()?)
    }

    fn note_missing(&mut self, number: u64, now: Timestamp) {
        let Some(slot) = self.slot_mut(number) else { return };
        if slot.missing.is_none() {
            slot.missing = Some(now);
            self.open.insert(number);
            self.count(|counts| counts.lost += 1);
        }
    }

    /// The way in which a packet that is not the newest came.
    fn recovery(&mut self, number: u64, now: Timestamp) -> Recovery {
        let reorder = self.config.reorder;
        match self.slot_mut(number).and_then(|slot| slot.missing) {
            Some(missing) if now.saturating_since(missing) <= reorder => Recovery::Reordered,
            Some(_) => Recovery::Gateway,
            None => Recovery::None,
        }
    }

    fn fill(&mut self, number: u64, sent: u64, bytes: &[u8], recovery: Recovery, now: Timestamp) {
        let Some(slot) = self.slot_mut(number) else { return };
        if slot.unit.is_some() {
            self.count(|counts| counts.duplicates += 1);
            return;
        }
        slot.unit = Some(Unit { number, sent, available: now, bytes: bytes.to_vec() });
        let lost = slot.missing.is_some();
        self.open.remove(&number);
        self.count(|counts| counts.recovered(recovery, lost));
    }

    /// The unit that another one's packet repeats.
    fn fill_before(
        &mut self,
        number: u64,
        sent: u64,
        bytes: &[u8],
        recovery: Recovery,
        now: Timestamp,
    ) {
        if self.slot_mut(number).is_some_and(|slot| slot.unit.is_none()) {
            self.fill(number, sent, bytes, recovery, now);
        }
    }

    /// The time at which a unit was sent, if its neighbours determine it.
    pub(crate) fn sent_at(&self, number: u64) -> Option<u64> {
        if let Some(sent) = self.times.get(&number) {
            return Some(*sent);
        }
        let before = self.times.range(..number).next_back();
        let after = self.times.range(number..).next();
        match (before, after, self.config.rhythm) {
            (Some((at, sent)), _, Some(rhythm)) => {
                Some(sent + (number - at) * rhythm.as_micros() as u64)
            }
            (Some((first, from)), Some((last, to)), None) => {
                Some(from + to.saturating_sub(*from) * (number - first) / (last - first))
            }
            (None, Some((at, sent)), Some(rhythm)) => {
                Some(sent.saturating_sub((at - number) * rhythm.as_micros() as u64))
            }
            (None, Some((_, sent)), None) | (Some((_, sent)), None, None) => Some(*sent),
            (None, None, _) => None,
        }
    }

    /// The expected arrival of a unit that was sent at `sent`.
    fn expected(&self, sent: u64) -> Timestamp {
        Timestamp::from_micros((sent as i64).saturating_add(self.travel).max(0) as u64)
    }

    /// The earliest time at which a unit is released.
    fn release_at(&self, number: u64) -> Option<Timestamp> {
        let slot = self.slots.get(usize::try_from(number.checked_sub(self.next)?).ok()?)?;
        let sent = slot.unit.as_ref().map(|unit| unit.sent).or_else(|| self.sent_at(number))?;
        Some(self.expected(sent) + self.config.latency)
    }

    /// The next unit in order, when its time has come. Units whose window is over are skipped.
    pub fn poll_unit(&mut self, now: Timestamp) -> Option<Unit> {
        loop {
            let at = self.release_at(self.next)?;
            let here = self.slots.front()?.unit.is_some();
            if now < at || (!here && now < at + self.config.patience) {
                return None;
            }
            let slot = self.slots.pop_front()?;
            self.open.remove(&self.next);
            self.next += 1;
            match slot.unit {
                Some(unit) => {
                    self.count(|counts| counts.released += 1);
                    return Some(unit);
                }
                None => self.count(|counts| counts.dropped += 1),
            }
        }
    }

    /// The packet that is overdue now, for [`packrat_client::Assist::on_overdue`]: each is returned
    /// once.
    pub fn poll_overdue(&mut self, now: Timestamp) -> Option<u64> {
        let (number, at) = self.next_overdue()?;
        if now < at {
            return None;
        }
        self.overdue_told = number;
        Some(number)
    }

    fn next_overdue(&self) -> Option<(u64, Timestamp)> {
        let rhythm = self.config.rhythm?;
        let (highest, _, sent) = self.highest?;
        let number = self.overdue_told.max(highest) + 1;
        let behind = number - highest;
        let margin = MINIMUM_MARGIN.max(Duration::from_micros((self.jitter * 4.0) as u64));
        let at = self.expected(sent + behind * rhythm.as_micros() as u64) + margin;
        (behind <= OVERDUE_PACKETS).then_some((number, at))
    }

    /// Writes the numbers of the units to ask the sender for now. `is_awaited` returns whether the
    /// gateway may still repair a packet; a unit is asked for when it returns false for all packets
    /// that carry the unit.
    pub fn poll_asked(
        &mut self,
        now: Timestamp,
        is_awaited: impl Fn(u64) -> bool,
        asked: &mut Vec<u64>,
    ) {
        asked.clear();
        self.polled = now;
        if !self.config.asks {
            return;
        }
        let Some((highest, _, _)) = self.highest else { return };
        let round_trip = self.round_trip.round_trip().unwrap_or(ASSUMED_ROUND_TRIP);
        let spacing = self.spacing();
        let carriers = u64::from(self.config.repeats);
        let numbers: Vec<u64> =
            self.open.range(..=highest.saturating_sub(carriers)).copied().collect();
        for number in numbers {
            if asked.len() == ASKED_NUMBERS {
                break;
            }
            let deadline = self.release_at(number).map(|at| at + self.config.patience);
            let reorder = self.config.reorder;
            let Some(slot) = self.slot_mut(number) else { continue };
            let Some(missing) = slot.missing.filter(|_| slot.unit.is_none()) else { continue };
            let in_time = deadline.is_none_or(|deadline| now + round_trip <= deadline);
            let again = slot.asked.is_none_or(|asked| now >= asked + spacing);
            let awaited = (number..=number + carriers).any(&is_awaited);
            if in_time && again && !awaited && now >= missing + reorder {
                slot.asked_once = if slot.asked.is_none() { Some(now) } else { None };
                slot.asked = Some(now);
                asked.push(number);
            }
        }
        if !asked.is_empty() {
            let units = asked.len() as u64;
            self.count(|counts| {
                counts.asked_messages += 1;
                counts.asked_units += units;
            });
        }
    }

    /// The time at which [`Self::poll_unit`], [`Self::poll_overdue`] or [`Self::poll_asked`] may
    /// have a result, if no packet arrives until then.
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let released = self.release_at(self.next).map(|at| match self.slots.front() {
            Some(slot) if slot.unit.is_none() => at + self.config.patience,
            _ => at,
        });
        let overdue = self.next_overdue().map(|(_, at)| at);
        let spacing = self.spacing();
        let open = self.open.iter().filter_map(|number| self.slot(*number));
        let asked = open.filter_map(|slot| match slot.asked {
            Some(asked) => Some(asked + spacing),
            None => slot.missing.map(|missing| missing + self.config.reorder),
        });
        let asked = asked.filter(|at| self.config.asks && *at > self.polled).min();
        [released, overdue, asked].into_iter().flatten().min()
    }

    /// Time between two requests for the same unit.
    fn spacing(&self) -> Duration {
        self.round_trip.round_trip().map_or(ASSUMED_ROUND_TRIP, |round_trip| {
            round_trip + self.round_trip.round_trip_variation() * 2 + MINIMUM_MARGIN
        })
    }

    fn measure_rate(&mut self, bytes: u64, now: Timestamp) {
        let (since, sum, rate) = &mut self.rate;
        *sum += bytes;
        let elapsed = now.saturating_since(*since);
        if elapsed >= Duration::from_secs(1) {
            *rate =
                if *since == Timestamp::ZERO { 0.0 } else { *sum as f64 / elapsed.as_secs_f64() };
            (*since, *sum) = (now, 0);
        }
    }

    /// The statistics; begins a new interval.
    pub fn take_statistics(&mut self) -> Statistics {
        let available = self.slots.iter().filter(|slot| slot.unit.is_some()).count();
        let span = match (self.slots.front(), self.highest) {
            (Some(_), Some((_, _, sent))) => {
                sent.saturating_sub(self.sent_at(self.next).unwrap_or(sent))
            }
            _ => 0,
        };
        Statistics {
            accumulated: self.counts,
            interval: core::mem::take(&mut self.interval),
            round_trip: self.round_trip.round_trip(),
            jitter: Duration::from_micros(self.jitter as u64),
            buffered_units: available,
            buffered: Duration::from_micros(span),
            receive_rate: self.rate.2 * 8.0,
        }
    }
}
