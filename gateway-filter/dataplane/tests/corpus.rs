//! The fuzz target's corpus through the same entry function, so that every test run covers it.

use packrat_fuzz_entry::corpus;

#[test]
fn configurations() {
    let expected = ["empty", "smallest", "everything", "numbers_as_texts", "budget_not_a_number"];
    corpus::run("configuration", &expected, packrat_fuzz_entry::configuration);
}
