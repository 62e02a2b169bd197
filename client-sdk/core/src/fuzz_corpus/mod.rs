//! The corpus of the fuzz target `ack_frame` through the same entry function, so that every test
//! run covers it.
#![allow(clippy::expect_used, clippy::panic)]

mod ack_frame;

use packrat_fuzz_entry::corpus;

#[test]
fn ack_frames() {
    let expected = ["empty", "ack", "ack_with_ecn", "every_frame", "stream_to_the_end", "written"];
    corpus::run("ack_frame", &expected, ack_frame::ack_frame);
}
