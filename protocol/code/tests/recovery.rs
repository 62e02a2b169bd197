//! Recovery from any pattern of losses, beside a plain elimination; and hostile messages.

use std::collections::BTreeMap;

use packrat_code::{
    Arrival, Decoder, DecoderLimits, EncodeError, Encoder, Half, PARITY_SEED, Repair, Use, Window,
};
use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const LIMITS: DecoderLimits = DecoderLimits { places: 256, bytes: 1 << 20, unknowns: 64 };

/// The datagram of a place: neighbours differ in length and in all bytes.
fn datagram(place: u64, longest: u64) -> Vec<u8> {
    let length = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..length % (longest + 1)).map(|at| (at * 31 + place * 57 + (at >> 5)) as u8).collect()
}

/// A symbol as a message holds it.
#[derive(Debug, Clone)]
struct Sent {
    window: Window,
    half: Half,
    seed: u16,
    symbol: Vec<u8>,
}

impl Sent {
    fn repair(&self) -> Repair<'_> {
        Repair { window: self.window, half: self.half, seed: self.seed, symbol: &self.symbol }
    }
}

/// Both halves of a window, as far as there is anything in them.
fn symbols(window: Window, seed: u16, datagrams: &[Vec<u8>]) -> Vec<Sent> {
    let cached = |place: u64| Some((&datagrams[place as usize][..], &[][..]));
    Half::BOTH
        .into_iter()
        .filter_map(|half| {
            let mut symbol = Vec::new();
            let made = Encoder::new().encode(window, half, seed, cached, &mut symbol);
            assert!(matches!(made, Ok(()) | Err(EncodeError::Empty)), "{made:?}");
            made.is_ok().then_some(Sent { window, half, seed, symbol })
        })
        .collect()
}

/// Takes the recovered datagrams out, and compares them.
fn take(decoder: &mut Decoder, datagrams: &[Vec<u8>]) -> Vec<u64> {
    let mut places = Vec::new();
    while let Some((place, recovered)) = decoder.next_recovered() {
        assert_eq!(recovered, datagrams[place as usize], "place {place}");
        places.push(place);
    }
    places
}

/// The share of windows of 64 datagrams with `losses` losses that `symbols_sent` symbols recover.
fn recovered_windows(losses: usize, symbols_sent: u16, windows: u16) -> f64 {
    let mut random = ChaCha8Rng::seed_from_u64(losses as u64);
    let datagrams: Vec<Vec<u8>> = (0..64).map(|place| datagram(place, 40)).collect();
    let mut recovered = 0;
    for round in 0..windows {
        let lost = rand::seq::index::sample(&mut random, 64, losses);
        let mut decoder = Decoder::new(LIMITS);
        for place in (0..64).filter(|place| !lost.iter().any(|lost| lost == *place)) {
            decoder.on_datagram(place as u64, &datagrams[place]);
        }
        for index in 0..symbols_sent {
            let seed = 1 + round * symbols_sent + index;
            let window = Window::new(0, 64, 1).unwrap();
            for sent in symbols(window, seed, &datagrams) {
                decoder.on_repair(&sent.repair());
            }
        }
        recovered += usize::from(take(&mut decoder, &datagrams).len() == losses);
    }
    recovered as f64 / f64::from(windows)
}

/// A random matrix over 255 numbers is singular once in 250 times.
#[test]
fn as_many_symbols_as_losses_recover_99_of_100_windows() {
    let shares = [1, 2, 5, 12].map(|losses| recovered_windows(losses, losses as u16, 400));
    assert!(shares.iter().all(|share| *share >= 0.985), "{shares:?}");
    assert!(shares.iter().sum::<f64>() / 4.0 >= 0.99, "{shares:?}");
}

#[test]
fn one_symbol_more_recovers_nearly_always() {
    let shares = [2, 6, 12].map(|losses| recovered_windows(losses, losses as u16 + 1, 200));
    assert!(shares.iter().all(|share| *share >= 0.998), "{shares:?}");
    assert_eq!(recovered_windows(4, 3, 100), 0.0, "fewer symbols than losses");
}

#[test]
fn interleaved_parities_recover_a_burst() {
    let datagrams: Vec<Vec<u8>> = (0..32).map(|place| datagram(place, 1500)).collect();
    let mut decoder = Decoder::new(LIMITS);
    for place in (0..32).filter(|place| !(9..13).contains(place)) {
        decoder.on_datagram(place, &datagrams[place as usize]);
    }
    let neighbours = symbols(Window::new(0, 32, 1).unwrap(), PARITY_SEED, &datagrams);
    for sent in &neighbours {
        decoder.on_repair(&sent.repair());
    }
    assert!(take(&mut decoder, &datagrams).is_empty(), "one parity of four losses");
    for first in 0..4 {
        for sent in symbols(Window::new(first, 8, 4).unwrap(), PARITY_SEED, &datagrams) {
            decoder.on_repair(&sent.repair());
        }
    }
    let mut places = take(&mut decoder, &datagrams);
    places.sort_unstable();
    assert_eq!(places, [9, 10, 11, 12]);
    assert_eq!(decoder.open_equations(), 0);
}

/// Events at the decoder, in the order of their arrival.
#[derive(Debug, Clone)]
enum Event {
    Datagram(u64),
    Repair(Sent),
}

/// A flow of datagrams with symbols of the newest `window`, on a path that loses and reorders.
fn flow(
    datagrams: &[Vec<u8>],
    window: u8,
    every: usize,
    lost: impl Fn(u64) -> bool,
    shuffle: usize,
    random: &mut ChaCha8Rng,
) -> Vec<Event> {
    let mut events = Vec::new();
    for place in 0..datagrams.len() as u64 {
        if !lost(place) {
            events.push(Event::Datagram(place));
        }
        if (place as usize).is_multiple_of(every) {
            let window = Window::newest(place, window).unwrap();
            let seed = random.random_range(1..=u16::MAX);
            events.extend(symbols(window, seed, datagrams).into_iter().map(Event::Repair));
        }
    }
    for part in events.chunks_mut(shuffle.max(1)) {
        part.shuffle(random);
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Losses, bursts, reordering, overlapping windows, late datagrams: all recovered datagrams are
    /// right, and all with enough symbols are recovered.
    #[test]
    fn a_flow_is_recovered_as_it_was(
        seed: u64, loss in 0.0..0.2, burst in 1usize..6, shuffle in 1usize..30, every in 2usize..6, window in 8u8..64,
        longest in prop_oneof![Just(30u64), Just(1500)], late in 0usize..5,
    ) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let datagrams: Vec<Vec<u8>> = (0..160).map(|place| datagram(place, longest)).collect();
        let mut lost = vec![false; datagrams.len()];
        for start in 0..datagrams.len() {
            if random.random_bool(loss / burst as f64) {
                lost.iter_mut().skip(start).take(burst).for_each(|lost| *lost = true);
            }
        }
        let mut events = flow(&datagrams, window, every, |place| lost[place as usize], shuffle, &mut random);
        for _ in 0..late {
            let place = random.random_range(0..datagrams.len() as u64);
            events.push(Event::Datagram(place));
        }
        let mut decoder = Decoder::new(LIMITS);
        let mut known = vec![0; datagrams.len()];
        for event in &events {
            match event {
                Event::Datagram(place) => {
                    let expected = if known[*place as usize] > 0 { Arrival::Duplicate } else { Arrival::New };
                    prop_assert_eq!(decoder.on_datagram(*place, &datagrams[*place as usize]), expected);
                    known[*place as usize] = 1;
                }
                Event::Repair(sent) => {
                    let made = decoder.on_repair(&sent.repair());
                    prop_assert!(matches!(made, Use::Innovative | Use::Redundant), "{:?}", made);
                }
            }
            prop_assert!(decoder.take_work() <= LIMITS.most_work());
            for place in take(&mut decoder, &datagrams) {
                prop_assert_eq!(known[place as usize], 0, "recovered, though known");
                known[place as usize] = 1;
            }
        }
        let totals = decoder.totals();
        prop_assert_eq!((totals.contradictions, totals.garbage), (0, 0));
        // The reference: the rank of all equations, by elimination over all places.
        let solvable = reference(&events, datagrams.len());
        for place in 0..datagrams.len() {
            prop_assert_eq!(known[place] == 1, solvable[place], "place {}", place);
        }
    }

    /// Arbitrary messages: the decoder never panics, and its memory and work stay within the
    /// limits.
    #[test]
    fn hostile_messages_are_borne(
        events in prop::collection::vec(
            (any::<bool>(), prop_oneof![0u64..80, any::<u64>()], any::<u8>(), 0u8..4, 0u16..5, 0usize..900, any::<u8>()), 0..150),
        places in 0usize..64, bytes in 0usize..20_000, unknowns in 0usize..10,
    ) {
        let limits = DecoderLimits { places, bytes, unknowns };
        let mut decoder = Decoder::new(limits);
        for (is_repair, place, count, step, seed, length, fill) in events {
            let content = vec![fill; length];
            if is_repair {
                let Some(window) = Window::new(place, count, step) else { continue };
                let half = if fill & 1 == 0 { Half::First } else { Half::Second };
                decoder.on_repair(&Repair { window, half, seed, symbol: &content });
            } else {
                decoder.on_datagram(place, &content);
            }
            prop_assert!(decoder.len() <= bytes, "{} bytes", decoder.len());
            prop_assert!(decoder.open_equations() <= 2 * unknowns);
            prop_assert!(decoder.take_work() <= limits.most_work());
            while let Some((_, recovered)) = decoder.next_recovered() {
                prop_assert!(recovered.len() <= packrat_code::MAXIMUM_DATAGRAM_BYTES);
            }
        }
    }
}

/// The places that are known at the end, by plain elimination without limits or windows.
fn reference(events: &[Event], places: usize) -> Vec<bool> {
    let mut known = vec![false; places];
    for event in events {
        if let Event::Datagram(place) = event {
            known[*place as usize] = true;
        }
    }
    let needs_second: Vec<bool> =
        (0..places).map(|place| datagram_needs_second(events, place as u64)).collect();
    let mut solved = [known.clone(), known];
    for half in Half::BOTH {
        if half == Half::Second {
            // The first half determines the length if there is no second one, which is then also
            // known.
            for place in 0..places {
                solved[1][place] |= solved[0][place] && !needs_second[place];
            }
        }
        let solved = &mut solved[half as usize];
        let mut rows: Vec<BTreeMap<u64, u8>> = Vec::new();
        for event in events {
            let Event::Repair(sent) = event else { continue };
            if sent.half == half {
                let unknown = |(place, _): &(u64, u8)| !solved[*place as usize];
                rows.push(sent.window.coefficients(sent.seed).filter(unknown).collect());
            }
        }
        let mut reduced: Vec<(u64, BTreeMap<u64, u8>)> = Vec::new();
        for mut row in rows {
            for (pivot, other) in &reduced {
                if let Some(factor) = row.get(pivot).copied() {
                    add(&mut row, factor, other);
                }
            }
            let Some((&pivot, &first)) = row.first_key_value() else { continue };
            let inverse = (1..=255).find(|candidate| multiply(*candidate, first) == 1).unwrap();
            row.values_mut().for_each(|value| *value = multiply(*value, inverse));
            for (_, other) in &mut reduced {
                if let Some(factor) = other.get(&pivot).copied() {
                    add(other, factor, &row);
                }
            }
            reduced.push((pivot, row));
        }
        for (pivot, row) in reduced {
            solved[pivot as usize] |= row.len() == 1;
        }
    }
    (0..places).map(|place| solved[0][place] && solved[1][place]).collect()
}

/// True if the second half of a place may hold something. The tests have either only short
/// datagrams, without symbols of second halves, or ones of all lengths.
fn datagram_needs_second(events: &[Event], place: u64) -> bool {
    let has_second =
        |event: &Event| matches!(event, Event::Repair(sent) if sent.half == Half::Second);
    events.iter().any(has_second) && datagram(place, 1500).len() > 768
}

fn add(row: &mut BTreeMap<u64, u8>, factor: u8, other: &BTreeMap<u64, u8>) {
    for (place, value) in other {
        *row.entry(*place).or_default() ^= multiply(factor, *value);
    }
    row.retain(|_, value| *value != 0);
}

fn multiply(left: u8, right: u8) -> u8 {
    let mut product = 0u16;
    for bit in 0..8 {
        if right >> bit & 1 == 1 {
            product ^= u16::from(left) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}
