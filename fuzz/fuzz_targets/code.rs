//! Arbitrary events at the decoder of coded repair; see the entry function for the format.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::code(data));
