//! Coded repair: making symbols, and recovering lost datagrams. No sockets.

use std::hint::black_box;
use std::time::{Duration, Instant};

use packrat_code::rate::Schedule;
use packrat_code::{Decoder, DecoderLimits, Encoder, Half, PARITY_SEED, Repair, Window};
use packrat_instructions::callgrind;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::Fallible;
use crate::interrupt::Interrupt;
use crate::summary::{Summary, digits, digits_or_dash};

/// Bytes of a datagram.
const DATAGRAM_BYTES: usize = 1452;
/// Datagrams of a window.
const WINDOW_DATAGRAMS: u8 = 64;
/// Datagrams in the cache: about what a gateway caches for a flow at 20 Mbit/s and 200 ms.
const CACHED_DATAGRAMS: usize = 256;
/// Datagrams of a measurement.
const MEASURED_DATAGRAMS: usize = 40_000;
/// Datagrams of a measurement with instruction counts.
const COUNTED_DATAGRAMS: usize = 4_000;

/// A flow whose datagrams are coded at a rate.
struct Flow {
    cache: Vec<Vec<u8>>,
    schedule: Schedule,
    symbols_per_datagram: f64,
    encoder: Encoder,
    is_parity: bool,
    place: u64,
    seed: u16,
    symbol: Vec<u8>,
}

impl Flow {
    fn new(symbols_per_datagram: f64, is_parity: bool) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut cache = vec![vec![0; DATAGRAM_BYTES]; CACHED_DATAGRAMS];
        cache.iter_mut().for_each(|datagram| random.fill_bytes(datagram));
        Self {
            cache,
            schedule: Schedule::default(),
            symbols_per_datagram,
            encoder: Encoder::new(),
            is_parity,
            place: 0,
            seed: 0,
            symbol: Vec::with_capacity(1024),
        }
    }

    /// The next datagram has been forwarded: the half that is due, if one is.
    fn next(&mut self) -> Option<(u64, Window, Half)> {
        self.place += 1;
        self.schedule.on_datagram(self.symbols_per_datagram);
        let half = self.schedule.next_due()?;
        self.seed = if self.is_parity { PARITY_SEED } else { self.seed % u16::MAX + 1 };
        Some((self.place, Window::newest(self.place, WINDOW_DATAGRAMS)?, half))
    }

    /// Makes the symbol.
    fn encode(&mut self, window: Window, half: Half) {
        self.symbol.clear();
        measured_encode(&self.encoder, &self.cache, window, half, self.seed, &mut self.symbol);
    }
}

#[inline(never)]
fn measured_encode(
    encoder: &Encoder,
    cache: &[Vec<u8>],
    window: Window,
    half: Half,
    seed: u16,
    out: &mut Vec<u8>,
) {
    let cached = |place: u64| Some((&cache[place as usize % CACHED_DATAGRAMS][..], &[][..]));
    // Every datagram is cached and of full size.
    if let Err(error) = encoder.encode(window, half, seed, cached, out) {
        black_box(error);
    }
}

#[inline(never)]
fn measured_datagram(decoder: &mut Decoder, place: u64, datagram: &[u8]) {
    decoder.on_datagram(place, datagram);
}

#[inline(never)]
fn measured_repair(decoder: &mut Decoder, repair: &Repair<'_>) -> usize {
    decoder.on_repair(repair);
    let mut bytes = 0;
    while let Some((_, recovered)) = decoder.next_recovered() {
        bytes += recovered.len();
    }
    bytes
}

/// The workload whose instructions are counted: 1 symbol per 10 datagrams, a loss, and datagrams.
pub(crate) fn workload(loss: f64, datagrams: usize) {
    black_box(transfer(&mut Flow::new(0.1, false), loss, datagrams));
}

/// The times of a transfer.
#[derive(Default)]
struct Times {
    encoding: Vec<Duration>,
    decoding: Vec<Duration>,
    lost: u64,
    recovered: u64,
}

fn transfer(flow: &mut Flow, loss: f64, datagrams: usize) -> Times {
    let mut random = ChaCha8Rng::seed_from_u64(4);
    let mut is_lost = || f64::from(random.next_u32()) < loss * f64::from(u32::MAX);
    let mut decoder = Decoder::new(DecoderLimits::DEFAULT);
    let mut times = Times::default();
    for _ in 0..datagrams {
        let due = flow.next();
        let datagram = &flow.cache[flow.place as usize % CACHED_DATAGRAMS];
        if is_lost() {
            times.lost += 1;
        } else {
            let started = Instant::now();
            measured_datagram(&mut decoder, flow.place, datagram);
            times.decoding.push(started.elapsed());
        }
        let Some((_, window, half)) = due else { continue };
        let started = Instant::now();
        flow.encode(window, half);
        times.encoding.push(started.elapsed());
        if !is_lost() {
            let repair = Repair { window, half, seed: flow.seed, symbol: &flow.symbol };
            let started = Instant::now();
            black_box(measured_repair(&mut decoder, &repair));
            times.decoding.push(started.elapsed());
        }
    }
    times.recovered = decoder.totals().recovered;
    times
}

/// Nanoseconds per datagram. Calls in which another process had the processor are the slowest: one
/// in a hundred is left out, and counted as the mean of the others.
fn per_datagram(mut calls: Vec<Duration>, datagrams: usize) -> f64 {
    calls.sort_unstable();
    let kept = &calls[..calls.len() * 99 / 100];
    let mean = kept.iter().sum::<Duration>().as_nanos() as f64 / kept.len().max(1) as f64;
    mean * calls.len() as f64 / datagrams as f64
}

/// Instructions per datagram of encoder and decoder.
fn instructions(loss: f64) -> Fallible<[f64; 2]> {
    let text = [loss.to_string(), COUNTED_DATAGRAMS.to_string()];
    let arguments = ["workload", "code", &text[0], &text[1]];
    let count = |function| -> Fallible<f64> {
        Ok(callgrind::count(function, &arguments)? / COUNTED_DATAGRAMS as f64)
    };
    let encode = count("measured_encode")?;
    Ok([encode, count("measured_datagram")? + count("measured_repair")?])
}

/// Measures and reports.
pub(crate) fn run(summary: &mut Summary, counts: bool, interrupt: &Interrupt) -> Fallible {
    const CODE_SETTINGS: [(&str, f64, bool, f64); 5] = [
        ("random_10", 0.1, false, 0.0),
        ("random_10_loss4", 0.1, false, 0.04),
        ("random_21_loss10", 0.21, false, 0.1),
        ("random_2_loss05", 0.0165, false, 0.005),
        ("parity_10", 0.1, true, 0.0),
    ];
    let mut rows = Vec::new();
    for (name, symbols, is_parity, loss) in CODE_SETTINGS {
        interrupt.check()?;
        eprintln!("coded repair: {name}");
        let times = transfer(&mut Flow::new(symbols, is_parity), loss, MEASURED_DATAGRAMS);
        let encode_ns = per_datagram(times.encoding, MEASURED_DATAGRAMS);
        let decode_ns = per_datagram(times.decoding, MEASURED_DATAGRAMS);
        let recovered = times.recovered as f64 / times.lost.max(1) as f64;
        let is_counted = counts && symbols == 0.1 && !is_parity;
        let instructions = is_counted.then(|| instructions(loss)).transpose()?;
        let key = |what: &str| format!("code.{name}.{what}");
        summary.set(&key("encode_ns"), encode_ns);
        summary.set(&key("decode_ns"), decode_ns);
        if let Some([encode, decode]) = instructions {
            summary.set(&key("encode_instructions"), encode);
            summary.set(&key("decode_instructions"), decode);
        }
        rows.push(vec![
            if is_parity { "all 1 (parity)" } else { "random" }.to_owned(),
            symbols.to_string(),
            format!("{} %", loss * 100.0),
            digits(encode_ns),
            digits_or_dash(instructions.map(|[encode, _]| encode)),
            digits(decode_ns),
            digits_or_dash(instructions.map(|[_, decode]| decode)),
            if loss > 0.0 { format!("{:.1} %", 100.0 * recovered) } else { "–".to_owned() },
        ]);
    }
    let header = [
        "coefficients",
        "symbols per datagram",
        "loss",
        "encoder, ns per datagram",
        "encoder, instructions",
        "decoder, ns per datagram",
        "decoder, instructions",
        "losses recovered",
    ];
    summary.table("Coded repair: datagrams of 1452 bytes, windows of 64", &header, &rows);
    Ok(())
}
