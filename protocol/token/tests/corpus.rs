//! The fuzz target's corpus through the same entry function, so that every test run covers it.

use packrat_fuzz_entry::corpus;

#[test]
fn tokens() {
    let expected = ["empty", "token", "token_of_the_previous_key", "token_bent", "text", "key"];
    corpus::run("tokens", &expected, packrat_fuzz_entry::tokens);
}
