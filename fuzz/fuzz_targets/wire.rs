//! Arbitrary bytes into the protocol's parsers; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::wire(data));
