//! The fuzz target's corpus through the same entry function, so that every test run covers it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test: clippy only excuses its #[test] functions

#[path = "../../../protocol/fuzz/entry/gateway.rs"]
mod gateway;

use std::path::Path;

#[test]
fn every_input_of_the_corpus_is_survived() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../protocol/fuzz/corpus/gateway");
    let mut inputs = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        gateway::gateway(&std::fs::read(file.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 3, "only {inputs} inputs in {}", folder.display());
}
