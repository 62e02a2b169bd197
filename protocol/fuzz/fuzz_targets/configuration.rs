//! Arbitrary bytes as the configuration of a route; see the entry function.
#![no_main]

#[path = "../entry/configuration.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::configuration(data));
