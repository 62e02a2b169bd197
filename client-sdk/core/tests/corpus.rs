//! The corpus of the fuzz target `client` through the same entry function, so that every test run
//! covers it.
#![allow(clippy::expect_used, clippy::panic)]

use packrat_fuzz_entry::corpus;

#[test]
fn clients() {
    let expected = [
        "empty",
        "hole_that_nobody_fills",
        "reset_again_and_again",
        "goodbye",
        "report_of_the_future",
    ];
    corpus::run("client", &expected, packrat_fuzz_entry::client);
}

#[test]
fn a_refused_session_is_followed_by_another_one() {
    let case = include_bytes!("../../../fuzz/corpus/client/refused_session");
    assert_eq!(packrat_fuzz_entry::client_sessions(case), 2);
    // Without the refusal it goes on.
    let others: Vec<u8> = case.iter().copied().filter(|step| *step != 0x0e).collect();
    assert_eq!(packrat_fuzz_entry::client_sessions(&others), 1);
}
