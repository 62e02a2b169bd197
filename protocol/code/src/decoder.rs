//! Recovers datagrams from repair symbols.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use fearless_simd::Level;

use crate::framing::{
    FIRST_HALF_BYTES, Half, LENGTH_PREFIX_BYTES, MAXIMUM_DATAGRAM_BYTES, MAXIMUM_SYMBOL, Repair,
};
use crate::kernels::{MAXIMUM_SUMMANDS, Summand, level};
use crate::system::{Added, Row, System};

/// Bounds of a decoder's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderLimits {
    /// Newest places that are remembered; rounded up to a power of two, from 16 to 4096. Symbols
    /// whose windows begin earlier are of no use.
    pub places: usize,
    /// Bytes of datagrams and equations. The oldest datagrams are forgotten first.
    pub bytes: usize,
    /// Equations of each half, and so datagrams that can be recovered at a time.
    pub unknowns: usize,
}

impl DecoderLimits {
    /// Limits for windows of up to 128 datagrams.
    pub const DEFAULT: Self = Self { places: 256, bytes: 384 * 1024, unknowns: 64 };

    fn capacity(self) -> usize {
        self.places.clamp(16, 4096).next_power_of_two()
    }

    /// The most that one message or datagram adds to [`Decoder::take_work`].
    pub fn most_work(self) -> u64 {
        let row = (self.capacity() + MAXIMUM_SYMBOL) as u64 / 32 + 2;
        let unknowns = self.unknowns as u64 + 1;
        // A symbol of 255 datagrams; and each that is solved may change all rows of both halves.
        4 * (255 * row + 2 * unknowns * unknowns * row + self.capacity() as u64)
    }
}

/// The fate of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The datagram is known now.
    New,
    /// The datagram was known.
    Duplicate,
    /// Another datagram is known at this place, from an earlier arrival or from symbols: one of the
    /// two is forged. The first one stays.
    Contradiction,
    /// The place is older than the remembered ones.
    TooOld,
    /// The datagram is too long for coding.
    TooLong,
}

/// The fate of a repair symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// The symbol adds no information: its window is complete, or it follows from earlier symbols.
    Redundant,
    /// The symbol is another equation; see [`Decoder::next_recovered`].
    Innovative,
    /// The symbol contradicts the known datagrams: it, or a datagram, is forged.
    Contradiction,
    /// The window begins before the remembered places, is wider than they are, or is far ahead.
    OutOfReach,
    /// The symbol is empty, or longer than its half allows.
    Malformed,
}

/// Counts since the decoder was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Datagrams recovered.
    pub recovered: u64,
    /// Places that were forgotten without their datagram.
    pub given_up: u64,
    /// Symbols that were another equation.
    pub innovative: u64,
    /// Symbols that were not needed.
    pub redundant: u64,
    /// Symbols and datagrams that contradict others.
    pub contradictions: u64,
    /// Recovered datagrams with an impossible length or padding.
    pub garbage: u64,
}

/// Knowledge of a place.
#[derive(Debug, Default)]
struct Slot {
    /// Length and datagram; while only halves are known, these, at their places.
    framed: Vec<u8>,
    /// The halves that are known.
    known: [bool; 2],
}

impl Slot {
    fn is_complete(&self) -> bool {
        self.known == [true; 2]
    }

    fn half(&self, half: Half) -> Option<&[u8]> {
        self.known[half.index()].then(|| half.of(&self.framed))
    }
}

/// Recovers datagrams from repair symbols: takes datagrams and symbols in any order, and returns
/// recovered datagrams as soon as enough symbols have arrived.
#[derive(Debug)]
pub struct Decoder {
    level: Level,
    limits: DecoderLimits,
    /// The places that are remembered, in order: no memory is taken for others.
    slots: VecDeque<Slot>,
    /// The oldest place that is remembered, and the one after the newest.
    base: u64,
    end: u64,
    systems: [System; 2],
    /// Bytes of slots.
    bytes: usize,
    /// Memory of the datagram that was forgotten last, for the next one.
    spare: Vec<u8>,
    recovered: VecDeque<u64>,
    totals: Totals,
    work: u64,
}

impl Decoder {
    /// An empty decoder; places begin with 0.
    pub fn new(limits: DecoderLimits) -> Self {
        Self::from_place(limits, 0)
    }

    /// An empty decoder that ignores datagrams before this place.
    pub fn from_place(limits: DecoderLimits, place: u64) -> Self {
        Self {
            level: level(),
            limits,
            slots: VecDeque::new(),
            base: place,
            end: place,
            systems: [System::default(), System::default()],
            bytes: 0,
            spare: Vec::new(),
            recovered: VecDeque::new(),
            totals: Totals::default(),
            work: 0,
        }
    }

    /// Takes a datagram that has arrived, or was repaired in another way.
    ///
    /// The caller vouches for the place: one far ahead makes all others forgotten.
    pub fn on_datagram(&mut self, place: u64, datagram: &[u8]) -> Arrival {
        if datagram.len() > MAXIMUM_DATAGRAM_BYTES || place == u64::MAX {
            return Arrival::TooLong;
        }
        if place < self.base {
            return Arrival::TooOld;
        }
        self.reach(place + 1);
        let offset = self.offset(place);
        let Some(slot) = self.slots.get_mut(offset) else { return Arrival::TooOld };
        self.work += 1 + datagram.len() as u64 / 32;
        if slot.is_complete() {
            if &slot.framed[LENGTH_PREFIX_BYTES..] == datagram {
                return Arrival::Duplicate;
            }
            self.totals.contradictions += 1;
            return Arrival::Contradiction;
        }
        let was_known = slot.known;
        self.bytes -= slot.framed.capacity();
        let length = LENGTH_PREFIX_BYTES + datagram.len();
        if (length..=2 * length).contains(&self.spare.capacity()) {
            slot.framed = core::mem::take(&mut self.spare);
        }
        slot.framed.clear();
        slot.framed.reserve_exact(length);
        slot.framed.extend_from_slice(&(datagram.len() as u16).to_be_bytes());
        slot.framed.extend_from_slice(datagram);
        slot.known = [true; 2];
        self.bytes += slot.framed.capacity();
        for half in Half::BOTH {
            if !was_known[half.index()] {
                self.substitute(place, half);
            }
        }
        self.solve();
        self.keep_within_limits();
        Arrival::New
    }

    /// Takes a repair symbol.
    pub fn on_repair(&mut self, repair: &Repair<'_>) -> Use {
        let Repair { window, half, seed, symbol } = *repair;
        self.work += 1;
        if symbol.is_empty() || symbol.len() > half.longest() {
            return Use::Malformed;
        }
        let places = self.limits.capacity() as u64;
        let end = window.last() + 1;
        if self.limits.unknowns == 0
            || window.first() < self.base
            || end - window.first() > places
            || end > self.end.saturating_add(places)
            || window.first() < end.max(self.end).saturating_sub(places)
        {
            return Use::OutOfReach;
        }
        self.reach(end);
        self.work += u64::from(window.count());
        if window.coefficients(seed).all(|(place, _)| self.slot(place).half(half).is_some()) {
            self.totals.redundant += 1;
            return Use::Redundant;
        }
        let mut row = Row::new(self.limits.capacity(), symbol);
        let (mut fits, mut work) = (true, 0);
        let mut known: [Summand<'_>; MAXIMUM_SUMMANDS] = [(0, &[]); MAXIMUM_SUMMANDS];
        let mut waiting = 0;
        for (place, coefficient) in window.coefficients(seed) {
            match self.slot(place).half(half) {
                Some(half) => {
                    work += 1 + half.len() as u64 / 32;
                    known[waiting] = (coefficient, half);
                    waiting += 1;
                }
                None => row.add_unknown(place, coefficient),
            }
            if waiting == MAXIMUM_SUMMANDS {
                fits &= row.subtract(self.level, &mut known);
                waiting = 0;
            }
        }
        fits &= row.subtract(self.level, &mut known[..waiting]);
        self.work += work;
        if !fits {
            self.totals.contradictions += 1;
            return Use::Contradiction;
        }
        let system = &mut self.systems[half.index()];
        if system.len() >= self.limits.unknowns {
            system.forget_oldest_row();
        }
        match system.add(self.level, row, self.base) {
            Added::Innovative => {
                self.totals.innovative += 1;
                self.solve();
                self.keep_within_limits();
                Use::Innovative
            }
            Added::Redundant => {
                self.totals.redundant += 1;
                Use::Redundant
            }
            Added::Contradiction => {
                self.totals.contradictions += 1;
                Use::Contradiction
            }
        }
    }

    /// The next recovered datagram and its place, in the order in which they were recovered.
    pub fn next_recovered(&mut self) -> Option<(u64, &[u8])> {
        loop {
            let place = self.recovered.pop_front()?;
            // It may have been forgotten since.
            if place >= self.base && self.slot(place).is_complete() {
                return Some((place, &self.slot(place).framed[LENGTH_PREFIX_BYTES..]));
            }
        }
    }

    /// True if the datagram of a place is known, has arrived or was recovered.
    pub fn has(&self, place: u64) -> bool {
        (self.base..self.end).contains(&place) && self.slot(place).is_complete()
    }

    /// Equations of both halves that are not solved.
    pub fn open_equations(&self) -> usize {
        self.systems.iter().map(System::len).sum()
    }

    /// Bytes of datagrams and equations, of which there are at most [`DecoderLimits::bytes`].
    pub fn len(&self) -> usize {
        self.bytes + self.open_equations() * (self.limits.capacity() + MAXIMUM_SYMBOL)
    }

    /// True if the decoder holds no datagrams and no equations.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts since the decoder was made.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The work done since it was last taken, in units of 32 bytes multiplied and added: about a
    /// nanosecond with vector instructions.
    pub fn take_work(&mut self) -> u64 {
        let systems: u64 = self.systems.iter_mut().map(System::take_work).sum();
        core::mem::take(&mut self.work) + systems
    }

    fn offset(&self, place: u64) -> usize {
        usize::try_from(place.wrapping_sub(self.base)).unwrap_or(usize::MAX)
    }

    /// A forgotten place has an empty slot.
    fn slot(&self, place: u64) -> &Slot {
        /// Slot of a place whose datagram is unknown.
        const UNKNOWN_SLOT: &Slot = &Slot { framed: Vec::new(), known: [false; 2] };
        self.slots.get(self.offset(place)).unwrap_or(UNKNOWN_SLOT)
    }

    /// Moves the remembered places, so that they end with `end` at least.
    fn reach(&mut self, end: u64) {
        if end <= self.end {
            return;
        }
        let places = self.limits.capacity() as u64;
        if end - self.end == 1 {
            if end - self.base > places {
                self.forget_oldest();
            }
            self.end = end;
            self.slots.push_back(Slot::default());
            return;
        }
        let base = end.saturating_sub(places);
        if base >= self.end {
            self.forget_all(base);
        } else {
            while self.base < base {
                self.forget_oldest();
            }
        }
        self.end = end;
        // At most as many as `places`.
        self.slots.resize_with((self.end - self.base) as usize, Slot::default);
    }

    fn forget_all(&mut self, base: u64) {
        while self.base < self.end {
            self.forget_oldest();
        }
        self.systems.iter_mut().for_each(System::clear);
        self.recovered.clear();
        self.totals.given_up += base - self.base;
        self.base = base;
    }

    fn forget_oldest(&mut self) {
        let place = self.base;
        let slot = self.slots.pop_front().unwrap_or_default();
        if !slot.is_complete() {
            self.totals.given_up += 1;
        }
        self.bytes -= slot.framed.capacity();
        self.spare = slot.framed;
        self.systems.iter_mut().for_each(|system| system.forget(place));
        self.base += 1;
        self.work += 1;
    }

    fn keep_within_limits(&mut self) {
        while self.len() > self.limits.bytes && self.base < self.end {
            self.forget_oldest();
        }
    }

    /// Substitutes a known place in the equations of a half.
    fn substitute(&mut self, place: u64, half: Half) {
        let offset = self.offset(place);
        let Some(slot) = self.slots.get(offset) else { return };
        let system = &mut self.systems[half.index()];
        if system.len() > 0 {
            system.substitute(self.level, place, half.of(&slot.framed), self.base);
            self.totals.contradictions += system.take_contradictions();
        }
    }

    /// Takes all solved halves.
    fn solve(&mut self) {
        if self.open_equations() == 0 {
            return;
        }
        let mut index = 0;
        while index < Half::BOTH.len() {
            let half = Half::BOTH[index];
            match self.systems[half.index()].take_solved(self.level) {
                Some((place, content)) => {
                    self.learn(place, half, &content);
                    index = 0;
                }
                None => index += 1,
            }
        }
    }

    /// A half was solved: it may complete its datagram.
    fn learn(&mut self, place: u64, half: Half, content: &[u8]) {
        let offset = self.offset(place);
        let Some(slot) = self.slots.get_mut(offset) else { return };
        self.bytes -= slot.framed.capacity();
        slot.known[half.index()] = true;
        match half {
            Half::First => {
                let second = slot.framed.split_off(slot.framed.len().min(FIRST_HALF_BYTES));
                slot.framed.clear();
                slot.framed.extend_from_slice(content);
                if !second.is_empty() {
                    slot.framed.resize(FIRST_HALF_BYTES, 0);
                    slot.framed.extend_from_slice(&second);
                }
            }
            Half::Second => {
                slot.framed.resize(FIRST_HALF_BYTES, 0);
                slot.framed.extend_from_slice(content);
            }
        }
        let complete = slot.known[0].then(|| complete_length(slot)).transpose();
        let mut is_new = false;
        match complete {
            Ok(Some(Some(length))) => {
                slot.framed.truncate(length);
                is_new = !slot.known[1];
                slot.known = [true; 2];
                self.recovered.push_back(place);
                self.totals.recovered += 1;
            }
            Ok(_) => {}
            Err(Garbage) => {
                *slot = Slot::default();
                self.totals.garbage += 1;
            }
        }
        slot.framed.shrink_to_fit();
        self.bytes += slot.framed.capacity();
        if is_new {
            // Its second half is empty.
            self.substitute(place, Half::Second);
        }
    }
}

/// The length or the padding of a recovered datagram is impossible.
struct Garbage;

/// The length of the framed datagram in a slot whose first half is known; `None` if the length also
/// depends on the second half.
fn complete_length(slot: &Slot) -> Result<Option<usize>, Garbage> {
    let length = match slot.framed.first_chunk::<LENGTH_PREFIX_BYTES>() {
        Some(length) => LENGTH_PREFIX_BYTES + usize::from(u16::from_be_bytes(*length)),
        None => return Err(Garbage),
    };
    if length > LENGTH_PREFIX_BYTES + MAXIMUM_DATAGRAM_BYTES {
        return Err(Garbage);
    }
    let known = slot.framed.len();
    if length > known && (slot.known[1] || known < FIRST_HALF_BYTES) {
        return Err(Garbage);
    }
    let reaches_second = length > FIRST_HALF_BYTES;
    if reaches_second && !slot.known[1] {
        return Ok(None);
    }
    let padding = &slot.framed[length..];
    if padding.iter().all(|byte| *byte == 0) { Ok(Some(length)) } else { Err(Garbage) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Encoder, Window};
    use alloc::vec;

    const SMALL: DecoderLimits = DecoderLimits { places: 16, bytes: 40_000, unknowns: 4 };

    fn datagram(place: u64) -> Vec<u8> {
        vec![place as u8 + 1; 700 + 40 * place as usize % 800]
    }

    fn symbol(first: u64, count: u8, half: Half, seed: u16) -> Vec<u8> {
        let datagrams: Vec<_> = (0..first + u64::from(count)).map(datagram).collect();
        let cached = |place: u64| Some((&datagrams[place as usize][..], &[][..]));
        let mut symbol = Vec::new();
        let window = Window::new(first, count, 1).unwrap();
        Encoder::new().encode(window, half, seed, cached, &mut symbol).unwrap();
        symbol
    }

    fn repair(decoder: &mut Decoder, first: u64, count: u8, half: Half, seed: u16) -> Use {
        let window = Window::new(first, count, 1).unwrap();
        let symbol = symbol(first, count, half, seed);
        let made = decoder.on_repair(&Repair { window, half, seed, symbol: &symbol });
        decoder.systems.iter().for_each(|system| system.check(decoder.base));
        made
    }

    #[test]
    fn a_datagram_is_recovered_with_its_second_half_or_without_one() {
        for lost in [0, 1, 2, 3, 8] {
            let mut decoder = Decoder::new(SMALL);
            for place in (0..10).filter(|place| *place != lost) {
                decoder.on_datagram(place, &datagram(place));
            }
            assert_eq!(repair(&mut decoder, 0, 10, Half::Second, 3), Use::Innovative);
            assert_eq!(decoder.next_recovered(), None);
            assert_eq!(repair(&mut decoder, 0, 10, Half::First, 3), Use::Innovative);
            assert_eq!(decoder.next_recovered(), Some((lost, &datagram(lost)[..])));
            assert_eq!(repair(&mut decoder, 0, 10, Half::First, 4), Use::Redundant);
            assert_eq!((decoder.open_equations(), decoder.totals().recovered), (0, 1));
        }
        // A datagram that fits the first half needs only that.
        let mut decoder = Decoder::new(SMALL);
        decoder.on_datagram(0, &datagram(0));
        repair(&mut decoder, 0, 2, Half::First, 1);
        assert_eq!(decoder.next_recovered().map(|(place, _)| place), Some(1));
    }

    #[test]
    fn a_late_datagram_solves_what_others_wait_for() {
        let mut decoder = Decoder::new(SMALL);
        for place in [0, 3, 4] {
            decoder.on_datagram(place, &datagram(place));
        }
        for half in Half::BOTH {
            assert_eq!(repair(&mut decoder, 0, 6, half, 9), Use::Innovative);
            assert_eq!(repair(&mut decoder, 1, 5, half, 10), Use::Innovative);
        }
        assert_eq!(decoder.next_recovered(), None);
        assert_eq!(decoder.open_equations(), 4);
        // Three are missing, two equations each: the oldest is a pivot.
        assert_eq!(decoder.on_datagram(1, &datagram(1)), Arrival::New);
        decoder.systems.iter().for_each(|system| system.check(decoder.base));
        let mut places = vec![];
        while let Some((place, recovered)) = decoder.next_recovered() {
            assert_eq!(recovered, datagram(place));
            places.push(place);
        }
        places.sort_unstable();
        assert_eq!((places, decoder.open_equations()), (vec![2, 5], 0));
        assert_eq!(decoder.on_datagram(2, &datagram(2)), Arrival::Duplicate);
        assert_eq!(decoder.on_datagram(2, &datagram(3)), Arrival::Contradiction);
    }

    #[test]
    fn what_the_window_has_left_is_given_up_and_freed() {
        let mut decoder = Decoder::new(SMALL);
        for place in (2..8).filter(|place| *place != 5) {
            decoder.on_datagram(place, &datagram(place));
        }
        repair(&mut decoder, 0, 8, Half::First, 1);
        repair(&mut decoder, 1, 7, Half::First, 2);
        assert_eq!(decoder.open_equations(), 2);
        for (place, open) in (8..18).zip([2, 2, 2, 2, 2, 2, 2, 2, 1, 0]) {
            decoder.on_datagram(place, &datagram(place));
            assert_eq!(decoder.open_equations(), open, "after {place}");
        }
        // 0 and 1 are forgotten, and both equations with them; 5 is not. No datagram is recovered
        // in their place.
        let Totals { given_up, recovered, garbage, .. } = decoder.totals();
        assert_eq!((given_up, recovered, garbage), (2, 0, 0));
        for place in 8..18 {
            assert_eq!(decoder.on_datagram(place, &datagram(place)), Arrival::Duplicate);
        }
        assert_eq!(decoder.on_datagram(1, &datagram(1)), Arrival::TooOld);
        assert_eq!(repair(&mut decoder, 1, 9, Half::First, 3), Use::OutOfReach);
        assert_eq!(repair(&mut decoder, 2, 9, Half::First, 3), Use::Innovative);
        assert_eq!(decoder.next_recovered().map(|(place, _)| place), None, "its second half");
        assert_eq!(repair(&mut decoder, 2, 9, Half::Second, 3), Use::Innovative);
        assert_eq!(decoder.next_recovered().map(|(place, _)| place), Some(5));
        // A place far ahead.
        decoder.on_datagram(1000, &[1]);
        assert_eq!(decoder.len(), decoder.slot(1000).framed.capacity());
        let window = Window::new(5000, 2, 1).unwrap();
        let ahead = Repair { window, half: Half::First, seed: 1, symbol: &[1] };
        assert_eq!(decoder.on_repair(&ahead), Use::OutOfReach);
        let wide = Repair { window: Window::new(990, 20, 1).unwrap(), ..ahead };
        assert_eq!(decoder.on_repair(&wide), Use::OutOfReach);
    }

    #[test]
    fn the_oldest_equation_is_given_up_for_a_new_one() {
        let mut decoder = Decoder::new(SMALL);
        for seed in 1..=4 {
            assert_eq!(repair(&mut decoder, 0, 8, Half::First, seed), Use::Innovative);
        }
        assert_eq!(repair(&mut decoder, 2, 8, Half::First, 9), Use::Innovative);
        assert_eq!(decoder.open_equations(), 4);
        assert!(decoder.systems[0].rows_contain(0) == 0, "the oldest pivot");
    }

    #[test]
    fn contradictions_and_garbage_are_recognised() {
        let window = Window::new(0, 4, 1).unwrap();
        let mut decoder = Decoder::new(SMALL);
        for place in 1..4 {
            decoder.on_datagram(place, &datagram(place));
        }
        for (symbol, expected) in [(vec![], Use::Malformed), (vec![0; 771], Use::Malformed)] {
            let repair = Repair { window, half: Half::First, seed: 1, symbol: &symbol };
            assert_eq!(decoder.on_repair(&repair), expected);
        }
        // Shorter than a half that it covers.
        let short = Repair { window, half: Half::First, seed: 1, symbol: &[1; 100] };
        assert_eq!(decoder.on_repair(&short), Use::Contradiction);
        // Solvable, but the length is impossible; with a possible one, the padding.
        let good = symbol(0, 4, Half::First, 1);
        for bent in [0, 769] {
            let mut symbol = good.clone();
            symbol[bent] ^= 0x55;
            let repair = Repair { window, half: Half::First, seed: 1, symbol: &symbol };
            assert_eq!(decoder.on_repair(&repair), Use::Innovative);
            assert_eq!(decoder.next_recovered(), None, "byte {bent}");
        }
        assert_eq!(decoder.totals().garbage, 2);
        // Two equations that exclude each other.
        let mut decoder = Decoder::new(SMALL);
        assert_eq!(repair(&mut decoder, 0, 4, Half::First, 1), Use::Innovative);
        let mut bent = good.clone();
        bent[300] ^= 1;
        let bent = Repair { window, half: Half::First, seed: 1, symbol: &bent };
        assert_eq!(decoder.on_repair(&bent), Use::Contradiction);
        assert_eq!(repair(&mut decoder, 0, 4, Half::First, 1), Use::Redundant);
        assert_eq!(decoder.on_datagram(0, &[0; 1501]), Arrival::TooLong);
    }

    #[test]
    fn no_more_bytes_are_held_than_allowed() {
        let limits = DecoderLimits { places: 64, bytes: 10_000, unknowns: 8 };
        let mut decoder = Decoder::new(limits);
        for place in 0..60 {
            decoder.on_datagram(place, &[1; 1000]);
            assert!(decoder.len() <= 10_000);
        }
        assert!(decoder.has(59) && decoder.has(51) && !decoder.has(49));
    }
}
