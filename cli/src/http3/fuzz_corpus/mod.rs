//! The corpus of the fuzz target `get_response` through the same entry function, so that every test
//! run covers it.

mod get_response;

use packrat_fuzz_entry::corpus;

#[test]
fn get_responses() {
    let expected = [
        "empty",
        "stopped_and_continued",
        "another_version_meanwhile",
        "another_version_and_if_range_unheeded",
        "whole_before_it_got_its_name",
        "content_length_wraps_behind_the_part",
        "range_of_other_bytes",
        "names_that_are_not_utf8",
    ];
    corpus::run("get_response", &expected, get_response::get_response);
}
