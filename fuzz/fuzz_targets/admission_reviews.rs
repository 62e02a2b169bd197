//! Arbitrary AdmissionReviews; see the entry function.
#![no_main]

#[path = "../../operator/tests/corpus/admission_reviews.rs"]
mod entry;
#[path = "../../operator/src/envoy/mod.rs"]
#[allow(dead_code, unused_imports)]
mod envoy;
#[allow(dead_code)]
mod inject;
#[path = "../../operator/src/names.rs"]
#[allow(dead_code)]
mod names;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::admission_reviews(data));
