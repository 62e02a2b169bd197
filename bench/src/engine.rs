//! The engine per stage: recording a datagram, decoding an eACK and repairing from it. No sockets.
//!
//! The setting of Packrat26, section 7.3.4: datagrams of a full packet, 4 % loss, an eACK of the
//! real client for every sixteenth datagram (16.3 there).

use std::time::Duration;

use packrat_instructions::callgrind;
use packrat_instructions::scene::{PER_EACK, Scene, gateway};

use crate::Fallible;
use crate::interrupt::Interrupt;
use crate::machine;
use crate::summary::{Summary, digits, digits_or_dash};

/// Processor, datagrams per eACK and bytes per datagram of Packrat26, section 7.3.4.
const PAPER_GIGAHERTZ: f64 = 2.4;
const PAPER_PER_EACK: f64 = 16.3;
const PAPER_BYTES: f64 = 1500.0;
/// Cycles measured in Packrat26, section 7.3.4.
const PAPER_DATA_CYCLES: f64 = 1002.0;
const PAPER_EACK_CYCLES: f64 = 27_716.0;

/// Nanoseconds, the median of all turns: per datagram, and per eACK.
fn time(bytes: usize, loss: f64, turns: usize) -> Fallible<(f64, f64)> {
    let mut scene = Scene::new(&gateway(1 << 20), bytes, loss, 1)?;
    let (mut forward, mut eack) = (Vec::new(), Vec::new());
    for turn in 0..turns {
        let (first, second) = scene.turn();
        if turn >= turns / 10 {
            forward.push(first);
            eack.push(second);
        }
    }
    let mean_of_middle = |times: &mut Vec<Duration>| {
        // Turns in which another process had the processor are the slowest. Without them, the mean
        // is comparable to Packrat26's.
        times.sort_unstable();
        let kept = &times[..times.len() * 95 / 100];
        kept.iter().sum::<Duration>().as_nanos() as f64 / kept.len() as f64
    };
    Ok((mean_of_middle(&mut forward) / PER_EACK as f64, mean_of_middle(&mut eack)))
}

/// Measures and reports.
pub(crate) fn run(summary: &mut Summary, counts: bool, interrupt: &Interrupt) -> Fallible {
    const MEASURED_TURNS: usize = 8000;
    const COUNTED_TURNS: usize = 2000;
    let gigahertz = machine::gigahertz();
    let mut rows = Vec::new();
    for (bytes, loss) in
        [(60, 0.0), (300, 0.0), (1200, 0.0), (1452, 0.0), (1452, 0.04), (1452, 0.10)]
    {
        interrupt.check()?;
        let percent = (loss * 100.0) as u32;
        eprintln!("engine: {bytes} bytes, {percent} % loss");
        let (data_ns, eack_ns) = time(bytes, loss, MEASURED_TURNS)?;
        let text = [bytes.to_string(), loss.to_string(), COUNTED_TURNS.to_string()];
        let arguments = ["workload", "engine", &text[0], &text[1], &text[2]];
        let (mut data, mut eack) = (None, None);
        if counts {
            data = Some(
                callgrind::count("measured_forward", &arguments)?
                    / (COUNTED_TURNS * PER_EACK) as f64,
            );
            eack = Some(callgrind::count("measured_eack", &arguments)? / COUNTED_TURNS as f64);
        }
        let key = |what: &str| format!("engine.b{bytes}.loss{percent}.{what}");
        summary.set(&key("data_ns"), data_ns);
        summary.set(&key("eack_ns"), eack_ns);
        if let Some((data, eack)) = data.zip(eack) {
            summary.set(&key("data_instructions"), data);
            summary.set(&key("eack_instructions"), eack);
        }
        rows.push(vec![
            bytes.to_string(),
            format!("{percent} %"),
            digits(data_ns),
            digits_or_dash(data),
            digits(eack_ns),
            digits_or_dash(eack),
            digits(data_ns + eack_ns / PER_EACK as f64),
        ]);
    }
    let header = [
        "bytes",
        "loss",
        "datagram, ns",
        "datagram, instructions",
        "eACK, ns",
        "eACK, instructions",
        "per datagram with its share of the eACK, ns",
    ];
    summary.table("Engine: one flow, an eACK for every sixteenth datagram", &header, &rows);
    paper(summary, gigahertz);
    Ok(())
}

/// Cache misses of one of many sessions, as callgrind simulates them.
pub(crate) fn misses(
    summary: &mut Summary,
    counts: bool,
    full: bool,
    interrupt: &Interrupt,
) -> Fallible {
    if !counts {
        return Ok(());
    }
    let file = tempfile::NamedTempFile::new()?;
    let mut rows = Vec::new();
    for sessions in [1, 100, if full { 10_000 } else { 2000 }] {
        interrupt.check()?;
        eprintln!("cache misses: {sessions} sessions");
        // The first round allocates the sessions' memory.
        let rounds = |rounds: usize| -> Fallible<[callgrind::Misses; 2]> {
            let text = [sessions.to_string(), (rounds * sessions).to_string()];
            let arguments = ["workload", "many", &text[0], &text[1]];
            let count = |function| callgrind::misses(function, file.path(), &arguments);
            Ok([count("measured_forward")?, count("measured_eack")?])
        };
        let (warm, most) = if sessions == 1 { (100, 1100) } else { (2, 4) };
        let (before, after) = (rounds(warm)?, rounds(most)?);
        let turns = ((most - warm) * sessions) as f64;
        let mut row = vec![sessions.to_string()];
        let steps = [("datagram", turns * PER_EACK as f64), ("eack", turns)];
        for ((what, times), (before, after)) in steps.into_iter().zip(before.into_iter().zip(after))
        {
            for (level, before, after) in
                [("d1", before.first, after.first), ("ll", before.last, after.last)]
            {
                let value = after.saturating_sub(before) as f64 / times;
                summary.set(&format!("misses.{sessions}.{what}.{level}"), value);
                row.push(digits(value));
            }
        }
        rows.push(row);
    }
    let header = [
        "sessions in turn",
        "datagram: misses, first level",
        "last level",
        "eACK: misses, first level",
        "last level",
    ];
    summary.table(
        "Engine: simulated cache misses, sixteen datagrams and an eACK in turn",
        &header,
        &rows,
    );
    Ok(())
}

/// Table and formula of Packrat26, section 7.3.4, from this run's measurements at 4 % loss.
fn paper(summary: &mut Summary, gigahertz: Option<f64>) {
    let measured = |key: &str| summary.get(&format!("engine.b1452.loss4.{key}"));
    let (Some(data), Some(eack), Some(gigahertz)) =
        (measured("data_ns"), measured("eack_ns"), gigahertz)
    else {
        summary.say("The processor's frequency is not known: no cycles.");
        return;
    };
    let (data, eack) = (data * gigahertz, eack * gigahertz);
    let formula = |data: f64, eack: f64| {
        PAPER_GIGAHERTZ * PAPER_PER_EACK / (eack + data * PAPER_PER_EACK) * PAPER_BYTES * 8.0
    };
    let (ours, papers) = (formula(data, eack), formula(PAPER_DATA_CYCLES, PAPER_EACK_CYCLES));
    summary.set("engine.data_cycles", data);
    summary.set("engine.eack_cycles", eack);
    summary.set("engine.gbps_per_core", ours);
    let rows = [
        ("datagram, cycles", PAPER_DATA_CYCLES / data, data, PAPER_DATA_CYCLES),
        ("eACK, cycles", PAPER_EACK_CYCLES / eack, eack, PAPER_EACK_CYCLES),
        (
            "Gbit/s per core, the paper's formula (2.4 GHz, 16.3 datagrams of 1500 bytes per eACK)",
            ours / papers,
            ours,
            papers,
        ),
    ];
    let rows: Vec<_> = rows
        .iter()
        .map(|(what, ratio, ours, papers)| {
            vec![(*what).to_owned(), digits(*ratio), digits(*ours), digits(*papers)]
        })
        .collect();
    let header = ["4 % loss, cycles of the nominal frequency", "better by", "here", "paper"];
    summary.table("Engine beside the paper's", &header, &rows);
}
