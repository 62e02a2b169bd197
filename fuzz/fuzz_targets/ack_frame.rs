//! Arbitrary frames of a QUIC packet; see the entry function.
#![no_main]

#[path = "../../client-sdk/core/src/ack_frame.rs"]
#[allow(dead_code, unreachable_pub)]
mod ack_frame;
#[path = "../../client-sdk/core/src/fuzz_corpus/ack_frame.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::ack_frame(data));
