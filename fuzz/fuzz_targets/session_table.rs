//! Sessions that open, move, are claimed and leave; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_dataplane::session_table(data));
