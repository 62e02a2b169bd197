//! Arbitrary requests of an Envoy to the operator; see the entry function.
#![no_main]

#[path = "../../operator/tests/corpus/discovery_requests.rs"]
mod entry;
#[path = "../../operator/src/message.rs"]
mod message;
#[allow(dead_code)]
mod xds;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::discovery_requests(data));
