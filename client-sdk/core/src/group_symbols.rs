//! The gateway's symbols to all subscribers of a stream (docs/PROTOCOL.md, "Symbols for a group"):
//! the datagrams that they name, and the recovery of missing ones.
//!
//! ```text
//!   datagram --> unplaced --(a symbol names it)--> the decoder, at its place --> recovered
//!                              |                        ^                     once its name is right
//!                              +--> missing: named, and not here ---(arrives)-+
//! ```
//!
//! A datagram is assigned to a place only if its identifier is the one that the gateway has named,
//! so that forged datagrams cannot enter the decoder. A recovered datagram is passed on only if it
//! has the identifier of its place.

use core::time::Duration;
use std::collections::VecDeque;

use packrat_code::{Decoder, DecoderLimits};
use packrat_eack::Identifier;
use packrat_wire::estimate::Timestamp;
use packrat_wire::group::{self, GroupCoded};
use packrat_wire::message::Message;
use packrat_wire::seal::Opener;
use packrat_wire::{SessionId, seal};

/// Places that are remembered: twice the widest window.
const REMEMBERED_PLACES: usize = 512;
/// Most datagrams that wait for a place: as many as a window has.
const MAXIMUM_UNPLACED_DATAGRAMS: usize = 256;
/// Most bytes of the datagrams that wait for a place.
const MAXIMUM_UNPLACED_BYTES: usize = 384 * 1024;
/// Limits of the decoder.
const DECODER_LIMITS: DecoderLimits =
    DecoderLimits { places: REMEMBERED_PLACES, bytes: 768 * 1024, unknowns: 64 };
/// Time without a symbol after which no recovery is expected of symbols.
const ACTIVE_FOR: Duration = Duration::from_millis(500);
/// Shortest interval between reports of recovered datagrams to the gateway.
const TELL_INTERVAL: Duration = Duration::from_millis(500);
/// Most recovered datagrams that wait to be taken.
const MAXIMUM_RECOVERED_DATAGRAMS: usize = REMEMBERED_PLACES;

/// The symbols of one subscription.
#[derive(Debug)]
pub(crate) struct GroupSymbols {
    session: SessionId,
    opener: Opener,
    /// `None` before the first symbol.
    decoder: Option<Decoder>,
    unplaced: VecDeque<(Identifier, Vec<u8>)>,
    unplaced_bytes: usize,
    /// Identifiers of the places from `base` on, as far as a symbol has named them.
    names: VecDeque<Option<Identifier>>,
    base: u64,
    /// Named datagrams that have not arrived.
    missing: Vec<(u64, Identifier)>,
    recovered: VecDeque<(Identifier, Vec<u8>)>,
    /// The datagram taken last: it comes back as an arrived one.
    taken: Option<Identifier>,
    /// Time of the last symbol.
    last: Option<Timestamp>,
    /// Datagrams recovered, how many of them the gateway knows, and since when.
    total: u32,
    told: u32,
    told_at: Timestamp,
}

impl GroupSymbols {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self {
            session: group::session(&key),
            opener: group::opener(key),
            decoder: None,
            unplaced: VecDeque::new(),
            unplaced_bytes: 0,
            names: VecDeque::new(),
            base: 0,
            missing: Vec::new(),
            recovered: VecDeque::new(),
            taken: None,
            last: None,
            total: 0,
            told: 0,
            told_at: Timestamp::ZERO,
        }
    }

    /// True if symbols come.
    pub(crate) fn is_active(&self, now: Timestamp) -> bool {
        self.last.is_some_and(|last| now.saturating_since(last) < ACTIVE_FOR)
    }

    /// The number of recovered datagrams, if a report to the gateway is due.
    pub(crate) fn untold(&mut self, now: Timestamp) -> Option<u32> {
        if self.told == self.total || now < self.told_at + TELL_INTERVAL {
            return None;
        }
        (self.told, self.told_at) = (self.total, now);
        Some(self.total)
    }

    /// True if this sealed datagram belongs to the group, not to a session of its own.
    pub(crate) fn is_for_group(&self, datagram: &[u8]) -> bool {
        seal::session_of(datagram) == Some(self.session)
    }

    /// A datagram of the stream has arrived for the first time, or may have.
    pub(crate) fn on_datagram(
        &mut self,
        identifier: Identifier,
        datagram: &[u8],
        identify: impl Fn(&[u8]) -> Identifier,
    ) {
        if self.taken.take() == Some(identifier) {
            return;
        }
        let at = self.missing.iter().position(|(_, missing)| *missing == identifier);
        if let (Some(at), Some(decoder)) = (at, &mut self.decoder) {
            let (place, _) = self.missing.swap_remove(at);
            decoder.on_datagram(place, datagram);
            self.collect(identify);
            return;
        }
        self.unplaced_bytes += datagram.len();
        self.unplaced.push_back((identifier, datagram.to_vec()));
        while self.unplaced.len() > MAXIMUM_UNPLACED_DATAGRAMS
            || self.unplaced_bytes > MAXIMUM_UNPLACED_BYTES
        {
            self.remove_unplaced(0);
        }
    }

    fn remove_unplaced(&mut self, at: usize) -> Option<Vec<u8>> {
        let (_, datagram) = self.unplaced.remove(at)?;
        self.unplaced_bytes -= datagram.len();
        Some(datagram)
    }

    /// Processes a sealed datagram of the group. `plaintext`: a buffer. Returns false if it is not
    /// a valid symbol: a subscriber has the key as well, but can only forge symbols with it.
    pub(crate) fn on_sealed(
        &mut self,
        datagram: &[u8],
        plaintext: &mut Vec<u8>,
        identify: impl Fn(&[u8]) -> Identifier,
        now: Timestamp,
    ) -> bool {
        if self.opener.open(datagram, plaintext).is_err() {
            return false;
        }
        let Ok(Message::GroupCoded(coded)) = Message::decode(plaintext) else { return false };
        self.last = Some(now);
        self.on_symbol(&coded, identify);
        true
    }

    fn on_symbol(&mut self, coded: &GroupCoded<'_>, identify: impl Fn(&[u8]) -> Identifier) {
        let end = self.base + self.names.len() as u64;
        let Some(repair) = coded.repair(end) else { return };
        let window = repair.window;
        if self.decoder.is_none() || window.first() > end + REMEMBERED_PLACES as u64 {
            // This is the first symbol, or it is so far ahead that the earlier ones are useless.
            self.names.clear();
            self.missing.clear();
            self.base = window.first();
            self.decoder = Some(Decoder::from_place(DECODER_LIMITS, window.first()));
        }
        for (place, identifier) in coded.names(window) {
            self.name(place, identifier);
        }
        if let Some(decoder) = &mut self.decoder {
            decoder.on_repair(&repair);
        }
        self.collect(identify);
    }

    /// The gateway has named the datagram of a place.
    fn name(&mut self, place: u64, identifier: Identifier) {
        let Some(offset) = place.checked_sub(self.base) else { return };
        // At most as many more as a window is behind the end, and that has places.
        while (self.names.len() as u64) <= offset {
            self.names.push_back(None);
        }
        if let Some(name @ None) = self.names.get_mut(offset as usize) {
            *name = Some(identifier);
            let here = self.unplaced.iter().position(|(unplaced, _)| *unplaced == identifier);
            match (here.and_then(|at| self.remove_unplaced(at)), &mut self.decoder) {
                (Some(datagram), Some(decoder)) => {
                    decoder.on_datagram(place, &datagram);
                }
                _ => self.missing.push((place, identifier)),
            }
        }
        if self.names.len() > REMEMBERED_PLACES {
            let more = self.names.len() - REMEMBERED_PLACES;
            self.names.drain(..more);
            self.base += more as u64;
            self.missing.retain(|(place, _)| *place >= self.base);
        }
    }

    /// Collects the datagrams that the decoder has recovered.
    fn collect(&mut self, identify: impl Fn(&[u8]) -> Identifier) {
        let Some(decoder) = &mut self.decoder else { return };
        while let Some((place, datagram)) = decoder.next_recovered() {
            let at = self.missing.iter().position(|(missing, _)| *missing == place);
            // The datagram has probably arrived, but no symbol has named it.
            let Some(at) = at else { continue };
            let (_, identifier) = self.missing.swap_remove(at);
            if identify(datagram) == identifier
                && self.recovered.len() < MAXIMUM_RECOVERED_DATAGRAMS
            {
                self.total = self.total.wrapping_add(1);
                self.recovered.push_back((identifier, datagram.to_vec()));
            }
        }
    }

    /// The next recovered datagram, to be passed in as an arrived one.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let (identifier, datagram) = self.recovered.pop_front()?;
        self.taken = Some(identifier);
        Some(datagram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packrat_code::{Encoder, Half, Repair, Window};
    use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};
    use packrat_wire::message::GoodbyeReason;
    use packrat_wire::seal::Sealer;

    const KEY: [u8; 32] = [7; 32];
    const NOW: Timestamp = Timestamp::from_millis(1000);

    fn identify(bytes: &[u8]) -> Identifier {
        IdentifierKey::new([1, 2, 3]).identify(IdentifierScheme::Payload, bytes)
    }

    fn packet(number: u64) -> Vec<u8> {
        let mut bytes = vec![number as u8; 200 + number as usize % 50];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    /// The gateway's end; places begin at 1,000,000.
    struct Gateway {
        sealer: Sealer,
        seed: u16,
    }

    const FIRST: u64 = 1_000_000;

    impl Gateway {
        fn new() -> Self {
            Self { sealer: group::sealer(KEY), seed: 1 }
        }

        fn seal(&mut self, message: &Message<'_>) -> Vec<u8> {
            let (mut plaintext, mut datagram) = (Vec::new(), Vec::new());
            message.encode(&mut plaintext);
            self.sealer.seal(&plaintext, &mut datagram).unwrap();
            datagram
        }

        /// A symbol over `count` packets up to `newest`, of which it names `named`.
        fn symbol(&mut self, newest: u64, count: u8, named: u64) -> Vec<u8> {
            self.seed += 1;
            let window = Window::newest(FIRST + newest, count).unwrap();
            let all: Vec<Vec<u8>> = (0..=newest).map(packet).collect();
            let bytes = |place: u64| Some((&all[(place - FIRST) as usize][..], &[][..]));
            let (mut symbol, mut buffer) = (Vec::new(), Vec::new());
            let half = Half::First;
            Encoder::new().encode(window, half, self.seed, bytes, &mut symbol).unwrap();
            let names = (newest + 1 - named..=newest).map(|number| identify(&packet(number)));
            let repair = Repair { window, half, seed: self.seed, symbol: &symbol };
            let message = Message::GroupCoded(GroupCoded::new(&repair, names, &mut buffer));
            self.seal(&message)
        }
    }

    fn arrive(group: &mut GroupSymbols, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let bytes = packet(number);
            group.on_datagram(identify(&bytes), &bytes, identify);
        }
    }

    fn sealed(group: &mut GroupSymbols, datagram: &[u8]) -> bool {
        group.is_for_group(datagram) && group.on_sealed(datagram, &mut Vec::new(), identify, NOW)
    }

    fn recovered(group: &mut GroupSymbols) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(bytes) = group.take() {
            let number = u64::from_be_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes, packet(number));
            group.on_datagram(identify(&bytes), &bytes, identify);
            numbers.push(number);
        }
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn what_is_named_and_missing_is_recovered_whatever_comes_first() {
        let (mut group, mut gateway) = (GroupSymbols::new(KEY), Gateway::new());
        arrive(&mut group, (0..16).filter(|number| ![3, 9].contains(number)));
        let symbols = [gateway.symbol(15, 16, 16), gateway.symbol(17, 18, 4)];
        assert!(sealed(&mut group, &symbols[0]) && recovered(&mut group).is_empty());
        // The second one, before the packets that it names besides.
        assert!(sealed(&mut group, &symbols[1]) && recovered(&mut group).is_empty());
        arrive(&mut group, [17, 16].into_iter());
        assert_eq!(recovered(&mut group), [3, 9]);
        assert!(!sealed(&mut group, &symbols[1]), "a replay");
        assert_eq!((group.untold(NOW), group.untold(NOW)), (Some(2), None));
        assert!(group.missing.is_empty() && group.unplaced.is_empty());
    }

    #[test]
    fn a_lost_symbol_costs_what_only_it_has_named_an_equation() {
        let (mut group, mut gateway) = (GroupSymbols::new(KEY), Gateway::new());
        arrive(&mut group, (0..30).filter(|number| *number != 25));
        let (named, unnamed) = (gateway.symbol(9, 10, 10), 10);
        assert!(sealed(&mut group, &named));
        // Places 10 to 19 are named by a symbol that is lost; they are here, at unknown places.
        for _ in 0..unnamed {
            let symbol = gateway.symbol(29, 30, 10);
            assert!(sealed(&mut group, &symbol) && recovered(&mut group).is_empty());
        }
        let mut more = 0;
        while recovered(&mut group).is_empty() {
            more += 1;
            assert!(more < 6);
            let symbol = gateway.symbol(29, 30, 10);
            assert!(sealed(&mut group, &symbol));
        }
    }

    #[test]
    fn who_has_the_key_can_send_symbols_and_nothing_else() {
        let (mut group, mut gateway) = (GroupSymbols::new(KEY), Gateway::new());
        let goodbye = gateway.seal(&Message::Goodbye { reason: GoodbyeReason::Done });
        assert!(group.is_for_group(&goodbye) && !sealed(&mut group, &goodbye));
        let mut other = Vec::new();
        group::sealer([8; 32]).seal(&[11, 0], &mut other).unwrap();
        assert!(!group.is_for_group(&other));
        assert!(!group.is_active(NOW));
    }

    #[test]
    fn false_symbols_recover_nothing_false_and_take_bounded_memory() {
        let (mut group, mut gateway) = (GroupSymbols::new(KEY), Gateway::new());
        let mut word = 1u64;
        let mut random = || {
            word = word
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            word >> 16
        };
        for round in 0..3000u64 {
            arrive(&mut group, (round..round + 1).filter(|number| number % 7 != 0));
            let far = if random() % 20 == 0 { random() % (1 << 40) } else { round };
            let window = Window::new(FIRST + far, (random() % 255 + 1) as u8, 1).unwrap();
            let symbol = vec![random() as u8; (random() % 732 + 1) as usize];
            let half = Half::BOTH[(random() % 2) as usize];
            let repair = Repair { window, half, seed: random() as u16, symbol: &symbol };
            let names: Vec<Identifier> = (0..random() % 97)
                .map(|at| match random() % 3 {
                    0 => Identifier::from_hash(random()),
                    _ => identify(&packet(round.saturating_sub(at))),
                })
                .collect();
            let mut buffer = Vec::new();
            let message = GroupCoded::new(&repair, names.into_iter(), &mut buffer);
            let datagram = gateway.seal(&Message::GroupCoded(message));
            assert!(sealed(&mut group, &datagram));
            // Each that comes out is the packet that has the name.
            recovered(&mut group);
            let decoder = group.decoder.as_ref().map_or(0, Decoder::len);
            assert!(decoder <= DECODER_LIMITS.bytes && group.names.len() <= REMEMBERED_PLACES);
            assert!(
                group.missing.len() <= REMEMBERED_PLACES
                    && group.unplaced.len() <= MAXIMUM_UNPLACED_DATAGRAMS
            );
        }
    }
}
