//! Arbitrary bytes as the configuration of a route; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::configuration(data));
