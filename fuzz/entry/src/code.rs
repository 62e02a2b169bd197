//! A decoder that gets genuine and arbitrary repair symbols and datagrams in any order.
//!
//! Input: three bytes of limits, then events: a byte of kind, and its arguments. A genuine flow has
//! the datagrams of [`genuine`]. As long as no forged data was fed, recovered datagrams must be
//! genuine. Always, memory and work are within the limits, and an encoded window decodes.

use packrat_code::{Decoder, DecoderLimits, Encoder, Half, Repair, Window};

use crate::take;

/// The datagram of a place, of up to 1,500 bytes.
fn genuine(place: u64) -> Vec<u8> {
    let hash = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let length = if hash & 1 << 60 == 0 { (hash >> 40) % 1501 } else { (hash >> 40) % 60 };
    (0..length).map(|at| (hash >> (at % 57)) as u8).collect()
}

/// A decoder, the events to come, and the flow so far.
struct Receiver<'a> {
    decoder: Decoder,
    rest: &'a [u8],
    newest: u64,
    /// No forged data was fed.
    is_honest: bool,
}

impl Receiver<'_> {
    fn byte(&mut self) -> u8 {
        let (&first, tail) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = tail;
        first
    }

    fn handle(&mut self, kind: u8) {
        let half = if kind & 8 == 0 { Half::First } else { Half::Second };
        match kind & 7 {
            // The next datagrams, of which one is lost if the byte requests it.
            0 | 1 => {
                let count = u64::from(self.byte() % 16);
                for place in self.newest..self.newest + count {
                    if kind & 1 == 0 || place % 3 != 0 {
                        self.decoder.on_datagram(place, &genuine(place));
                    }
                }
                self.newest += count;
            }
            // A genuine datagram again, or late.
            2 => {
                let place = self.newest.saturating_sub(u64::from(self.byte()));
                self.decoder.on_datagram(place, &genuine(place));
            }
            3 | 4 => self.take_genuine_symbol(half),
            // A forged symbol.
            5 => {
                let (back, count, step) = (self.byte(), self.byte(), self.byte());
                let seed = u16::from(self.byte());
                let symbol = take(&mut self.rest);
                let first = self.newest.saturating_sub(u64::from(back));
                if let Some(window) = Window::new(first, count, step) {
                    self.is_honest = false;
                    self.decoder.on_repair(&Repair { window, half, seed, symbol });
                }
            }
            // A forged symbol of any place, as a message has it.
            6 => {
                let first = u32::from_be_bytes([0; 4].map(|_: u8| self.byte()));
                let symbol = take(&mut self.rest);
                if let Some(window) = Window::received(first, kind, 1, self.newest) {
                    assert_eq!(window.first() as u32, first);
                    self.is_honest = false;
                    self.decoder.on_repair(&Repair { window, half, seed: 7, symbol });
                }
            }
            // A forged datagram; far ahead for one of the kinds.
            _ => {
                let far = if kind & 8 == 0 { 0 } else { u64::from(kind) << 40 };
                let place = self.newest + u64::from(self.byte()) + far;
                self.is_honest = false;
                self.decoder.on_datagram(place, take(&mut self.rest));
            }
        }
    }

    fn take_genuine_symbol(&mut self, half: Half) {
        let (back, count, step) = (self.byte(), self.byte(), self.byte() % 4);
        let seed = u16::from(self.byte());
        let first = self.newest.saturating_sub(u64::from(back));
        let Some(window) = Window::new(first, count, step) else { return };
        let datagrams: Vec<_> =
            window.coefficients(seed).map(|(place, _)| (place, genuine(place))).collect();
        let (mut symbol, mut next) = (Vec::new(), datagrams.iter());
        let cached = |place| {
            let (_, bytes) = next.next().filter(|(of, _)| *of == place)?;
            Some(bytes.split_at(bytes.len() / 2))
        };
        if Encoder::new().encode(window, half, seed, cached, &mut symbol).is_ok() {
            assert!(symbol.len() <= half.longest());
            self.decoder.on_repair(&Repair { window, half, seed, symbol: &symbol });
        }
    }
}

/// Events at a decoder.
pub fn code(data: &[u8]) {
    let [places, kilobytes, unknowns, rest @ ..] = data else { return };
    let limits = DecoderLimits {
        places: usize::from(*places),
        bytes: usize::from(*kilobytes) << 10,
        unknowns: usize::from(*unknowns % 64),
    };
    let decoder = Decoder::new(limits);
    let mut receiver = Receiver { decoder, rest, newest: 0, is_honest: true };
    while !receiver.rest.is_empty() {
        let kind = receiver.byte();
        receiver.handle(kind);
        let Receiver { decoder, is_honest, .. } = &mut receiver;
        assert!(decoder.len() <= limits.bytes, "{} bytes are held", decoder.len());
        assert!(decoder.open_equations() <= 2 * limits.unknowns, "too many equations");
        // Up to sixteen datagrams.
        assert!(decoder.take_work() <= 16 * limits.most_work(), "too much work");
        while let Some((place, recovered)) = decoder.next_recovered() {
            assert!(recovered.len() <= packrat_code::MAXIMUM_DATAGRAM_BYTES);
            let is_sent = !*is_honest || recovered == genuine(place);
            assert!(is_sent, "place {place} is not what was sent");
        }
    }
    let (totals, is_honest) = (receiver.decoder.totals(), receiver.is_honest);
    assert!(!is_honest || totals.garbage + totals.contradictions == 0, "{totals:?}");
}
