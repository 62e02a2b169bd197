//! Arbitrary schedules of datagrams at the s2n-quic shell; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_s2n_quic_fuzzed::client_shell(data));
