//! QUIC headers, authentic and not; see the entry function.
#![no_main]

#[path = "../../client-sdk/s2n-quic/src/fuzz_corpus/packet_numbers.rs"]
mod entry;
#[path = "../../client-sdk/s2n-quic/src/header_protection.rs"]
#[allow(dead_code, unreachable_pub)]
mod header_protection;
#[path = "../../client-sdk/s2n-quic/src/packet_protection.rs"]
#[allow(dead_code, unreachable_pub)]
mod packet_protection;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::packet_numbers(data));
