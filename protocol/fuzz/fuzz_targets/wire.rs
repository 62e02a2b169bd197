//! Arbitrary bytes into the protocol's parsers; see the entry function.
#![no_main]
#![allow(clippy::expect_used)]

#[path = "../../wire/tests/entry/mod.rs"]
#[allow(dead_code)]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::wire(data));
