//! Arbitrary datagrams and messages between an RTP stack and its socket; see the entry function.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| packrat_fuzz_entry::rtp_assist(data));
