//! Arbitrary bytes at a gateway's pages; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_admin::admin_requests(data));
