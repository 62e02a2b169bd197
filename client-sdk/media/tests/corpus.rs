//! The corpus of the fuzz target `live_packets` through the same entry function, so that every test run covers it.
#![allow(clippy::expect_used, clippy::panic)]

#[path = "../../../protocol/fuzz/entry/corpus.rs"]
mod corpus;
#[path = "../../../protocol/fuzz/entry/live_packets.rs"]
mod live_packets;
#[path = "../../../protocol/fuzz/entry/take.rs"]
mod take;

#[test]
fn live_packets() {
    let expected = ["empty", "lost_and_asked_for", "numbers_wrap", "forged_headers", "bent"];
    corpus::run("live_packets", &expected, live_packets::live_packets);
}
