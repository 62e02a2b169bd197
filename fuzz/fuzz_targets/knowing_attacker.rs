#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| packrat_fuzz_entry::knowing_attacker(data));
