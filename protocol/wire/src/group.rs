//! Symbols of coded repair that a gateway sends to all subscribers of a stream at once
//! (docs/PROTOCOL.md, "Symbols for a group"): one symbol repairs another loss at each of them.
//!
//! Datagrams to a group have no number in front, as receivers without Packrat receive them as well.
//! Therefore a symbol names the newest datagrams of its window by their identifiers: a receiver
//! learns the places of its datagrams, and which are missing.
//!
//! The datagrams look like sealed ones of a session of their own, whose key no client has
//! initially. The gateway params of each subscriber that has asked for the key contain it.

use packrat_code::{Half, Repair, Window};
use packrat_eack::Identifier;

use crate::SessionId;
use crate::cipher::Key;
use crate::codec::{DecodeError, Reader, Write};
use crate::handshake::derive;
use crate::seal::{MAXIMUM_PLAINTEXT_BYTES, Opener, Sealer};

/// Bytes of an identifier.
const NAME_BYTES: usize = 4;
/// Bytes in front of the names: message type, flags, first place, count, seed, number of names.
const HEADER_BYTES: usize = 10;
/// The longest symbol.
const LONGEST_SYMBOL: usize = packrat_code::MAXIMUM_SYMBOL;
/// Most datagrams that a symbol names.
pub const MAXIMUM_NAMES: usize = 96;

const FLAG_SECOND_HALF: u8 = 1;

const _: () =
    assert!(HEADER_BYTES + MAXIMUM_NAMES * NAME_BYTES + LONGEST_SYMBOL <= MAXIMUM_PLAINTEXT_BYTES);

/// A key for the symbols of a stream, from the fresh secret of a subscriber's session; it reveals
/// no other key of that session. A stream's own secret may be configured and live longer than the
/// count of sealed messages.
pub fn fresh_key(secret: &[u8; 32]) -> [u8; 32] {
    let mut key = [0; 32];
    let words = derive(secret, b"packrat/2 symbols key");
    for (bytes, word) in key.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    key
}

/// The session that the symbols of a stream with this key travel in.
pub fn session(key: &[u8; 32]) -> SessionId {
    let [word, ..] = derive(key, b"packrat/2 symbols");
    SessionId::new((word >> 32) as u32)
}

/// The gateway's end. There is one for each key: no counter is used twice.
pub fn sealer(key: [u8; 32]) -> Sealer {
    Sealer::new(session(&key), Key::new(key))
}

/// A subscriber's end.
pub fn opener(key: [u8; 32]) -> Opener {
    Opener::new(Key::new(key))
}

/// A repair symbol over the datagrams of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCoded<'a> {
    /// The half of the datagrams that it covers.
    pub half: Half,
    /// The lower 32 bits of the window's first place.
    pub first: u32,
    /// Number of places, all neighbours; not zero.
    pub count: u8,
    /// Gives the coefficients.
    pub seed: u16,
    /// As long as the longest half of the window; not empty.
    pub symbol: &'a [u8],
    /// Identifiers of the newest places of the window in order, four bytes each.
    names: &'a [u8],
}

impl<'a> GroupCoded<'a> {
    /// The message of a repair symbol; `names`: identifiers of its newest places in order, of which the
    /// newest [`MAXIMUM_NAMES`] fit, in a buffer of the caller's.
    pub fn new(
        repair: &Repair<'a>,
        names: impl DoubleEndedIterator<Item = Identifier>,
        buffer: &'a mut Vec<u8>,
    ) -> Self {
        let Repair { window, half, seed, symbol } = *repair;
        let most = MAXIMUM_NAMES.min(usize::from(window.count()));
        buffer.clear();
        names.for_each(|name| buffer.put_u32(name.get()));
        let names = &buffer[buffer.len().saturating_sub(most * NAME_BYTES)..];
        Self { half, first: window.first() as u32, count: window.count(), seed, symbol, names }
    }

    /// The repair symbol, at a receiver that expects places next to `expected`. `None` if the
    /// window would reach beyond the last place.
    pub fn repair(&self, expected: u64) -> Option<Repair<'a>> {
        let Self { half, first, count, seed, symbol, .. } = *self;
        let window = Window::received(first, count, 1, expected)?;
        Some(Repair { window, half, seed, symbol })
    }

    /// Places of the window that are named, with their identifiers. `window`: the one of
    /// [`Self::repair`].
    pub fn names(&self, window: Window) -> impl Iterator<Item = (u64, Identifier)> + 'a {
        let named = (self.names.len() / NAME_BYTES) as u64;
        let from = (window.last() + 1).saturating_sub(named);
        let words = self
            .names
            .chunks_exact(NAME_BYTES)
            .map(|name| name.iter().fold(0, |word: u32, byte| word << 8 | u32::from(*byte)));
        (from..).zip(words).filter_map(|(place, word)| Some((place, Identifier::new(word)?)))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(match self.half {
            Half::First => 0,
            Half::Second => FLAG_SECOND_HALF,
        });
        out.put_u32(self.first);
        out.put_u8(self.count);
        out.put_u16(self.seed);
        out.put_u8((self.names.len() / NAME_BYTES) as u8);
        out.extend_from_slice(self.names);
        out.extend_from_slice(self.symbol);
    }

    pub(crate) fn decode(mut reader: Reader<'a>) -> Result<Self, DecodeError> {
        let half = match reader.u8()? {
            0 => Half::First,
            FLAG_SECOND_HALF => Half::Second,
            _ => return Err(DecodeError::Field("flags")),
        };
        let (first, count, seed, named) =
            (reader.u32()?, reader.u8()?, reader.u16()?, reader.u8()?);
        if count == 0 {
            return Err(DecodeError::Field("window"));
        }
        if named > count || usize::from(named) > MAXIMUM_NAMES {
            return Err(DecodeError::Field("names"));
        }
        let (names, symbol) = (reader.bytes(usize::from(named) * NAME_BYTES)?, reader.rest());
        if symbol.is_empty() || symbol.len() > half.longest() {
            return Err(DecodeError::Field("symbol length"));
        }
        Ok(Self { half, first, count, seed, symbol, names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn symbols_round_trip_and_name_the_newest_places(
            second: bool, place in 0..1u64 << 40, ahead in -1000i64..1000, count in 1u8.., seed: u16,
            length in 1usize..=770, byte: u8, named in 0usize..300,
        ) {
            let half = if second { Half::Second } else { Half::First };
            let symbol = vec![byte; length.min(half.longest())];
            let window = Window::new(place, count, 1).unwrap();
            let repair = Repair { window, half, seed, symbol: &symbol };
            let all: Vec<Identifier> =
                (0..named).filter_map(|at| Identifier::new(at as u32 + 1)).collect();
            let (mut buffer, mut bytes) = (Vec::new(), Vec::new());
            let message = GroupCoded::new(&repair, all.iter().copied(), &mut buffer);
            Message::GroupCoded(message).encode(&mut bytes);
            prop_assert!(bytes.len() <= MAXIMUM_PLAINTEXT_BYTES);
            let Ok(Message::GroupCoded(seen)) = Message::decode(&bytes) else { panic!("no symbol") };
            prop_assert_eq!(seen, message);
            if let Some(expected) = place.checked_add_signed(ahead) {
                prop_assert_eq!(seen.repair(expected), Some(repair));
            }
            let newest = named.min(MAXIMUM_NAMES).min(usize::from(count));
            let names: Vec<_> = seen.names(window).collect();
            let expected: Vec<_> =
                all[named - newest..].iter().rev().zip((0..=window.last()).rev()).collect();
            prop_assert_eq!(names.len(), newest);
            for ((place, name), (wanted, at)) in names.into_iter().rev().zip(expected) {
                prop_assert_eq!((place, name), (at, *wanted));
            }
            for end in 0..bytes.len() - symbol.len() + 1 {
                prop_assert!(Message::decode(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_a_symbol_or_none(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), expected: u64) {
            bytes.insert(0, 11);
            if let Ok(Message::GroupCoded(coded)) = Message::decode(&bytes)
                && let Some(repair) = coded.repair(expected)
            {
                prop_assert!(coded.names(repair.window).count() <= MAXIMUM_NAMES);
            }
        }
    }

    #[test]
    fn what_is_sealed_for_the_group_is_opened_with_its_key_and_once() {
        let (mut sealer, mut opener, mut other) =
            (sealer([3; 32]), opener([3; 32]), opener([4; 32]));
        let (mut datagram, mut plaintext) = (Vec::new(), Vec::new());
        sealer.seal(&[11, 0], &mut datagram).unwrap();
        assert_eq!(crate::seal::session_of(&datagram), Some(session(&[3; 32])));
        assert!(other.open(&datagram, &mut plaintext).is_err());
        assert!(opener.open(&datagram, &mut plaintext).is_ok());
        assert_eq!(plaintext, [11, 0]);
        assert!(opener.open(&datagram, &mut plaintext).is_err(), "a replay");
    }
}
