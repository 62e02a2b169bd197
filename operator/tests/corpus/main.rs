//! The corpus of the fuzz target `discovery_requests` through the same entry function, so that
//! every test run covers it.
#![allow(clippy::expect_used, clippy::panic)]

mod discovery_requests;

use packrat_fuzz_entry::corpus;
use packrat_operator::xds;

#[test]
fn discovery_requests() {
    let expected =
        ["empty", "subscribed", "refused", "reconnected", "another_type", "answered_twice"];
    corpus::run("discovery_requests", &expected, discovery_requests::discovery_requests);
}
