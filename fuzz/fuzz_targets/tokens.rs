//! Arbitrary bytes as tokens, keys and claims; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::tokens(data));
