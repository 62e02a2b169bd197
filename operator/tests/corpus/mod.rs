//! The fuzz targets' corpora through the same entry functions, so that every test run covers them.

mod admission_reviews;
mod annotation_texts;
mod discovery_requests;

use packrat_fuzz_entry::corpus;
use packrat_operator::{annotations, inject, names, overrides, problem, xds};

#[test]
fn discovery_requests() {
    let expected = [
        "empty",
        "subscribed",
        "clusters",
        "refused",
        "reconnected",
        "another_type",
        "answered_twice",
    ];
    corpus::run("discovery_requests", &expected, discovery_requests::discovery_requests);
}

#[test]
fn admission_reviews() {
    let expected = [
        "empty",
        "asks_for_the_sidecar",
        "has_the_sidecar",
        "not_annotated",
        "on_the_host_network",
        "containers_are_no_objects",
        "labels_are_a_text",
        "no_port_to_take_over",
        "ports_of_the_sidecar_are_taken",
    ];
    corpus::run("admission_reviews", &expected, admission_reviews::admission_reviews);
}

#[test]
fn annotations() {
    let expected = [
        "empty",
        "every_setting",
        "numbers_out_of_range",
        "sizes_that_wrap",
        "streams",
        "tcp",
        "ports_and_gateways",
        "of_a_namespace",
        "control_characters",
    ];
    corpus::run("annotations", &expected, annotation_texts::annotations);
}
