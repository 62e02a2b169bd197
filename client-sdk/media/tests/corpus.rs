//! The fuzz targets' corpora through the same entry functions, so that every test run covers them.

use packrat_fuzz_entry::corpus;

#[test]
fn live_packets() {
    let expected = ["empty", "lost_and_asked_for", "numbers_wrap", "forged_headers", "bent"];
    corpus::run("live_packets", &expected, packrat_fuzz_entry::live_packets);
}

#[test]
fn rtp_assist() {
    let expected = [
        "empty",
        "repaired_in_time",
        "hold_expires",
        "forged_numbers_of_the_stream",
        "another_source_jumps_in",
        "sender_begins_anew_above_a_hole",
        "closed_while_packets_wait",
        "numbers_of_the_stream_itself",
        "session_with_a_message_of_no_type",
    ];
    corpus::run("rtp_assist", &expected, packrat_fuzz_entry::rtp_assist);
}
