//! The fuzz targets' corpora through the same entry functions, so that every test run covers them.
#![allow(clippy::expect_used, clippy::panic)]

mod acknowledgements;
mod packet_numbers;

use packrat_fuzz_entry::corpus;

#[test]
fn packet_numbers() {
    let expected = [
        "empty",
        "numbers_of_all_lengths",
        "forged_long_headers",
        "identifier_changes",
        "next_to_the_highest",
    ];
    corpus::run("packet_numbers", &expected, packet_numbers::packet_numbers);
}

#[test]
fn acknowledgements() {
    let expected = ["empty", "completed", "no_room", "not_understood", "ranges_that_touch"];
    corpus::run("acknowledgements", &expected, acknowledgements::acknowledgements);
}
