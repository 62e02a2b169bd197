//! The corpus of the fuzz target `live_packets` through the same entry function, so that every test
//! run covers it.
#![allow(clippy::expect_used, clippy::panic)]

use packrat_fuzz_entry::corpus;

#[test]
fn live_packets() {
    let expected = ["empty", "lost_and_asked_for", "numbers_wrap", "forged_headers", "bent"];
    corpus::run("live_packets", &expected, packrat_fuzz_entry::live_packets);
}
