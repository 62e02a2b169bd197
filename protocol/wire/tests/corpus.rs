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
fn wire() {
    let expected = ["runt", "discover_of_another_version", "init_unpadded", "eack_prefix_too_short"];
    run_corpus("wire", &expected, entry::wire);
}

#[test]
fn handshake() {
    let expected = ["noise_first_message", "noise_second_message", "noise_second_message_bent", "empty"];
    run_corpus("handshake", &expected, entry::handshake);
}
