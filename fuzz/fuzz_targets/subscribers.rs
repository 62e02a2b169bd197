//! Arbitrary messages of subscribers to a stream; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::subscribers(data));
