//! Arbitrary requests of an Envoy to the operator; see the entry function.
#![no_main]

#[path = "../entry/discovery_requests.rs"]
mod entry;
#[path = "../entry/take.rs"]
mod take;
#[path = "../entry/xds.rs"]
#[allow(dead_code)]
mod xds;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::discovery_requests(data));
