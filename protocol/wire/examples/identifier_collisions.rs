//! Counts the collisions of identifiers in captures of real traffic.
//!
//! ```text
//! packrat demo --keep /tmp/kept
//! cargo run -p packrat-wire --example identifier_collisions /tmp/kept/wifi/packrat/datagrams.capture
//! ```
//!
//! A capture is a sequence of datagrams, each behind its length in four bytes, big end first. Of
//! `n` distinct datagrams, `n² / 2³³` pairs are expected to share 32 bits by chance. Packrat26
//! takes four bytes at offset 21 of the UDP payload (section 3): datagrams that are shorter have no
//! identifier there.

use std::collections::{HashMap, HashSet};
use std::error::Error;

use packrat_wire::codec::Reader;
use packrat_wire::identifier::{IdentifierKey, IdentifierScheme};

/// Offset of the identifiers of Packrat26, section 5.2.1.
const PAPER_OFFSET: usize = 21;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<_> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        return Err(
            "name at least one capture, such as packrat demo --keep FOLDER leaves in FOLDER/wifi/packrat".into()
        );
    }
    println!(
        "| capture | identifiers | distinct datagrams | without identifier | colliding pairs | expected by chance |"
    );
    println!("|---|---|---|---|---|---|");
    for path in paths {
        let bytes = std::fs::read(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let datagrams =
            distinct_datagrams(&bytes).map_err(|error| format!("{path} is no capture: {error}"))?;
        let key = IdentifierKey::new([
            0x243f_6a88_85a3_08d3,
            0x1319_8a2e_0370_7344,
            0xa409_3822_299f_31d0,
        ]);
        let trailer =
            |datagram: &[u8]| Some(key.identify(IdentifierScheme::Trailer, datagram).get());
        let payload =
            |datagram: &[u8]| Some(key.identify(IdentifierScheme::Payload, datagram).get());
        let paper = |datagram: &[u8]| {
            let bytes = datagram.get(PAPER_OFFSET..)?.first_chunk::<4>()?;
            Some(u32::from_be_bytes(*bytes))
        };
        report(&path, "end of the datagram", &datagrams, trailer);
        report(&path, "hash of the datagram", &datagrams, payload);
        report(&path, "offset 21 (paper)", &datagrams, paper);
    }
    Ok(())
}

fn distinct_datagrams(capture: &[u8]) -> Result<HashSet<&[u8]>, Box<dyn Error>> {
    let mut reader = Reader::new(capture);
    let mut datagrams = HashSet::new();
    while reader.finish().is_err() {
        let length = usize::try_from(reader.u32()?)?;
        datagrams.insert(reader.bytes(length)?);
    }
    Ok(datagrams)
}

fn report(
    path: &str,
    name: &str,
    datagrams: &HashSet<&[u8]>,
    identify: impl Fn(&[u8]) -> Option<u32>,
) {
    let mut count: HashMap<u32, u64> = HashMap::new();
    let mut without = 0u64;
    for datagram in datagrams {
        match identify(datagram) {
            Some(identifier) => *count.entry(identifier).or_default() += 1,
            None => without += 1,
        }
    }
    let colliding: u64 = count.values().map(|same| same * (same - 1) / 2).sum();
    let expected = (datagrams.len() as f64).powi(2) / f64::from(2).powi(33);
    println!("| {path} | {name} | {} | {without} | {colliding} | {expected:.3} |", datagrams.len());
}
