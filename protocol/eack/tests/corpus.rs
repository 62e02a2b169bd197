//! The fuzz targets' corpora through the same entry functions, so that every test run covers them.

use packrat_fuzz_entry::corpus;

#[test]
fn coded_symbols() {
    let expected = ["empty", "all_ones", "count_wraps", "goes_in_circles"];
    corpus::run("coded_symbols", &expected, packrat_fuzz_entry::coded_symbols);
}

#[test]
fn power_sums() {
    let expected = ["empty", "all_ones", "not_a_field_element", "repeated_identifier"];
    corpus::run("power_sums", &expected, packrat_fuzz_entry::power_sums);
}
