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

/// Events at a decoder.
pub fn code(data: &[u8]) {
    let [places, kilobytes, unknowns, rest @ ..] = data else { return };
    let limits = DecoderLimits {
        places: usize::from(*places),
        bytes: usize::from(*kilobytes) << 10,
        unknowns: usize::from(*unknowns % 64),
    };
    let mut decoder = Decoder::new(limits);
    let (mut rest, mut newest, mut is_honest) = (rest, 0u64, true);
    while let Some((&kind, tail)) = rest.split_first() {
        rest = tail;
        let mut byte = || {
            let (&first, tail) = rest.split_first().unwrap_or((&0, &[]));
            rest = tail;
            first
        };
        let half = if kind & 8 == 0 { Half::First } else { Half::Second };
        match kind & 7 {
            // The next datagrams, of which one is lost if the byte requests it.
            0 | 1 => {
                let count = u64::from(byte() % 16);
                for place in newest..newest + count {
                    if kind & 1 == 0 || place % 3 != 0 {
                        decoder.on_datagram(place, &genuine(place));
                    }
                }
                newest += count;
            }
            // A genuine datagram again, or late.
            2 => {
                let place = newest.saturating_sub(u64::from(byte()));
                decoder.on_datagram(place, &genuine(place));
            }
            // A genuine symbol.
            3 | 4 => {
                let (back, count, step, seed) = (byte(), byte(), byte() % 4, u16::from(byte()));
                let first = newest.saturating_sub(u64::from(back));
                if let Some(window) = Window::new(first, count, step) {
                    let datagrams: Vec<_> = window
                        .coefficients(seed)
                        .map(|(place, _)| (place, genuine(place)))
                        .collect();
                    let mut symbol = Vec::new();
                    let mut next = datagrams.iter();
                    let made = Encoder::new().encode(
                        window,
                        half,
                        seed,
                        |place| {
                            next.next()
                                .filter(|(of, _)| *of == place)
                                .map(|(_, bytes)| bytes.split_at(bytes.len() / 2))
                        },
                        &mut symbol,
                    );
                    if made.is_ok() {
                        assert!(symbol.len() <= half.longest());
                        decoder.on_repair(&Repair { window, half, seed, symbol: &symbol });
                    }
                }
            }
            // A forged symbol.
            5 => {
                let (back, count, step, seed) = (byte(), byte(), byte(), u16::from(byte()));
                let first = newest.saturating_sub(u64::from(back));
                let symbol = take(&mut rest);
                if let Some(window) = Window::new(first, count, step) {
                    is_honest = false;
                    decoder.on_repair(&Repair { window, half, seed, symbol });
                }
            }
            // A forged symbol of any place, as a message has it.
            6 => {
                let first = u32::from_be_bytes([byte(), byte(), byte(), byte()]);
                let symbol = take(&mut rest);
                if let Some(window) = Window::received(first, kind, 1, newest) {
                    assert_eq!(window.first() as u32, first);
                    is_honest = false;
                    decoder.on_repair(&Repair { window, half, seed: 7, symbol });
                }
            }
            // A forged datagram; far ahead for one of the kinds.
            _ => {
                let place = newest
                    + u64::from(byte())
                    + if kind & 8 == 0 { 0 } else { u64::from(kind) << 40 };
                is_honest = false;
                decoder.on_datagram(place, take(&mut rest));
            }
        }
        assert!(decoder.len() <= limits.bytes, "{} bytes are held", decoder.len());
        assert!(decoder.open_equations() <= 2 * limits.unknowns, "too many equations");
        // Up to sixteen datagrams.
        assert!(decoder.take_work() <= 16 * limits.most_work(), "too much work");
        while let Some((place, recovered)) = decoder.next_recovered() {
            assert!(recovered.len() <= packrat_code::MAXIMUM_DATAGRAM_BYTES);
            assert!(
                !is_honest || recovered == genuine(place),
                "place {place} is not what was sent"
            );
        }
    }
    let totals = decoder.totals();
    assert!(!is_honest || totals.garbage + totals.contradictions == 0, "{totals:?}");
}
