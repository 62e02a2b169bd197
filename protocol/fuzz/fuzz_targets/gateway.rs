//! Arbitrary steps of a client and of time into a gateway; see the entry function.
#![no_main]

#[path = "../entry/claims.rs"]
mod claims;
#[path = "../entry/gateway.rs"]
mod entry;
#[path = "../entry/take.rs"]
mod take;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::gateway(data));
