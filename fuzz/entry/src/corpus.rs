//! The committed corpora, for the stable test suites: every input goes through the entry function
//! of its fuzz target. The fuzzer's own inputs also do, if [`FOUND`] names their folder.

use std::path::Path;

/// The environment variable with an absolute path to more inputs, in a folder for each target: such
/// as `.packrat/fuzz/fuzz`, or `fuzz/artifacts`.
const FOUND: &str = "PACKRAT_FUZZ_INPUTS";

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
    if let Some(found) = std::env::var_os(FOUND) {
        for file in std::fs::read_dir(Path::new(&found).join(target)).into_iter().flatten() {
            let path = file.expect("readable").path();
            eprintln!("{}", path.display());
            run(&std::fs::read(&path).expect("readable"));
        }
    }
    for expected in expected {
        assert!(
            names.iter().any(|name| name == expected),
            "{target}/{expected} is not in the corpus"
        );
    }
}
