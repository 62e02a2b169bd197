//! Arbitrary frames of a QUIC packet, and packet numbers that have arrived; see the entry function.
#![no_main]

#[path = "../../client-sdk/s2n-quic/src/acknowledgements.rs"]
#[allow(dead_code, unreachable_pub)]
mod acknowledgements;
#[path = "../../client-sdk/s2n-quic/src/fuzz_corpus/acknowledgements.rs"]
mod entry;
#[path = "../../client-sdk/s2n-quic/src/received.rs"]
#[allow(dead_code, unreachable_pub)]
mod received;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::acknowledgements(data));
