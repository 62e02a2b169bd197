//! Arbitrary messages of a gateway to a client; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::client(data));
