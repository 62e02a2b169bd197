//! Arbitrary annotations; see the entry function.
#![no_main]

#[path = "../../operator/src/annotations.rs"]
#[allow(dead_code)]
mod annotations;
#[path = "../../operator/tests/corpus/annotation_texts.rs"]
mod entry;
#[path = "../../operator/src/names.rs"]
#[allow(dead_code)]
mod names;
#[path = "../../operator/src/overrides.rs"]
#[allow(dead_code)]
mod overrides;
#[path = "../../operator/src/problem.rs"]
#[allow(dead_code)]
mod problem;
#[path = "../../operator/src/size.rs"]
#[allow(dead_code)]
mod size;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::annotations(data));
