//! The handshake's state machines over a path that does what the bytes say; see the entry function.
#![no_main]

#[path = "../entry/meeting.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::meeting(data));
