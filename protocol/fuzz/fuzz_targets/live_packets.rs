//! Packets of live streams, and what resembles them; see the entry function.
#![no_main]

#[path = "../entry/live_packets.rs"]
mod entry;
#[path = "../entry/take.rs"]
mod take;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::live_packets(data));
