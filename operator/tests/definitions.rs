//! What is committed for the chart is what the code says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail anywhere")]

use std::path::Path;

use packrat_operator::resource;

#[test]
fn the_charts_custom_resource_definition_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/packrat/crds/edgegateways.yaml");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = resource::definitions().unwrap();
    assert!(
        committed == expected,
        "{} is out of date; write it anew with: cargo run -p packrat-operator -- crds >charts/packrat/crds/edgegateways.yaml",
        path.display()
    );
}

#[test]
fn every_field_says_what_it_is() {
    fn check(path: &str, schema: &serde_json::Value) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            assert!(property["description"].is_string(), "{path} has no description");
            check(&path, property);
        }
    }
    let definition = serde_json::to_value(<resource::EdgeGateway as kube::CustomResourceExt>::crd()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert!(schema["properties"].as_object().unwrap().len() >= 10);
    check("spec", schema);
}

/// The operator is tested with `rules.yaml`; the chart gives it the same rules, neither fewer nor more.
#[test]
fn the_charts_rules_are_those_that_the_operator_is_tested_with() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = |file: &str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
        let of = |kind: &str| {
            let roles: Vec<_> = documents.iter().filter(|document| document["kind"] == kind).collect();
            assert_eq!(roles.len(), 1, "{kind} in {file}");
            roles[0]["rules"].clone()
        };
        [of("ClusterRole"), of("Role")]
    };
    assert_eq!(rules("../charts/renders/default.yaml"), rules("tests/rules.yaml"));
}
