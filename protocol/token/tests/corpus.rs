//! The fuzz target's corpus through the same entry function, so that every test run covers it.
#![allow(clippy::expect_used)]

#[path = "../../fuzz/entry/corpus.rs"]
mod corpus;
mod entry;

#[test]
fn tokens() {
    let expected = ["empty", "token", "token_of_the_previous_key", "token_bent", "text", "key"];
    corpus::run("tokens", &expected, entry::tokens);
}
