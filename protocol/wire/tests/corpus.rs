//! The fuzz targets' corpora through the same entry functions, so that every test run covers them.
#![allow(clippy::expect_used)]

#[path = "../../fuzz/entry/corpus.rs"]
mod corpus;
mod entry;

#[test]
fn wire() {
    let expected = ["runt", "discover_of_another_version", "init_unpadded", "eack_prefix_too_short"];
    corpus::run("wire", &expected, entry::wire);
}

#[test]
fn handshake() {
    let expected = ["noise_first_message", "noise_second_message", "noise_second_message_bent", "empty"];
    corpus::run("handshake", &expected, entry::handshake);
}
