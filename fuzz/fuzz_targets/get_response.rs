//! Arbitrary responses to `packrat get`; see the entry function.
#![no_main]

#[path = "../../cli/src/get/fuzz_corpus/get_response.rs"]
mod entry;
#[allow(dead_code)]
mod get;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::get_response(data));
