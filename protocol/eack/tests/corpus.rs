//! The fuzz targets' corpora through the same entry functions, so that every test run covers them.
#![allow(clippy::expect_used)]

mod entry;

use std::path::Path;

fn run_corpus(target: &str, expected_files: &[&str], run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut names = Vec::new();
    for file in std::fs::read_dir(&folder).expect("the corpus folder is there") {
        let file = file.expect("readable");
        run(&std::fs::read(file.path()).expect("readable"));
        names.push(file.file_name().into_string().expect("plain names"));
    }
    for expected in expected_files {
        assert!(names.iter().any(|name| name == expected), "{target}/{expected} is not in the corpus");
    }
}

#[test]
fn coded_symbols() {
    run_corpus(
        "coded_symbols",
        &["empty", "all_ones", "count_wraps", "goes_in_circles"],
        entry::coded_symbols,
    );
}

#[test]
fn power_sums() {
    run_corpus(
        "power_sums",
        &["empty", "all_ones", "not_a_field_element", "repeated_identifier"],
        entry::power_sums,
    );
}
