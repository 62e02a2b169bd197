//! Symbols to all subscribers of a stream, genuine and forged, at one of them; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::group_symbols(data));
