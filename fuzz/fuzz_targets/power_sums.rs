//! Arbitrary bytes into the decoder; see the entry function for the format.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::power_sums(data));
