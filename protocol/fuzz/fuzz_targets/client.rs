//! Whatever a gateway may say to a client; see the entry function.
#![no_main]

#[path = "../entry/client.rs"]
mod entry;
#[path = "../entry/take.rs"]
mod take;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::client(data));
