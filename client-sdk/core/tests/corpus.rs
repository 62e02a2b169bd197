//! The corpora of the fuzz targets `client` and `group_symbols` through the same entry functions, so
//! that every test run covers them.

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
    // Without the refusal the session continues.
    let others: Vec<u8> = case.iter().copied().filter(|step| *step != 0x0e).collect();
    assert_eq!(packrat_fuzz_entry::client_sessions(&others), 1);
}

#[test]
fn symbols_to_a_group() {
    let expected = ["one_lost", "again_and_bent", "forged_names", "places_come_around"];
    corpus::run("group_symbols", &expected, packrat_fuzz_entry::group_symbols);
}

#[test]
fn symbols_to_a_group_recover_what_is_missing() {
    let cases: [(&[u8], u64); 3] = [
        (include_bytes!("../../../fuzz/corpus/group_symbols/one_lost"), 1),
        (include_bytes!("../../../fuzz/corpus/group_symbols/three_lost_in_a_row"), 3),
        (include_bytes!("../../../fuzz/corpus/group_symbols/never_named"), 0),
    ];
    for (case, recovered) in cases {
        assert_eq!(packrat_fuzz_entry::recovered_by_group_symbols(case), recovered);
    }
}
