//! The fuzz targets' corpora through the same entry functions, so that every test run covers them.

use packrat_fuzz_entry::corpus;
use proptest::prelude::*;

#[test]
fn a_gateway_and_a_client_that_says_anything() {
    let expected = ["rubbish_datagram", "goodbye", "sealed_forged", "one_lost"];
    corpus::run("gateway", &expected, packrat_fuzz_entry::gateway);
}

#[test]
fn a_client_and_a_gateway_over_a_hostile_path() {
    let expected = ["empty", "first_answer_lost", "everything_twice", "bent"];
    corpus::run("meeting", &expected, packrat_fuzz_entry::meeting);
}

#[test]
fn a_stream_and_subscribers_that_say_anything() {
    let expected =
        ["empty", "everything_lost", "rubbish", "strangers_subscribe", "goodbye", "newest_unknown"];
    corpus::run("subscribers", &expected, packrat_fuzz_entry::subscribers);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_the_path_does_client_and_gateway_come_together(steps in proptest::collection::vec(any::<u8>(), 0..300)) {
        packrat_fuzz_entry::meeting(&steps);
    }
}
