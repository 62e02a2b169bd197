//! Packets of live streams, authentic and corrupted; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::live_packets(data));
