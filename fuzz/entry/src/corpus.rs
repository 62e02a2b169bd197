//! The committed corpora, for the stable test suites: every input goes through the entry function
//! of its fuzz target.

use std::path::Path;

/// Runs every input of a target. `expected`: names that must be among them, so that an empty
/// directory does not pass.
pub fn run(target: &str, expected: &[&str], run: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(target);
    let mut names = Vec::new();
    for file in std::fs::read_dir(&folder).expect("the corpus folder is there") {
        let file = file.expect("readable");
        run(&std::fs::read(file.path()).expect("readable"));
        names.push(file.file_name().into_string().expect("plain names"));
    }
    for expected in expected {
        assert!(
            names.iter().any(|name| name == expected),
            "{target}/{expected} is not in the corpus"
        );
    }
}
