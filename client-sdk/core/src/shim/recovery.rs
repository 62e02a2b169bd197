//! Datagrams recovered by code: the arrived datagrams by place, and the gateway's symbols.
//!
//! The gateway may have repaired a datagram that symbols also recover. The transport receives it
//! once:
//!
//! | first | then | passes |
//! |---|---|---|
//! | recovered | its repairs, at its place or plain | the recovered datagram |
//! | its repair, at its place | – | the repair: the recovery is over |
//! | its repair, plain | recovered | the repair |

use core::time::Duration;
use std::collections::VecDeque;

use packrat_assist_token::token_bucket::Rate;
use packrat_code::{Arrival, Decoder, DecoderLimits};
use packrat_wire::RateLimit;
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::{IdentifierScheme, Material};

use crate::coded::Symbol;

/// Datagrams in a row without a symbol after which none is kept for decoding, until one is missing:
/// the gateway sends no symbols on a path without losses, and on others they are more frequent.
const QUIET_DATAGRAMS: u32 = 2048;
/// Datagrams that are remembered on either side.
const REMEMBERED_DATAGRAMS: usize = 256;
/// Longest time between a repair and the symbols that make it needless: a server may send the same
/// bytes again later.
const LONGEST_DISTANCE: Duration = Duration::from_secs(1);
/// Work on symbols, in units of [`Decoder::take_work`], which take about a nanosecond each: a gateway that
/// sends false ones takes a tenth of a processor at most. Honest ones of 128 datagrams take some thousands.
const SYMBOL_WORK: Rate = Rate { per_second: 100_000_000.0, burst: 20_000_000.0 };

/// A datagram by all of its bytes.
#[derive(Debug, Clone, Copy)]
struct Known {
    content: Material,
    at: Timestamp,
}

/// Datagrams of the last while, the newest at the end.
#[derive(Debug, Default)]
struct Recent(VecDeque<Known>);

impl Recent {
    fn add(&mut self, content: Material, now: Timestamp) {
        self.0.push_back(Known { content, at: now });
        if self.0.len() > REMEMBERED_DATAGRAMS {
            self.0.pop_front();
        }
    }

    fn forget_old(&mut self, now: Timestamp) {
        while self.0.front().is_some_and(|known| now.saturating_since(known.at) > LONGEST_DISTANCE)
        {
            self.0.pop_front();
        }
    }

    /// True if there is a datagram with this content.
    fn contains(&mut self, content: Material, now: Timestamp) -> bool {
        self.forget_old(now);
        self.0.iter().any(|known| known.content == content)
    }

    /// Removes a datagram with this content; returns true if there was one.
    fn take(&mut self, content: Material, now: Timestamp) -> bool {
        self.forget_old(now);
        let index = self.0.iter().position(|known| known.content == content);
        index.is_some_and(|index| self.0.remove(index).is_some())
    }
}

/// A recovered datagram.
#[derive(Debug)]
pub(super) struct Recovered<M> {
    pub(super) place: u64,
    pub(super) datagram: Vec<u8>,
    /// Stands for its own metadata, which is lost.
    pub(super) metadata: M,
    /// True if the transport has it: its repair came without a place.
    pub(super) is_passed: bool,
}

/// The decoder of one session. `M` belongs to the datagram that arrived last; a recovered datagram
/// gets it as well: same path, same marks.
#[derive(Debug)]
pub(super) struct Recovery<M> {
    /// `None` before the first datagram, and if no symbols are expected.
    decoder: Option<Box<Decoder>>,
    /// The place behind the newest.
    next: u64,
    /// Datagrams since the last symbol, and the last missing datagram.
    quiet: u32,
    last: Option<M>,
    /// Work that symbols may cause.
    credit: RateLimit,
    /// Recovered, and may still arrive.
    recovered: Recent,
    /// Arrived without a place, and may still be recovered.
    plain: Recent,
}

impl<M: Clone> Recovery<M> {
    pub(super) fn new() -> Self {
        Self {
            decoder: None,
            next: 0,
            quiet: 0,
            last: None,
            credit: RateLimit::new(SYMBOL_WORK.burst, Timestamp::ZERO),
            recovered: Recent::default(),
            plain: Recent::default(),
        }
    }

    /// Called when a datagram has arrived at a place. Returns true if the transport has it already,
    /// because it was recovered. A datagram that merely arrives twice passes: the server itself may
    /// have sent it twice.
    pub(super) fn on_datagram(
        &mut self,
        place: u64,
        datagram: &[u8],
        metadata: &M,
        now: Timestamp,
    ) -> bool {
        self.last = Some(metadata.clone());
        self.quiet = if place == self.next { self.quiet.saturating_add(1) } else { 0 };
        if self.quiet > QUIET_DATAGRAMS {
            self.decoder = None;
            self.next = place.saturating_add(1);
            return false;
        }
        let arrival = self.decoder().on_datagram(place, datagram);
        self.next = self.next.max(place.saturating_add(1));
        // The decoder has forgotten older places, to which a repair of a fast flow belongs.
        matches!(arrival, Arrival::Duplicate | Arrival::TooOld)
            && self.recovered.contains(content(datagram), now)
    }

    /// Bytes of datagrams and equations.
    pub(super) fn memory(&self) -> usize {
        self.decoder.as_ref().map_or(0, |decoder| decoder.len())
    }

    /// Returns the memory after a period without datagrams.
    pub(super) fn trim(&mut self) {
        self.decoder = None;
        self.recovered = Recent::default();
        self.plain = Recent::default();
    }

    /// The decoder, which includes at least all later datagrams.
    fn decoder(&mut self) -> &mut Decoder {
        let from = self.next;
        let limits = DecoderLimits::DEFAULT;
        self.decoder.get_or_insert_with(|| Box::new(Decoder::from_place(limits, from)))
    }

    /// A datagram has arrived without a place. True if the transport has it, as it was recovered.
    pub(super) fn on_plain(&mut self, datagram: &[u8], now: Timestamp) -> bool {
        let content = content(datagram);
        let is_known = self.recovered.contains(content, now);
        if !is_known {
            self.plain.add(content, now);
        }
        is_known
    }

    /// A symbol has arrived; `expected`: the place behind the newest. Without credit it is not looked at.
    pub(super) fn on_symbol(&mut self, symbol: &Symbol, expected: u64, now: Timestamp) {
        self.quiet = 0;
        if !self.credit.refill(&SYMBOL_WORK, now).covers(1.0) {
            return;
        }
        if let Some(repair) = symbol.repair(expected) {
            let decoder = self.decoder();
            decoder.on_repair(&repair);
            let work = decoder.take_work();
            self.credit.bucket().charge(work as f64);
        }
    }

    /// The next recovered datagram.
    pub(super) fn next_recovered(&mut self, now: Timestamp) -> Option<Recovered<M>> {
        let (place, datagram) = self.decoder.as_mut()?.next_recovered()?;
        let metadata = self.last.clone()?;
        let content = content(datagram);
        let datagram = datagram.to_vec();
        let is_passed = self.plain.take(content, now);
        if !is_passed {
            self.recovered.add(content, now);
        }
        Some(Recovered { place, datagram, metadata, is_passed })
    }
}

/// The material covers the whole datagram: a part would not suffice for an unknown transport.
fn content(datagram: &[u8]) -> Material {
    Material::of(IdentifierScheme::Payload, datagram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_code::{Encoder, Half, Repair, Window};
    use packrat_wire::message::Coded;

    const LOST: usize = 2;

    fn datagrams() -> Vec<Vec<u8>> {
        (0..4u8).map(|number| vec![number; 1200]).collect()
    }

    /// A decoder that lacks one of four datagrams, and the symbols that recover it.
    fn recovery(now: Timestamp) -> (Recovery<()>, [Symbol; 2]) {
        let (mut recovery, all) = (Recovery::new(), datagrams());
        for (place, datagram) in all.iter().enumerate().filter(|(place, _)| *place != LOST) {
            assert!(!recovery.on_datagram(place as u64, datagram, &(), now));
        }
        let symbols = Half::BOTH.map(|half| {
            let (window, mut symbol) = (Window::newest(3, 4).unwrap(), Vec::new());
            let bytes = |place: u64| all.get(place as usize).map(|all| (&all[..], &[][..]));
            Encoder::new().encode(window, half, 1, bytes, &mut symbol).unwrap();
            Symbol::from(&Coded::new(&Repair { window, half, seed: 1, symbol: &symbol }))
        });
        (recovery, symbols)
    }

    fn recovered(recovery: &mut Recovery<()>, symbols: &[Symbol], now: Timestamp) -> Vec<bool> {
        symbols.iter().for_each(|symbol| recovery.on_symbol(symbol, 4, now));
        std::iter::from_fn(|| recovery.next_recovered(now))
            .map(|recovered| {
                assert_eq!((recovered.place, &recovered.datagram), (2, &datagrams()[LOST]));
                recovered.is_passed
            })
            .collect()
    }

    /// No datagram is kept while none is missing; after a loss, symbols recover datagrams again
    /// soon.
    #[test]
    fn no_datagram_is_kept_without_losses_and_symbols_soon_work() {
        let now = Timestamp::from_millis(1000);
        let mut recovery = Recovery::new();
        let quiet = u64::from(QUIET_DATAGRAMS) + 1;
        let numbered = |place: u64| {
            let mut bytes = vec![0; 1200];
            bytes[..8].copy_from_slice(&place.to_be_bytes());
            bytes
        };
        let arrive = |recovery: &mut Recovery<()>, places: core::ops::Range<u64>| {
            for place in places {
                recovery.on_datagram(place, &numbered(place), &(), now);
            }
        };
        arrive(&mut recovery, 0..quiet);
        assert!(recovery.decoder.is_none());
        // One is missing; then another one, after as many as a symbol covers.
        let (first, second) = (quiet, quiet + 140);
        arrive(&mut recovery, first + 1..second);
        arrive(&mut recovery, second + 1..second + 10);
        let window = Window::newest(second + 9, 128).unwrap();
        for half in Half::BOTH {
            let mut symbol = Vec::new();
            let all: Vec<_> = (0..second + 10).map(numbered).collect();
            let bytes = |place: u64| all.get(place as usize).map(|all| (&all[..], &[][..]));
            Encoder::new().encode(window, half, 1, bytes, &mut symbol).unwrap();
            let symbol =
                Symbol::from(&Coded::new(&Repair { window, half, seed: 1, symbol: &symbol }));
            recovery.on_symbol(&symbol, second + 10, now);
        }
        let recovered = recovery.next_recovered(now).unwrap();
        assert_eq!((recovered.place, recovered.datagram), (second, numbered(second)));
    }

    /// A gateway sends symbols that recover nothing, as many as it can.
    #[test]
    fn false_symbols_take_a_tenth_of_a_processor_at_most() {
        const UNITS_PER_SECOND: u64 = 100_000_000;
        const BURST_UNITS: u64 = 20_000_000;
        const MILLISECONDS: u64 = 250;
        let mut recovery = Recovery::<()>::new();
        let start = Timestamp::from_millis(1000);
        let datagram = [7; 1200];
        let mut place = 0;
        let (mut spent, mut looked_at, mut symbols) = (0.0, 0, 0u32);
        for millisecond in 0..MILLISECONDS {
            let now = start + Duration::from_millis(millisecond);
            // Half of the datagrams are missing.
            for _ in 0..4 {
                recovery.on_datagram(place, &datagram, &(), now);
                place += 2;
            }
            for number in 0..400 {
                symbols += 1;
                let (window, bytes) = (Window::newest(place - 1, 128).unwrap(), vec![3; 600]);
                let half = Half::BOTH[number % 2];
                let repair = Repair { window, half, seed: symbols as u16, symbol: &bytes };
                let before = recovery.credit.bucket().tokens();
                recovery.on_symbol(&Symbol::from(&Coded::new(&repair)), place, now);
                let earns = number == 0 && millisecond > 0;
                let earned = if earns { UNITS_PER_SECOND as f64 / 1000.0 } else { 0.0 };
                let work = before + earned - recovery.credit.bucket().tokens();
                looked_at += u32::from(work > 0.5);
                spent += work;
            }
        }
        let most = BURST_UNITS + UNITS_PER_SECOND * MILLISECONDS / 1000;
        let one = DecoderLimits::DEFAULT.most_work();
        assert!((spent as u64) < most + one, "{spent} units, {most} are allowed");
        assert!(spent as u64 > most * 9 / 10, "{spent} units for {looked_at} symbols");
        assert!(looked_at < symbols, "all {symbols} symbols");
    }

    #[test]
    fn repairs_of_what_was_recovered_are_known() {
        let (now, repair) = (Timestamp::from_millis(1000), &datagrams()[LOST]);
        let (mut recovery, symbols) = recovery(now);
        assert_eq!(recovered(&mut recovery, &symbols, now), [false]);
        assert!(recovery.on_datagram(2, repair, &(), now));
        assert!(recovery.on_datagram(2, repair, &(), now), "another copy of the repair");
        assert!(
            !recovery.on_datagram(4, repair, &(), now),
            "the server has sent the same once more"
        );
    }

    #[test]
    fn the_repair_of_what_was_recovered_long_ago_is_known() {
        let now = Timestamp::from_millis(1000);
        let (mut recovery, symbols) = recovery(now);
        assert_eq!(recovered(&mut recovery, &symbols, now), [false]);
        for place in 4..1000 {
            recovery.on_datagram(place, &[7; 1200], &(), now);
        }
        let repair = &datagrams()[LOST];
        assert!(recovery.on_datagram(LOST as u64, repair, &(), now));
        assert!(
            !recovery.on_datagram(LOST as u64, repair, &(), now + LONGEST_DISTANCE * 2),
            "a second later"
        );
    }

    #[test]
    fn a_plain_repair_is_known_whichever_comes_first() {
        let (now, repair) = (Timestamp::from_millis(1000), &datagrams()[LOST]);
        let (mut first, symbols) = recovery(now);
        assert_eq!(recovered(&mut first, &symbols, now), [false]);
        assert!(first.on_plain(repair, now) && first.on_plain(repair, now), "another copy");
        let (mut second, symbols) = recovery(now);
        assert!(!second.on_plain(repair, now));
        assert_eq!(recovered(&mut second, &symbols, now), [true]);
        let (mut later, symbols) = recovery(now);
        assert_eq!(recovered(&mut later, &symbols, now), [false]);
        assert!(
            !later.on_plain(repair, now + LONGEST_DISTANCE * 2),
            "the server sends the same again"
        );
    }
}
