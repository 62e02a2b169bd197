//! Arbitrary calls of libpackrat, in any order; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat::c_interface(data));
