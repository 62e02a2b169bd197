//! Arbitrary messages of subscribers to a stream; see the entry function.
#![no_main]

#[path = "../entry/claims.rs"]
mod claims;
#[path = "../entry/subscribers.rs"]
mod entry;
#[path = "../entry/take.rs"]
mod take;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::subscribers(data));
