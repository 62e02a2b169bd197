//! The corpus of the fuzz target `client` through the same entry function, so that every test run
//! covers it.
#![allow(clippy::expect_used, clippy::panic)]

use packrat_fuzz_entry::corpus;

#[test]
fn clients() {
    let expected = [
        "empty",
        "hole_that_nobody_fills",
        "reset_again_and_again",
        "goodbye",
        "report_of_the_future",
    ];
    corpus::run("client", &expected, packrat_fuzz_entry::client);
}
