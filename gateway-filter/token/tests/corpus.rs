//! The corpus of the fuzz target `token_filter` through the same entry function, so that every test
//! run covers it.

mod token_filter;

use packrat_fuzz_entry::corpus;

#[test]
fn token_filters() {
    let expected = [
        "empty",
        "plain",
        "everything",
        "too_often",
        "three_keys",
        "deep",
        "requests_of_all_kinds",
    ];
    corpus::run("token_filter", &expected, token_filter::token_filter);
}
