//! The fuzz targets' corpora through the same entry functions, so that every test run covers them.

use packrat_fuzz_entry::corpus;

#[test]
fn wire() {
    let expected = [
        "runt",
        "peer_mine",
        "peer_forged",
        "discover_of_another_version",
        "init_unpadded",
        "eack_prefix_too_short",
        "scone_cut_off",
    ];
    corpus::run("wire", &expected, packrat_fuzz_entry::wire);
}

#[test]
fn handshake() {
    let expected =
        ["noise_first_message", "noise_second_message", "noise_second_message_bent", "empty"];
    corpus::run("handshake", &expected, packrat_fuzz_entry::handshake);
}
