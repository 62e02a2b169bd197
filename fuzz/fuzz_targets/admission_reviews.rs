//! Arbitrary AdmissionReviews; see the entry function.
#![no_main]

#[path = "../../operator/tests/corpus/admission_reviews.rs"]
mod entry;
#[allow(dead_code)]
mod inject;
#[allow(dead_code)]
mod workload;

libfuzzer_sys::fuzz_target!(|data: &[u8]| entry::admission_reviews(data));
