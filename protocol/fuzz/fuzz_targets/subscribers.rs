//! Arbitrary messages of subscribers to a stream; see the entry function.
#![no_main]

#[path = "../entry/subscribers.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::subscribers(data));
