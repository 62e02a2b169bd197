//! Arbitrary responses to `packrat get`; see the entry function.
#![no_main]

#[path = "../../cli/src/http3/fuzz_corpus/get_response.rs"]
mod entry;
#[allow(dead_code)]
mod http3;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::get_response(data));
