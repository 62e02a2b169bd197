//! Arbitrary bytes into the decoder; see the entry function for the format.
#![no_main]

#[path = "../../eack/tests/entry/mod.rs"]
#[allow(dead_code)]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::coded_symbols(data));
