//! The handshake's state machines over a path controlled by the bytes; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::meeting(data));
