//! Arbitrary bytes as tokens, keys and claims; see the entry function.
#![no_main]

#[path = "../../token/tests/entry/mod.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::tokens(data));
