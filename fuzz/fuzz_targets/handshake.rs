//! Arbitrary bytes into the handshake and the seal; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::handshake(data));
