//! Arbitrary steps of a client and of time into a gateway; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::gateway(data));
