//! Arbitrary configurations of the token endpoint, and requests to it; see the entry function.
#![no_main]

#[path = "../../gateway-filter/token/tests/corpus/token_filter.rs"]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::token_filter(data));
